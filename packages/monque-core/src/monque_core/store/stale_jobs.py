"""Recovery: when a claim is stale, and making the jobs of dead instances pending again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeGuard

from bson import ObjectId
from pymongo.errors import WriteError

from monque_core.errors import InvalidJobError
from monque_core.jobs.job import JobStatus
from monque_core.options import STALE_AFTER_HEARTBEATS
from monque_core.store.documents import to_job
from monque_core.store.expressions import EARLIEST
from monque_core.store.indexes import PROCESSING
from monque_core.store.quarantine import Quarantine
from monque_core.store.shard_key import BY_ID
from monque_core.store.transitions import Owner, adopt, revive
from monque_core.store.write_errors import write_each

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from monque_core.jobs.job import AnyJob
    from monque_core.store.driver import Collection, Document

_LONGEST_INTERVAL_MS = timedelta(days=365) // timedelta(milliseconds=1)


def stale(intervals: Iterable[object], now: datetime, lock_timeout: timedelta) -> Document:
    """Match claims without a heartbeat for three intervals, or locked too long without any.

    `intervals` are the heartbeat intervals found on claimed jobs. Listed one by one, they give the
    index exact bounds; with `$expr`, one invalid value would fail the query.
    """
    known = sorted({value for value in intervals if is_interval(value)})
    # "Not since" rather than "before", so that a lock without a date counts as well.
    locked_too_long = {"lockedAt": {"$not": {"$gte": now - lock_timeout}}}
    branches: list[Document] = []
    for interval_ms in known:
        silence = STALE_AFTER_HEARTBEATS * timedelta(milliseconds=interval_ms)
        branches += [
            {"heartbeatInterval": interval_ms, "lastHeartbeat": {"$lt": now - silence}},
            {
                "heartbeatInterval": interval_ms,
                "lastHeartbeat": {"$not": {"$gte": EARLIEST}},
                **locked_too_long,
            },
        ]
    branches.append({"heartbeatInterval": {"$nin": known}, **locked_too_long})
    return {"status": JobStatus.PROCESSING, "$or": branches}


def is_interval(value: object) -> TypeGuard[float]:
    """Whether a stored value is a heartbeat interval; other programs may store anything."""
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and 0 < value <= _LONGEST_INTERVAL_MS
    )


@dataclass(frozen=True, slots=True)
class StaleBatch:
    """Stale jobs as they were found, and the condition that they must still meet."""

    jobs: Sequence[AnyJob]
    unreadable: Sequence[Exception]
    condition: Document


class StaleJobs:
    """Finds and recovers abandoned claims."""

    def __init__(self, collection: Collection, owner: Owner, lock_timeout: timedelta) -> None:
        self._collection = collection
        self._owner = owner
        self._lock_timeout = lock_timeout
        self._quarantine = Quarantine(collection)
        self._unreported: list[Exception] = []
        """Errors of earlier batches, to be reported with the next one."""

    async def find(self, now: datetime, limit: int) -> StaleBatch:
        """Return abandoned jobs; quarantine documents that are not jobs."""
        if not await self._collection.find(PROCESSING, projection={"_id": 0, "status": 1}, limit=1):
            # For an idle queue, one query is enough.
            return StaleBatch([], self._take_unreported(), PROCESSING)
        intervals = await self._collection.distinct("heartbeatInterval", PROCESSING)
        return await self._read(stale(intervals, now, self._lock_timeout), now, limit)

    async def find_of(self, instance_id: str, now: datetime, limit: int) -> StaleBatch:
        """Return the jobs of an instance that has ended."""
        return await self._read({**PROCESSING, "claimedBy": instance_id}, now, limit)

    async def _read(self, condition: Document, now: datetime, limit: int) -> StaleBatch:
        jobs: list[AnyJob] = []
        unreadable = self._take_unreported()
        chosen = {**condition, **self._quarantine.others}
        for document in await self._collection.find(chosen, limit=limit):
            try:
                jobs.append(to_job(document))
            except InvalidJobError as error:
                rejected = await self._quarantine.put(
                    document["_id"], document.get("name"), error, now, condition
                )
                if rejected.error is not None:
                    unreadable.append(rejected.error)
        return StaleBatch(jobs, unreadable, condition)

    async def foreign_claim(self, now: datetime) -> str | None:
        """Return the name of a live job that a program without leases has claimed with our id."""
        mine = {**PROCESSING, "claimedBy": self._owner.instance_id}
        # Claims of Python instances have a token, and are never made before the job is due.
        foreign = {
            "$or": [
                {"claimToken": None},
                {"claimedAt": None},
                {"$expr": {"$gt": ["$nextRunAt", "$claimedAt"]}},
            ]
        }
        fields = {"name": 1, "heartbeatInterval": 1, "lastHeartbeat": 1}
        for claim in await self._collection.find({**mine, **foreign}, projection=fields):
            interval, beat = claim.get("heartbeatInterval"), claim.get("lastHeartbeat")
            if is_interval(interval) and isinstance(beat, datetime):
                silence = STALE_AFTER_HEARTBEATS * timedelta(milliseconds=interval)
                if now - beat <= silence:
                    return str(claim["name"])
        return None

    def _take_unreported(self) -> list[Exception]:
        unreported, self._unreported = self._unreported, []
        return unreported

    async def revive(self, batch: StaleBatch, jobs: Sequence[AnyJob], now: datetime) -> int:
        """Make these jobs of the batch pending again, and return how many were."""
        step = revive(jobs, batch.condition, now)
        try:
            return await self._collection.update_many(step.filter, step.update, hint=BY_ID)
        except WriteError:
            # One job that the server refuses to change must not block the others.
            matched, refusals = await write_each(self._collection, [job.id for job in jobs], step)
            for refusal in refusals:
                left = self._quarantine.skip_refused(refusal.id, refusal.error)
                self._unreported += [] if left.error is None else [left.error]
            return matched

    async def adopt(self, batch: StaleBatch, job: AnyJob, now: datetime) -> AnyJob | None:
        """Take over the claim of one job of the batch; return None if it is no longer stale."""
        token = ObjectId()
        step = adopt(job, batch.condition, self._owner, token, now)
        if not await self._collection.update_one(step.filter, step.update, hint=BY_ID):
            return None
        return replace(
            job,
            claimed_by=self._owner.instance_id,
            claim_token=token,
            locked_at=now,
            last_heartbeat=now,
            heartbeat_interval=self._owner.heartbeat_ms,
            updated_at=now,
        )
