"""Resources of an application that record when they open and close."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.support.tally import Tally

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator


class Journal(Tally[str]):
    """The opening and closing of resources in order: `pool opens`, `pool closes`."""

    def blocking(self, name: str) -> Callable[..., Iterator[str]]:
        """Return the factory of a resource that opens and closes at once."""

        def open_and_close(*needed: object) -> Iterator[str]:
            self.add(f"{name} opens")
            yield name
            self.add(f"{name} closes")

        return open_and_close

    def taking_its_time(self, name: str) -> Callable[..., AsyncIterator[str]]:
        """Return the factory of a resource that opens and closes over many turns of the loop."""

        async def open_and_close(*needed: object) -> AsyncIterator[str]:
            await _some_turns()
            self.add(f"{name} opens")
            yield name
            await _some_turns()
            self.add(f"{name} closes")

        return open_and_close

    def failing(self, name: str) -> Callable[..., AsyncIterator[str]]:
        """Return the factory of a resource that fails to open, after a while."""

        async def open_and_close(*needed: object) -> AsyncIterator[str]:
            await _some_turns()
            raise OSError(f"{name} does not open")
            yield name

        return open_and_close


async def _some_turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)
