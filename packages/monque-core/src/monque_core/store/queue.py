"""Looking for due jobs and claiming them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pymongo.errors import OperationFailure, WriteError

from monque_core.errors import InvalidJobError
from monque_core.store.documents import schedule_problem, to_job, unreadable
from monque_core.store.indexes import PENDING, PROCESSING
from monque_core.store.quarantine import Quarantine, RejectedJob
from monque_core.store.selection import one_of
from monque_core.store.staleness import EARLIEST
from monque_core.store.transitions import (
    CLAIM_ORDER,
    COUNTED_CLAIMS,
    Owner,
    claim,
    claimed,
    due,
    release,
)
from monque_core.store.write_errors import is_document_error, write_each

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bson import ObjectId

    from monque_core.jobs.job import AnyJob
    from monque_core.store.driver import Collection, Document
    from monque_core.store.transitions import Transition

_CANDIDATE_FIELDS = {
    "name": 1,
    # Absent from most: whoever was claimed no more often than it failed needs no second thought.
    "claims": {"$cond": [{"$gt": ["$claims", "$failCount"]}, COUNTED_CLAIMS, "$claims"]},
    "failCount": 1,
    "maxRetries": 1,
    "repeatInterval": 1,
    "timezone": 1,
}


@dataclass(slots=True)
class JobCandidate:
    """A due job that a look has seen; whether it can be had, only the claim tells."""

    id: object
    name: str
    claims: float = 0
    failures: float = 0
    max_retries: int | None = None

    @property
    def interrupted(self) -> bool:
        """Tell whether a claim of it ended without an outcome, as a killed process leaves it."""
        return self.claims > self.failures


class JobQueue:
    """The pending side of the jobs collection."""

    def __init__(self, collection: Collection, owner: Owner) -> None:
        self._collection = collection
        self._owner = owner
        self._quarantine = Quarantine(collection)

    async def look(
        self, names: Sequence[str], limit: int, now: datetime
    ) -> list[JobCandidate | RejectedJob]:
        """See the first due jobs of all these names together, in one cheap query."""
        documents = await self._collection.find(
            {"name": one_of(names), **due(now), **self._quarantine.others},
            projection=_CANDIDATE_FIELDS,
            sort=CLAIM_ORDER,
            limit=limit,
        )
        return await self._candidates(documents, now)

    async def look_at_each(
        self, limits: Mapping[str, int], now: datetime
    ) -> list[JobCandidate | RejectedJob]:
        """See the first due jobs of each name, so that no name hides another; still one query."""
        others = self._quarantine.others
        branches = [_first_due(name, limit, now, others) for name, limit in limits.items()]
        pipeline = branches[0] + [
            {"$unionWith": {"coll": self._collection.name, "pipeline": branch}}
            for branch in branches[1:]
        ]
        documents = await self._collection.aggregate(pipeline)
        return await self._candidates(documents, now)

    async def upcoming(
        self, names: Sequence[str], after: datetime, until: datetime, limit: int
    ) -> list[tuple[str, datetime]]:
        """See which of these names become due when, soonest first."""
        documents = await self._collection.find(
            {"name": one_of(names), **PENDING, "nextRunAt": {"$gt": after, "$lte": until}},
            projection={"_id": 0, "name": 1, "nextRunAt": 1},
            sort=[("nextRunAt", 1)],
            limit=limit,
        )
        due_times = [(document["name"], document["nextRunAt"]) for document in documents]
        # An array matches what one of its elements does.
        return [(name, at) for name, at in due_times if type(name) is str and type(at) is datetime]

    async def quarantine_undated(
        self, names: Sequence[str], now: datetime, limit: int
    ) -> list[RejectedJob]:
        """Fail jobs that no look ever finds, for the time they are due is no date."""
        undated = {"nextRunAt": {"$not": {"$gte": EARLIEST}}}
        documents = await self._collection.find(
            {"name": one_of(names), **PENDING, **undated, **self._quarantine.others},
            projection={"nextRunAt": 1},
            limit=limit,
        )
        return [
            await self._quarantine.put(
                document["_id"],
                unreadable("nextRunAt", document.get("nextRunAt"), document["_id"]),
                now,
            )
            for document in documents
        ]

    async def claim_first(
        self, name: str, token: ObjectId, now: datetime
    ) -> AnyJob | RejectedJob | None:
        """Claim the first due job of a name in a single operation."""
        return await self._claim_single({"name": name, **self._quarantine.others}, token, now)

    async def claim_one(
        self, candidate: JobCandidate, token: ObjectId, now: datetime
    ) -> AnyJob | RejectedJob | None:
        """Claim this job by itself."""
        return await self._claim_single({"_id": candidate.id}, token, now)

    async def claim_batch(
        self, candidates: Sequence[JobCandidate], token: ObjectId, now: datetime
    ) -> list[AnyJob | RejectedJob]:
        """Claim as many of these as are still to be had."""
        ids = [candidate.id for candidate in candidates]
        step = claim({"_id": {"$in": ids}}, self._owner, token, now)
        try:
            if not await self._collection.update_many(step.filter, step.update):
                return []
        except WriteError:
            # It has ended with the first that the server refused, whatever came before or after.
            rejected = await self._claim_each(ids, step, now)
            return [*rejected, *await self._read_back({"_id": {"$in": ids}}, token, now)]
        return await self._read_back({"_id": {"$in": ids}}, token, now)

    async def claimed_with(self, token: ObjectId, at: datetime) -> list[AnyJob | RejectedJob]:
        """Read back what a token has claimed at that time, though no reply told of it."""
        # A claim that a failover takes back must not be run: unlike others, nobody confirmed it.
        return await self._read_back(self._beat(at), token, at, majority=True)

    def _beat(self, at: datetime) -> Document:
        """Match what a claim wrote beside its token, which has no index of its own."""
        return {"heartbeatInterval": self._owner.heartbeat_ms, "lastHeartbeat": at}

    async def has_due(self, names: Sequence[str], now: datetime) -> bool:
        """Tell whether anything of these names could be claimed now."""
        condition = {"name": one_of(names), **due(now), **self._quarantine.others}
        return bool(await self._collection.find(condition, projection={"_id": 1}, limit=1))

    async def _read_back(
        self, selection: Document, token: ObjectId, at: datetime, *, majority: bool = False
    ) -> list[AnyJob | RejectedJob]:
        """Read what carries the token, which alone proves that a claim was made."""
        mine = {"claimedBy": self._owner.instance_id, "claimToken": token}
        known = claimed(self._owner, token, at)
        documents = await self._collection.find(
            {**PROCESSING, **selection, **mine},
            # Half of it is what this very claim wrote: dates above all, which are slow to read.
            projection=dict.fromkeys(known, 0),
            majority=majority,
        )
        jobs: list[AnyJob | RejectedJob] = []
        for document in documents:
            document.update(known)
            try:
                job = to_job(document)
            except InvalidJobError as error:
                jobs.append(await self._quarantine.put(document["_id"], error, at))
            else:
                jobs.append(job if job.repeat_interval is None else await self._readable(job, at))
        # The indexes return them in other orders; runs start in the order of the claim.
        jobs.sort(key=_claim_rank)
        return jobs

    async def _claim_single(
        self, selection: Document, token: ObjectId, now: datetime
    ) -> AnyJob | RejectedJob | None:
        step = claim(selection, self._owner, token, now)
        try:
            document = await self._collection.find_one_and_update(
                step.filter, step.update, sort=CLAIM_ORDER
            )
        except InvalidJobError:
            # It was claimed and cannot be decoded; the token tells which it was.
            taken = await self._read_back(self._beat(now), token, now)
            return taken[0] if taken else None
        except OperationFailure as error:
            if not is_document_error(error):
                raise
            return await self._claim_refused(step, token, now)
        return None if document is None else await self._read(document)

    async def _claim_refused(
        self, step: Transition, token: ObjectId, now: datetime
    ) -> AnyJob | RejectedJob | None:
        """Find out which job it was that the server refused, and turn it away."""
        found = await self._collection.find(
            step.filter, projection={"_id": 1}, sort=CLAIM_ORDER, limit=1
        )
        if not found:
            return None
        ids = [found[0]["_id"]]
        rejected = await self._claim_each(ids, step, now)
        taken = [*rejected, *await self._read_back({"_id": {"$in": ids}}, token, now)]
        return taken[0] if taken else None

    async def _claim_each(
        self, ids: Sequence[object], step: Transition, now: datetime
    ) -> list[RejectedJob]:
        """Claim what can be claimed of a batch, and turn away what the server refuses."""
        matched, refusals = await write_each(self._collection, ids, step)
        for refusal in refusals:
            # With none that passed, it may be for no fault of theirs.
            if not matched and not is_document_error(refusal.error):
                raise refusal.error
        return [await self._quarantine.refuse(one.id, one.error, now) for one in refusals]

    async def _read(self, document: Document) -> AnyJob | RejectedJob:
        now = document["lockedAt"]
        try:
            job = to_job(document)
        except InvalidJobError as error:
            return await self._quarantine.put(document["_id"], error, now)
        return job if job.repeat_interval is None else await self._readable(job, now)

    async def _readable(self, schedule: AnyJob, now: datetime) -> AnyJob | RejectedJob:
        """Hand back a claimed schedule whose next run is not known here."""
        problem = schedule_problem(schedule.id, schedule.repeat_interval, schedule.timezone)
        if problem is None:
            return schedule
        step = release([schedule.id], schedule.claim_token, self._owner, now)
        await self._collection.update_one(step.filter, step.update)
        return self._quarantine.leave(schedule.id, problem)

    async def _candidates(
        self, documents: Sequence[Document], now: datetime
    ) -> list[JobCandidate | RejectedJob]:
        candidates: list[JobCandidate | RejectedJob] = []
        for document in documents:
            if type(document["name"]) is not str:
                error = unreadable("name", document["name"], document["_id"])
                candidates.append(await self._quarantine.put(document["_id"], error, now))
            elif "repeatInterval" in document and (
                problem := schedule_problem(
                    document["_id"], document["repeatInterval"], document.get("timezone")
                )
            ):
                candidates.append(self._quarantine.leave(document["_id"], problem))
            else:
                candidates.append(_candidate(document))
        return candidates


def _first_due(name: str, limit: int, now: datetime, others: Document) -> list[Document]:
    return [
        {"$match": {"name": name, **due(now), **others}},
        {"$sort": dict(CLAIM_ORDER)},
        {"$limit": limit},
        {"$project": _CANDIDATE_FIELDS},
    ]


def _candidate(document: Document) -> JobCandidate:
    candidate = JobCandidate(document["_id"], document["name"])
    # Most of them have been claimed never before, and have no limit of their own.
    if "claims" in document:
        candidate.claims = _count(document["claims"])
        candidate.failures = _count(document.get("failCount"))
    if "maxRetries" in document and isinstance(document["maxRetries"], int):
        candidate.max_retries = document["maxRetries"]
    return candidate


def _count(value: object) -> float:
    return value if isinstance(value, (int, float)) else 0


def _claim_rank(job: AnyJob | RejectedJob) -> tuple[int, Any]:
    if isinstance(job, RejectedJob):
        return (0, 0)
    return (1, (-job.priority, job.next_run_at))
