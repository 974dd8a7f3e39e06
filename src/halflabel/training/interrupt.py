"""Being asked to stop: heard between two steps, so that what is saved is whole."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Interrupted(Exception):
    """The run was asked to stop and has been saved; it can go on from there."""


def request_stop() -> None:
    """What Ctrl-C does, also in a process that a shell has started in the background and made deaf to Ctrl-C."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGINT)


@contextmanager
def stop_requested() -> Iterator[threading.Event]:
    """Turns Ctrl-C and a polite kill into a request that is heard between two steps."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    old = {sign: signal.signal(sign, lambda *_: stop.set()) for sign in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for sign, handler in old.items():
            signal.signal(sign, handler)
