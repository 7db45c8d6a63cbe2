"""Promises to those who store and manage jobs."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from tests.faults.lab.lives import in_order, nanoseconds
from tests.faults.lab.times import CLOCK_READING, MILLISECONDS, SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.lab.history import History, Operation
    from tests.faults.lab.lives import Life, Step

ENQUEUEING = ("enqueue", "enqueue_many", "enqueue_in_transaction")


def what_was_acknowledged_is_stored(history: History) -> Iterator[str]:
    """No acknowledged job is missing, unless it was deleted when it might be."""
    deleted = {
        job
        for operation in history.operations
        if operation.action == "delete"
        for job in [operation.details["job"]]
    }
    for operation in history.operations:
        if operation.action not in (*ENQUEUEING, "schedule") or operation.answer != "told":
            continue
        for job in operation.jobs:
            life = history.lives.get(job)
            if life is None:
                yield f"{operation.id} was told of job {job}, which was never stored"
            elif life.last is None and job not in deleted and not _is_expired(history, life):
                yield f"job {job} of {operation.id} is gone, and nobody deleted it"


def an_operation_stores_its_jobs_once(history: History) -> Iterator[str]:
    """What a caller asked for once is in the queue at most once, retries of the driver included."""
    stored = Counter(
        (data["op"], data.get("i", 0))
        for life in history.lives.values()
        if isinstance(data := life.born.get("data"), dict)
        and "op" in data
        and "repeatInterval" not in life.born
        and life.born["status"] == "pending"
    )
    for (operation, position), count in stored.items():
        if count > 1:
            yield f"{operation} stored {count} jobs for its position {position}"


def unique_keys_are_active_once(history: History) -> Iterator[str]:
    """No two pending or processing jobs have the same name and key at any moment."""
    active: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for life, step in in_order(history.lives.values()):
        key = life.born.get("uniqueKey")
        if life.is_foreign or not key:
            continue
        holders = active[life.name, key]
        if step.statuses[1] in ("pending", "processing"):
            holders.add(life.id)
            if len(holders) > 1:
                yield f"{life.name} has the key {key!r} active {len(holders)} times: {holders}"
        else:
            holders.discard(life.id)


def a_deduplicated_job_was_there(history: History) -> Iterator[str]:
    """Who is given another's job is given one that was active while it asked."""
    for operation in history.operations:
        if not operation.deduplicated or operation.answer != "told":
            continue
        for job in operation.jobs:
            life = history.lives.get(job)
            if life is None or not _was_active(life, operation.asked, operation.told):
                yield f"{operation.id} was given job {job}, which was not active then"


def jobs_are_due_when_asked_for(history: History) -> Iterator[str]:
    """A new job is due at the time asked for, or after the delay, counted from the call."""
    for operation in history.operations:
        is_shared = operation.deduplicated or operation.action not in ENQUEUEING
        if is_shared or operation.answer != "told":
            continue
        earliest, latest = _due_between(operation)
        for job in operation.jobs:
            if job not in history.lives:
                continue
            due = nanoseconds(history.lives[job].born["nextRunAt"])
            if not earliest <= due <= latest:
                late = (due - latest if due > latest else due - earliest) / SECOND
                yield f"{operation.id} stored {job}, which is due {late:+.2f} s from what it asked"


def an_operator_s_word_holds(history: History) -> Iterator[str]:
    """What was cancelled, or deleted before it was claimed, does not run; nor does it come back."""
    retried = {
        operation.details["job"] for operation in history.operations if operation.action == "retry"
    }
    runs = history.runs_by_job()
    for operation in history.operations:
        if operation.answer != "told" or operation.action not in ("cancel", "delete"):
            continue
        life = history.lives.get(operation.details["job"])
        if life is None:
            continue
        if operation.action == "delete" and life.last is not None:
            yield f"{operation.id} deleted {life.id}, which is there"
        if operation.action == "cancel" and life.id in retried:
            continue
        done = _done_by(life, operation)
        if done is None or done.statuses[0] != "pending":
            # A run that is under way is told at its next heartbeat.
            continue
        for run in runs.get(life.id, []):
            if run.started > operation.told + MILLISECONDS and not life.is_lost(run.token, done.at):
                yield f"{run.process} ran {life.id}, of which {operation.id} had been told"


def foreign_documents_are_set_aside_once(history: History) -> Iterator[str]:
    """Garbage in the queue is met once: it never runs, and nobody trips over it again."""
    ran = {run.job for run in history.runs}
    for life in history.lives.values():
        if not life.is_foreign:
            continue
        if life.id in ran:
            yield f"the foreign document {life.id} was run"
        if len(life.steps) > 4:
            yield f"the foreign document {life.id} was written {len(life.steps)} times"
        if life.born.get("unreadable") and (life.last or {}).get("status") != "failed":
            yield f"the foreign document {life.id} still waits in the queue"


def _is_expired(history: History, life: Life) -> bool:
    """Tell whether retention might delete a job: it was finished, and for long enough."""
    last = life.steps[-1]
    ages = history.terms.retention
    if last.before is None or last.statuses[0] not in ages:
        return False
    age = last.at - nanoseconds(last.before["updatedAt"])
    return age >= ages[last.statuses[0]] * SECOND - CLOCK_READING


def _due_between(operation: Operation) -> tuple[float, float]:
    """Tell when a job is due, by what was asked for."""
    if (run_at := operation.details.get("run_at")) is not None:
        return run_at * SECOND - MILLISECONDS, run_at * SECOND + MILLISECONDS
    delay = operation.details.get("delay", 0) * SECOND
    return operation.asked + delay - CLOCK_READING, operation.told + delay + CLOCK_READING


def _done_by(life: Life, operation: Operation) -> Step | None:
    """Give the write by which an operator took a job out of the queue."""
    status = "cancelled" if operation.action == "cancel" else None
    until = operation.told + MILLISECONDS
    steps = [step for step in life.steps if step.statuses[1] == status and step.at <= until]
    return steps[-1] if steps else None


def _was_active(life: Life, since: float, until: float) -> bool:
    began: int | None = None
    for step in life.steps:
        is_active = step.statuses[1] in ("pending", "processing")
        if is_active and began is None:
            began = step.at
        elif not is_active and began is not None:
            if began <= until + MILLISECONDS and step.at >= since - MILLISECONDS:
                return True
            began = None
    return began is not None and began <= until + MILLISECONDS
