"""What an option of a reactive task may be: checked when the task is registered."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from monque_core.display import brief_repr, suggestion
from monque_core.durations import to_timedelta

if TYPE_CHECKING:
    from collections.abc import Sequence

    Text = TypeVar("Text", bound=str)

ZERO = timedelta(0)
MILLISECOND = timedelta(milliseconds=1)
_LARGEST_INT = 2**31 - 1


def refusal(option: str, value: object, allowed: str) -> ValueError:
    """Return the error for an option: its value, and what is allowed."""
    return ValueError(f"option {option}={brief_repr(value)} is not allowed: it must be {allowed}")


def check_duration(option: str, value: object, *, least: timedelta = ZERO) -> timedelta:
    """Return a duration in whole milliseconds, rounded up, as it will be stored."""
    allowed = (
        f"a duration of at least {_in_words(least)}, in seconds or as a timedelta"
        if least
        else "a duration that is not negative, in seconds or as a timedelta"
    )
    try:
        duration = to_timedelta(value)
    except ValueError as error:
        raise refusal(option, value, f"{allowed}; this {error}") from None
    if duration < least:
        raise refusal(option, value, allowed)
    return -(-duration // MILLISECOND) * MILLISECOND


def check_whole_number(option: str, value: object, *, least: int) -> int:
    """Return a whole number that is neither too small nor too large to be stored."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _LARGEST_INT:
        raise refusal(option, value, f"a whole number from {least} to {_LARGEST_INT}")
    return value


def check_factor(option: str, value: object) -> float:
    """Return a finite number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1 <= value < math.inf:
        raise refusal(option, value, "a finite number of at least 1")
    return value


def check_flag(option: str, value: object) -> bool:
    """Return an option that is True or False."""
    if not isinstance(value, bool):
        raise refusal(option, value, "True or False")
    return value


def check_choice(option: str, value: object, choices: Sequence[Text]) -> Text:
    """Return one of a few words; for a typo, the error suggests one."""
    for choice in choices:
        if value == choice:
            return choice
    close = suggestion(value, choices)
    hint = f"; did you mean {close!r}?" if close else ""
    raise refusal(option, value, f"one of {', '.join(map(repr, choices))}{hint}")


def _in_words(duration: timedelta) -> str:
    return "1 ms" if duration == MILLISECOND else str(duration)
