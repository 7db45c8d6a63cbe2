"""How long a failed job waits for its next run: exponential growth up to a cap, and jitter."""

from __future__ import annotations

import math
import random
from datetime import timedelta
from typing import TYPE_CHECKING

from monque_core.validation import (
    argument_error,
    check_exact_duration,
    check_share,
    check_whole_number,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from monque_core.durations import Duration


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
    check_whole_number("fail_count", fail_count, least=0, most=None, error=argument_error)
    shortest = timedelta.resolution
    first = check_exact_duration("base", base, least=shortest, error=argument_error)
    longest = check_exact_duration("cap", cap, least=shortest, error=argument_error)
    share = check_share("jitter", jitter, error=argument_error)
    return spread(exponential(first, 2, fail_count, longest), share, uniform)


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
