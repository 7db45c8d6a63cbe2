"""Every way a run changes the status of a record, each as a filter and an update.

pending → processing (claim) → completed, failed, or pending again. A dirty record becomes pending
however its run ends. Only the server knows which records are dirty, so the updates are pipelines.
An operator, or a new version of the task, makes finished records pending and running ones dirty.
What a change of the source document does is in `plan_updates`. Nothing else changes a status.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from monque_core.store.expressions import (
    REMOVE,
    array_or_empty,
    by_task,
    date_or,
    either,
    first_of,
    has_status,
    literal,
    milliseconds,
    number_or_zero,
    one_among,
    one_of,
)
from monque_core.store.tasks.indexes import IS_DATE
from monque_core.store.tasks.plan_updates import next_run
from monque_core.store.transitions import Transition
from monque_core.tasks.outcome import (
    Deferred,
    Failed,
    Outcome,
    Released,
    Retrying,
    Skipped,
    Succeeded,
)
from monque_core.tasks.record import ExecutionStatus, TaskStatus

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta

    from bson import ObjectId

    from monque_core.store.driver import Document
    from monque_core.tasks.definition import Declaration, Definition
    from monque_core.tasks.record import ExecutionStatusName, TaskRecord

DUE_ORDER: Final = [("nextRunAt", 1)]
ACTIVE: Final = TaskStatus.ACTIVE
WAITING: Final = (TaskStatus.PENDING,)
_LONGEST_ENTRY_ERROR: Final = 500
_RENEWALS_PER_LOCK: Final = 5
DIED: Final = "the process running it died or stalled"
"""The start of the last error of a record whose last run ended without an outcome."""
_IS_DIRTY: Final = has_status(TaskStatus.PROCESSING_DIRTY)
_RUNNING: Final[Document] = {"$in": list(TaskStatus.RUNNING)}


@dataclass(frozen=True, slots=True)
class RecordOwner:
    """Who claims, and for how long a claim holds unless it is renewed."""

    instance_id: str
    visibility: timedelta

    @property
    def renewal_interval(self) -> timedelta:
        """Return the interval between renewals of a claim."""
        return self.visibility / _RENEWALS_PER_LOCK


def due(now: datetime, statuses: Sequence[str] = ACTIVE) -> Document:
    """Match records that may be claimed: due, or running with an expired lock."""
    return {"status": one_of(statuses), "nextRunAt": {"$lte": now, **IS_DATE}}


def claim(
    selection: Document,
    definitions: Sequence[Definition],
    owner: RecordOwner,
    token: ObjectId,
    now: datetime,
    statuses: Sequence[str] = ACTIVE,
) -> Transition:
    """Claim due records of these tasks: → processing, or failed if the last run did not end."""
    is_spent, was_dirty, was_running = "$_claim.spent", "$_claim.dirty", "$_claim.running"
    is_reset = "$_claim.reset"
    attempts = number_or_zero("$attempts")
    spent_error = {"$concat": [f"{DIED}, and no run is left after ", {"$toString": attempts}]}
    interrupted = _entry(now, ExecutionStatus.INTERRUPTED, None, DIED)
    claimed = {
        "status": either(is_spent, TaskStatus.FAILED, TaskStatus.PROCESSING),
        "claimedBy": either(is_spent, REMOVE, literal(owner.instance_id)),
        "claimToken": token,
        "nextRunAt": either(is_spent, None, now + owner.visibility),
        "startedAt": either(is_spent, "$startedAt", now),
        "updatedAt": now,
        "attempts": first_of(
            (is_spent, attempts), (is_reset, 1), otherwise={"$add": [attempts, 1]}
        ),
        "firstErrorAt": first_of(
            (is_reset, REMOVE),
            ({"$or": [was_running, was_dirty]}, date_or("$firstErrorAt", now)),
            otherwise="$firstErrorAt",
        ),
        "lastError": either(is_spent, spent_error, "$lastError"),
        "lastFinalizedAt": either(is_spent, now, "$lastFinalizedAt"),
        "executionHistory": either(
            {"$or": [was_running, was_dirty]},
            by_task({one.name: _extended(interrupted, one) for one in definitions}),
            "$executionHistory",
        ),
    }
    resets = by_task({one.name: one.declaration.reset_on_change for one in definitions})
    return Transition(
        {
            "task": one_of([one.name for one in definitions]),
            **selection,
            **due(now, statuses),
        },
        [
            {
                "$set": {
                    "_claim": {
                        "running": has_status(TaskStatus.PROCESSING),
                        "dirty": _IS_DIRTY,
                        "reset": {"$and": [_IS_DIRTY, resets]},
                        "spent": {
                            "$and": [
                                has_status(TaskStatus.PROCESSING),
                                by_task({one.name: _is_spent(one, now) for one in definitions}),
                            ]
                        },
                    }
                }
            },
            {"$set": claimed},
            {"$unset": "_claim"},
        ],
    )


def renew(records: Sequence[TaskRecord], owner: RecordOwner, now: datetime) -> Transition:
    """Renew claims: the lock expires later."""
    return Transition(
        {
            "_id": {"$in": [record.id for record in records]},
            "status": _RUNNING,
            "claimedBy": owner.instance_id,
            "claimToken": {"$in": list({record.claim_token for record in records})},
        },
        {"$set": {"nextRunAt": now + owner.visibility}},
    )


def expire(instance_id: str, tasks: Sequence[str], now: datetime) -> Transition:
    """Expire the locks of an instance that has ended, so that others can take over."""
    return Transition(
        {
            "task": one_of(tasks),
            "nextRunAt": IS_DATE,
            "status": _RUNNING,
            "claimedBy": instance_id,
        },
        {"$set": {"nextRunAt": now}},
    )


def settle(
    record: TaskRecord,
    outcome: Outcome,
    duration: timedelta | None,
    definition: Definition,
    owner: RecordOwner,
    now: datetime,
) -> Transition:
    """Write one outcome: processing → completed, failed or pending; dirty → pending."""
    clean, dirty, status, error = _after(outcome, definition.declaration, now)
    changes = {
        field: either(_IS_DIRTY, dirty.get(field, f"${field}"), clean.get(field, f"${field}"))
        for field in clean | dirty
    }
    if status is not None:
        entry = _entry(now, status, duration, error)
        changes["executionHistory"] = _extended(entry, definition)
    if isinstance(outcome, Succeeded):
        changes["lastSuccess"] = {"at": now, "durationMs": _run_time(duration) or 0}
    return Transition(
        {
            "_id": record.id,
            "status": _RUNNING,
            "claimedBy": owner.instance_id,
            "claimToken": record.claim_token,
        },
        [{"$set": {**changes, "updatedAt": now, "claimedBy": REMOVE}}],
    )


def quarantine(record_id: object, reason: str, now: datetime) -> Transition:
    """Quarantine a document that cannot be read as a record: → failed."""
    return Transition(
        {"_id": record_id, "status": {"$in": list(ACTIVE)}},
        {
            "$set": {
                "status": TaskStatus.FAILED,
                "nextRunAt": None,
                "lastError": reason,
                "lastFinalizedAt": now,
                "updatedAt": now,
            },
            "$unset": {"claimedBy": ""},
        },
    )


def retry(selection: Document, now: datetime) -> Transition:
    """Run the selected records again, with all attempts: → pending now, processing_dirty."""
    is_running = one_among("$status", TaskStatus.RUNNING)
    is_waiting = {"$or": [has_status(TaskStatus.PENDING), _IS_DIRTY]}
    return Transition(
        {"$and": [selection, {"status": {"$in": list(TaskStatus.ALL)}}]},
        [
            {
                "$set": {
                    "status": either(is_running, TaskStatus.PROCESSING_DIRTY, TaskStatus.PENDING),
                    "nextRunAt": either(is_running, "$nextRunAt", now),
                    "dueAt": either(is_waiting, date_or("$dueAt", now), now),
                    "attempts": either(is_running, "$attempts", 0),
                    "firstErrorAt": either(is_running, "$firstErrorAt", REMOVE),
                    "lastError": either(is_running, "$lastError", REMOVE),
                    "updatedAt": now,
                }
            }
        ],
    )


def rerun(task: str, which: Literal["failed", "all"], now: datetime) -> Transition:
    """Run the records of a new version again if their documents still match."""
    failed: Document = {"status": TaskStatus.FAILED} if which == "failed" else {}
    return retry({"task": task, "unmatchedAt": None, **failed}, now)


def _after(
    outcome: Outcome, declaration: Declaration, now: datetime
) -> tuple[Document, Document, ExecutionStatusName | None, str | None]:
    """Return what an outcome sets on a clean record, on a dirty one, and its history entry.

    A dirty record ends like a clean one, and is then changed.
    """
    first_error = date_or("$firstErrorAt", now)
    fewer = {"$max": [{"$subtract": [number_or_zero("$attempts"), 1]}, 0]}
    again = {"status": TaskStatus.PENDING, "nextRunAt": next_run(declaration, now)}
    anew = {**again, "attempts": 0, "firstErrorAt": REMOVE}
    reset = declaration.reset_on_change
    match outcome:
        case Succeeded() | Skipped():
            ended = {"firstErrorAt": REMOVE, "lastError": REMOVE, "lastFinalizedAt": now}
            clean = {"status": TaskStatus.COMPLETED, "nextRunAt": None, "completedAt": now, **ended}
            dirty = {**ended, **anew}
            if isinstance(outcome, Skipped):
                return clean, dirty, ExecutionStatus.SKIPPED, None
            return clean, dirty, ExecutionStatus.COMPLETED, None
        case Retrying(reason, at):
            ended = {"firstErrorAt": first_error, "lastError": literal(reason)}
            clean = {**ended, "status": TaskStatus.PENDING, "nextRunAt": at}
            return clean, {**ended, **anew} if reset else clean, ExecutionStatus.FAILED, reason
        case Failed(reason):
            ended = {
                "firstErrorAt": first_error,
                "lastError": literal(reason),
                "lastFinalizedAt": now,
            }
            clean = {**ended, "status": TaskStatus.FAILED, "nextRunAt": None}
            dirty = {**ended, **(anew if reset else again)}
            return clean, dirty, ExecutionStatus.FAILED, reason
        case Deferred(at, reason):
            ended = (
                {"attempts": fewer}
                if reason is None
                else {"firstErrorAt": first_error, "lastError": literal(reason)}
            )
            clean = {**ended, "status": TaskStatus.PENDING, "nextRunAt": at}
            dirty = {**ended, **(anew if reset else again)}
            return clean, dirty, ExecutionStatus.DEFERRED, reason
        case Released():
            ended = {"attempts": fewer}
            clean = {**ended, "status": TaskStatus.PENDING, "nextRunAt": now}
            return clean, {**ended, **(anew if reset else again)}, None, None


def _is_spent(definition: Definition, now: datetime) -> Document | bool:
    """Compute whether an interrupted run was the last one, as `Retry.is_spent` does."""
    limits: list[Document] = []
    if (most := definition.retry.max_attempts) is not None:
        limits.append({"$gte": [number_or_zero("$attempts"), most]})
    if (longest := definition.retry.time_limit) is not None:
        limits.append({"$lte": [date_or("$firstErrorAt", now), now - longest]})
    return {"$or": limits} if limits else False


def _extended(entry: Document, definition: Definition) -> Any:
    """Compute the history with a new entry, cut to its newest entries."""
    if not definition.history:
        return REMOVE
    entries = {"$concatArrays": [array_or_empty("$executionHistory"), [entry]]}
    return {"$slice": [entries, -definition.history]}


def _entry(
    now: datetime, status: ExecutionStatusName, duration: timedelta | None, error: str | None
) -> Document:
    entry: Document = {"at": now, "status": status}
    if duration is not None:
        entry["durationMs"] = _run_time(duration)
    if error is not None:
        entry["error"] = literal(error[:_LONGEST_ENTRY_ERROR])
    return entry


def _run_time(duration: timedelta | None) -> int | None:
    return None if duration is None else milliseconds(duration)
