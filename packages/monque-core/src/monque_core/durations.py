"""Durations as users write them: seconds or `timedelta`."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TypeAlias, TypeGuard

Duration: TypeAlias = int | float | timedelta

_LONGEST = timedelta(days=365 * 1000)


def to_timedelta(value: object) -> timedelta:
    """Return seconds or a `timedelta` as a `timedelta`; raise `ValueError` for anything else."""
    if isinstance(value, timedelta):
        duration = value
    elif _is_number(value):
        try:
            duration = timedelta(seconds=value)
        except OverflowError:
            raise ValueError("is too long") from None
    else:
        raise ValueError("is neither a number of seconds nor a timedelta")
    if abs(duration) > _LONGEST:
        raise ValueError("is too long")
    return duration


def _is_number(value: object) -> TypeGuard[float]:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def to_milliseconds(duration: timedelta) -> int:
    """Return a duration in whole milliseconds, at least one."""
    return max(1, duration // timedelta(milliseconds=1))
