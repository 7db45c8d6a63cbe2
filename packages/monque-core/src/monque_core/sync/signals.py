"""Asking a worker process without asyncio to stop."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING, Any

from monque_core.errors import MonqueError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextlib.contextmanager
def on_first_signal(callback: Callable[[], None]) -> Iterator[None]:
    """Call back on the first SIGINT or SIGTERM; from then on they do what they did before."""
    if threading.current_thread() is not threading.main_thread():
        raise MonqueError(
            "run() waits for signals, which only the main thread gets: use start() and stop()"
        )
    previous: dict[int, Any] = {}

    def received(*_: object) -> None:
        restore()
        callback()

    def restore() -> None:
        while previous:
            signal.signal(*previous.popitem())

    for number in (signal.SIGINT, signal.SIGTERM):
        previous[number] = signal.signal(number, received)
    try:
        yield
    finally:
        restore()
