"""The messages of failed assertions."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from unittest.mock import ANY

import pytest

from monque_core import InvalidJobError, JobStatus
from monque_core.testing.expectation import Expectation
from tests.support.samples import NOW, a_job, a_schedule

if TYPE_CHECKING:
    from monque_core.jobs.job import AnyJob

WELCOME = Expectation("welcome", ANY, ANY, JobStatus.ACTIVE)


def complaint(expected: Expectation, stored: list[AnyJob], count: int | None = None) -> list[str]:
    """Return the lines of the message."""
    with pytest.raises(AssertionError) as failed:
        expected.check(stored, count)
    return str(failed.value).splitlines()


def welcomes(count: int) -> list[Any]:
    return [a_job(name="welcome", data=number) for number in range(count)]


def test_the_expected_jobs_are_given_in_their_order() -> None:
    jobs = welcomes(3)
    other = a_job(name="other")
    assert WELCOME.check([jobs[0], other, jobs[1], jobs[2]], None) == jobs
    assert WELCOME.check(jobs, 3) == jobs
    assert WELCOME.check([other], 0) == []


def test_none_at_all() -> None:
    assert complaint(WELCOME, []) == [
        "expected a job 'welcome', pending or processing, and found none",
        "no jobs are stored",
    ]


@pytest.mark.parametrize(
    ("there", "count", "verdict"),
    [
        (0, 1, "expected 1 job 'welcome', pending or processing, and found none"),
        (1, 2, "expected 2 jobs 'welcome', pending or processing, and found 1"),
        (3, 2, "expected 2 jobs 'welcome', pending or processing, and found 3"),
        (2, 0, "expected no job 'welcome', pending or processing, and found 2"),
    ],
)
def test_another_number_than_was_counted_on(there: int, count: int, verdict: str) -> None:
    lines = complaint(WELCOME, welcomes(there), count)
    assert lines[0] == verdict
    assert lines.count("      matches") == there


def test_jobs_are_shown_with_what_tells_them_apart() -> None:
    lines = complaint(
        WELCOME,
        [
            a_job(name="bill", data={"n": 1}, unique_key="b", next_run_at=NOW + timedelta(days=1)),
            a_schedule(name="bill", data=None),
            a_job(name="bill", data=2, status="failed"),
        ],
    )
    assert lines[1:] == [
        "stored jobs, most similar first:",
        "  bill  pending  data={'n': 1}  unique_key='b'  due 2026-05-06 12:00:30+00:00",
        "      differs: the name",
        (
            "  bill  pending  data=None  unique_key='hourly'  cron='0 * * * *'"
            "  due 2026-05-05 12:00:30+00:00"
        ),
        "      differs: the name",
        "  bill  failed  data=2",
        "      differs: the name; status is failed",
    ]


def test_the_nearest_come_first_and_the_farthest_are_only_counted() -> None:
    near = a_job(name="welcome", status="completed")
    lines = complaint(WELCOME, [*(a_job(name=f"other-{n}") for n in range(14)), near])
    assert lines[2].startswith("  welcome  completed")
    assert lines[-1] == "  … and 5 more"
    assert len(lines) == 2 + 2 * 10 + 1


def test_of_many_differences_the_first_are_reported() -> None:
    expected = Expectation("welcome", dict.fromkeys("abcdef", 1), ANY, JobStatus.ACTIVE)
    lines = complaint(expected, [a_job(name="welcome", data=dict.fromkeys("abcdef", 2))])
    assert lines[-1] == (
        "      differs: data['a'] is 2, not 1; data['b'] is 2, not 1; data['c'] is 2, not 1; …"
    )


def test_long_data_is_cut() -> None:
    lines = complaint(WELCOME, [a_job(name="other", data={"text": "x" * 100_000})])
    assert len(lines[2]) < 400


@pytest.mark.parametrize("count", [-1, 1.5, "2"])
def test_a_count_that_is_none_is_refused(count: Any) -> None:
    with pytest.raises(InvalidJobError, match="count"):
        WELCOME.check([], count)
