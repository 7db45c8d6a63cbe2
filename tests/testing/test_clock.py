"""A clock that a test moves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from monque_core import Clock
from monque_core.testing import MovableClock

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def test_it_is_a_clock() -> None:
    assert isinstance(MovableClock(), Clock)


def test_it_begins_on_a_monday_at_noon_or_where_it_is_reported_to() -> None:
    assert MovableClock().now() == NOON
    assert NOON.weekday() == 0
    assert MovableClock(NOON + timedelta(days=1)).now() == NOON + timedelta(days=1)


def test_it_stands_still() -> None:
    clock = MovableClock()
    assert clock.now() == clock.now()


@pytest.mark.parametrize(
    ("duration", "seconds"),
    [
        (90, 90),
        (0.25, 0.25),
        (timedelta(hours=1), 3600),
        (0, 0),
        (timedelta(days=4000), 345_600_000),
    ],
)
def test_it_advances_by_seconds_or_a_timedelta(duration: float | timedelta, seconds: float) -> None:
    clock = MovableClock()
    clock.advance(duration)
    clock.advance(duration)
    assert (clock.now() - NOON).total_seconds() == 2 * seconds


def test_it_is_set_to_any_time_also_an_earlier_one() -> None:
    clock = MovableClock()
    clock.set(NOON + timedelta(days=365))
    clock.set(NOON - timedelta(days=365))
    assert clock.now() == NOON - timedelta(days=365)


def test_it_shows_what_mongodb_can_store() -> None:
    tokyo = timezone(timedelta(hours=9))
    clock = MovableClock(datetime(2026, 3, 2, 21, 0, 0, 1_999, tzinfo=tokyo))
    assert clock.now() == NOON + timedelta(milliseconds=1)
    assert clock.now().tzinfo is UTC
    clock.advance(0.000_9)
    assert clock.now() == NOON + timedelta(milliseconds=1)


@pytest.mark.parametrize("duration", ["1h", None, True, float("nan"), float("inf"), 1e18])
def test_it_refuses_to_advance_by_what_is_not_a_duration(duration: object) -> None:
    clock = MovableClock()
    with pytest.raises(ValueError, match=r"advance\(.*\): the duration is "):
        clock.advance(duration)  # type: ignore[arg-type]  # the point of the test
    assert clock.now() == NOON


@pytest.mark.parametrize("duration", [-1, timedelta(hours=-1)])
def test_it_refuses_to_advance_backward_and_names_what_does(duration: float | timedelta) -> None:
    clock = MovableClock()
    with pytest.raises(ValueError, match=r"would move the clock back: use set\(\)"):
        clock.advance(duration)
    assert clock.now() == NOON


@pytest.mark.parametrize("instant", [datetime(2026, 3, 2), "2026-03-02", None])
def test_it_refuses_a_time_without_a_zone(instant: object) -> None:
    clock = MovableClock()
    with pytest.raises(ValueError, match="instant="):
        clock.set(instant)  # type: ignore[arg-type]  # the point of the test
    with pytest.raises(ValueError, match="instant="):
        MovableClock(instant)  # type: ignore[arg-type]  # the point of the test
    assert clock.now() == NOON


def test_it_tells_its_time_where_a_failed_test_shows_it() -> None:
    assert repr(MovableClock()) == "<MovableClock at 2026-03-02 12:00:00+00:00>"
