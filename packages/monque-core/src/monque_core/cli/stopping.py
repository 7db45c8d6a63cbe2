"""Asking a worker process to finish, by signal or by its supervisor."""

from __future__ import annotations

import asyncio
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from monque_core.cli.supervision import Supervision

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_requests(supervision: Supervision | None = None) -> Iterator[asyncio.Event]:
    """Give what is set when this process is to finish.

    By itself a process dies of the second signal. Below a supervisor it does not, since systemd
    may signal both: there the supervisor asks it to finish, and so does the supervisor's death.
    """
    loop = asyncio.get_running_loop()
    requested = asyncio.Event()

    def received(_number: int, _frame: object) -> None:
        if supervision is None:
            for number in SIGNALS:
                signal.signal(number, signal.SIG_DFL)
        loop.call_soon_threadsafe(requested.set)

    # Not by the loop: a handler that blocks it must not keep the second signal from working.
    before = {number: signal.signal(number, received) for number in SIGNALS}
    if supervision is not None:
        supervision.when_asked(requested.set)
    try:
        yield requested
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
