"""Planning: updating the records of a task for changed documents, on the server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import bson
from bson import Timestamp
from bson.errors import InvalidDocument
from pymongo import UpdateMany
from pymongo.errors import DuplicateKeyError, OperationFailure

from monque_core.errors import MonqueConnectionError, MonqueError
from monque_core.store.expressions import either, literal
from monque_core.store.tasks.documents import records_name
from monque_core.store.tasks.plan_updates import (
    ChangedDocuments,
    Deletion,
    change,
    rearm,
    rearm_all,
    rearm_deleted,
)
from monque_core.store.tasks.transitions import rerun
from monque_core.tasks.record import TaskStatus

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from monque_core.store.driver import Collection, Document, Driver
    from monque_core.tasks.definition import Declaration

# Leaves room for claims and outcomes, which are stored next to the snapshot.
LARGEST_SNAPSHOT_BYTES: Final = 15 * 1024 * 1024
# With the collation of a source collection, `$merge` might find no index for string ids, and "paid"
# and "PAID" might be equal values.
_COLLATION: Final = {"locale": "simple"}
_DUPLICATE_KEY_ATTEMPTS: Final = 3
# Transient: locks, conflicts, interruptions, time limits, dropped plans and cursors, a full disk.
_PASSING_CODES: Final = frozenset(
    {24, 43, 46, 50, 64, 112, 136, 175, 202, 225, 237, 246, 262, 11601, 14031}
)
# Not caused by a document: the validator of the record collection, the quota of the service.
_SYSTEMIC_CODES: Final = frozenset({121, 8000})


class TaskBrokenError(MonqueError):
    """A task cannot be planned for any document."""

    def __init__(self, task: str, error: Exception) -> None:
        details = getattr(error, "details", None) or {}
        reason = details.get("errmsg") or error
        super().__init__(f"the reactive task {task!r} cannot be planned at all: {reason}")
        self.task = task


@dataclass(slots=True)
class PlanResult:
    """The result of planning."""

    matched: int = 0
    """The number of matching documents; only the server knows which records changed."""
    parked: list[tuple[Any, Exception]] = field(default_factory=list)
    """The ids of documents that cannot be planned, with the errors."""


@dataclass(frozen=True, slots=True)
class _Flush:
    """The arguments of one round of planning."""

    declaration: Declaration
    now: datetime
    term: int
    observed_at: Timestamp | None = None
    """A cluster time: the documents that are read contain all writes up to it."""


@dataclass(frozen=True, slots=True)
class _Touched:
    """A changed document; one that was deleted and exists again runs again."""

    id: Any
    deletion: Deletion | None = None


class PlanWriter:
    """Writes what the leader plans to the records."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def plan(
        self,
        declaration: Declaration,
        changes: ChangedDocuments,
        now: datetime,
        term: int,
    ) -> PlanResult:
        """Update the records of a task for these documents as they are now.

        Raise `MonqueConnectionError` if everything must be retried in a new term, and
        `TaskBrokenError` if the task itself is at fault.
        """
        touched = self._touched(changes)
        planned = PlanResult()
        if not touched:
            return planned
        flush = _Flush(declaration, now, term, await self._observed_at(changes))
        works: bool | None = None
        waiting = [touched]
        while waiting:
            part = waiting.pop()
            try:
                planned.matched += await self._attempt(flush, part)
            except (OperationFailure, InvalidDocument) as error:
                if works is None:
                    works = await self._try_without_documents(flush)
                if len(part) == 1:
                    planned.parked.append((part[0].id, error))
                else:
                    half = len(part) // 2
                    waiting += [part[half:], part[:half]]
        return planned

    async def rearm_all(
        self, declaration: Declaration, at: Timestamp, now: datetime, term: int
    ) -> None:
        """Make every document of a task run again, as after its collection was dropped."""
        step = rearm_all(declaration.name, at, term, now)
        await self._records(declaration).update_many(step.filter, step.update)

    async def rerun(self, declaration: Declaration, now: datetime) -> int:
        """Make the records run again that a new version asks for; return how many."""
        if declaration.on_version_change == "nothing":
            return 0
        step = rerun(declaration.name, declaration.on_version_change, now)
        return await self._records(declaration).update_many(step.filter, step.update)

    async def _try_without_documents(self, flush: _Flush) -> bool:
        """Plan without documents; raise `TaskBrokenError` if the server rejects the pipeline."""
        try:
            await self._attempt(flush, [])
        except (OperationFailure, InvalidDocument) as error:
            raise TaskBrokenError(flush.declaration.name, error) from error
        return True

    async def _attempt(self, flush: _Flush, touched: Sequence[_Touched]) -> int:
        """Plan once; return how many of the documents match."""
        name = flush.declaration.name
        attempt = 1
        while True:
            try:
                return await self._write(flush, touched)
            except DuplicateKeyError:
                # Someone else has just inserted the record; the next attempt updates it.
                if attempt == _DUPLICATE_KEY_ATTEMPTS:
                    raise
                attempt += 1
            except OperationFailure as error:
                if error.code in _PASSING_CODES:
                    raise MonqueConnectionError(
                        f"MongoDB cannot plan {name!r} at the moment: {error}"
                    ) from error
                if error.code in _SYSTEMIC_CODES:
                    raise TaskBrokenError(name, error) from error
                raise

    async def _write(self, flush: _Flush, touched: Sequence[_Touched]) -> int:
        declaration, term, now = flush.declaration, flush.term, flush.now
        source = self._driver.collection(declaration.collection, declaration.database)
        records = self._records(declaration)
        ids = [one.id for one in touched]
        chosen = _chosen(declaration, ids)
        found = await source.find(chosen, projection={"_id": 1}, collation=_COLLATION)
        matched = [document["_id"] for document in found]
        steps = []
        if len(matched) < len(ids) or not ids:
            steps.append(rearm(declaration.name, ids, matched, term, now))
        if matched:
            # Any of them may exist again: ids that differ in Python can be equal in MongoDB.
            steps += [
                rearm_deleted(declaration.name, one.deletion, term, now)
                for one in touched
                if one.deletion is not None
            ]
        if steps:
            await records.bulk_write([UpdateMany(step.filter, step.update) for step in steps])
        if matched or not ids:
            pipeline = [
                {"$match": chosen},
                *_snapshots(flush),
                change(declaration, records.name, now, term),
            ]
            await source.aggregate(pipeline, collation=_COLLATION)
        return len(matched)

    def _records(self, declaration: Declaration) -> Collection:
        return self._driver.collection(records_name(declaration.collection), declaration.database)

    async def _observed_at(self, changes: ChangedDocuments) -> Timestamp | None:
        """Return a cluster time that every later read includes, None if unknown.

        Changes that the stream reported are majority-committed, as is the primary's
        `majorityOpTime`.
        """
        last_write = (await self._driver.command("hello")).get("lastWrite", {})
        majority = last_write.get("majorityOpTime", {}).get("ts")
        known = [time for time in (changes.until, majority) if isinstance(time, Timestamp)]
        return max(known, default=None)

    def _touched(self, changes: ChangedDocuments) -> list[_Touched]:
        """Return each id once; some are not hashable, and 1 equals True in Python."""
        touched = {self.key(id): _Touched(id) for id in changes.ids}
        touched |= {self.key(one.id): _Touched(one.id, one) for one in changes.deletions}
        return list(touched.values())

    def key(self, id: Any) -> bytes:
        """Return a hashable key that differs for ids that MongoDB distinguishes."""
        return bson.encode({"": id}, codec_options=self._driver.codec)


