"""Rules about status changes of jobs and their reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.faults.lab.document_history import describe, nanoseconds
from tests.faults.lab.times import CLOCK_ERROR, CLOCK_ROUNDING, SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.lab.document_history import DocumentHistory, Write
    from tests.faults.lab.history import History

_BY_OPERATORS = {
    ("pending", "cancelled"): "cancel",
    ("failed", "pending"): "retry",
    ("cancelled", "pending"): "retry",
}
_BY_MONQUE = {
    (None, "pending"),
    (None, "failed"),  # The occurrence of a schedule that was given up.
    ("pending", "processing"),
    ("processing", "pending"),
    ("processing", "completed"),
    ("processing", "failed"),
}


def statuses_change_as_documented(history: History) -> Iterator[str]:
    """Outcomes require a claim, and status changes by an operator require a call."""
    asked: dict[tuple[str, str], int] = {}
    for operation in history.operations:
        if operation.action in _BY_OPERATORS.values():
            asked.setdefault((operation.action, operation.details["job"]), operation.invoked)
    for document in history.jobs():
        for write in document.writes:
            before, after = write.statuses
            if before == after or after is None or write.statuses in _BY_MONQUE:
                continue
            action = _BY_OPERATORS.get(write.statuses)
            if action is None:
                yield f"{describe(document, write)} is not an allowed change"
            elif asked.get((action, document.id), history.ended) > write.at + CLOCK_ROUNDING:
                yield f"{describe(document, write)} was changed without a call"


def no_job_is_given_up_early(history: History) -> Iterator[str]:
    """A job is given up only after it failed, or was interrupted, as often as allowed."""
    for document in history.jobs():
        limit = document.limit(history.options.max_retries)
        adopted = document.adopted()
        for write in document.writes:
            if (
                write.after is None
                or write.statuses[1] != "failed"
                or write.statuses[0] == "failed"
            ):
                continue
            failures = int(write.after.get("failCount") or 0)
            claims = int(write.after.get("claims") or 0)
            if write.token_before in adopted:
                if claims < limit:
                    times = f"{claims}/{limit} interruptions"
                    yield f"{describe(document, write)} was given up after {times}"
            elif failures < limit and not _is_occurrence(history, document, write):
                yield f"{describe(document, write)} was given up after {failures}/{limit} failures"


def retries_wait_for_their_backoff(history: History) -> Iterator[str]:
    """A failed job waits exactly for its backoff: twice the base delay, doubled each time."""
    ends = {(run.job, run.token): run.ended for run in history.runs}
    for document in history.jobs():
        for write in document.writes:
            if write.after is None or not write.is_failure:
                continue
            ended = ends.get((document.id, write.token_before))
            if ended is None:
                continue
            delay = history.options.backoff(write.after["failCount"])
            due = nanoseconds(write.after["nextRunAt"])
            if due < ended + delay - CLOCK_ROUNDING - CLOCK_ERROR:
                waits = (due - ended) / SECOND
                backoff = delay / SECOND
                yield f"{describe(document, write)} waits {waits:.2f} s instead of {backoff:.2f} s"
            elif due > write.at + delay + CLOCK_ERROR:
                late = (due - write.at) / SECOND
                backoff = delay / SECOND
                yield f"{describe(document, write)} is due in {late:.2f} s, not in {backoff:.2f} s"


def _is_occurrence(history: History, document: DocumentHistory, write: Write) -> bool:
    """Return whether this is the failed occurrence of a schedule that was interrupted too often."""
    return write.statuses[0] is None and any(
        other.adopted() for other in history.jobs() if other.name == document.name
    )
