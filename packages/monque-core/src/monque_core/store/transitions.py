"""Every change of a job's status, as one function that returns a filter and an update.

A claim makes a pending job processing. Its end makes it completed, failed or pending again. An
operator cancels pending jobs, and retries failed and cancelled ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from monque_core.jobs.fields import CLEARED
from monque_core.jobs.job import JobStatus
from monque_core.jobs.outcome import (
    Advanced,
    Completed,
    Failed,
    OccurrenceFailed,
    Outcome,
    Released,
    Retrying,
)
from monque_core.store.expressions import EARLIEST
from monque_core.store.shard_key import identified, of_names

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from bson import ObjectId

    from monque_core.jobs.job import AnyJob
    from monque_core.store.driver import Document, Update

CANCELLABLE: Final[Document] = {"$in": [JobStatus.PENDING]}
RETRYABLE: Final[Document] = {"$in": [JobStatus.FAILED, JobStatus.CANCELLED]}
CLAIM_ORDER: Final = [("priority", -1), ("nextRunAt", 1)]
_CLAIM_FIELDS: Final = tuple(field.key for field in CLEARED if field.cleared_by == "end of claim")
_DROP_CLAIM: Final = dict.fromkeys(_CLAIM_FIELDS, "")
_DROP_CLAIM_AND_REASON: Final = {**_DROP_CLAIM, "failReason": ""}
_DROP_CLAIM_AND_TOKEN: Final = {**_DROP_CLAIM, "claimToken": ""}


def _number(field: str) -> Document:
    return {"$cond": [{"$isNumber": field}, field, 0]}


# A due time later than the last Python claim means that the job was moved since. If Python moved
# it, the count is valid: it is 0 after a success, and after a failure there is a fail count and no
# heartbeat interval. If Node moved it, the count is outdated: a run of Node leaves a heartbeat
# interval, and its retry sets the fail count to 0.
_IS_OUTDATED: Final[Document] = {
    "$and": [
        {"$gte": ["$claimedAt", EARLIEST]},
        {"$gt": ["$nextRunAt", "$claimedAt"]},
        {"$or": [{"$lte": ["$failCount", 0]}, {"$gt": ["$heartbeatInterval", None]}]},
    ]
}
_COUNTED_AGAIN: Final[Document] = {
    "$let": {
        "vars": {
            "claims": {
                "$cond": [{"$and": [{"$gt": ["$claims", 0]}, _IS_OUTDATED]}, 0, _number("$claims")]
            },
            "failures": _number("$failCount"),
        },
        # Every failure was a run, even if another program did not count its claim.
        "in": {
            "$cond": [
                {"$and": [{"$gte": ["$$claims", 0]}, {"$lt": ["$$claims", "$$failures"]}]},
                "$$failures",
                "$$claims",
            ]
        },
    }
}
COUNTED_CLAIMS: Final[Document] = {
    "$cond": [
        {"$or": [{"$gt": ["$claims", 0]}, {"$gt": ["$failCount", 0]}]},
        _COUNTED_AGAIN,
        # Most jobs are claimed for the first time: nothing to correct.
        _number("$claims"),
    ]
}
"""Compute how often a waiting job was claimed, without counts that Node made outdated."""


@dataclass(frozen=True, slots=True)
class Transition:
    """One conditional write."""

    filter: Document
    update: Update


@dataclass(frozen=True, slots=True)
class Owner:
    """The instance that claims, and its heartbeat interval."""

    instance_id: str
    heartbeat_ms: int


def due(now: datetime) -> Document:
    """Match what may be claimed now."""
    return {
        "status": JobStatus.PENDING,
        "nextRunAt": {"$lte": now},
        "claimedBy": None,
    }


def claim(selection: Document, owner: Owner, token: ObjectId, now: datetime) -> Transition:
    """Claim those of the selected jobs that are due: pending → processing."""
    counted = {"$add": [COUNTED_CLAIMS, 1]}
    return Transition(
        {**selection, **due(now)},
        # A pipeline: $inc would fail a whole batch on one null that another program stored.
        [{"$set": {**_literal(claimed(owner, token, now)), "claims": counted}}],
    )


def claimed(owner: Owner, token: ObjectId, now: datetime) -> Document:
    """Return the fields that a claim sets, whatever they were before."""
    return {**_ownership(owner, token, now), "claimedAt": now}


def adopt(job: AnyJob, stale: Document, owner: Owner, token: ObjectId, now: datetime) -> Transition:
    """Take over a stale claim in order to settle it; not counted: processing → processing."""
    return Transition(
        {**identified([job]), "claimToken": job.claim_token, **stale},
        {"$set": _ownership(owner, token, now)},
    )


def revive(jobs: Sequence[AnyJob], stale: Document, now: datetime) -> Transition:
    """Recover stale jobs; the lost claim stays counted: processing → pending.

    The token is removed: a run that wakes up later must not take this for its own outcome.
    """
    return Transition(
        {**identified(jobs), **stale},
        {
            "$set": {"status": JobStatus.PENDING, "updatedAt": now},
            "$unset": _DROP_CLAIM_AND_TOKEN,
        },
    )


def renew(jobs: Sequence[AnyJob], owner: Owner, now: datetime) -> Transition:
    """Renew claims: processing → processing."""
    return Transition(
        held(jobs, owner),
        {"$set": {"lastHeartbeat": now, "lockedAt": now, "updatedAt": now}},
    )


def held(jobs: Sequence[AnyJob], owner: Owner) -> Document:
    """Match those of the jobs whose claims are still valid."""
    return {
        **identified(jobs),
        "status": JobStatus.PROCESSING,
        "claimedBy": owner.instance_id,
        "claimToken": {"$in": list({job.claim_token for job in jobs})},
    }


def complete(jobs: Sequence[AnyJob], owner: Owner, now: datetime) -> Transition:
    """Complete one-off jobs of one claim, unless they became schedules: → completed."""
    return Transition(
        {**_fence(jobs, owner), "repeatInterval": None},
        {
            "$set": {"status": JobStatus.COMPLETED, "updatedAt": now},
            "$unset": _DROP_CLAIM_AND_REASON,
        },
    )


def release(jobs: Sequence[AnyJob], owner: Owner, now: datetime) -> Transition:
    """Release jobs of one claim as if it had never been made: processing → pending."""
    return Transition(
        _fence(jobs, owner),
        {
            "$set": {"status": JobStatus.PENDING, "updatedAt": now},
            "$unset": _DROP_CLAIM,
            "$inc": {"claims": -1},
        },
    )


def settle(
    job: AnyJob,
    outcome: Outcome,
    owner: Owner,
    now: datetime,
) -> Transition:
    """Write one outcome: processing → completed, failed or pending."""
    match outcome:
        case Completed():
            return complete([job], owner, now)
        case Released():
            return release([job], owner, now)
        case Retrying(reason, at):
            reason_set, dropped = _reason_changes(reason)
            changes = {"failCount": job.fail_count + 1, **reason_set, "nextRunAt": at}
            return _end(job, owner, now, JobStatus.PENDING, changes, dropped)
        case Failed(reason):
            reason_set, dropped = _reason_changes(reason)
            changes = {"failCount": job.fail_count + 1, **reason_set}
            step = _end(job, owner, now, JobStatus.FAILED, changes, dropped)
            return _by_schedule(job, step)
        case Advanced(at, _):
            return _advance(job, at, owner, now, {}, _DROP_CLAIM_AND_REASON)
        case OccurrenceFailed(reason, at):
            reason_set, dropped = _reason_changes(reason)
            return _advance(job, at, owner, now, reason_set, dropped)


def quarantine(job_id: object, name: object, reason: str | None, now: datetime) -> Transition:
    """Fail a document that cannot run: pending or processing → failed.

    Without a reason the document does not grow, so that it never exceeds the size limit.
    """
    condition = {"_id": job_id, **of_names([name]), "status": {"$in": list(JobStatus.ACTIVE)}}
    if reason is None:
        is_timed = {"$eq": [{"$type": "$updatedAt"}, "date"]}
        timed = {"$cond": [is_timed, now, "$updatedAt"]}
        return Transition(
            condition,
            [
                {"$set": {"status": JobStatus.FAILED, "updatedAt": timed}},
                {"$unset": list(_CLAIM_FIELDS)},
            ],
        )
    return Transition(
        condition,
        {
            "$set": {"status": JobStatus.FAILED, "failReason": reason, "updatedAt": now},
            "$unset": _DROP_CLAIM,
        },
    )


def cancel(selection: Document, now: datetime) -> Transition:
    """Cancel the selected jobs: pending → cancelled."""
    return Transition(
        {**selection, "status": CANCELLABLE, "claimedBy": None},
        {"$set": {"status": JobStatus.CANCELLED, "updatedAt": now}},
    )


def retry(selection: Document, now: datetime, spread: timedelta = timedelta(0)) -> Transition:
    """Retry the selected jobs with all their runs: failed, cancelled → pending.

    They become due now or within `spread`. A job that was cancelled before it was due keeps its
    due time.
    """
    later = {"$multiply": [{"$rand": {}}, spread // timedelta(milliseconds=1)]}
    is_early = {
        "$and": [
            {"$eq": ["$status", JobStatus.CANCELLED]},
            {"$eq": [{"$type": "$nextRunAt"}, "date"]},
            {"$gt": ["$nextRunAt", now]},
        ]
    }
    return Transition(
        {**selection, "status": RETRYABLE},
        [
            {
                "$set": {
                    "status": JobStatus.PENDING,
                    "nextRunAt": {"$cond": [is_early, "$nextRunAt", {"$add": [now, later]}]},
                    "failCount": 0,
                    "updatedAt": now,
                }
            },
            {"$unset": [field.key for field in CLEARED]},
        ],
    )


def retried(job: AnyJob, now: datetime) -> AnyJob:
    """Return a job as `retry` leaves it."""
    is_cancelled = job.status == JobStatus.CANCELLED
    cleared = {field.name: field.default for field in CLEARED}
    return replace(
        job,
        status=JobStatus.PENDING,
        next_run_at=max(now, job.next_run_at) if is_cancelled else now,
        updated_at=now,
        fail_count=0,
        **cleared,
    )


def reschedule(selection: Document, run_at: datetime, now: datetime) -> Transition:
    """Change when the selected job is due: pending → pending."""
    return Transition(
        {**selection, "status": CANCELLABLE, "claimedBy": None},
        {"$set": {"nextRunAt": run_at, "updatedAt": now}},
    )


def _advance(
    job: AnyJob,
    tick: datetime,
    owner: Owner,
    now: datetime,
    changes: Document,
    dropped: Document,
) -> Transition:
    """Move a schedule to its next tick: processing → pending."""
    step = _end(
        job,
        owner,
        now,
        JobStatus.PENDING,
        {**changes, "nextRunAt": tick, "failCount": 0, "claims": 0},
        dropped,
    )
    return _by_schedule(job, step)


def _by_schedule(job: AnyJob, step: Transition) -> Transition:
    """Write an outcome only if the schedule is still the one that it was computed from."""
    condition = {"repeatInterval": job.repeat_interval, "timezone": job.timezone}
    return Transition({**step.filter, **condition}, step.update)


def _end(
    job: AnyJob,
    owner: Owner,
    now: datetime,
    status: str,
    changes: Document,
    dropped: Document,
) -> Transition:
    return Transition(
        _fence([job], owner),
        {"$set": {"status": status, "updatedAt": now, **changes}, "$unset": dropped},
    )


def _reason_changes(reason: str | None) -> tuple[Document, Document]:
    """Return the fields to set and to unset; without a reason, an earlier one is removed."""
    return ({}, _DROP_CLAIM_AND_REASON) if reason is None else ({"failReason": reason}, _DROP_CLAIM)


def _fence(jobs: Sequence[AnyJob], owner: Owner) -> Document:
    """Match only jobs that still belong to the claim that they were read with."""
    return {
        **identified(jobs),
        "status": JobStatus.PROCESSING,
        "claimedBy": owner.instance_id,
        "claimToken": jobs[0].claim_token,
    }


def _ownership(owner: Owner, token: ObjectId, now: datetime) -> Document:
    return {
        "status": JobStatus.PROCESSING,
        "claimedBy": owner.instance_id,
        "lockedAt": now,
        "lastHeartbeat": now,
        "heartbeatInterval": owner.heartbeat_ms,
        "updatedAt": now,
        "claimToken": token,
    }


def _literal(values: Document) -> Document:
    """Keep a pipeline from reading a text that begins with a dollar sign as a field."""
    return {field: {"$literal": value} for field, value in values.items()}
