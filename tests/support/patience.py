"""Waiting for a condition by polling, without an event loop."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

PATIENCE: Final = 120.0
"""The timeout of a test in seconds, long enough that only a hang reaches it."""


def wait_until(ask: Callable[[], T], seconds: float = PATIENCE) -> T:
    """Poll until the answer is true; return it."""
    deadline = time.monotonic() + seconds
    while not (answer := ask()):
        assert time.monotonic() < deadline, f"after {seconds} s the answer is still {answer!r}"
        time.sleep(0.01)
    return answer
