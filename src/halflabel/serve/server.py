"""Runs a server until it is told to stop, and lets it finish what it has accepted."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable

import uvicorn

from halflabel.errors import SettingError
from halflabel.serve.gate import Gate

BACKLOG = 2048  # connections that wait to be accepted
STOP_SECONDS = 60  # that requests have to finish after a signal


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


def run(app: Gate, bound: socket.socket, reload: Callable[[], None]) -> None:
    """Serves until SIGINT or SIGTERM; then answers the requests that were accepted, and returns. SIGHUP reloads."""
    config = uvicorn.Config(app, log_config=None, log_level="warning", access_log=False, server_header=False, ws="none",
                            backlog=BACKLOG, timeout_graceful_shutdown=STOP_SECONDS)
    # uvicorn repeats the signal when it has stopped; without these handlers it would end the process with an error
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, lambda *_: threading.Thread(target=reload, name="reload", daemon=True).start())
    uvicorn.Server(config).run(sockets=[bound])
