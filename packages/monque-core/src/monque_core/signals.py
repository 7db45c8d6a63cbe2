"""Stopping a worker process by signals."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextlib.contextmanager
def on_signals(callback: Callable[[], None]) -> Iterator[None]:
    """Call back on the first SIGINT or SIGTERM, where this thread and platform can.

    From then on signals do again what they did before.
    """
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

    for number in (signal.SIGINT, signal.SIGTERM):
        handler = signal.getsignal(number)
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, received)
            previous[number] = handler
    try:
        yield
    finally:
        restore()
