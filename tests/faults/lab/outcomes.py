"""Promises about how jobs end."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from tests.faults.lab.lives import nanoseconds, told
from tests.faults.lab.times import MILLISECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.lab.history import History, Run
    from tests.faults.lab.lives import Life, Step


def everything_due_has_run(history: History) -> Iterator[str]:
    """At the end, with all faults over, nothing due waits or hangs; what is done has run."""
    for note in history.of("restless"):
        yield f"the queue did not come to rest in {note.details['seconds']} s"
    done = {(run.job, run.token) for run in history.runs if run.how == "ok"}
    for life in history.jobs():
        last = life.last
        if last is None:
            continue
        if last["status"] == "processing":
            yield f"{life.name} {life.id} is still claimed by {last.get('claimedBy')}"
        elif last["status"] == "pending" and nanoseconds(last["nextRunAt"]) <= history.ended:
            yield f"{life.name} {life.id} is due since {last['nextRunAt']} and still waits"
        elif last["status"] == "completed" and (life.id, str(last.get("claimToken"))) not in done:
            yield f"{life.name} {life.id} is completed, and no run of that claim has ended well"


def outcomes_are_those_of_the_run_that_owns_the_claim(history: History) -> Iterator[str]:
    """Nothing is settled by a run that has lost its claim, nor before a run has ended."""
    runs = {(run.job, run.token): run for run in history.runs}
    for life in history.jobs():
        adopted = life.adopted()
        for step in life.steps:
            if not step.is_settling:
                continue
            run = runs.get((life.id, step.token_before))
            if step.token_before in adopted:
                if step.statuses[1] != "failed" and not step.is_recurrence:
                    yield f"{told(life, step)} was taken over, and yet not given up"
            elif step.is_release:
                yield from _flaw_of_release(history, life, step, run)
            elif run is None:
                yield f"{told(life, step)} was settled by a claim that never ran"
            elif not _ended(run, step):
                yield f"{told(life, step)} was settled while its run in {run.process} went on"
            elif run.how not in _expected_ends(life, step):
                yield f"{told(life, step)} was settled, though its run ended {run.how}"


def a_run_that_is_over_is_not_repeated(history: History) -> Iterator[str]:
    """A job that has completed runs again only when it recurs or is retried by hand."""
    runs = history.runs_by_job()
    for life in history.jobs():
        if life.born.get("repeatInterval"):
            continue
        done_at = None
        for step in life.steps:
            if step.statuses[1] == "completed" and done_at is None:
                done_at = step.at
            elif step.statuses[0] == "completed" and step.statuses[1] not in ("completed", None):
                yield f"{told(life, step)} left the status completed"
        if done_at is None:
            continue
        for run in runs.get(life.id, []):
            if run.started > done_at + MILLISECONDS and not life.is_lost(run.token, done_at):
                yield f"{life.name} {life.id} ran in {run.process} after it had completed"


def no_job_runs_for_ever(history: History) -> Iterator[str]:
    """A job that fails or kills its process every time is given up."""
    resets: Counter[str] = Counter()
    for life in history.jobs():
        resets[life.id] += sum(
            step.statuses[0] in ("failed", "cancelled") and step.statuses[1] == "pending"
            for step in life.steps
        )
    for job, runs in history.runs_by_job().items():
        if job not in history.lives or history.lives[job].born.get("repeatInterval"):
            continue
        limit = history.lives[job].limit(history.terms.max_retries)
        if len(runs) > 2 * limit * (1 + resets[job]):
            yield f"{runs[0].name} {job} ran {len(runs)} times, and may {limit} times"


def _ended(run: Run, step: Step) -> bool:
    return run.ended <= step.at + MILLISECONDS


def _flaw_of_release(history: History, life: Life, step: Step, run: Run | None) -> Iterator[str]:
    """Tell what is wrong with handing back a claim: it had not started, or a stop cut it short."""
    if run is None:
        return
    if history.disturbances.stops.get(run.process, math.inf) > step.at + MILLISECONDS:
        yield f"{told(life, step)} was handed back by {run.process}, which ran it and went on"
    elif not _ended(run, step):
        yield f"{told(life, step)} was handed back while its run in {run.process} went on"
    elif run.how in ("ok", "raised"):
        yield f"{told(life, step)} was handed back, though its run ended {run.how}"


def _expected_ends(life: Life, step: Step) -> tuple[str, ...]:
    """Tell how a run may have ended that was settled like this."""
    # Cancelled by its timeout, a run has failed; by anything else, it has not.
    failure = ("raised", "cancelled") if "timeoutMs" in life.born else ("raised",)
    if step.statuses[1] == "completed":
        return ("ok",)
    if step.statuses[1] == "failed" or step.is_failure:
        return failure
    if step.is_recurrence:
        return failure if "failReason" in (step.after or {}) else ("ok",)
    # Back in the queue, neither failed nor recurring nor handed back: nothing ends like this.
    return ()
