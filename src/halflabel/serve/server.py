"""Runs a server until it is told to stop, lets it finish what it has accepted, and gives up on slow clients."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import threading
import time
from collections.abc import Callable

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from halflabel.errors import SettingError
from halflabel.serve.gate import Gate, Log
from halflabel.serve.refusals import Refusal

BACKLOG = 2048  # connections that wait to be accepted
STOP_SECONDS = 60  # that requests have to finish after a signal
HEADER_SECONDS = 10.0  # until the header of a request has arrived
READ_SECONDS = 30.0  # until a client has read its answer


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
