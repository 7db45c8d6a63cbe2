"""Waiting for a condition by polling."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

from tests.support.patience import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable


async def eventually(ask: Callable[[], object], seconds: float = PATIENCE) -> Any:
    """Poll, awaiting the answer if necessary, until the answer is true; return it."""
    answer: object = None
    try:
        async with asyncio.timeout(seconds):
            while True:
                given = ask()
                answer = await given if inspect.isawaitable(given) else given
                if answer:
                    return answer
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"after {seconds} s the answer is still {answer!r}") from None
