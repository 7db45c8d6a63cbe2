"""Renewing claims and writing how runs ended."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC
from typing import TYPE_CHECKING, Literal, TypeAlias

from bson import ObjectId
from pymongo import UpdateMany
from pymongo.errors import DuplicateKeyError

from monque_core.jobs.fields import COPIED
from monque_core.jobs.job import AnyJob, Job, JobStatus
from monque_core.jobs.outcome import (
    Completed,
    Failed,
    OccurrenceFailed,
    Outcome,
    Released,
    Retrying,
)
from monque_core.store.claim_renewal import ClaimRenewal, Loss
from monque_core.store.documents import to_document
from monque_core.store.shard_key import BY_ID, identified
from monque_core.store.transitions import (
    Owner,
    Transition,
    complete,
    release,
    renew,
    settle,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from monque_core.store.driver import Collection, Document

_STATE_FIELDS = {
    "status": 1,
    "claimedBy": 1,
    "claimToken": 1,
    "failCount": 1,
    "claims": 1,
    "nextRunAt": 1,
    "repeatInterval": 1,
    "timezone": 1,
    "data": 1,
}


@dataclass(slots=True, eq=False)
class Settlement:
    """The outcome of one claim, to be written."""

    job: AnyJob
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Rescheduled:
    """The schedule was changed while the job ran: its next tick must be computed again."""

    repeat_interval: str | None
    timezone: str | None
    data: object = field(default=None, compare=False)


Verdict: TypeAlias = Literal["written"] | Loss | Rescheduled


class Outcomes(ClaimRenewal[AnyJob]):
    """Writes heartbeats and outcomes of the claims of this instance."""

    _running = (JobStatus.PROCESSING,)

    def __init__(self, collection: Collection, owner: Owner) -> None:
        super().__init__(collection, owner.instance_id)
        self._owner = owner

    async def settle(self, settlements: Sequence[Settlement], now: datetime) -> list[Verdict]:
        """Write outcomes in one round trip, and return the verdict on each."""
        occurrences = [one for one in settlements if isinstance(one.outcome, OccurrenceFailed)]
        if not occurrences:
            return await self._settle_group(settlements, now)
        grouped = [one for one in settlements if not isinstance(one.outcome, OccurrenceFailed)]
        verdicts = dict(zip(grouped, await self._settle_group(grouped, now), strict=True))
        for one in occurrences:
            verdicts[one] = await self._settle_occurrence(one, now)
        return [verdicts[one] for one in settlements]

    async def _settle_group(
        self, settlements: Sequence[Settlement], now: datetime
    ) -> list[Verdict]:
        if not settlements:
            return []
        requests = [
            UpdateMany(step.filter, step.update, hint=BY_ID)
            for step in _steps(settlements, self._owner, now)
        ]
        matched, _ = await self._collection.bulk_write(requests)
        if matched == len(settlements):
            return ["written"] * len(settlements)
        states = await self._states([one.job for one in settlements], _STATE_FIELDS)
        return [_judge(one, states.get(one.job.id), self._owner) for one in settlements]

    async def _settle_occurrence(self, settlement: Settlement, now: datetime) -> Verdict:
        """Insert a failed job for the occurrence, then move the schedule to its next tick.

        The id of the copy is derived from the occurrence, so that a repetition after a crash
        between the two writes does not insert a second copy.
        """
        job, outcome = settlement.job, settlement.outcome
        assert isinstance(outcome, OccurrenceFailed)
        step = renew([job], self._owner, now)
        stored = await self._collection.find_one_and_update(step.filter, step.update, hint=BY_ID)
        if stored is None:
            states = await self._states([job], _STATE_FIELDS)
            return _judge(settlement, states.get(job.id), self._owner)
        schedule = _schedule_of(stored)
        if schedule != Rescheduled(job.repeat_interval, job.timezone):
            return schedule
        copy = _failed_copy(job, stored.get("data"), outcome.reason, now)
        await self._insert_copy(copy)
        (verdict,) = await self._settle_group([settlement], now)
        if isinstance(verdict, Rescheduled) or (verdict == "lost" and await self._is_open(job)):
            # The occurrence is open again, or somebody else settles it: remove the copy.
            mine = {
                **identified([copy]),
                "status": JobStatus.FAILED,
                "claimToken": copy.claim_token,
            }
            await self._collection.delete_one(mine)
        return verdict

    async def _insert_copy(self, copy: AnyJob) -> None:
        """Insert the copy of a failed occurrence, or take over the existing one."""
        there = identified([copy])
        is_stored = False
        while not is_stored:
            try:
                await self._collection.insert_one(to_document(copy))
                is_stored = True
            except DuplicateKeyError:
                # An earlier run inserted it, and removes it unless the token says that it is ours;
                # or an operator has retried it; or it has just been removed.
                taken_over = await self._collection.update_one(
                    {**there, "status": JobStatus.FAILED},
                    {"$set": {"claimToken": copy.claim_token}},
                )
                is_stored = bool(taken_over or await self._collection.find_one(there))

    async def _is_open(self, job: AnyJob) -> bool:
        """Whether a schedule is still at this occurrence, whose end is still open."""
        state = (await self._states([job], _STATE_FIELDS)).get(job.id)
        return state is not None and state.get("nextRunAt") == job.next_run_at

    def _renewal(self, claims: Sequence[AnyJob], now: datetime) -> Transition:
        return renew(claims, self._owner, now)

    def _identified(self, claims: Sequence[AnyJob]) -> Document:
        return identified(claims)


def _steps(settlements: Iterable[Settlement], owner: Owner, now: datetime) -> Iterable[Transition]:
    """Yield one update per claim token, so that no run settles the claim of another."""
    completed: defaultdict[object, list[AnyJob]] = defaultdict(list)
    released: defaultdict[object, list[AnyJob]] = defaultdict(list)
    for settlement in settlements:
        job, outcome = settlement.job, settlement.outcome
        if isinstance(outcome, Completed):
            completed[job.claim_token].append(job)
        elif isinstance(outcome, Released):
            released[job.claim_token].append(job)
        else:
            yield settle(job, outcome, owner, now)
    for jobs in completed.values():
        yield complete(jobs, owner, now)
    for jobs in released.values():
        yield release(jobs, owner, now)


def _judge(settlement: Settlement, state: Document | None, owner: Owner) -> Verdict:
    """Return whether a reply or the claim was lost, from what is stored now."""
    job = settlement.job
    if state is None:
        return "deleted"
    if state.get("claimToken") != job.claim_token:
        return "written" if _has_gone_on(settlement, state) else "lost"
    if state["status"] == JobStatus.PROCESSING:
        if state.get("claimedBy") != owner.instance_id:
            return "lost"
        return _schedule_of(state)
    return "lost" if _is_of_somebody_else(settlement, state) else "written"


def _has_gone_on(settlement: Settlement, state: Document) -> bool:
    """Whether the outcome was written, without a reply, before others claimed the job again.

    The counts show it: a release takes its claim off `claims`, and all later claims have failed
    except for one that is running or has succeeded.
    """
    job, failures, claims = settlement.job, state.get("failCount"), state.get("claims")
    if not state.get("claimToken") or not isinstance(failures, int) or not isinstance(claims, int):
        return False
    later = claims - job.claims
    match settlement.outcome:
        case Released():
            return later == 0
        case Retrying():
            failed = later - (state["status"] in (JobStatus.PROCESSING, JobStatus.COMPLETED))
            return later > 0 and failures - job.fail_count == 1 + failed
        case _:
            return False


def _schedule_of(document: Document) -> Rescheduled:
    return Rescheduled(
        document.get("repeatInterval"), document.get("timezone"), document.get("data")
    )


def _is_of_somebody_else(settlement: Settlement, state: Document) -> bool:
    """Whether somebody else took the job from us and left our token on it.

    Instances of Node do that when they recover stale jobs: they do not know tokens.
    """
    job, status = settlement.job, state["status"]
    put_back = status == JobStatus.PENDING and state.get("nextRunAt") == job.next_run_at
    match settlement.outcome:
        case Completed():
            return bool(status != JobStatus.COMPLETED)
        case Failed():
            return bool(status != JobStatus.FAILED)
        case Retrying():
            return bool((state.get("failCount") or 0) <= job.fail_count)
        case Released():
            return False
        case _:
            return put_back


def _failed_copy(job: AnyJob, data: object, reason: str | None, now: datetime) -> AnyJob:
    """Return the failed job that is left behind for one occurrence of a schedule."""
    copied = {name: getattr(job, name) for name in COPIED}
    return Job(
        **copied,
        id=_occurrence_id(job),
        data=data,
        status=JobStatus.FAILED,
        created_at=now,
        updated_at=now,
        fail_count=job.fail_count + 1,
        fail_reason=reason,
    )


def _occurrence_id(job: AnyJob) -> ObjectId:
    seconds = int(job.next_run_at.astimezone(UTC).timestamp())
    stamp = (seconds & 0xFFFFFFFF).to_bytes(4, "big")
    identity = f"{job.id}:{job.next_run_at.isoformat()}".encode()
    return ObjectId(stamp + hashlib.sha256(identity).digest()[:8])
