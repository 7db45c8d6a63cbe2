"""What a failed run means for its record."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from bson import ObjectId

from monque_core.jobs.retry import Exponential, Fixed, Retry
from monque_core.tasks.definition import Definition, define
from monque_core.tasks.outcome import Failed, Retrying, after_failure
from monque_core.tasks.record import TaskRecord

NOW = datetime(2025, 6, 1, 12, tzinfo=UTC)


def definition(retry: Retry | None = None) -> Definition:
    return define("app", "orders", name="invoice", retry=retry)


def record(attempts: int, first_error_at: datetime | None = None) -> TaskRecord:
    return TaskRecord(
        id=ObjectId(),
        task="invoice",
        source_id=7,
        status="processing",
        created_at=NOW,
        updated_at=NOW,
        attempts=attempts,
        first_error_at=first_error_at,
    )


@pytest.mark.parametrize(("attempts", "wait"), [(1, 10), (2, 20), (3, 40), (4, 80)])
def test_a_failed_run_is_tried_again_later_each_time(attempts: int, wait: int) -> None:
    outcome = after_failure(definition(), record(attempts), "no", NOW)
    assert outcome == Retrying("no", NOW + timedelta(seconds=wait))


@pytest.mark.parametrize("attempts", [5, 6])
def test_the_last_attempt_is_given_up(attempts: int) -> None:
    assert after_failure(definition(), record(attempts), "no", NOW) == Failed("no")


def test_no_limit_never_gives_up() -> None:
    endless = definition(Exponential(max_attempts=None))
    outcome = after_failure(endless, record(10**6), "no", NOW)
    assert outcome == Retrying("no", NOW + timedelta(days=1))


@pytest.mark.parametrize(("ago", "given_up"), [(59, False), (60, True)])
def test_time_since_the_first_error_ends_it(ago: int, given_up: bool) -> None:
    timed = definition(Fixed(1, max_attempts=None, max_duration=60))
    outcome = after_failure(timed, record(2, NOW - timedelta(seconds=ago)), "no", NOW)
    assert isinstance(outcome, Failed) is given_up


def test_the_first_error_starts_the_time() -> None:
    timed = definition(Fixed(1, max_duration=0.001))
    assert isinstance(after_failure(timed, record(1), "no", NOW), Retrying)
