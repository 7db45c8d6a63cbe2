"""The messages of failed assertions."""

from __future__ import annotations

import reprlib
from itertools import islice
from typing import TYPE_CHECKING

from monque_core.jobs.job import JobStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from monque_core.durations import Duration
    from monque_core.jobs.job import AnyJob
    from monque_core.testing.expectation import Expectation

_MAX_JOBS = 10
_MAX_DIFFERENCES = 3
_REPR = reprlib.Repr()
_REPR.maxdict = _REPR.maxlist = 20
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 200


def format_value(value: object) -> str:
    """Return the repr of a value, shortened if it is very long."""
    return _REPR.repr(value)


def either(words: Iterable[str]) -> str:
    """Join words with "or"."""
    return " or ".join(words)


def format_job(job: AnyJob) -> str:
    """Return a description of a job in one line."""
    parts = [job.name, job.status, f"data={format_value(job.data)}"]
    if job.unique_key is not None:
        parts.append(f"unique_key={format_value(job.unique_key)}")
    if job.repeat_interval is not None:
        parts.append(f"cron={job.repeat_interval!r}")
    if job.status == JobStatus.PENDING:
        parts.append(f"due {job.next_run_at}")
    return "  ".join(parts)


def unmet_expectation(
    expected: Expectation, stored: Sequence[AnyJob], found: int, count: int | None
) -> str:
    """Return what was expected, what was found, and the most similar jobs with differences."""
    wanted = {None: "a job", 0: "no job", 1: "1 job"}.get(count, f"{count} jobs")
    verdict = f"expected {wanted} {expected}, {expected.state}, and found {found or 'none'}"
    return "\n".join([verdict, *_most_similar(expected, stored)])


def not_idle(jobs: Sequence[AnyJob], timeout: Duration) -> str:
    """Return which jobs are still active after a timeout, earliest due time first."""
    seconds = timeout if isinstance(timeout, (int, float)) else timeout.total_seconds()
    by_due_time = sorted(jobs, key=lambda job: job.next_run_at)
    lines = _shortened([f"  {format_job(job)}" for job in by_due_time])
    return "\n".join([f"not idle after {seconds:g} seconds; still active:", *lines])


def _most_similar(expected: Expectation, stored: Sequence[AnyJob]) -> list[str]:
    if not stored:
        return ["no jobs are stored"]
    described = []
    for job in sorted(stored, key=expected.distance):
        differences = list(islice(expected.differences(job), _MAX_DIFFERENCES + 1))
        if len(differences) > _MAX_DIFFERENCES:
            differences[-1] = "…"
        result = "differs: " + "; ".join(differences) if differences else "matches"
        described.append(f"  {format_job(job)}\n      {result}")
    return ["stored jobs, most similar first:", *_shortened(described)]


def _shortened(described: list[str]) -> list[str]:
    rest = len(described) - _MAX_JOBS
    return described if rest <= 0 else [*described[:_MAX_JOBS], f"  … and {rest} more"]
