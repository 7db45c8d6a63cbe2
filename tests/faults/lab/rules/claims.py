"""Rules about claims: who runs a job, when, and how many at once."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.faults.lab.document_history import describe, nanoseconds
from tests.faults.lab.times import CLOCK_ERROR, CLOCK_ROUNDING, SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.lab.document_history import DocumentHistory, Write
    from tests.faults.lab.fault_timeline import Fault
    from tests.faults.lab.history import History, Run

STALE_AFTER_HEARTBEATS = 3
UNEXPLAINED_HEARTBEATS = 1.5
"""Silence that needs no fault: the time to the next heartbeat, and its latency."""


def every_run_has_its_own_claim(history: History) -> Iterator[str]:
    """A handler runs at most once per claim, after it, in the instance that made it."""
    claims = {
        (document.id, write.token_after): write
        for document in history.documents.values()
        for write in document.writes
        if write.is_claim
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
        if run.started < claim.at - CLOCK_ROUNDING:
            yield f"{run.process} ran job {run.job} before it was claimed"


def no_job_is_claimed_early(history: History) -> Iterator[str]:
    """A job is claimed only when it is due by the server's clock."""
    for document in history.jobs():
        for write in document.writes:
            if not write.is_claim:
                continue
            assert write.before is not None
            early = nanoseconds(write.before["nextRunAt"]) - write.at
            if early > CLOCK_ERROR:
                early_seconds = early / SECOND
                yield f"{describe(document, write)} was claimed {early_seconds:.1f} s too early"


def only_silent_claims_are_taken_over(history: History) -> Iterator[str]:
    """A claim is taken from its owner only after its heartbeats stopped."""
    for document, write, before in _takeovers(history):
        silence = write.at - nanoseconds(before["lastHeartbeat"])
        patience = STALE_AFTER_HEARTBEATS * before["heartbeatInterval"] * 1_000_000
        if silence < patience - CLOCK_ERROR:
            yield f"{describe(document, write)} was taken over after {silence / SECOND:.2f} s"


def lost_claims_are_explained_by_faults(history: History) -> Iterator[str]:
    """A claim is lost only if faults kept its owner from sending heartbeats."""
    for document, write, before in _takeovers(history):
        if not _causes(history, write, before):
            owner = history.owner(before) or before.get("claimedBy")
            silent = (write.at - nanoseconds(before["lastHeartbeat"])) / SECOND
            yield (
                f"{describe(document, write)} was lost by {owner} after {silent:.2f} s "
                "without a heartbeat, "
                f"of which {_unexplained(history, write, before) / SECOND:.2f} s without a fault"
            )


def concurrency_limits_hold(history: History) -> Iterator[str]:
    """The number of concurrent runs never exceeds the limits of a worker and its instance."""
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
            yield f"{run.process} runs {by_name[run.process, run.name]} jobs {run.name} at once"
        limit = process.instance_limit
        if change > 0 and limit is not None and in_all[run.process] > limit:
            yield f"{run.process} runs {in_all[run.process]} jobs at once"


def explained(history: History) -> Counter[str]:
    """Count the lost claims by the kind of fault that explains them."""
    kinds: Counter[str] = Counter()
    for _, write, before in _takeovers(history):
        causes = _causes(history, write, before)
        # A fault of the process itself explains more than one of all processes.
        causes.sort(
            key=lambda fault: (fault.kind == "end", fault.kind == "starved", fault.target == "*")
        )
        kinds[causes[0].kind if causes else "nothing"] += 1
    return kinds


def _takeovers(history: History) -> Iterator[tuple[DocumentHistory, Write, dict[str, Any]]]:
    """Yield the writes that took a claim from its owner, with the document before each."""
    for document in history.jobs():
        for write in document.writes:
            if write.is_takeover and write.before is not None:
                yield document, write, write.before


def _causes(history: History, write: Write, before: dict[str, Any]) -> list[Fault]:
    """Return the faults that silenced the owner of a claim, if they explain its loss."""
    if _unexplained(history, write, before) > UNEXPLAINED_HEARTBEATS * history.options.heartbeat:
        return []
    since = nanoseconds(before["lastHeartbeat"])
    return history.fault_timeline.of(history.owner(before), since, write.at)


def _unexplained(history: History, write: Write, before: dict[str, Any]) -> float:
    """Return how long the owner of a claim was silent while it was alive and without a fault."""
    since = nanoseconds(before["lastHeartbeat"])
    owner = history.owner(before)
    if any(fault.is_permanent for fault in history.fault_timeline.of(owner, since, write.at)):
        return 0
    return write.at - since - history.fault_timeline.affected_time(owner, since, write.at)
