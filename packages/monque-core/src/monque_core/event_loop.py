"""The event loop of our own programs: uvloop's where it is installed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

R = TypeVar("R")


def run(main: Coroutine[Any, Any, R]) -> R:
    """Run a program to its end on the fastest event loop there is."""
    try:
        import uvloop  # noqa: PLC0415  # it is optional
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)
