"""When a failed task runs again, and when it is given up."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from monque_core.clock import truncate
from monque_core.durations import Duration, to_timedelta
from monque_core.jobs.cron import check_cron, next_cron_run
from monque_core.validation import (
    MILLISECOND,
    check_duration,
    check_factor,
    check_flag,
    check_whole_number,
    refusal,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

_DAY = timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class Retry(ABC):
    """How often a failing task is tried: durations are in seconds or a `timedelta`.

    `max_attempts` counts runs, crashed ones included, and `max_duration` the time since the first
    error; None is no limit. With `reset_on_change` a change of what is watched starts both anew.
    """

    max_attempts: int | None = 5
    max_duration: Duration | None = None
    reset_on_change: bool = True

    def __post_init__(self) -> None:
        """Turn every duration into a `timedelta`, refusing what cannot be meant."""
        if self.max_attempts is not None:
            check_whole_number("max_attempts", self.max_attempts, least=1)
        if self.max_duration is not None:
            self._set_duration("max_duration")
        check_flag("reset_on_change", self.reset_on_change)

    @property
    def time_limit(self) -> timedelta | None:
        """Give `max_duration` as a `timedelta`."""
        return None if self.max_duration is None else to_timedelta(self.max_duration)

    @abstractmethod
    def next_run(self, attempts: int, now: datetime) -> datetime:
        """Give the time of the next run, strictly after now; `attempts` runs have been started."""

    def is_spent(self, attempts: int, first_error_at: datetime | None, now: datetime) -> bool:
        """Tell whether no run is left, after as many attempts."""
        if self.max_attempts is not None and attempts >= self.max_attempts:
            return True
        limit = self.time_limit
        return limit is not None and first_error_at is not None and now - first_error_at >= limit

    def _set_duration(self, option: str) -> timedelta:
        duration = check_duration(option, getattr(self, option), least=MILLISECOND)
        object.__setattr__(self, option, duration)
        return duration


class _Delayed(Retry):
    """A delay that depends on nothing but the number of attempts."""

    @abstractmethod
    def delay(self, attempts: int) -> timedelta:
        """Give the wait after as many attempts, at least 1."""

    def next_run(self, attempts: int, now: datetime) -> datetime:
        """Give the time of the next run, strictly after now; `attempts` runs have been started."""
        return truncate(now + self.delay(max(1, attempts)))


@dataclass(frozen=True)
class Exponential(_Delayed):
    """Wait `first`, then each time `factor` as long, at most `cap`."""

    first: Duration = timedelta(seconds=10)
    cap: Duration = _DAY
    factor: float = 2

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        super().__post_init__()
        _check_cap(self._set_duration("cap"), "first", self._set_duration("first"))
        check_factor("factor", self.factor)

    def delay(self, attempts: int) -> timedelta:
        """Give the wait after as many attempts, at least 1."""
        first, cap, times = to_timedelta(self.first), to_timedelta(self.cap), attempts - 1
        if self.factor == 1:
            return first
        # Exponents are compared first: neither float nor timedelta can hold 2^100000.
        if times >= math.log(cap / first) / math.log(self.factor):
            return cap
        return min(first * self.factor**times, cap)


@dataclass(frozen=True)
class Fixed(_Delayed):
    """Wait `interval` each time."""

    interval: Duration

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        super().__post_init__()
        self._set_duration("interval")

    def delay(self, attempts: int) -> timedelta:  # noqa: ARG002  # it is always the same
        """Give the wait, whatever the number of attempts."""
        return to_timedelta(self.interval)


@dataclass(frozen=True)
class Linear(_Delayed):
    """Wait `interval`, then twice that, three times that, at most `cap`."""

    interval: Duration
    cap: Duration = _DAY

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        super().__post_init__()
        _check_cap(self._set_duration("cap"), "interval", self._set_duration("interval"))

    def delay(self, attempts: int) -> timedelta:
        """Give the wait after as many attempts, at least 1."""
        interval, cap = to_timedelta(self.interval), to_timedelta(self.cap)
        return cap if attempts >= cap / interval else interval * attempts


@dataclass(frozen=True)
class Series(_Delayed):
    """Wait the given times one after the other; the last one repeats."""

    intervals: Sequence[Duration]

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        super().__post_init__()
        given: object = self.intervals
        if not isinstance(given, (list, tuple)) or not given:
            raise refusal("intervals", given, "a list of at least one duration")
        intervals = tuple(
            check_duration(f"intervals[{index}]", interval, least=MILLISECOND)
            for index, interval in enumerate(given)
        )
        object.__setattr__(self, "intervals", intervals)

    def delay(self, attempts: int) -> timedelta:
        """Give the wait after as many attempts, at least 1."""
        return to_timedelta(self.intervals[min(attempts, len(self.intervals)) - 1])


@dataclass(frozen=True)
class Cron(Retry):
    """Wait for the next time a cron expression fires, on the wall clock of an IANA time zone."""

    expression: str
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        super().__post_init__()
        check_cron(self.expression, self.timezone)

    def next_run(self, attempts: int, now: datetime) -> datetime:  # noqa: ARG002  # it only ticks
        """Give the next time it fires, strictly after now."""
        return next_cron_run(self.expression, now, self.timezone)


def _check_cap(cap: timedelta, option: str, least: timedelta) -> None:
    if cap < least:
        raise refusal("cap", cap, f"no shorter than {option}, which is {least}")
