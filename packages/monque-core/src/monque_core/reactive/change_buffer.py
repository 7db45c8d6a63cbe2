"""Changes between the stream and the planner: the batch that fills, and the buffer around it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from monque_core.store.tasks.plan_updates import ChangedDocuments, Deletion
from monque_core.waiting import wait_for_event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import timedelta

    from bson import Timestamp

    from monque_core.store.tasks.source_collections import SourceChange


class ChangeBatch:
    """The ids of changed documents per collection of a database, without the documents."""

    def __init__(self, key: Callable[[Any], bytes]) -> None:
        self._key = key
        self._ids: dict[str, dict[bytes, Any]] = {}
        self._deletions: dict[str, dict[bytes, Deletion]] = {}
        self._until: Timestamp | None = None
        self._count = 0
        self.replaced: dict[str, Timestamp] = {}
        """Collections that were dropped, renamed or replaced, with the time of the last change."""

    def __len__(self) -> int:
        return self._count

    def __bool__(self) -> bool:
        return bool(self._count or self.replaced)

    def add(self, change: SourceChange) -> None:
        """Add a change; a document that changed several times is planned once."""
        self._until = change.cluster_time
        if change.kind == "replaced":
            self.replaced[change.collection] = change.cluster_time
            return
        key = self._key(change.id)
        ids = self._ids.setdefault(change.collection, {})
        if key not in ids:
            ids[key] = change.id
            self._count += 1
        if change.kind == "deleted":
            deletion = Deletion(change.id, change.cluster_time)
            self._deletions.setdefault(change.collection, {})[key] = deletion

    @property
    def collections(self) -> Iterable[str]:
        """Return the collections with changes."""
        return self._ids

    def changes(self, collection: str) -> ChangedDocuments:
        """Return the changes in a collection."""
        ids = list(self._ids[collection].values())
        return ChangedDocuments(
            ids, list(self._deletions.get(collection, {}).values()), self._until
        )


class ChangeBuffer:
    """A batch that fills while the previous one is planned; the reader waits while it is full."""

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
        """Whether the planner should take no more batches."""
        self.is_at_end = False
        """Whether the last read of the stream returned no change."""

    async def put(self, change: SourceChange | None, token: Mapping[str, Any] | None) -> None:
        """Add a change, None if the stream had none, and the resume token after it."""
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
        """Wait at most `longest` for a change, then up to `linger` seconds for a full batch."""
        if await wait_for_event(self._has_any, longest.total_seconds()):
            await wait_for_event(self._is_full, linger)

    def take(self) -> tuple[ChangeBatch, Mapping[str, Any] | None]:
        """Return the batch and the resume token after it, and start a new batch."""
        batch, self._batch = self._batch, ChangeBatch(self._key)
        self._has_any.clear()
        self._is_full.clear()
        self._has_room.set()
        return batch, self._token

    def planned(self) -> None:
        """Record that all batches that were taken are planned."""
        if not self._batch:
            self._is_planned.set()

    @property
    def is_empty(self) -> bool:
        """Whether no change waits to be planned."""
        return not self._batch

    def close(self) -> None:
        """End the taking of batches; the changes in the buffer will be read again."""
        self.is_closed = True
        self._has_any.set()
        self._is_full.set()

    async def drain(self) -> None:
        """Wait until all changes are planned."""
        self._is_planned.clear()
        self._has_any.set()
        self._is_full.set()
        await self._is_planned.wait()
