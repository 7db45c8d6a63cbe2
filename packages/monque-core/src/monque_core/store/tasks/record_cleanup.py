"""Records whose source document is gone: finding them, and deleting them after a while."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bson import MinKey

from monque_core.store.tasks.documents import records_name
from monque_core.store.tasks.indexes import IS_DATE
from monque_core.store.tasks.source_collections import LastId
from monque_core.tasks.record import TaskStatus

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from datetime import datetime

    from monque_core.store.driver import Collection, Document, Driver
    from monque_core.tasks.definition import Declaration

_BATCH_SIZE = 1000
# Ids are compared as in the records, whatever the collation of the source collection.
_COLLATION: Final = {"locale": "simple"}
_NOT_REARMED: Final[Document] = {
    "$or": [{"lastObservedValues": {"$exists": True}}, {"unmatchedAt": {"$not": IS_DATE}}]
}


@dataclass(frozen=True, slots=True)
class Orphans:
    """The records without a source document in one batch of a scan."""

    ids: Sequence[Any]
    """The ids of the documents that are gone."""
    after: LastId | None
    """Where the next batch starts; None after the last one."""


class RecordCleanup:
    """Finds and deletes the records of documents that are gone."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def orphans(self, declaration: Declaration, after: LastId | None, limit: int) -> Orphans:
        """Return the next batch of records whose document is gone, out of at most `limit` records.

        Records without values are left out: they need no update.
        """
        records = self._records(declaration)
        # A range even at the beginning: without one, the server does not skip other tasks.
        start = MinKey() if after is None else after.id
        found = await records.find(
            {
                "task": declaration.name,
                "$expr": {"$gt": ["$sourceDocId", {"$literal": start}]},
            },
            projection={"_id": 0, "sourceDocId": 1},
            sort=[("sourceDocId", 1)],
            limit=limit,
        )
        ids = [document["sourceDocId"] for document in found if "sourceDocId" in document]
        if not ids:
            return Orphans([], None)
        gone = await self._gone(declaration, records, ids)
        return Orphans(gone, LastId(ids[-1]) if len(found) == limit else None)

    async def clean(
        self, declaration: Declaration, now: datetime, *, batch_size: int = _BATCH_SIZE
    ) -> AsyncIterator[int]:
        """Delete the expired records of a task; yield the number of each batch.

        A record expires if, for `keep_for`, it did not change and its document was gone, or did not
        match with `when="unmatched"`.
        """
        if declaration.cleanup.when == "never":
            return
        records = self._records(declaration)
        before = now - declaration.cleanup.quiet_time
        since: Document = {}
        passed: list[object] = []
        while True:
            expired = {**_expired(declaration, before, since), "_id": {"$nin": passed}}
            batch = await records.find(
                expired,
                projection={"sourceDocId": 1, "unmatchedAt": 1},
                sort=[("unmatchedAt", 1)],
                limit=batch_size,
            )
            if batch:
                yield await self._delete(declaration, records, batch, before)
            if len(batch) < batch_size:
                return
            # Skip records that stay, or they would fill the next batch.
            last = {"$gte": batch[-1]["unmatchedAt"]}
            at_last = [one["_id"] for one in batch if one["unmatchedAt"] == last["$gte"]]
            passed = at_last + (passed if last == since else [])
            since = last

    async def _delete(
        self,
        declaration: Declaration,
        records: Collection,
        batch: Sequence[Document],
        before: datetime,
    ) -> int:
        """Delete the expired records whose document is gone right now.

        A document that comes back is planned, which removes `unmatchedAt` or inserts a new record.
        """
        ids = [one["sourceDocId"] for one in batch if "sourceDocId" in one]
        condition = declaration.filter if declaration.cleanup.when == "unmatched" else {}
        present = await self._present(declaration, ids, condition)
        unchanged = {"$in": list({one["unmatchedAt"]: None for one in batch})}
        return await records.delete_many(
            {
                "$and": [
                    _expired(declaration, before, unchanged),
                    {"_id": {"$in": [one["_id"] for one in batch]}},
                    {"sourceDocId": {"$nin": present}},
                ]
            }
        )

    async def _gone(
        self, declaration: Declaration, records: Collection, ids: Sequence[Any]
    ) -> list[Any]:
        present = await self._present(declaration, ids, {})
        if len(present) == len(ids):
            return []
        found = await records.find(
            {
                "task": declaration.name,
                # Only the server knows which ids are equal: 1 and 1.0 are.
                "sourceDocId": {"$in": list(ids), "$nin": present},
                **_NOT_REARMED,
            },
            projection={"_id": 0, "sourceDocId": 1},
        )
        return [document["sourceDocId"] for document in found]

    async def _present(
        self, declaration: Declaration, ids: Sequence[Any], condition: Document
    ) -> list[Any]:
        """Return the ids of the documents that exist and match a condition."""
        source = self._driver.collection(declaration.collection, declaration.database)
        among: Document = {"_id": {"$in": list(ids)}}
        found = await source.find(
            {"$and": [among, condition]} if condition else among,
            projection={"_id": 1},
            collation=_COLLATION,
        )
        return [document["_id"] for document in found]

    def _records(self, declaration: Declaration) -> Collection:
        return self._driver.collection(records_name(declaration.collection), declaration.database)


def _expired(declaration: Declaration, before: datetime, unmatched_at: Document) -> Document:
    """Match the records that were unmatched and unchanged since before a time."""
    return {
        "task": declaration.name,
        "unmatchedAt": {**IS_DATE, "$lte": before, **unmatched_at},
        "updatedAt": {"$not": {"$gt": before}},
        "status": {"$nin": list(TaskStatus.RUNNING)},
    }
