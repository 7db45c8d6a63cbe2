"""The retry policy that the options of an instance stand for."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monque_core import backoff_delay
from monque_core.clock import truncate
from monque_core.options import Options
from monque_core.scheduler.job_source import default_retry
from tests.support.samples import NOW

if TYPE_CHECKING:
    from monque_core import Exponential

durations = st.timedeltas(timedelta(milliseconds=1), timedelta(days=3650))


def retry_of(**options: Any) -> Exponential:
    return default_retry(Options.parse(options))


def test_the_defaults() -> None:
    retry = retry_of()
    waits = [(retry.next_run(n, NOW) - NOW).total_seconds() for n in (1, 2, 3, 16, 17, 99)]
    assert waits == [2, 4, 8, 65536, 86400, 86400]
    assert (retry.max_attempts, retry.max_duration) == (10, None)


@settings(max_examples=100)
@given(st.integers(1, 10_000), durations, durations)
def test_the_delay_is_that_of_backoff_delay(
    fail_count: int, base: timedelta, cap: timedelta
) -> None:
    retry = retry_of(base_retry_interval=base, max_backoff_delay=cap)
    expected = truncate(NOW + backoff_delay(fail_count, base, cap))
    assert retry.next_run(fail_count, NOW) == expected


def test_the_jitter_comes_after_the_cap() -> None:
    retry = retry_of(base_retry_interval=60, max_backoff_delay=10, retry_jitter=0.5)
    drawn = {(retry.next_run(3, NOW) - NOW).total_seconds() for _ in range(100)}
    assert 5 <= min(drawn) < 10 < max(drawn) <= 15


@pytest.mark.parametrize("max_retries", [1, 7, 2**40])
def test_max_retries_counts_runs(max_retries: int) -> None:
    assert retry_of(max_retries=max_retries).max_attempts == max_retries
