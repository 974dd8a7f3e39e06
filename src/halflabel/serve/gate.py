"""What every request passes: token, limits of the body, metrics and the log."""

from __future__ import annotations

import asyncio
import base64
import hmac
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from halflabel.serve.metrics import Metrics
from halflabel.serve.refusals import Refusal

OPEN = ("/", "/health", "/label-studio/health", "/v2/health/live", "/v2/health/ready")  # without a token
CLOSED_BY_CLIENT = 499  # the status of a request whose client went away, as nginx logs it
PATH = 200  # characters of a path in the log
DISCARDED = 10  # times the limit of a body, until which a body that is too large is read

Log = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Limits:
    """What a server accepts."""

    request_texts: int = 32
    queue_texts: int = 1024
    body_bytes: int = 2_000_000
    body_seconds: float = 10.0  # until the whole body has arrived
    held_bytes: int = 64_000_000  # of all bodies whose requests are not answered yet
    explained_characters: int = 20_000  # of a text, of which many versions are predicted
    answer_seconds: float = 30.0  # until the model has predicted


class Gate:
    """ASGI middleware: refuses what has no token or is too large before parsing it; logs each request without texts."""

    def __init__(self, app: ASGIApp, *, token: str | None, limits: Limits, metrics: Metrics, log: Log) -> None:
        self.app = app
        self.token = None if token is None else token.encode()
        self.limits = limits
        self.metrics = metrics
        self.log = log
        self.held = 0  # bytes of bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status, body = time.perf_counter(), CLOSED_BY_CLIENT, bytearray()

        async def watched_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            self._check_token(scope)
            if await self._read(receive, body):
                await self.app(scope, _replay(bytes(body), receive), watched_send)
        except Refusal as refusal:
            await refusal.response(scope["path"])(scope, receive, watched_send)
        finally:
            self.held -= len(body)
            seconds = time.perf_counter() - started
            route = getattr(scope.get("route"), "path", "other")  # not the path: anyone can invent new ones
            self.metrics.count_request(route, status, seconds)
            self.log({"time": round(time.time(), 3), "method": scope["method"], "path": scope["path"][:PATH],
                      "status": status, "milliseconds": round(1000 * seconds, 1),
                      "texts": scope.get("state", {}).get("texts", 0)})

    def _check_token(self, scope: Scope) -> None:
        if self.token is None or scope["path"] in OPEN:
            return
        if not hmac.compare_digest(_given_token(dict(scope["headers"]).get(b"authorization", b"")), self.token):
            raise Refusal(401, "This server needs a token; send the header 'Authorization: Bearer TOKEN', or the token "
                               "as a password.", "Unauthorized", close=True)

    async def _read(self, receive: Receive, body: bytearray) -> bool:
        """Reads the body; False if the client went away.

        What is refused is read as well, up to a point: a client that still sends would not see the answer.
        """
        limits, size, refusal = self.limits, 0, None
        try:
            async with asyncio.timeout(limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return False
                    part = message.get("body", b"")
                    size += len(part)
                    if size > limits.body_bytes:
                        refusal = Refusal(413, f"The body has more than {limits.body_bytes:,} bytes; send fewer or "
                                               "shorter texts.", close=True)
                    elif self.held + len(part) > limits.held_bytes:
                        refusal = Refusal(429, "Too many large requests are in progress; try again later.",
                                          "Overloaded", close=True)
                    if refusal is None:
                        body += part
                        self.held += len(part)
                    if size > DISCARDED * limits.body_bytes or not message.get("more_body", False):
                        break
        except TimeoutError:
            refusal = refusal or Refusal(408, f"The body did not arrive within {limits.body_seconds:g} seconds; send "
                                              "it again.", close=True)
        if refusal is not None:
            raise refusal
        return True


def _given_token(header: bytes) -> bytes:
    """The token of an Authorization header: a bearer token, or the password of HTTP Basic authentication."""
    scheme, _, rest = header.partition(b" ")
    if scheme == b"Bearer":
        return rest
    try:
        return base64.b64decode(rest, validate=True).partition(b":")[2] if scheme == b"Basic" else b""
    except ValueError:
        return b""


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body that was read, then what follows it."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay
