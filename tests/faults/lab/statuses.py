"""Promises about how jobs change their status, and for what reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.faults.lab.lives import nanoseconds, told
from tests.faults.lab.times import CLOCK_READING, MILLISECONDS, SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.lab.history import History
    from tests.faults.lab.lives import Life, Step

_BY_AN_OPERATOR = {
    ("pending", "cancelled"): "cancel",
    ("failed", "pending"): "retry",
    ("cancelled", "pending"): "retry",
}
_BY_ITSELF = {
    (None, "pending"),
    (None, "failed"),  # an occurrence of a schedule that was given up
    ("pending", "processing"),
    ("processing", "pending"),
    ("processing", "completed"),
    ("processing", "failed"),
}


def statuses_change_as_documented(history: History) -> Iterator[str]:
    """Outcomes come from a claim, and what an operator may change from one who asked for it."""
    asked: dict[tuple[str, str], int] = {}
    for operation in history.operations:
        if operation.action in _BY_AN_OPERATOR.values():
            asked.setdefault((operation.action, operation.details["job"]), operation.asked)
    for life in history.jobs():
        for step in life.steps:
            before, after = step.statuses
            if before == after or after is None or step.statuses in _BY_ITSELF:
                continue
            action = _BY_AN_OPERATOR.get(step.statuses)
            if action is None:
                yield f"{told(life, step)} is no change that there is"
            elif asked.get((action, life.id), history.ended) > step.at + MILLISECONDS:
                yield f"{told(life, step)} was changed, and nobody had asked for it"


def nothing_is_given_up_early(history: History) -> Iterator[str]:
    """A job fails for good when it has failed, or was interrupted, as often as it may."""
    for life in history.jobs():
        limit = life.limit(history.terms.max_retries)
        adopted = life.adopted()
        for step in life.steps:
            if step.after is None or step.statuses[1] != "failed" or step.statuses[0] == "failed":
                continue
            failures = int(step.after.get("failCount") or 0)
            claims = int(step.after.get("claims") or 0)
            if step.token_before in adopted:
                if claims < limit:
                    yield f"{told(life, step)} was interrupted {claims} of {limit} times"
            elif failures < limit and not _is_occurrence(history, life, step):
                yield f"{told(life, step)} has failed {failures} of {limit} times"


def retries_wait_for_their_backoff(history: History) -> Iterator[str]:
    """A failed run is tried again after twice its base, doubled each time, and not before."""
    ends = {(run.job, run.token): run.ended for run in history.runs}
    for life in history.jobs():
        for step in life.steps:
            if step.after is None or not step.is_failure:
                continue
            ended = ends.get((life.id, step.token_before))
            if ended is None:
                continue
            delay = history.terms.backoff(step.after["failCount"])
            due = nanoseconds(step.after["nextRunAt"])
            if due < ended + delay - MILLISECONDS - CLOCK_READING:
                waits = (due - ended) / SECOND
                yield f"{told(life, step)} waits {waits:.2f} s instead of {delay / SECOND:.2f} s"
            elif due > step.at + delay + CLOCK_READING:
                late = (due - step.at) / SECOND
                yield f"{told(life, step)} is due in {late:.2f} s, not in {delay / SECOND:.2f} s"


def _is_occurrence(history: History, life: Life, step: Step) -> bool:
    """Tell whether this is what a schedule left behind that was interrupted too often."""
    return step.statuses[0] is None and any(
        other.adopted() for other in history.jobs() if other.name == life.name
    )
