"""Looking for due records and claiming them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from monque_core.errors import MonqueError
from monque_core.store.rejected import Rejected
from monque_core.store.selection import one_of
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
    from collections.abc import Mapping, Sequence

    from bson import ObjectId

    from monque_core.store.connectivity import Connectivity
    from monque_core.store.driver import Collection, Document
    from monque_core.store.tasks.transitions import RecordOwner
    from monque_core.tasks.definition import Definition

_CANDIDATE_FIELDS = {"task": 1, "status": 1, "attempts": 1}


@dataclass(slots=True)
class TaskCandidate:
    """A due record that a look has seen; whether it can be had, only the claim tells."""

    id: object
    name: str
    interrupted: bool = False
    """Whether a run of it ended without an outcome, as a killed process leaves it."""
    attempts: float = 0


@dataclass(frozen=True, slots=True)
class RejectedRecord(Rejected):
    """A document in the queue that is no record, and was set aside as failed."""


@dataclass(frozen=True, slots=True)
class ExhaustedRecord(Rejected):
    """A record whose last run never ended, and was failed instead of being handed out."""

    record: TaskRecord


class TaskQueue:
    """The due side of a collection of records."""

    def __init__(
        self,
        records: Collection,
        claimant: RecordOwner,
        definitions: Mapping[str, Definition],
        connectivity: Connectivity,
    ) -> None:
        self._records = records
        self._claimant = claimant
        self._definitions = definitions
        self._connectivity = connectivity

    async def look(
        self, names: Sequence[str], limit: int, now: datetime
    ) -> list[TaskCandidate | Rejected]:
        """See the first due records of all these tasks together, in one cheap query."""
        documents = await self._records.find(
            {"task": one_of(names), **due(now, self._statuses)},
            projection=_CANDIDATE_FIELDS,
            sort=DUE_ORDER,
            limit=limit,
        )
        return await self._candidates(documents, now)

    async def look_at_each(
        self, limits: Mapping[str, int], now: datetime
    ) -> list[TaskCandidate | Rejected]:
        """See the first due records of each task, so that none hides another; still one query."""
        branches = [self._first_due(name, limit, now) for name, limit in limits.items()]
        pipeline = branches[0] + [
            {"$unionWith": {"coll": self._records.name, "pipeline": branch}}
            for branch in branches[1:]
        ]
        documents = await self._records.aggregate(pipeline)
        return await self._candidates(documents, now)

    async def upcoming(
        self, names: Sequence[str], after: datetime, until: datetime, limit: int
    ) -> list[tuple[str, datetime]]:
        """See which of these tasks become due when, soonest first."""
        documents = await self._records.find(
            {
                "task": one_of(names),
                "status": TaskStatus.PENDING,
                "nextRunAt": {"$gt": after, "$lte": until, **IS_DATE},
            },
            projection={"_id": 0, "task": 1, "nextRunAt": 1},
            sort=DUE_ORDER,
            limit=limit,
        )
        due_times = [(document["task"], document["nextRunAt"]) for document in documents]
        # An array matches what one of its elements does.
        return [(name, at) for name, at in due_times if type(name) is str and type(at) is datetime]

    async def expire(self, instance_id: str, names: Sequence[str], now: datetime) -> int:
        """Let the locks of an instance that has ended expire; return how many."""
        step = expire(instance_id, names, now)
        return await self._records.update_many(step.filter, step.update)

    async def claim_first(
        self, name: str, token: ObjectId, now: datetime
    ) -> TaskRecord | Rejected | None:
        """Claim the first due record of a task in a single operation."""
        return await self._claim_single({}, name, token, now)

    async def claim_one(
        self, candidate: TaskCandidate, token: ObjectId, now: datetime
    ) -> TaskRecord | Rejected | None:
        """Claim this record by itself."""
        return await self._claim_single({"_id": candidate.id}, candidate.name, token, now)

    async def claim_batch(
        self, candidates: Sequence[TaskCandidate], token: ObjectId, now: datetime
    ) -> list[TaskRecord | Rejected]:
        """Claim as many of these as are still to be had."""
        chosen = {"_id": {"$in": [candidate.id for candidate in candidates]}}
        names = dict.fromkeys(candidate.name for candidate in candidates)
        definitions = [self._definitions[name] for name in names]
        step = claim(chosen, definitions, self._claimant, token, now, self._statuses)
        if not await self._records.update_many(step.filter, step.update):
            return []
        return await self._read_back(chosen, token, now)

    async def claimed_with(self, token: ObjectId, at: datetime) -> list[TaskRecord | Rejected]:
        """Read back what a token has claimed at that time, though no reply told of it."""
        # What the claim wrote beside its token, which has no index of its own, finds it.
        lock = {
            "task": one_of(list(self._definitions)),
            "nextRunAt": {"$eq": at + self._claimant.visibility, **IS_DATE},
        }
        # One that a failover takes back must not be run: unlike others, nobody confirmed it.
        return await self._read_back(lock, token, at, majority=True)

    async def has_due(self, names: Sequence[str], now: datetime) -> bool:
        """Tell whether anything of these tasks could be claimed now."""
        return bool(await self.look(names, 1, now))

    @property
    def _statuses(self) -> tuple[str, ...]:
        """Give what may be claimed: no lock that MongoDB itself may have kept from renewal."""
        renewal = self._claimant.renewal_interval.total_seconds()
        return ACTIVE if self._connectivity.could_hear(renewal) else WAITING

    def _first_due(self, name: str, limit: int, now: datetime) -> list[Document]:
        return [
            {"$match": {"task": name, **due(now, self._statuses)}},
            {"$sort": dict(DUE_ORDER)},
            {"$limit": limit},
            {"$project": _CANDIDATE_FIELDS},
        ]

    async def _claim_single(
        self, selection: Document, name: str, token: ObjectId, now: datetime
    ) -> TaskRecord | Rejected | None:
        definition = self._definitions[name]
        step = claim(selection, [definition], self._claimant, token, now, self._statuses)
        document = await self._records.find_one_and_update(step.filter, step.update, sort=DUE_ORDER)
        return None if document is None else await self._read(document, now)

    async def _read_back(
        self, selection: Document, token: ObjectId, now: datetime, *, majority: bool = False
    ) -> list[TaskRecord | Rejected]:
        """Read what carries the token, which alone proves that a claim was made."""
        documents = await self._records.find({**selection, "claimToken": token}, majority=majority)
        records = [await self._read(document, now) for document in documents]
        # The indexes return them in other orders; runs start in the order of the claim.
        records.sort(key=_due_rank)
        return records

    async def _read(self, document: Document, now: datetime) -> TaskRecord | Rejected:
        try:
            record = to_record(document)
        except InvalidRecordError as error:
            return await self._set_quarantine(document["_id"], error, now)
        if record.is_running:
            return record
        reason = f"{record.name} {record.source_id!r} was given up: {record.last_error}"
        return ExhaustedRecord(record.id, MonqueError(reason), record)

    async def _candidates(
        self, documents: Sequence[Document], now: datetime
    ) -> list[TaskCandidate | Rejected]:
        candidates: list[TaskCandidate | Rejected] = []
        for document in documents:
            if type(document["task"]) is str:
                candidates.append(_candidate(document))
            else:
                error = InvalidRecordError("task", document["task"])
                candidates.append(await self._set_quarantine(document["_id"], error, now))
        return candidates

    async def _set_quarantine(
        self, record_id: object, error: InvalidRecordError, now: datetime
    ) -> RejectedRecord:
        """Fail a document that is no record, so that it is met only once."""
        step = quarantine(record_id, str(error), now)
        await self._records.update_one(step.filter, step.update)
        return RejectedRecord(record_id, error)


def _candidate(document: Document) -> TaskCandidate:
    attempts = document.get("attempts")
    return TaskCandidate(
        document["_id"],
        document["task"],
        document["status"] in TaskStatus.RUNNING,
        attempts if isinstance(attempts, int | float) else 0,
    )


def _due_rank(record: TaskRecord | Rejected) -> tuple[int, Any]:
    """Order by what the claim has left of the time it was due."""
    if isinstance(record, Rejected) or record.due_at is None:
        return (0, 0)
    return (1, record.due_at)
