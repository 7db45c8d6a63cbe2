"""The changed documents of one flush, which are planned together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monque_core.store.tasks.plan_updates import ChangedDocuments, Deletion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

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
