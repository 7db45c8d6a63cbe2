"""When a failed run is retried, and when no run is left."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monque_core.errors import InvalidCronError, InvalidJobError
from monque_core.jobs.retry import Cron, Exponential, Fixed, Linear, Retry, Series

NOW = datetime(2025, 6, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
quick = settings(max_examples=80)

durations = st.timedeltas(timedelta(milliseconds=1), timedelta(days=3650))
factors = st.one_of(
    st.integers(1, 10**6), st.floats(1, 1e300), st.floats(1, 1.01), st.just(10**400)
)
limits: dict[str, st.SearchStrategy[Any]] = {
    "max_attempts": st.none() | st.integers(1, 100),
    "max_duration": st.none() | durations,
}
capped = st.tuples(durations, durations).map(sorted)
delayed = st.one_of(
    st.builds(lambda pair, by: Exponential(pair[0], cap=pair[1], factor=by), capped, factors),
    durations.map(Fixed),
    capped.map(lambda pair: Linear(pair[0], pair[1])),
    st.lists(durations, min_size=1, max_size=5).map(Series),
)
attempts = st.one_of(st.integers(1, 20), st.integers(1, 10**400))


def seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


def waits(retry: Retry, runs: int) -> list[float]:
    return [(retry.next_run(n, NOW) - NOW).total_seconds() for n in range(1, runs + 1)]


@pytest.mark.parametrize(
    ("retry", "expected"),
    [
        (Exponential(), [10, 20, 40, 80, 160]),
        (Exponential(1, factor=3), [1, 3, 9, 27, 81]),
        (Exponential(base=1, cap=5), [1, 2, 4, 5, 5]),
        (Exponential(2, factor=1), [2, 2, 2, 2, 2]),
        (Exponential(2, cap=2), [2, 2, 2, 2, 2]),
        (Exponential(10, cap=80), [10, 20, 40, 80, 80]),
        (Exponential(1, factor=1.5), [1, 1.5, 2.25, 3.375, 5.062]),
        (Fixed(7), [7, 7, 7, 7, 7]),
        (Fixed(timedelta(minutes=1)), [60, 60, 60, 60, 60]),
        (Linear(10), [10, 20, 30, 40, 50]),
        (Linear(interval=10, cap=25), [10, 20, 25, 25, 25]),
        (Series([1, 5, timedelta(minutes=1)]), [1, 5, 60, 60, 60]),
        (Series((3,)), [3, 3, 3, 3, 3]),
        (Cron("0 13 * * *"), [3600] * 5),
        (Cron("0 15 * * *", "Europe/Berlin"), [3600] * 5),
    ],
)
def test_each_policy_waits_its_own_way(retry: Retry, expected: list[float]) -> None:
    assert waits(retry, 5) == expected


def test_the_default_reaches_a_day_and_stays_there() -> None:
    assert waits(Exponential(), 16)[-3:] == [81920, 86400, 86400]


def test_cron_is_strictly_after_now() -> None:
    assert Cron("0 12 * * *").next_run(1, NOW) == NOW + DAY


@quick
@given(delayed, attempts, st.datetimes(datetime(1980, 1, 1), datetime(2200, 1, 1)))
def test_the_next_run_is_a_storable_time_strictly_after_now(
    retry: Retry, runs: int, naive: datetime
) -> None:
    now = naive.replace(tzinfo=UTC)
    at = retry.next_run(runs, now)
    assert now < at <= now + timedelta(days=3651)
    assert at.microsecond % 1000 == 0
    assert at.tzinfo is UTC


@quick
@given(delayed.filter(lambda retry: not isinstance(retry, Series)), st.integers(1, 10**6))
def test_the_wait_never_gets_shorter(retry: Retry, runs: int) -> None:
    assert retry.next_run(runs, NOW) <= retry.next_run(runs + 1, NOW)


@quick
@given(st.integers(1, 10**6), factors)
def test_the_cap_is_never_exceeded(runs: int, factor: float) -> None:
    assert Exponential(1, cap=100, factor=factor).delay(runs) <= seconds(100)
    assert Linear(1, 100).delay(runs) <= seconds(100)


@pytest.mark.parametrize("runs", [0, -1])
def test_no_attempts_wait_like_the_first(runs: int) -> None:
    assert Linear(10).next_run(runs, NOW) == NOW + seconds(10)


@pytest.mark.parametrize(
    ("max_attempts", "runs", "spent"),
    [(1, 1, True), (5, 4, False), (5, 5, True), (5, 6, True), (None, 10**6, False)],
)
def test_attempts_can_be_used_up(max_attempts: int | None, runs: int, spent: bool) -> None:
    assert Fixed(1, max_attempts=max_attempts).is_spent(runs, NOW, NOW) is spent


@pytest.mark.parametrize(
    ("ago", "spent"), [(None, False), (0, False), (59.999, False), (60, True), (61, True)]
)
def test_time_can_be_used_up(ago: float | None, spent: bool) -> None:
    first_error_at = None if ago is None else NOW - seconds(ago)
    retry = Fixed(1, max_attempts=None, max_duration=60)
    assert retry.is_spent(3, first_error_at, NOW) is spent


@quick
@given(limits["max_attempts"], limits["max_duration"], st.integers(1, 100), durations | st.none())
def test_either_limit_is_enough(
    max_attempts: int | None,
    max_duration: timedelta | None,
    runs: int,
    ago: timedelta | None,
) -> None:
    retry = Fixed(1, max_attempts=max_attempts, max_duration=max_duration)
    by_attempts = Fixed(1, max_attempts=max_attempts)
    by_time = Fixed(1, max_attempts=None, max_duration=max_duration)
    first_error_at = None if ago is None else NOW - ago
    assert retry.is_spent(runs, first_error_at, NOW) == (
        by_attempts.is_spent(runs, first_error_at, NOW)
        or by_time.is_spent(runs, first_error_at, NOW)
    )


def test_the_defaults_are_those_of_the_specification() -> None:
    retry = Exponential()
    assert (retry.max_attempts, retry.max_duration) == (5, None)
    assert (retry.base, retry.cap, retry.factor, retry.jitter) == (seconds(10), DAY, 2, 0)
    assert retry.time_limit is None
    assert (Linear(1).cap, Cron("* * * * *").timezone) == (DAY, "UTC")


def test_durations_become_timedeltas() -> None:
    retry = Exponential(1, cap=2, max_duration=3)
    assert (retry.base, retry.cap, retry.max_duration) == (seconds(1), seconds(2), seconds(3))
    assert retry.time_limit == seconds(3)
    assert Series([1, 2]).intervals == (seconds(1), seconds(2))


def test_policies_are_values() -> None:
    assert Exponential(10) == Exponential(timedelta(seconds=10))
    assert len({Fixed(10), Linear(10), Fixed(10.0)}) == 2
    assert len({Series([1]), Series((1.0,)), Series([2])}) == 2
    with pytest.raises(FrozenInstanceError):
        Fixed(1).interval = 2  # type: ignore[misc]  # that it cannot be set is the test


def test_the_base_is_no_policy() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Retry()  # type: ignore[abstract]  # that it cannot be made is the test


POLICIES = {Exponential: (), Fixed: (1,), Linear: (1,), Series: ([1],), Cron: ("* * * * *",)}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        ("max_attempts", 0, "a whole number from 1"),
        ("max_attempts", -1, "a whole number from 1"),
        ("max_attempts", 2.5, "a whole number from 1"),
        ("max_attempts", True, "a whole number from 1"),
        ("max_attempts", "5", "a whole number from 1"),
        ("max_duration", 0, "a duration of at least 1 ms"),
        ("max_duration", -1, "a duration of at least 1 ms"),
        ("max_duration", "1h", "neither a number of seconds nor a timedelta"),
        ("max_duration", math.inf, "neither a number of seconds nor a timedelta"),
    ],
)
def test_bad_limits_are_refused_by_every_policy(
    policy: Any, option: str, value: Any, allowed: str
) -> None:
    with pytest.raises(ValueError, match=rf"option {option}=.* is not allowed: .*{allowed}"):
        policy(*POLICIES[policy], **{option: value})


@pytest.mark.parametrize("value", [0, -1, "10", None, True, math.nan, timedelta(0)])
@pytest.mark.parametrize(
    ("policy", "option"),
    [
        (Exponential, "base"),
        (Exponential, "cap"),
        (Fixed, "interval"),
        (Linear, "interval"),
        (lambda cap: Linear(1, cap), "cap"),
    ],
)
def test_bad_durations_are_refused(policy: Any, option: str, value: Any) -> None:
    given = {option: value} if isinstance(policy, type) else {"cap": value}
    with pytest.raises(ValueError, match=rf"option {option}=.* a duration of at least 1 ms"):
        policy(**given)


@pytest.mark.parametrize("factor", [0, 0.5, -1, math.inf, math.nan, "2", None, True])
def test_a_bad_factor_is_refused(factor: Any) -> None:
    with pytest.raises(ValueError, match=r"option factor=.* a finite number of at least 1"):
        Exponential(factor=factor)


@pytest.mark.parametrize("jitter", [-0.1, 0.51, math.nan, "0.1", None, True])
def test_a_bad_jitter_is_refused(jitter: Any) -> None:
    with pytest.raises(ValueError, match=r"option jitter=.* a share between 0 and 0\.5"):
        Exponential(jitter=jitter)


def test_jitter_changes_the_delay_by_its_share_in_either_direction() -> None:
    retry = Exponential(10, cap=20, jitter=0.5)
    drawn = {retry.next_run(5, NOW) - NOW for _ in range(50)}
    assert len(drawn) > 1
    assert all(seconds(10) <= delay <= seconds(30) for delay in drawn)
    assert retry.delay(5) == seconds(20)


def test_a_jittered_run_is_still_later_than_now() -> None:
    retry = Exponential(0.001, cap=0.001, jitter=0.5)
    assert all(retry.next_run(1, NOW) > NOW for _ in range(50))


@pytest.mark.parametrize(
    ("make", "option"),
    [(lambda: Exponential(10, cap=5), "base"), (lambda: Linear(10, 5), "interval")],
)
def test_a_cap_below_the_shortest_wait_is_refused(make: Any, option: str) -> None:
    with pytest.raises(ValueError, match=rf"option cap=.* no shorter than {option}, .* 0:00:10"):
        make()


@pytest.mark.parametrize("intervals", [[], (), None, 5, "10", {1: 2}])
def test_a_series_must_be_a_list(intervals: Any) -> None:
    with pytest.raises(ValueError, match=r"option intervals=.* a list of at least one duration"):
        Series(intervals)


@pytest.mark.parametrize("interval", [0, -1, "10", None, True])
def test_a_series_says_which_interval_is_bad(interval: Any) -> None:
    with pytest.raises(ValueError, match=r"option intervals\[1\]=.* a duration of at least 1 ms"):
        Series([1, interval])


@pytest.mark.parametrize("expression", ["", "x", "* * * * * * *", "0 0 31 2 *", None, 5])
def test_an_expression_that_never_fires_is_refused(expression: Any) -> None:
    with pytest.raises(InvalidCronError, match="invalid cron expression"):
        Cron(expression)


def test_an_unknown_time_zone_is_refused() -> None:
    with pytest.raises(InvalidJobError, match="did you mean 'Europe/Berlin'"):
        Cron("* * * * *", "Europe/Berln")
