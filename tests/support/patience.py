"""Waiting, without an event loop, for what only asking can tell."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def wait_until(ask: Callable[[], T], seconds: float = 20) -> T:
    """Ask again and again until the answer is true; give it."""
    deadline = time.monotonic() + seconds
    while not (answer := ask()):
        assert time.monotonic() < deadline, f"after {seconds} s the answer is still {answer!r}"
        time.sleep(0.01)
    return answer
