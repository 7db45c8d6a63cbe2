"""The delay before a failed job runs again."""

from __future__ import annotations

import math
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monque_core.jobs.backoff import backoff_delay

DAY = timedelta(days=1)
quick = settings(max_examples=200)
durations = st.timedeltas(timedelta.resolution, timedelta(days=36_500))


def seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


@pytest.mark.parametrize(
    ("fail_count", "delay"), [(0, 1), (1, 2), (2, 4), (3, 8), (10, 1024), (16, 65536), (17, 86400)]
)
def test_each_failure_doubles_the_delay_up_to_the_cap(fail_count: int, delay: int) -> None:
    assert backoff_delay(fail_count, 1, DAY) == seconds(delay)


def test_durations_are_seconds_or_timedelta() -> None:
    assert backoff_delay(3, 0.25, 60) == seconds(2)
    assert backoff_delay(3, seconds(0.25), timedelta(minutes=1)) == seconds(2)


def test_a_base_above_the_cap_is_capped() -> None:
    assert backoff_delay(0, 100, 10) == seconds(10)


@pytest.mark.parametrize("fail_count", [64, 1024, 100_000, 10**30])
def test_any_number_of_failures_is_the_cap(fail_count: int) -> None:
    assert backoff_delay(fail_count, 1e-6, DAY) == DAY


def test_jitter_reaches_its_share_either_way() -> None:
    assert backoff_delay(3, 1, DAY, 0.1, uniform=min) == seconds(7.2)
    assert backoff_delay(3, 1, DAY, 0.1, uniform=max) == seconds(8.8)


def test_jitter_comes_after_the_cap() -> None:
    assert backoff_delay(50, 1, 10, 0.5, uniform=max) == seconds(15)


def test_jitter_spreads_the_jobs() -> None:
    assert len({backoff_delay(5, 1, DAY, 0.5) for _ in range(50)}) > 1


def test_without_jitter_nothing_is_drawn() -> None:
    def uniform(low: float, high: float) -> float:
        raise AssertionError

    assert backoff_delay(1, 1, DAY, uniform=uniform) == seconds(2)


def test_a_retry_is_never_immediate() -> None:
    tiny = timedelta.resolution
    assert backoff_delay(0, tiny, tiny, 0.5, uniform=min) > timedelta(0)


@quick
@given(st.integers(0, 200), durations, durations)
def test_the_delay_is_the_power_of_two_or_the_cap(
    fail_count: int, base: timedelta, cap: timedelta
) -> None:
    microsecond = timedelta.resolution
    exact = min(2**fail_count * (base // microsecond), cap // microsecond)
    assert backoff_delay(fail_count, base, cap) == exact * microsecond


@quick
@given(st.integers(0, 10_000), durations, durations, st.floats(0, 0.5))
def test_the_jittered_delay_stays_in_its_band(
    fail_count: int, base: timedelta, cap: timedelta, jitter: float
) -> None:
    plain = backoff_delay(fail_count, base, cap)
    jittered = backoff_delay(fail_count, base, cap, jitter)
    assert jittered > timedelta(0)
    assert abs(jittered - plain) <= plain * jitter + 2 * timedelta.resolution


@pytest.mark.parametrize("fail_count", [-1, True, 1.0, "1", None])
def test_fail_count_must_be_a_whole_number(fail_count) -> None:
    with pytest.raises(ValueError, match=r"^fail_count=.* a whole number of at least 0"):
        backoff_delay(fail_count, 1, DAY)


@pytest.mark.parametrize("name", ["base", "cap"])
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (0, "a duration of at least 0:00:00.000001"),
        (-1, "a duration of at least 0:00:00.000001"),
        (timedelta(0), "a duration of at least 0:00:00.000001"),
        (1e-9, "a duration of at least 0:00:00.000001"),
        (math.nan, "is neither a number of seconds nor a timedelta"),
        (math.inf, "is neither a number of seconds nor a timedelta"),
        (True, "is neither a number of seconds nor a timedelta"),
        ("1", "is neither a number of seconds nor a timedelta"),
        (None, "is neither a number of seconds nor a timedelta"),
        (1e300, "is too long"),
    ],
)
def test_durations_must_be_positive_and_finite(name: str, value, reason: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name}=.*{reason}"):
        backoff_delay(1, **{"base": 1, "cap": DAY, name: value})


@pytest.mark.parametrize("jitter", [-0.1, 0.51, math.nan, math.inf, True, "0.1", None])
def test_jitter_must_be_a_share(jitter) -> None:
    with pytest.raises(ValueError, match=r"^jitter=.* a share between 0 and 0\.5"):
        backoff_delay(1, 1, DAY, jitter)
