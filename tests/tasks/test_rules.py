"""How the options of a task are validated, and the error messages."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monque_core.tasks.rules import (
    MILLISECOND,
    check_choice,
    check_duration,
    check_factor,
    check_flag,
    check_whole_number,
    refusal,
)

quick = settings(max_examples=200)


def test_a_refusal_says_what_came_and_what_is_expected() -> None:
    assert str(refusal("debounce", -1, "positive")) == (
        "option debounce=-1 is not allowed: it must be positive"
    )


@pytest.mark.parametrize(
    ("value", "duration"),
    [
        (0, timedelta(0)),
        (1, timedelta(seconds=1)),
        (0.25, timedelta(milliseconds=250)),
        (timedelta(minutes=2), timedelta(minutes=2)),
        (0.0001, MILLISECOND),
        (timedelta(milliseconds=1, microseconds=1), 2 * MILLISECOND),
    ],
)
def test_a_duration_is_rounded_up_to_milliseconds(value: Any, duration: timedelta) -> None:
    assert check_duration("debounce", value) == duration


@quick
@given(st.timedeltas(timedelta(0), timedelta(days=36_500)))
def test_a_duration_is_never_shortened_nor_made_longer_by_a_millisecond(value: timedelta) -> None:
    checked = check_duration("debounce", value)
    assert timedelta(0) <= checked - value < MILLISECOND
    assert checked % MILLISECOND == timedelta(0)


@pytest.mark.parametrize(
    "value", [-1, -0.001, timedelta(days=-1), "1", None, True, math.nan, math.inf, [1], 10**30]
)
def test_what_is_no_duration_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"option debounce=.* must be a duration that is not neg"):
        check_duration("debounce", value)


def test_a_duration_below_the_least_is_refused() -> None:
    assert check_duration("interval", 0.001, least=MILLISECOND) == MILLISECOND
    with pytest.raises(ValueError, match=r"option interval=0 .* a duration of at least 1 ms"):
        check_duration("interval", 0, least=MILLISECOND)
    with pytest.raises(ValueError, match="at least 0:00:02"):
        check_duration("interval", 1, least=timedelta(seconds=2))


@pytest.mark.parametrize("value", [1, 2, 2**31 - 1])
def test_whole_numbers_are_returned(value: int) -> None:
    assert check_whole_number("version", value, least=1) == value


@pytest.mark.parametrize("value", [0, -1, 1.0, "1", None, True, 2**31])
def test_what_is_no_whole_number_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"option version=.* a whole number from 1 to 2147483647"):
        check_whole_number("version", value, least=1)


@pytest.mark.parametrize("value", [1, 1.5, 10**400])
def test_factors_are_returned(value: float) -> None:
    assert check_factor("factor", value) == value


@pytest.mark.parametrize("value", [0, 0.99, -2, math.nan, math.inf, "2", None, True])
def test_what_is_no_factor_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"option factor=.* a finite number of at least 1"):
        check_factor("factor", value)


@pytest.mark.parametrize("value", [True, False])
def test_flags_are_returned(value: bool) -> None:
    assert check_flag("reset_on_change", value) is value


@pytest.mark.parametrize("value", [0, 1, None, "yes", []])
def test_what_is_no_flag_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"option reset_on_change=.* must be True or False"):
        check_flag("reset_on_change", value)


def test_a_typo_is_told_which_choice_may_be_meant() -> None:
    assert check_choice("when", "never", ("deleted", "never")) == "never"
    with pytest.raises(
        ValueError,
        match=r"^option when='nevr' is not allowed: "
        r"it must be one of 'deleted', 'never'; did you mean 'never'\?$",
    ):
        check_choice("when", "nevr", ("deleted", "never"))


@pytest.mark.parametrize("value", ["whenever you like", 5, None, ["never"], ""])
def test_what_is_near_to_no_choice_gets_no_hint(value: Any) -> None:
    with pytest.raises(ValueError, match=r"one of 'a', 'b'$"):
        check_choice("when", value, ("a", "b"))
