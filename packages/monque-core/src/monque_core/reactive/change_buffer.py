"""JobStreams on their way from the stream to the planner."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from monque_core.reactive.change_batch import ChangeBatch
from monque_core.waiting import wait_for_event

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import timedelta

    from monque_core.store.tasks.source_collections import SourceChange


class ChangeBuffer:
    """One batch that fills up while another one is planned; the reader waits when it is full."""

    def __init__(self, size: int, key: Callable[[Any], bytes]) -> None:
        self._size = size
        self._key = key
        self._batch = ChangeBatch(key)
        self._token: Mapping[str, Any] | None = None
        self._has_any = asyncio.Event()
        self._is_full = asyncio.Event()
        self._has_room = asyncio.Event()
        self._is_planned = asyncio.Event()
        self.is_closed = False
        """Whether nothing more is to be taken."""
        self.is_at_end = False
        """Whether the stream had nothing more to tell when it was last asked."""

    async def put(self, change: SourceChange | None, token: Mapping[str, Any] | None) -> None:
        """Take in what the stream told, and where it goes on after that."""
        self._token = token
        self.is_at_end = change is None
        if change is None:
            return
        self._batch.add(change)
        self._is_planned.clear()
        self._has_any.set()
        if len(self._batch) >= self._size:
            self._is_full.set()
            self._has_room.clear()
            await self._has_room.wait()

    async def wait(self, longest: timedelta, linger: float) -> None:
        """Wait until there are enough changes, or the first of them has waited long enough."""
        if await wait_for_event(self._has_any, longest.total_seconds()):
            await wait_for_event(self._is_full, linger)

    def take(self) -> tuple[ChangeBatch, Mapping[str, Any] | None]:
        """Give what has gathered, and the token that follows it, and begin anew."""
        batch, self._batch = self._batch, ChangeBatch(self._key)
        self._has_any.clear()
        self._is_full.clear()
        self._has_room.set()
        return batch, self._token

    def planned(self) -> None:
        """Take note that all that was taken is planned."""
        if not self._batch:
            self._is_planned.set()

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing waits to be planned."""
        return not self._batch

    def close(self) -> None:
        """Let nothing more be taken: what has gathered will be read again."""
        self.is_closed = True
        self._has_any.set()
        self._is_full.set()

    async def drain(self) -> None:
        """Wait until all that was put is planned."""
        self._is_planned.clear()
        self._has_any.set()
        self._is_full.set()
        await self._is_planned.wait()
