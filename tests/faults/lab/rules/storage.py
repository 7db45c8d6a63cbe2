"""Rules about storing and managing jobs."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from tests.faults.lab.document_history import nanoseconds, writes_in_order
from tests.faults.lab.times import CLOCK_ERROR, CLOCK_ROUNDING, SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.lab.document_history import DocumentHistory, Write
    from tests.faults.lab.history import History, Operation

ENQUEUE_ACTIONS = ("enqueue", "enqueue_many", "enqueue_in_transaction")


def acknowledged_jobs_are_stored(history: History) -> Iterator[str]:
    """No acknowledged job is missing, unless it was deleted by an operator or by retention."""
    deleted = {
        job
        for operation in history.operations
        if operation.action == "delete"
        for job in [operation.details["job"]]
    }
    for operation in history.operations:
        if (
            operation.action not in (*ENQUEUE_ACTIONS, "schedule")
            or operation.result != "succeeded"
        ):
            continue
        for job in operation.jobs:
            document = history.documents.get(job)
            if document is None:
                yield f"{operation.id} returned job {job}, which was never stored"
            elif (
                document.current is None
                and job not in deleted
                and not _is_expired(history, document)
            ):
                yield f"job {job} of {operation.id} is missing, and no call deleted it"


def each_call_stores_its_jobs_once(history: History) -> Iterator[str]:
    """Each call stores its jobs at most once, including retries by the driver."""
    stored = Counter(
        (data["op"], data.get("i", 0))
        for document in history.documents.values()
        if isinstance(data := document.initial.get("data"), dict)
        and "op" in data
        and "repeatInterval" not in document.initial
        and document.initial["status"] == "pending"
    )
    for (operation, position), count in stored.items():
        if count > 1:
            yield f"{operation} stored its item {position} {count} times"


def unique_keys_are_active_once(history: History) -> Iterator[str]:
    """No two pending or processing jobs have the same name and key at any time."""
    active: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for document, write in writes_in_order(history.documents.values()):
        key = document.initial.get("uniqueKey")
        if document.is_foreign or not key:
            continue
        holders = active[document.name, key]
        if write.statuses[1] in ("pending", "processing"):
            holders.add(document.id)
            if len(holders) > 1:
                yield f"{document.name} has the key {key!r} active {len(holders)} times: {holders}"
        else:
            holders.discard(document.id)


def deduplicated_jobs_were_active(history: History) -> Iterator[str]:
    """A call that returns an existing job returns one that was active during the call."""
    for operation in history.operations:
        if not operation.deduplicated or operation.result != "succeeded":
            continue
        for job in operation.jobs:
            document = history.documents.get(job)
            if document is None or not _was_active(document, operation.invoked, operation.returned):
                yield f"{operation.id} returned job {job}, which was not active"


def jobs_are_due_when_requested(history: History) -> Iterator[str]:
    """A new job is due at the requested time, or after its delay, counted from the call."""
    for operation in history.operations:
        is_shared = operation.deduplicated or operation.action not in ENQUEUE_ACTIONS
        if is_shared or operation.result != "succeeded":
            continue
        earliest, latest = _due_between(operation)
        for job in operation.jobs:
            if job not in history.documents:
                continue
            due = nanoseconds(history.documents[job].initial["nextRunAt"])
            if not earliest <= due <= latest:
                late = (due - latest if due > latest else due - earliest) / SECOND
                yield f"{operation.id} stored {job}, which is due {late:+.2f} s off its time"


def operator_actions_take_effect(history: History) -> Iterator[str]:
    """A job that was cancelled or deleted while pending does not run or reappear."""
    retried = {
        operation.details["job"] for operation in history.operations if operation.action == "retry"
    }
    runs = history.runs_by_job()
    for operation in history.operations:
        if operation.result != "succeeded" or operation.action not in ("cancel", "delete"):
            continue
        document = history.documents.get(operation.details["job"])
        if document is None:
            continue
        if operation.action == "delete" and document.current is not None:
            yield f"{operation.id} deleted {document.id}, which still exists"
        if operation.action == "cancel" and document.id in retried:
            continue
        done = _write_of(document, operation)
        if done is None or done.statuses[0] != "pending":
            # A running job is cancelled only at its next heartbeat.
            continue
        for run in runs.get(document.id, []):
            if run.started > operation.returned + CLOCK_ROUNDING and not document.is_lost(
                run.token, done.at
            ):
                yield f"{run.process} ran {document.id} after {operation.id} removed it"


def foreign_documents_are_quarantined_once(history: History) -> Iterator[str]:
    """Foreign documents never run, and are quarantined without repeated writes."""
    ran = {run.job for run in history.runs}
    for document in history.documents.values():
        if not document.is_foreign:
            continue
        if document.id in ran:
            yield f"the foreign document {document.id} was run"
        if len(document.writes) > 4:
            yield f"the foreign document {document.id} was written {len(document.writes)} times"
        if (
            document.initial.get("unreadable")
            and (document.current or {}).get("status") != "failed"
        ):
            yield f"the foreign document {document.id} was not quarantined"


def _is_expired(history: History, document: DocumentHistory) -> bool:
    """Return whether retention may have deleted a job: it was finished for long enough."""
    current = document.writes[-1]
    ages = history.options.retention
    if current.before is None or current.statuses[0] not in ages:
        return False
    age = current.at - nanoseconds(current.before["updatedAt"])
    return age >= ages[current.statuses[0]] * SECOND - CLOCK_ERROR


def _due_between(operation: Operation) -> tuple[float, float]:
    """Return the interval in which a job must become due according to the call."""
    if (run_at := operation.details.get("run_at")) is not None:
        return run_at * SECOND - CLOCK_ROUNDING, run_at * SECOND + CLOCK_ROUNDING
    delay = operation.details.get("delay", 0) * SECOND
    return operation.invoked + delay - CLOCK_ERROR, operation.returned + delay + CLOCK_ERROR


def _write_of(document: DocumentHistory, operation: Operation) -> Write | None:
    """Return the write by which an operator cancelled or deleted a job."""
    status = "cancelled" if operation.action == "cancel" else None
    until = operation.returned + CLOCK_ROUNDING
    writes = [
        write for write in document.writes if write.statuses[1] == status and write.at <= until
    ]
    return writes[-1] if writes else None


def _was_active(document: DocumentHistory, since: float, until: float) -> bool:
    began: int | None = None
    for write in document.writes:
        is_active = write.statuses[1] in ("pending", "processing")
        if is_active and began is None:
            began = write.at
        elif not is_active and began is not None:
            if began <= until + CLOCK_ROUNDING and write.at >= since - CLOCK_ROUNDING:
                return True
            began = None
    return began is not None and began <= until + CLOCK_ROUNDING
