"""Signals that stop a worker process."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from typing import TYPE_CHECKING, Any

from monque_core.errors import MonqueError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_STOPPING = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def on_first_signal(callback: Callable[[], None]) -> Iterator[None]:
    """Call back on the first SIGINT or SIGTERM, then restore the previous signal handlers."""
    if threading.current_thread() is not threading.main_thread():
        raise MonqueError(
            "run() waits for signals, which only the main thread receives: "
            "use start() and stop() in other threads"
        )
    previous: dict[int, Any] = {}

    def received(*_: object) -> None:
        restore()
        callback()

    def restore() -> None:
        while previous:
            signal.signal(*previous.popitem())

    for number in _STOPPING:
        previous[number] = signal.signal(number, received)
    try:
        yield
    finally:
        restore()


@contextlib.contextmanager
def on_first_signal_async(callback: Callable[[], None]) -> Iterator[None]:
    """Do the same on the running event loop; do nothing in threads and on loops without signals."""
    loop = asyncio.get_running_loop()
    previous: dict[int, Any] = {}

    def received() -> None:
        restore()
        callback()

    def restore() -> None:
        while previous:
            number, handler = previous.popitem()
            loop.remove_signal_handler(number)
            signal.signal(number, handler)

    for number in _STOPPING:
        handler = signal.getsignal(number)
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, received)
            previous[number] = handler
    try:
        yield
    finally:
        restore()
