"""Changed documents that are planned together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from monque_core.store.tasks.sources import SourceChange


class Batch:
    """The ids that changed in each collection of a database; never the documents."""

    def __init__(self, key: Callable[[Any], bytes]) -> None:
        self._key = key
        self._ids: dict[str, dict[bytes, Any]] = {}
        self._deleted: dict[str, dict[bytes, Any]] = {}
        self._count = 0
        self.replaced: set[str] = set()
        """Collections that went away as a whole, or came."""

    def __len__(self) -> int:
        return self._count

    def __bool__(self) -> bool:
        return bool(self._count or self.replaced)

    def add(self, change: SourceChange) -> None:
        """Take in a change; however often a document changed, it is planned once."""
        if change.kind == "replaced":
            self.replaced.add(change.collection)
            return
        key = self._key(change.id)
        ids = self._ids.setdefault(change.collection, {})
        if key not in ids:
            ids[key] = change.id
            self._count += 1
        if change.kind == "deleted":
            self._deleted.setdefault(change.collection, {})[key] = change.id

    @property
    def collections(self) -> Iterable[str]:
        """Give the collections in which something changed."""
        return self._ids

    def ids(self, collection: str) -> Sequence[Any]:
        """Give the ids of what changed."""
        return list(self._ids[collection].values())

    def deleted(self, collection: str) -> Sequence[Any]:
        """Give the ids of what was deleted, be it back by now or not."""
        return list(self._deleted.get(collection, {}).values())
