"""Requests to a process to stop: signals, or its supervisor."""

from __future__ import annotations

import asyncio
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from monque_core.cli.worker_channel import WorkerEnd

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_requests(channel: WorkerEnd | None = None) -> Iterator[asyncio.Event]:
    """Yield an event that is set when this process should stop.

    Without a supervisor, a second signal ends the process. With one, signals only request a stop,
    since systemd may signal both; the end of the supervisor requests a stop, too.
    """
    loop = asyncio.get_running_loop()
    requested = asyncio.Event()

    def received(_number: int, _frame: object) -> None:
        if channel is None:
            for number in SIGNALS:
                signal.signal(number, signal.SIG_DFL)
        loop.call_soon_threadsafe(requested.set)

    # Not `loop.add_signal_handler`: a second signal must work even if a job blocks the loop.
    before = {number: signal.signal(number, received) for number in SIGNALS}
    if channel is not None:
        channel.on_stop_request(requested.set)
    try:
        yield requested
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
