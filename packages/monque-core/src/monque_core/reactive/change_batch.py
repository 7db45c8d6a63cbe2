"""Changed documents that are planned together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monque_core.store.tasks.plan_updates import Deletion, JobStreams

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bson import Timestamp

    from monque_core.store.tasks.source_collections import SourceChange


class ChangeBatch:
    """The ids that changed in each collection of a database; never the documents."""

    def __init__(self, key: Callable[[Any], bytes]) -> None:
        self._key = key
        self._ids: dict[str, dict[bytes, Any]] = {}
        self._deletions: dict[str, dict[bytes, Deletion]] = {}
        self._until: Timestamp | None = None
        self._count = 0
        self.replaced: dict[str, Timestamp] = {}
        """Collections that went away as a whole, or came, and when that last happened."""

    def __len__(self) -> int:
        return self._count

    def __bool__(self) -> bool:
        return bool(self._count or self.replaced)

    def add(self, change: SourceChange) -> None:
        """Take in a change; however often a document changed, it is planned once."""
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
        """Give the collections in which something changed."""
        return self._ids

    def changes(self, collection: str) -> JobStreams:
        """Return what changed in a collection."""
        ids = list(self._ids[collection].values())
        return JobStreams(ids, list(self._deletions.get(collection, {}).values()), self._until)
