"""Asking a worker process to finish, by signal or by its supervisor."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
SUPERVISOR_PIPE: Final = "MONQUE_SUPERVISOR_PIPE"
"""The variable that tells a child which pipe ends when it is to finish."""


@contextmanager
def stop_requests() -> Iterator[asyncio.Event]:
    """Give what is set when this process is to finish.

    By itself a process dies of the second signal. Below a supervisor it does not, since systemd
    may signal both: there the end of the supervisor's pipe asks it to finish, and so does the
    supervisor's death.
    """
    pipe = os.environ.pop(SUPERVISOR_PIPE, None)
    loop = asyncio.get_running_loop()
    requested = asyncio.Event()

    def received(_number: int, _frame: object) -> None:
        if pipe is None:
            for number in SIGNALS:
                signal.signal(number, signal.SIG_DFL)
        loop.call_soon_threadsafe(requested.set)

    def pipe_ended() -> None:
        loop.remove_reader(int(pipe or 0))
        requested.set()

    # Not by the loop: a handler that blocks it must not keep the second signal from working.
    before = {number: signal.signal(number, received) for number in SIGNALS}
    if pipe is not None:
        loop.add_reader(int(pipe), pipe_ended)
    try:
        yield requested
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
