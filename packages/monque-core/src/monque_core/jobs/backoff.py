"""How long a failed job waits for its next run."""

from __future__ import annotations

import math
import random
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from monque_core.display import brief_repr
from monque_core.durations import to_timedelta

if TYPE_CHECKING:
    from collections.abc import Callable

    from monque_core.durations import Duration

_LARGEST_JITTER: Final = 0.5


def backoff_delay(
    fail_count: int,
    base: Duration,
    cap: Duration,
    jitter: float = 0.0,
    *,
    uniform: Callable[[float, float], float] = random.uniform,
) -> timedelta:
    """Give 2^fail_count times `base`, at most `cap`, then jittered; always more than nothing.

    Durations are seconds or `timedelta`. A `jitter` of 0.1 spreads the delay by up to 10 % either
    way, so that jobs which failed together do not come back together; being applied last, it may
    exceed the cap. `uniform` draws a number between two.
    """
    exponent = _check_count(fail_count)
    delay = _double(_check_duration("base", base), exponent, _check_duration("cap", cap))
    share = _check_jitter(jitter)
    if share:
        delay *= uniform(1 - share, 1 + share)
    return max(delay, timedelta.resolution)


def _double(base: timedelta, times: int, cap: timedelta) -> timedelta:
    # Exponents are compared first: neither float nor timedelta can hold 2^100000.
    if times > math.log2(cap / base) + 1:
        return cap
    return min(base * (1 << times), cap)


def _check_count(fail_count: object) -> int:
    if isinstance(fail_count, bool) or not isinstance(fail_count, int) or fail_count < 0:
        raise ValueError(
            f"fail_count={brief_repr(fail_count)} is not allowed: "
            "a whole number of at least 0 is expected"
        )
    return fail_count


def _check_duration(name: str, value: object) -> timedelta:
    try:
        duration = to_timedelta(value)
    except ValueError as error:
        raise ValueError(f"{name}={brief_repr(value)} {error}") from None
    if duration <= timedelta(0):
        raise ValueError(
            f"{name}={brief_repr(value)} is not allowed: a duration longer than 0 is expected"
        )
    return duration


def _check_jitter(jitter: object) -> float:
    if (
        isinstance(jitter, bool)
        or not isinstance(jitter, (int, float))
        or not 0 <= jitter <= _LARGEST_JITTER
    ):
        raise ValueError(
            f"jitter={brief_repr(jitter)} is not allowed: "
            f"a share from 0 to {_LARGEST_JITTER} is expected"
        )
    return jitter