def _chosen(declaration: Declaration, ids: Sequence[Any]) -> Document:
    """Match those of the documents that match the filter of the task."""
    among: Document = {"_id": {"$in": list(ids)}}
    return {"$and": [among, declaration.filter]} if declaration.filter else among


def _snapshots(flush: _Flush) -> list[Document]:
    """Compute a new record for each document."""
    projection = flush.declaration.watch.projection()
    due_at = flush.now + flush.declaration.debounce
    record: Document = {
        "task": literal(flush.declaration.name),
        "sourceDocId": "$_id",
        "status": TaskStatus.PENDING,
        "attempts": 0,
        "nextRunAt": due_at,
        "dueAt": due_at,
        "createdAt": flush.now,
        "updatedAt": flush.now,
        "lastObservedValues": _values(),
        "plannedTerm": literal(flush.term),
    }
    if flush.observed_at is not None:
        record["lastObservedAt"] = flush.observed_at
    watched = [] if projection is None else [{"$project": projection}]
    return [*watched, {"$replaceWith": record}]


def _values() -> Document:
    """Compute the watched values without the id, sorted by name: updates can reorder fields."""
    fields = {
        "$filter": {"input": {"$objectToArray": "$$ROOT"}, "cond": {"$ne": ["$$this.k", "_id"]}}
    }
    in_order = {"$arrayToObject": {"$sortArray": {"input": fields, "sortBy": {"k": 1}}}}
    size = {"$bsonSize": "$$values"}
    # No expression raises a custom error, but $toInt quotes the string that it cannot parse.
    too_large = {
        "$toInt": {
            "$concat": [
                "the watched values take ",
                {"$toString": size},
                f" bytes and at most {LARGEST_SNAPSHOT_BYTES} fit into a record",
            ]
        }
    }
    return {
        "$let": {
            "vars": {"values": in_order},
            "in": either({"$gt": [size, LARGEST_SNAPSHOT_BYTES]}, too_large, "$$values"),
        }
    }
