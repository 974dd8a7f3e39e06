"""The server: what every request passes (token, limits of the body, metrics, the log); it runs until it is told to
stop, finishes what it has accepted, and gives up on slow clients.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import logging
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import h11
import uvicorn
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from halflabel.errors import SettingError
from halflabel.serve.batching import Prediction
from halflabel.serve.requests import Refusal

OPEN = ("/", "/health", "/label-studio/health", "/v2/health/live", "/v2/health/ready")  # without a token
CLOSED_BY_CLIENT = 499  # the status of a request whose client went away, as nginx logs it
PATH = 200  # characters of a path in the log
DISCARDED = 10  # times the limit of a body, until which a body that is too large is read

Log = Callable[[dict[str, Any]], None]

SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)

BACKLOG = 2048  # connections that wait to be accepted
STOP_SECONDS = 60  # that requests have to finish after a signal
HEADER_SECONDS = 10.0  # until the header of a request has arrived
READ_SECONDS = 30.0  # until a client has read its answer


@dataclass(frozen=True)
class Limits:
    """What a server accepts."""

    request_texts: int = 256
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


class Metrics:
    """Counts requests, batches and predicted labels of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter("halflabel_requests", "Requests by route and status.", ["route", "status"],
                                registry=self.registry)
        self.failures = Counter("halflabel_failures", "Requests that were refused or failed (status 400 and above).",
                                ["route"], registry=self.registry)
        self.seconds = Histogram("halflabel_request_seconds", "Time from a request to its response.", ["route"],
                                 buckets=SECONDS, registry=self.registry)
        self.queue = Gauge("halflabel_queue_texts", "Texts that wait for a batch.", registry=self.registry)
        self.batches = Histogram("halflabel_batch_texts", "Texts that were predicted together.", buckets=TEXTS,
                                 registry=self.registry)
        self.texts = Counter("halflabel_texts", "Texts that were answered.", registry=self.registry)
        self.abstentions = Counter("halflabel_abstentions", "Texts that got no label.", registry=self.registry)
        self.labels = Counter("halflabel_labels", "How often each label was assigned.", ["label"],
                              registry=self.registry)

    def count_request(self, route: str, status: int, seconds: float) -> None:
        self.requests.labels(route, str(status)).inc()
        self.seconds.labels(route).observe(seconds)
        if status >= 400:
            self.failures.labels(route).inc()

    def count_batch(self, prediction: Prediction) -> None:
        self.batches.observe(len(prediction.values))

    def count_answer(self, prediction: Prediction) -> None:
        self.texts.inc(len(prediction.values))
        self.abstentions.inc(len(prediction.values) - int(prediction.chosen.any(axis=1).sum()))
        for label, number in zip(prediction.model.labels, prediction.chosen.sum(axis=0).tolist(), strict=True):
            if number:
                self.labels.labels(label).inc(number)

    def text(self) -> bytes:
        return generate_latest(self.registry)


class Connection(H11Protocol):
    """A connection that is closed if its client does not finish a header, or does not read an answer."""

    header_timer: asyncio.TimerHandle | None = None
    read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # pause_writing is called as soon as the client reads too slowly
        self.handle_events()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_header_timer()
        self.resume_writing()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Starts the time for a header when a connection waits for one, and stops it when the header has arrived."""
        super().handle_events()
        if self.conn.their_state is not h11.IDLE or self.transport.is_closing():
            self._stop_header_timer()
        elif self.header_timer is None:
            self.header_timer = self.loop.call_later(HEADER_SECONDS, self._give_up_header)

    def pause_writing(self) -> None:
        super().pause_writing()
        self.read_timer = self.loop.call_later(READ_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.read_timer is not None:
            self.read_timer.cancel()
            self.read_timer = None

    def send_400_response(self, msg: str) -> None:
        """Answers what is not HTTP."""
        self._refuse(Refusal(400, "This is not a request in HTTP/1.1, or its header is too long.", close=True))

    def _give_up_header(self) -> None:
        if not self.transport.is_closing():
            self._refuse(Refusal(408, f"The header did not arrive within {HEADER_SECONDS:g} seconds; send it again.",
                                 close=True))

    def _refuse(self, refusal: Refusal) -> None:
        """Answers without a request, and closes the connection."""
        response = refusal.response("/")
        for event in (h11.Response(status_code=response.status_code, headers=response.raw_headers),
                      h11.Data(data=bytes(response.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _stop_header_timer(self) -> None:
        if self.header_timer is not None:
            self.header_timer.cancel()
            self.header_timer = None


class JsonLines(logging.Handler):
    """Passes what uvicorn logs, and tracebacks, to the log of requests."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        entry = {"time": round(time.time(), 3), "level": record.levelname.lower(),
                 "message": record.getMessage().strip()}
        if record.exc_info:
            entry["traceback"] = logging.Formatter().formatException(record.exc_info)
        self.log(entry)


def bind(host: str, port: int) -> socket.socket:
    """A socket at the address, or an error that says why there is none; connections are not accepted yet."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise SettingError(f"the host '{host}' is not known ({error.strerror}); choose another --host") from None
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise SettingError(f"port {port} of {host} cannot be used ({error.strerror}); choose another --port or --host"
                           ) from None
    return bound


def address_of(bound: socket.socket) -> str:
    """The URL of a socket."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def make_server(app: Gate) -> uvicorn.Server:
    """A server of the application."""
    return uvicorn.Server(uvicorn.Config(
        app, http=Connection, log_config=None, log_level="warning", access_log=False, server_header=False, ws="none",
        backlog=BACKLOG, timeout_graceful_shutdown=STOP_SECONDS))


def run(app: Gate, bound: socket.socket, reload: Callable[[], None], log: Log | None = None) -> None:
    """Serves until SIGINT or SIGTERM; then answers the requests that were accepted, and returns. SIGHUP reloads.

    What goes wrong in the server is written to the log if there is one, else to standard error.
    """
    server = make_server(app)
    if log is not None:
        logger = logging.getLogger("uvicorn.error")
        logger.propagate = False
        logger.addHandler(JsonLines(log))
    # uvicorn repeats the signal when it has stopped; without these handlers it would end the process with an error
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, lambda *_: threading.Thread(target=reload, name="reload", daemon=True).start())
    server.run(sockets=[bound])
