"""A process that runs workers: its event loop, and the signals that stop it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from typing import TYPE_CHECKING, Any, Final, TypeVar

from monque_core.errors import MonqueError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

R = TypeVar("R")
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def run(main: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine to its end on the fastest event loop available."""
    with asyncio.Runner(loop_factory=_fastest_loop()) as runner:
        return runner.run(main)


def _fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    # A program that ran inside the `except` would have this ImportError as the context of each of
    # its own errors.
    try:
        import uvloop  # noqa: PLC0415  # it is optional
    except ImportError:
        return None
    return uvloop.new_event_loop


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

    for number in SIGNALS:
        previous[number] = signal.signal(number, received)
    try:
        yield
    finally:
        restore()


@contextlib.contextmanager
def stop_requests(*, supervised: bool = False) -> Iterator[asyncio.Event]:
    """Yield an event that is set when this process should stop.

    A second signal ends the process. With a supervisor, signals only request a stop, since systemd
    may signal both.
    """
    loop = asyncio.get_running_loop()
    requested = asyncio.Event()

    def received(_number: int, _frame: object) -> None:
        if not supervised:
            for number in SIGNALS:
                signal.signal(number, signal.SIG_DFL)
        loop.call_soon_threadsafe(requested.set)

    # Not `loop.add_signal_handler`: a second signal must work even if a job blocks the loop.
    before = {number: signal.signal(number, received) for number in SIGNALS}
    try:
        yield requested
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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

    for number in SIGNALS:
        handler = signal.getsignal(number)
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, received)
            previous[number] = handler
    try:
        yield
    finally:
        restore()
