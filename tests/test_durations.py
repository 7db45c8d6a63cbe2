"""Durations as users write them and as MongoDB stores them."""

from __future__ import annotations

import math
from datetime import timedelta
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monque_core.durations import to_milliseconds, to_timedelta

quick = settings(max_examples=200)
MILLENNIUM = timedelta(days=365_000)


@pytest.mark.parametrize(
    ("value", "duration"),
    [
        (0, timedelta(0)),
        (90, timedelta(minutes=1, seconds=30)),
        (0.25, timedelta(milliseconds=250)),
        (-1, timedelta(seconds=-1)),
        (timedelta(hours=1), timedelta(hours=1)),
        (MILLENNIUM, MILLENNIUM),
    ],
)
def test_seconds_and_timedeltas_are_durations(value, duration: timedelta) -> None:
    assert to_timedelta(value) == duration


@pytest.mark.parametrize(
    "value", [True, False, "1", None, math.nan, math.inf, -math.inf, 1j, Fraction(1, 2), [1]]
)
def test_nothing_else_is_a_duration(value) -> None:
    with pytest.raises(ValueError, match=r"^is neither a number of seconds nor a timedelta$"):
        to_timedelta(value)


@pytest.mark.parametrize(
    "value",
    [1e300, pytest.param(10**400, id="10**400"), MILLENNIUM + timedelta.resolution, timedelta.min],
)
def test_more_than_a_thousand_years_are_too_long(value) -> None:
    with pytest.raises(ValueError, match=r"^is too long$"):
        to_timedelta(value)


@quick
@given(st.timedeltas(timedelta(0), MILLENNIUM))
def test_fractions_of_milliseconds_are_cut_but_never_to_zero(duration: timedelta) -> None:
    milliseconds = to_milliseconds(duration)
    assert milliseconds >= 1
    if duration >= timedelta(milliseconds=1):
        assert timedelta(0) <= duration - timedelta(milliseconds=milliseconds)
        assert duration - timedelta(milliseconds=milliseconds) < timedelta(milliseconds=1)
