"""The queue of jobs: finding due jobs and claiming them."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

from pymongo.errors import OperationFailure, WriteError

from monque_core.errors import InvalidJobError
from monque_core.jobs.job import AnyJob
from monque_core.store.claim_queue import ClaimQueue, DueDocument
from monque_core.store.documents import attributes, schedule_problem, to_job, unreadable
from monque_core.store.expressions import EARLIEST, one_of
from monque_core.store.indexes import PENDING, PROCESSING
from monque_core.store.quarantine import Quarantine, Rejected
from monque_core.store.shard_key import BY_ID
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
    from collections.abc import Sequence
    from datetime import datetime

    from bson import ObjectId

    from monque_core.store.driver import Collection, Document
    from monque_core.store.transitions import Transition


_PRIORITY = attrgetter("priority")
_DUE_TIME = attrgetter("next_run_at")


@dataclass(slots=True)
class JobCandidate(DueDocument):
    """A due job that a look has found."""

    claims: float = 0
    failures: float = 0
    max_retries: int | None = None

    @property
    def interrupted(self) -> bool:
        """Whether a claim of it ended without an outcome, as after a killed process."""
        return self.claims > self.failures


class JobQueue(ClaimQueue[AnyJob, JobCandidate]):
    """The pending jobs."""

    _name_field = "name"
    _claim_order = CLAIM_ORDER
    _candidate_fields = {  # noqa: RUF012  # never changed; the base class declares it a class variable
        "name": 1,
        # Absent from most: the count matters only if it exceeds the failures.
        "claims": {"$cond": [{"$gt": ["$claims", "$failCount"]}, COUNTED_CLAIMS, "$claims"]},
        "failCount": 1,
        "maxRetries": 1,
        "repeatInterval": 1,
        "timezone": 1,
    }

    def __init__(self, collection: Collection, owner: Owner) -> None:
        super().__init__(collection)
        self._owner = owner
        self._quarantine = Quarantine(collection)

    async def claim_batch(
        self, candidates: Sequence[JobCandidate], token: ObjectId, now: datetime
    ) -> list[AnyJob | Rejected]:
        """Claim as many of these candidates as are still due."""
        chosen: Document = {
            "_id": {"$in": [candidate.id for candidate in candidates]},
            "name": one_of(list({candidate.name for candidate in candidates})),
        }
        step = claim(chosen, self._owner, token, now)
        try:
            if not await self._collection.update_many(step.filter, step.update, hint=BY_ID):
                return []
        except WriteError:
            # The update stopped at the first job that the server refused.
            rejected = await self._claim_each(candidates, step, now)
            return [*rejected, *await self._read_back(chosen, token, now)]
        return await self._read_back(chosen, token, now)

    async def quarantine_undated(
        self, names: Sequence[str], now: datetime, limit: int
    ) -> list[Rejected]:
        """Quarantine pending jobs whose due time is not a date: no look ever finds them."""
        undated = {"nextRunAt": {"$not": {"$gte": EARLIEST}}}
        documents = await self._collection.find(
            {"name": one_of(names), **PENDING, **undated, **self._quarantine.others},
            projection={"name": 1, "nextRunAt": 1},
            limit=limit,
        )
        return [
            await self._quarantine.put(
                document["_id"],
                document["name"],
                unreadable("nextRunAt", document.get("nextRunAt"), document["_id"]),
                now,
            )
            for document in documents
        ]

    def _due(self, now: datetime) -> Document:
        return {**due(now), **self._quarantine.others}

    def _candidate(self, document: Document) -> JobCandidate | Rejected:
        # Most jobs are not schedules, were never claimed, and have no retry limit.
        if "repeatInterval" in document and (
            problem := schedule_problem(
                document["_id"], document["repeatInterval"], document.get("timezone")
            )
        ):
            return self._quarantine.skip(document["_id"], problem)
        candidate = JobCandidate(document["_id"], document["name"])
        if "claims" in document:
            candidate.claims = _count(document["claims"])
            candidate.failures = _count(document.get("failCount"))
        if "maxRetries" in document and isinstance(document["maxRetries"], int):
            candidate.max_retries = document["maxRetries"]
        return candidate

    async def _reject_name(self, id: object, name: object, now: datetime) -> Rejected:
        return await self._quarantine.put(id, name, unreadable("name", name, id), now)

    def _claimed_at(self, at: datetime) -> Document:
        return {"heartbeatInterval": self._owner.heartbeat_ms, "lastHeartbeat": at}

    async def _claim_single(
        self,
        name: str,
        selection: Document,
        token: ObjectId,
        now: datetime,
    ) -> AnyJob | Rejected | None:
        chosen = {**self._quarantine.others, **selection, "name": name}
        step = claim(chosen, self._owner, token, now)
        hint = BY_ID if "_id" in selection else None
        try:
            document = await self._collection.find_one_and_update(
                step.filter, step.update, sort=CLAIM_ORDER, hint=hint
            )
        except InvalidJobError:
            # The job was claimed and cannot be decoded: its token identifies it.
            taken = await self._read_back({"name": name, **self._claimed_at(now)}, token, now)
            return taken[0] if taken else None
        except OperationFailure as error:
            if not is_document_error(error):
                raise
            return await self._reject_first(name, step, token, now)
        return None if document is None else await self._read(document)

    async def _reject_first(
        self, name: str, step: Transition, token: ObjectId, now: datetime
    ) -> AnyJob | Rejected | None:
        """Quarantine the job that the server refused to update."""
        found = await self._collection.find(
            step.filter, projection={"_id": 1}, sort=CLAIM_ORDER, limit=1
        )
        if not found:
            return None
        candidate = JobCandidate(found[0]["_id"], name)
        rejected = await self._claim_each([candidate], step, now)
        chosen = {"_id": candidate.id, "name": name}
        taken = [*rejected, *await self._read_back(chosen, token, now)]
        return taken[0] if taken else None

    async def _claim_each(
        self, candidates: Sequence[JobCandidate], step: Transition, now: datetime
    ) -> list[Rejected]:
        """Claim each job of a batch by itself, and quarantine those that the server refuses."""
        ids = [candidate.id for candidate in candidates]
        matched, refusals = await write_each(self._collection, ids, step)
        for refusal in refusals:
            # If no job passed, the jobs may not be the cause.
            if not matched and not is_document_error(refusal.error):
                raise refusal.error
        return [
            await self._quarantine.refuse(one.id, candidates[one.position].name, one.error, now)
            for one in refusals
        ]

    async def _read_back(
        self, selection: Document, token: ObjectId, at: datetime, *, majority: bool = False
    ) -> list[AnyJob | Rejected]:
        mine = {"claimedBy": self._owner.instance_id, "claimToken": token}
        written = claimed(self._owner, token, at)
        known = attributes(written)
        documents = await self._collection.find(
            {**PROCESSING, **selection, **mine},
            # Half of a job is what this claim wrote, and dates are slow to decode.
            projection=dict.fromkeys(written, 0),
            majority=majority,
            hint=BY_ID if "_id" in selection else None,
        )
        jobs: list[AnyJob] = []
        rejected: list[Rejected] = []
        for document in documents:
            try:
                job = to_job(document, known=known)
            except InvalidJobError as error:
                put = self._quarantine.put(document["_id"], document["name"], error, at)
                rejected.append(await put)
                continue
            if job.repeat_interval is not None and (skipped := await self._skipped(job, at)):
                rejected.append(skipped)
            else:
                jobs.append(job)
        # The indexes return them in other orders; runs start in the order of the claim.
        jobs.sort(key=_DUE_TIME)
        jobs.sort(key=_PRIORITY, reverse=True)
        return [*rejected, *jobs]

    async def _read(self, document: Document) -> AnyJob | Rejected:
        now = document["lockedAt"]
        try:
            job = to_job(document)
        except InvalidJobError as error:
            return await self._quarantine.put(document["_id"], document["name"], error, now)
        return job if job.repeat_interval is None else await self._skipped(job, now) or job

    async def _skipped(self, schedule: AnyJob, now: datetime) -> Rejected | None:
        """Release a claimed schedule if this instance cannot read its cron, else return None."""
        problem = schedule_problem(schedule.id, schedule.repeat_interval, schedule.timezone)
        if problem is None:
            return None
        step = release([schedule], self._owner, now)
        await self._collection.update_one(step.filter, step.update, hint=BY_ID)
        return self._quarantine.skip(schedule.id, problem)


def _count(value: object) -> float:
    return value if isinstance(value, (int, float)) else 0
