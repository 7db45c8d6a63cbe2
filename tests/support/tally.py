"""A list of observations that a test may wait for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

from tests.support.patience import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Tally(list[T], Generic[T]):
    """A list to which handlers add, from the event loop or from threads."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._grown = asyncio.Event()

    def add(self, item: T) -> None:
        self.append(item)
        self._loop.call_soon_threadsafe(self._grown.set)

    async def reach(self, count: int, seconds: float = PATIENCE) -> None:
        """Wait until the list has this many items."""
        await self.wait_until(lambda: len(self) >= count, seconds)

    async def wait_until(self, is_enough: Callable[[], bool], seconds: float = PATIENCE) -> None:
        """Wait until the list meets a condition."""
        try:
            async with asyncio.timeout(seconds):
                while not is_enough():
                    self._grown.clear()
                    await self._grown.wait()
        except TimeoutError:
            raise AssertionError(f"after {seconds} s there are {len(self)}: {self[:10]}") from None
