"""Jobs and values in the messages of failed assertions."""

from __future__ import annotations

import reprlib
from typing import TYPE_CHECKING

from monque_core.jobs.job import JobStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from monque_core.jobs.job import AnyJob

_BRIEF = reprlib.Repr()
_BRIEF.maxdict = _BRIEF.maxlist = 20
_BRIEF.maxstring = _BRIEF.maxother = _BRIEF.maxlong = 200


def brief(value: object) -> str:
    """Give the representation of a value, cut where it is very long."""
    return _BRIEF.repr(value)


def either(words: Iterable[str]) -> str:
    """Join words by "or"."""
    return " or ".join(words)


def line(job: AnyJob) -> str:
    """Describe a job in one line."""
    parts = [job.name, job.status, f"data={brief(job.data)}"]
    if job.unique_key is not None:
        parts.append(f"unique_key={brief(job.unique_key)}")
    if job.repeat_interval is not None:
        parts.append(f"cron={job.repeat_interval!r}")
    if job.status == JobStatus.PENDING:
        parts.append(f"due {job.next_run_at}")
    return "  ".join(parts)
