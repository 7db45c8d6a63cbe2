"""The queue of task records: finding due records and claiming them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from monque_core.errors import MonqueError
from monque_core.store.claim_queue import ClaimQueue, DueDocument
from monque_core.store.quarantine import Rejected
from monque_core.store.tasks.documents import InvalidRecordError, to_record
from monque_core.store.tasks.indexes import IS_DATE
from monque_core.store.tasks.transitions import (
    ACTIVE,
    DUE_ORDER,
    WAITING,
    claim,
    due,
    expire,
    quarantine,
)
from monque_core.tasks.record import TaskRecord, TaskStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from bson import ObjectId

    from monque_core.store.connectivity import Connectivity
    from monque_core.store.driver import Collection, Document
    from monque_core.store.tasks.transitions import RecordOwner
    from monque_core.store.transitions import Transition
    from monque_core.tasks.definition import Definition


@dataclass(slots=True)
class TaskCandidate(DueDocument):
    """A due record that a look has found."""

    interrupted: bool = False
    """Whether a run of it ended without an outcome, as after a killed process."""
    attempts: float = 0


@dataclass(frozen=True, slots=True)
class ExhaustedRecord(Rejected):
    """A record that failed for good, because its last run ended without an outcome."""

    record: TaskRecord


class TaskQueue(ClaimQueue[TaskRecord, TaskCandidate]):
    """The due records of a source collection's tasks."""

    _name_field = "task"
    _claim_order = DUE_ORDER
    _candidate_fields = {"task": 1, "status": 1, "attempts": 1}  # noqa: RUF012  # as in the base class
    _date_condition = IS_DATE

    def __init__(
        self,
        records: Collection,
        owner: RecordOwner,
        definitions: Mapping[str, Definition],
        connectivity: Connectivity,
    ) -> None:
        super().__init__(records)
        self._owner = owner
        self._definitions = definitions
        self._connectivity = connectivity

    async def claim_batch(
        self, candidates: Sequence[TaskCandidate], token: ObjectId, now: datetime
    ) -> list[TaskRecord | Rejected]:
        """Claim as many of these candidates as are still due."""
        chosen = {"_id": {"$in": [candidate.id for candidate in candidates]}}
        step = self._claim(chosen, (candidate.name for candidate in candidates), token, now)
        if not await self._collection.update_many(step.filter, step.update):
            return []
        return await self._read_back(chosen, token, now)

    async def expire(self, instance_id: str, names: Sequence[str], now: datetime) -> int:
        """Expire the locks of an instance that has ended, and return how many."""
        step = expire(instance_id, names, now)
        return await self._collection.update_many(step.filter, step.update)

    def _due(self, now: datetime) -> Document:
        return due(now, self._statuses)

    @property
    def _statuses(self) -> tuple[str, ...]:
        """The statuses that may be claimed.

        An expired lock may be claimed only if MongoDB was reachable, so that its owner could have
        renewed it.
        """
        renewal = self._owner.renewal_interval.total_seconds()
        return ACTIVE if self._connectivity.could_hear(renewal) else WAITING

    def _candidate(self, document: Document) -> TaskCandidate:
        attempts = document.get("attempts")
        return TaskCandidate(
            document["_id"],
            document["task"],
            document["status"] in TaskStatus.RUNNING,
            attempts if isinstance(attempts, int | float) else 0,
        )

    async def _reject_name(self, id: object, name: object, now: datetime) -> Rejected:
        return await self._reject(id, InvalidRecordError("task", name), now)

    def _claim(
        self, selection: Document, names: Iterable[str], token: ObjectId, now: datetime
    ) -> Transition:
        definitions = [self._definitions[name] for name in dict.fromkeys(names)]
        return claim(selection, definitions, self._owner, token, now, self._statuses)

    async def _claim_single(
        self, name: str, selection: Document, token: ObjectId, now: datetime
    ) -> TaskRecord | Rejected | None:
        step = self._claim(selection, [name], token, now)
        document = await self._collection.find_one_and_update(
            step.filter, step.update, sort=DUE_ORDER
        )
        return None if document is None else await self._read(document, now)

    def _claimed_at(self, at: datetime) -> Document:
        return {"nextRunAt": {"$eq": at + self._owner.visibility, **IS_DATE}}

    async def _read_back(
        self, selection: Document, token: ObjectId, at: datetime, *, majority: bool = False
    ) -> list[TaskRecord | Rejected]:
        documents = await self._collection.find(
            {**selection, "claimToken": token}, majority=majority
        )
        records = [await self._read(document, at) for document in documents]
        # The indexes return them in other orders; runs start in the order of the claim.
        records.sort(key=_due_rank)
        return records

    async def _read(self, document: Document, now: datetime) -> TaskRecord | Rejected:
        try:
            record = to_record(document)
        except InvalidRecordError as error:
            return await self._reject(document["_id"], error, now)
        if record.is_running:
            return record
        reason = f"{record.name} {record.source_id!r} was given up: {record.last_error}"
        return ExhaustedRecord(record.id, MonqueError(reason), record)

    async def _reject(self, id: object, error: InvalidRecordError, now: datetime) -> Rejected:
        """Quarantine a document that is not a record, so that it is found only once."""
        step = quarantine(id, str(error), now)
        await self._collection.update_one(step.filter, step.update)
        return Rejected(id, error)


def _due_rank(record: TaskRecord | Rejected) -> tuple[int, Any]:
    # The claim has overwritten nextRunAt with its lock, but not dueAt.
    if isinstance(record, Rejected) or record.due_at is None:
        return (0, 0)
    return (1, record.due_at)
