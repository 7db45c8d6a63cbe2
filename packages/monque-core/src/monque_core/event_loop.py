"""The event loop of our own programs: uvloop if it is installed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

R = TypeVar("R")


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
