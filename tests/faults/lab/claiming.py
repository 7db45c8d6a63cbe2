"""Promises about who runs a job, when, and how many at once."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.faults.lab.lives import nanoseconds, told
from tests.faults.lab.times import CLOCK_READING, MILLISECONDS, SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.lab.disturbances import Fault
    from tests.faults.lab.history import History, Run
    from tests.faults.lab.lives import Life, Step

STALE_AFTER_HEARTBEATS = 3
UNEXPLAINED_HEARTBEATS = 1.5
"""How much of a silence needs no fault: the time to the next beat, and the way of that beat."""


def every_run_has_a_claim_of_its_own(history: History) -> Iterator[str]:
    """A handler runs once per claim, after it, in the instance that made it."""
    claims = {
        (life.id, step.token_after): step
        for life in history.lives.values()
        for step in life.steps
        if step.is_claim
    }
    seen = Counter((run.job, run.token) for run in history.runs)
    for (job, token), count in seen.items():
        if count > 1:
            yield f"job {job} ran {count} times under its claim {token}"
    for run in history.runs:
        claim = claims.get((run.job, run.token))
        if claim is None:
            yield f"{run.process} ran job {run.job} without a claim"
            continue
        assert claim.after is not None
        if claim.after.get("claimedBy") != history.processes[run.process].instance:
            yield f"{run.process} ran job {run.job}, which {claim.after.get('claimedBy')} claimed"
        if run.started < claim.at - MILLISECONDS:
            yield f"{run.process} ran job {run.job} before it was claimed"


def nothing_is_claimed_early(history: History) -> Iterator[str]:
    """A job is claimed when it is due, by the server's clock, and only from the queue."""
    for life in history.jobs():
        for step in life.steps:
            if not step.is_claim:
                continue
            assert step.before is not None
            early = nanoseconds(step.before["nextRunAt"]) - step.at
            if early > CLOCK_READING:
                yield f"{told(life, step)} was claimed {early / SECOND:.1f} s before it was due"


def only_silent_claims_are_taken_over(history: History) -> Iterator[str]:
    """A claim is taken from its owner only when its heartbeats have failed to come."""
    for life, step, before in _taken_over(history):
        silence = step.at - nanoseconds(before["lastHeartbeat"])
        patience = STALE_AFTER_HEARTBEATS * before["heartbeatInterval"] * 1_000_000
        if silence < patience - CLOCK_READING:
            yield f"{told(life, step)} was taken over after {silence / SECOND:.2f} s"


def a_lost_claim_is_explained_by_a_fault(history: History) -> Iterator[str]:
    """A second run is owed to faults that kept the first one's owner from its heartbeats."""
    for life, step, before in _taken_over(history):
        if not _causes(history, step, before):
            owner = history.owner(before) or before.get("claimedBy")
            silent = (step.at - nanoseconds(before["lastHeartbeat"])) / SECOND
            yield (
                f"{told(life, step)} was lost by {owner} after {silent:.2f} s without a heartbeat, "
                f"of which {_unexplained(history, step, before) / SECOND:.2f} s without a fault"
            )


def limits_hold(history: History) -> Iterator[str]:
    """No more runs overlap than a worker and its instance allow."""
    changes: list[tuple[float, int, Run]] = []
    for run in history.runs:
        changes += [(run.started, 1, run), (run.ended, -1, run)]
    changes.sort(key=lambda change: change[:2])
    by_name: Counter[tuple[str, str]] = Counter()
    in_all: Counter[str] = Counter()
    for _, change, run in changes:
        by_name[run.process, run.name] += change
        in_all[run.process] += change
        process = history.processes[run.process]
        if change > 0 and by_name[run.process, run.name] > process.limits[run.name]:
            yield f"{run.process} runs {by_name[run.process, run.name]} of {run.name} at once"
        limit = process.instance_limit
        if change > 0 and limit is not None and in_all[run.process] > limit:
            yield f"{run.process} runs {in_all[run.process]} jobs at once"


def explained(history: History) -> Counter[str]:
    """Count the second runs by the kind of fault that explains them."""
    kinds: Counter[str] = Counter()
    for _, step, before in _taken_over(history):
        causes = _causes(history, step, before)
        # Its own faults explain more than those of everybody.
        causes.sort(
            key=lambda fault: (fault.kind == "end", fault.kind == "starved", fault.target == "*")
        )
        kinds[causes[0].kind if causes else "nothing"] += 1
    return kinds


def _taken_over(history: History) -> Iterator[tuple[Life, Step, dict[str, Any]]]:
    """Give the writes that took a claim from its owner, and the documents before them."""
    for life in history.jobs():
        for step in life.steps:
            if step.is_taking_over and step.before is not None:
                yield life, step, step.before


def _causes(history: History, step: Step, before: dict[str, Any]) -> list[Fault]:
    """Give the faults that kept the owner of a claim from its heartbeats, if they explain it."""
    if _unexplained(history, step, before) > UNEXPLAINED_HEARTBEATS * history.terms.heartbeat:
        return []
    since = nanoseconds(before["lastHeartbeat"])
    return history.disturbances.of(history.owner(before), since, step.at)


def _unexplained(history: History, step: Step, before: dict[str, Any]) -> float:
    """Tell for how much of its silence the owner of a claim was neither disturbed nor dead."""
    since = nanoseconds(before["lastHeartbeat"])
    owner = history.owner(before)
    if any(fault.is_final for fault in history.disturbances.of(owner, since, step.at)):
        return 0
    return step.at - since - history.disturbances.time_of(owner, since, step.at)
