"""Rules about how jobs end."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from tests.faults.lab.document_history import describe, nanoseconds
from tests.faults.lab.times import CLOCK_ROUNDING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.lab.document_history import DocumentHistory, Write
    from tests.faults.lab.history import History, Run


def due_jobs_have_run(history: History) -> Iterator[str]:
    """At the end, no due job is pending or claimed, and completed jobs have a successful run."""
    for note in history.of("not idle"):
        yield f"jobs were unfinished after {note.details['seconds']} s"
    done = {(run.job, run.token) for run in history.runs if run.how == "ok"}
    for document in history.jobs():
        current = document.current
        if current is None:
            continue
        if current["status"] == "processing":
            yield f"{document.name} {document.id} is still claimed by {current.get('claimedBy')}"
        elif current["status"] == "pending" and nanoseconds(current["nextRunAt"]) <= history.ended:
            due = current["nextRunAt"]
            yield f"{document.name} {document.id} is still pending, due since {due}"
        elif (
            current["status"] == "completed"
            and (document.id, str(current.get("claimToken"))) not in done
        ):
            yield f"{document.name} {document.id} is completed without a successful run"


def only_claim_owners_write_outcomes(history: History) -> Iterator[str]:
    """Outcomes are written by the owner of the claim, after its run, and match its result."""
    runs = {(run.job, run.token): run for run in history.runs}
    for document in history.jobs():
        adopted = document.adopted()
        for write in document.writes:
            if not write.is_outcome:
                continue
            run = runs.get((document.id, write.token_before))
            if write.token_before in adopted:
                if write.statuses[1] != "failed" and not write.is_recurrence:
                    yield f"{describe(document, write)} was taken over but not given up"
            elif write.is_release:
                yield from _release_errors(history, document, write, run)
            elif run is None:
                yield f"{describe(document, write)} was settled without a run"
            elif not _ended(run, write):
                yield f"{describe(document, write)} was settled during its run in {run.process}"
            elif run.how not in _expected_results(document, write):
                yield f"{describe(document, write)} was settled although its run ended {run.how}"


def completed_jobs_do_not_run_again(history: History) -> Iterator[str]:
    """A completed job runs again only when it recurs or is retried by hand."""
    runs = history.runs_by_job()
    for document in history.jobs():
        if document.initial.get("repeatInterval"):
            continue
        done_at = None
        for write in document.writes:
            if write.statuses[1] == "completed" and done_at is None:
                done_at = write.at
            elif write.statuses[0] == "completed" and write.statuses[1] not in ("completed", None):
                yield f"{describe(document, write)} left the status completed"
        if done_at is None:
            continue
        for run in runs.get(document.id, []):
            if run.started > done_at + CLOCK_ROUNDING and not document.is_lost(run.token, done_at):
                yield f"{document.name} {document.id} ran in {run.process} after it had completed"


def no_job_runs_forever(history: History) -> Iterator[str]:
    """A job that fails or kills its process every time is given up."""
    resets: Counter[str] = Counter()
    for document in history.jobs():
        resets[document.id] += sum(
            write.statuses[0] in ("failed", "cancelled") and write.statuses[1] == "pending"
            for write in document.writes
        )
    for job, runs in history.runs_by_job().items():
        if job not in history.documents or history.documents[job].initial.get("repeatInterval"):
            continue
        limit = history.documents[job].limit(history.options.max_retries)
        if len(runs) > 2 * limit * (1 + resets[job]):
            yield f"{runs[0].name} {job} ran {len(runs)} times; its limit is {limit}"


def _ended(run: Run, write: Write) -> bool:
    return run.ended <= write.at + CLOCK_ROUNDING


def _release_errors(
    history: History, document: DocumentHistory, write: Write, run: Run | None
) -> Iterator[str]:
    """Yield the error of a release: its run started before, and no stop interrupted it."""
    if run is None:
        return
    if history.fault_timeline.stops.get(run.process, math.inf) > write.at + CLOCK_ROUNDING:
        yield f"{describe(document, write)} was handed back by {run.process} without a stop"
    elif not _ended(run, write):
        yield f"{describe(document, write)} was handed back during its run in {run.process}"
    elif run.how in ("ok", "raised"):
        yield f"{describe(document, write)} was handed back although its run ended {run.how}"


def _expected_results(document: DocumentHistory, write: Write) -> tuple[str, ...]:
    """Return the results of a run that may lead to this write."""
    # A timeout that cancels a run makes it fail; any other cancellation does not.
    failure = ("raised", "cancelled") if "timeoutMs" in document.initial else ("raised",)
    if write.statuses[1] == "completed":
        return ("ok",)
    if write.statuses[1] == "failed" or write.is_failure:
        return failure
    if write.is_recurrence:
        return failure if "failReason" in (write.after or {}) else ("ok",)
    # Pending again, but not as a failure, recurrence or release: no run leads to this.
    return ()
