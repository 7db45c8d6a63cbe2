"""Waiting, without an event loop, for what only asking can tell."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

PATIENCE: Final = 120.0
"""Seconds that a test waits for what must happen: only something that hangs takes as long."""


def wait_until(ask: Callable[[], T], seconds: float = PATIENCE) -> T:
    """Ask again and again until the answer is true; give it."""
    deadline = time.monotonic() + seconds
    while not (answer := ask()):
        assert time.monotonic() < deadline, f"after {seconds} s the answer is still {answer!r}"
        time.sleep(0.01)
    return answer
