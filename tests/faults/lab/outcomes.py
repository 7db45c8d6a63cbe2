"""Promises about how jobs end."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tests.faults.lab.history import MILLISECONDS
from tests.faults.lab.lives import nanoseconds, told

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.lab.history import History, Run
    from tests.faults.lab.lives import Life, Step


def everything_due_has_run(history: History) -> Iterator[str]:
    """At the end, with all faults over, nothing that is due waits or hangs."""
    for life in history.jobs():
        last = life.last
        if last is None:
            continue
        if last["status"] == "processing":
            yield f"{life.name} {life.id} is still claimed by {last.get('claimedBy')}"
        elif last["status"] == "pending" and nanoseconds(last["nextRunAt"]) <= history.ended:
            yield f"{life.name} {life.id} is due since {last['nextRunAt']} and still waits"


def outcomes_are_those_of_the_run_that_owns_the_claim(history: History) -> Iterator[str]:
    """Nothing is settled by a run that has lost its claim, nor before a run has ended."""
    runs = {(run.job, run.token): run for run in history.runs}
    for life in history.jobs():
        for step in life.steps:
            if not step.is_settling:
                continue
            run = runs.get((life.id, step.token_before))
            if step.is_release:
                if run is not None and run.how in ("ok", "raised") and _ended(run, step):
                    yield f"{told(life, step)} was handed back, though its run ended {run.how}"
                continue
            if run is None and _is_giving_up(life, step):
                continue
            if run is None:
                yield f"{told(life, step)} was settled by a claim that never ran"
            elif not _ended(run, step):
                yield f"{told(life, step)} was settled while its run in {run.process} went on"
            elif run.how not in _expected_ends(life, step):
                yield f"{told(life, step)} was settled, though its run ended {run.how}"


def what_is_announced_is_written(history: History) -> Iterator[str]:
    """An outcome that listeners hear of is in the database, under the same claim."""
    written = {
        (life.id, step.token_before, step.statuses[1])
        for life in history.lives.values()
        for step in life.steps
        if step.statuses[0] == "processing"
    }
    for note in history.notes:
        if note.what not in ("completed", "failed"):
            continue
        job, token, status = (note.details[key] for key in ("job", "token", "status"))
        if (job, token, status) not in written:
            yield f"{note.process} told of job {job} as {status}, which was never written"


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
            if run.started > done_at + MILLISECONDS and not _lost_before(life, run, done_at):
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
        born = history.lives[job].born if job in history.lives else {}
        limit = int(born.get("maxRetries") or 10)
        if len(runs) > 2 * limit * (1 + resets[job]) and not born.get("repeatInterval"):
            yield f"{born.get('name')} {job} ran {len(runs)} times, and may {limit} times"


def _ended(run: Run, step: Step) -> bool:
    return run.ended <= step.at + MILLISECONDS


def _expected_ends(life: Life, step: Step) -> tuple[str, ...]:
    """Tell how a run may have ended that was settled like this."""
    # Cancelled by its timeout, a run has failed; by anything else, it has not.
    failure = ("raised", "cancelled") if "timeoutMs" in life.born else ("raised",)
    if step.statuses[1] == "completed":
        return ("ok",)
    if step.statuses[1] == "failed":
        return failure
    assert step.before is not None
    assert step.after is not None
    grew = (step.after.get("failCount") or 0) > (step.before.get("failCount") or 0)
    failed = grew or "failReason" in step.after
    return failure if failed else ("ok",)


def _is_giving_up(life: Life, step: Step) -> bool:
    """Tell whether recovery settled a claim that it had adopted for that."""
    return any(
        other.statuses == ("processing", "processing")
        and other.is_taking_over
        and other.token_after == step.token_before
        for other in life.steps
    )


def _lost_before(life: Life, run: Run, time: int) -> bool:
    """Tell whether the claim of a run was taken over before that time."""
    return any(
        step.is_taking_over and step.token_before == run.token and step.at <= time
        for step in life.steps
    )
