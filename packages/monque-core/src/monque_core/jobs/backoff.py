"""How long a failed job waits for its next run: exponential growth up to a cap, and jitter."""

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

LARGEST_JITTER: Final = 0.5


def backoff_delay(
    fail_count: int,
    base: Duration,
    cap: Duration,
    jitter: float = 0.0,
    *,
    uniform: Callable[[float, float], float] = random.uniform,
) -> timedelta:
    """Return 2^fail_count times `base`, at most `cap`, then jittered; always more than zero.

    Durations are seconds or `timedelta`. A `jitter` of 0.1 changes the delay by up to 10 % in
    either direction, so that jobs that failed together do not run again together. Jitter is applied
    last and may exceed the cap. `uniform` draws a number between two.
    """
    times = _check_count(fail_count)
    delay = exponential(_check_duration("base", base), 2, times, _check_duration("cap", cap))
    return spread(delay, _check_jitter(jitter), uniform)


def exponential(base: timedelta, factor: float, times: int, cap: timedelta) -> timedelta:
    """Return `base` multiplied `times` times by `factor`, at most `cap`; `factor` is at least 1."""
    if factor == 1:
        return min(base, cap)
    # Exponents are compared first: neither float nor timedelta can hold 2^100000.
    if times > math.log(cap / base) / math.log(factor) + 1:
        return cap
    try:
        return min(base * factor**times, cap)
    except OverflowError:
        return cap


def spread(
    delay: timedelta, jitter: float, uniform: Callable[[float, float], float] = random.uniform
) -> timedelta:
    """Return a delay changed at random by up to this share, more than zero."""
    if jitter:
        delay *= uniform(1 - jitter, 1 + jitter)
    return max(delay, timedelta.resolution)


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
        or not 0 <= jitter <= LARGEST_JITTER
    ):
        raise ValueError(
            f"jitter={brief_repr(jitter)} is not allowed: "
            f"a share from 0 to {LARGEST_JITTER} is expected"
        )
    return jitter
