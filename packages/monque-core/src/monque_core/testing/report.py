"""What a test is told when jobs are not as it expects."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from monque_core.errors import InvalidJobError
from monque_core.testing.wording import line
from monque_core.validation import check_whole_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from monque_core.jobs.job import AnyJob
    from monque_core.testing.expectation import Expectation

_MOST_JOBS = 10
_MOST_MISSES = 3


def check(expected: Expectation, stored: Sequence[AnyJob], count: int | None) -> list[AnyJob]:
    """Give the expected ones among all stored jobs; raise `AssertionError` if they are not there.

    A count of None means any number but none.
    """
    __tracebackhide__ = True
    if count is not None:
        check_whole_number("count", count, least=0, error=InvalidJobError)
    found = [job for job in stored if expected.is_met_by(job)]
    if found if count is None else len(found) == count:
        return found
    lines = [_verdict(expected, len(found), count), *_nearest(expected, stored)]
    raise AssertionError("\n".join(lines))


def tell_jobs(jobs: Iterable[AnyJob]) -> list[str]:
    """Describe jobs, one in a line."""
    return _shortened([f"  {line(job)}" for job in jobs])


def _verdict(expected: Expectation, found: int, count: int | None) -> str:
    wanted = {None: "a job", 0: "no job", 1: "1 job"}.get(count, f"{count} jobs")
    return f"expected {wanted} {expected}, {expected.state}, and found {found or 'none'}"


def _nearest(expected: Expectation, stored: Sequence[AnyJob]) -> list[str]:
    if not stored:
        return ["nothing at all is stored"]
    ranked = sorted(stored, key=expected.distance)
    described = []
    for job in ranked:
        misses = list(islice(expected.misses(job), _MOST_MISSES + 1))
        if len(misses) > _MOST_MISSES:
            misses[-1] = "…"
        mark = "not it: " + "; ".join(misses) if misses else "this is one"
        described.append(f"  {line(job)}\n      {mark}")
    return ["stored are, the nearest first:", *_shortened(described)]


def _shortened(described: list[str]) -> list[str]:
    rest = len(described) - _MOST_JOBS
    return described if rest <= 0 else [*described[:_MOST_JOBS], f"  … and {rest} more"]
