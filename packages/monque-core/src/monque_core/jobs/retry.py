"""When a failed job or reactive task runs again, and when it fails for good.

A `Retry` answers two questions: `next_run`, the time of the next run, and `is_spent`, whether
there is one. Both are pure; only a jitter draws a random number.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from monque_core.clock import truncate
from monque_core.durations import Duration, to_timedelta
from monque_core.jobs.backoff import exponential, spread
from monque_core.jobs.cron import check_cron, next_cron_run
from monque_core.validation import (
    MILLISECOND,
    check_exact_duration,
    check_factor,
    check_share,
    check_whole_number,
    refusal,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

_DAY: Final = timedelta(days=1)
_LARGEST_INT: Final = 2**63 - 1
"""The largest number that BSON can hold."""


@dataclass(frozen=True, kw_only=True)
class Retry(ABC):
    """When a failed run is retried. Durations are seconds or a `timedelta`.

    `max_attempts` is the number of runs in all, crashed ones included. `max_duration` is the time
    since the first error. None is no limit.
    """

    max_attempts: int | None = 5
    max_duration: Duration | None = None

    def __post_init__(self) -> None:
        """Check the limits and convert durations to `timedelta`."""
        if self.max_attempts is not None:
            check_whole_number("max_attempts", self.max_attempts, least=1, most=_LARGEST_INT)
        if self.max_duration is not None:
            self._set_duration("max_duration")

    @property
    def time_limit(self) -> timedelta | None:
        """Return `max_duration` as a `timedelta`."""
        return None if self.max_duration is None else to_timedelta(self.max_duration)

    @abstractmethod
    def next_run(self, attempts: int, now: datetime) -> datetime:
        """Return the time of the next run after `attempts` runs, strictly after `now`."""

    def is_spent(self, attempts: int, first_error_at: datetime | None, now: datetime) -> bool:
        """Whether no run is left after `attempts` runs."""
        if self.max_attempts is not None and attempts >= self.max_attempts:
            return True
        limit = self.time_limit
        return limit is not None and first_error_at is not None and now - first_error_at >= limit

    def _set_duration(self, option: str) -> timedelta:
        duration = check_exact_duration(option, getattr(self, option), least=MILLISECOND)
        object.__setattr__(self, option, duration)
        return duration


class _Delayed(Retry):
    """A delay that depends on the number of attempts only."""

    @abstractmethod
    def delay(self, attempts: int) -> timedelta:
        """Return the delay after `attempts` runs, at least 1."""

    def next_run(self, attempts: int, now: datetime) -> datetime:
        """Return the time of the next run after `attempts` runs, strictly after `now`."""
        return truncate(now + max(self._draw(self.delay(max(1, attempts))), MILLISECOND))

    def _draw(self, delay: timedelta) -> timedelta:
        """Return the delay of one retry."""
        return delay


@dataclass(frozen=True)
class Exponential(_Delayed):
    """Wait `base` after the first run, then each time `factor` times as long, at most `cap`.

    A `jitter` of 0.1 changes each delay at random by up to 10 % in either direction, so that runs
    that failed together are not retried together. It is applied after the cap.
    """

    base: Duration = timedelta(seconds=10)
    _: KW_ONLY
    factor: float = 2
    cap: Duration = _DAY
    jitter: float = 0.0

    def __post_init__(self) -> None:
        """Check the options and convert durations to `timedelta`."""
        super().__post_init__()
        _check_cap(self._set_duration("cap"), "base", self._set_duration("base"))
        check_factor("factor", self.factor)
        check_share("jitter", self.jitter)

    def delay(self, attempts: int) -> timedelta:
        """Return the delay after `attempts` runs, at least 1, before jitter."""
        base, cap = to_timedelta(self.base), to_timedelta(self.cap)
        return exponential(base, self.factor, attempts - 1, cap)

    def _draw(self, delay: timedelta) -> timedelta:
        return spread(delay, self.jitter)


@dataclass(frozen=True)
class Fixed(_Delayed):
    """Wait `interval` each time."""

    interval: Duration

    def __post_init__(self) -> None:
        """Check the options and convert durations to `timedelta`."""
        super().__post_init__()
        self._set_duration("interval")

    def delay(self, attempts: int) -> timedelta:  # noqa: ARG002  # it is always the same
        """Return the delay, whatever the number of attempts."""
        return to_timedelta(self.interval)


@dataclass(frozen=True)
class Linear(_Delayed):
    """Wait `interval`, then twice that, three times that, at most `cap`."""

    interval: Duration
    cap: Duration = _DAY

    def __post_init__(self) -> None:
        """Check the options and convert durations to `timedelta`."""
        super().__post_init__()
        _check_cap(self._set_duration("cap"), "interval", self._set_duration("interval"))

    def delay(self, attempts: int) -> timedelta:
        """Return the delay after `attempts` runs, at least 1."""
        interval, cap = to_timedelta(self.interval), to_timedelta(self.cap)
        return cap if attempts >= cap / interval else interval * attempts


@dataclass(frozen=True)
class Series(_Delayed):
    """Wait the given intervals one after the other; the last one repeats."""

    intervals: Sequence[Duration]

    def __post_init__(self) -> None:
        """Check the options and convert durations to `timedelta`."""
        super().__post_init__()
        given: object = self.intervals
        if not isinstance(given, (list, tuple)) or not given:
            raise refusal("intervals", given, "a list of at least one duration")
        intervals = tuple(
            check_exact_duration(f"intervals[{index}]", interval, least=MILLISECOND)
            for index, interval in enumerate(given)
        )
        object.__setattr__(self, "intervals", intervals)

    def delay(self, attempts: int) -> timedelta:
        """Return the delay after `attempts` runs, at least 1."""
        return to_timedelta(self.intervals[min(attempts, len(self.intervals)) - 1])


@dataclass(frozen=True)
class Cron(Retry):
    """Wait until a cron expression fires, on the wall clock of an IANA time zone."""

    expression: str
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        """Check the expression and the time zone."""
        super().__post_init__()
        check_cron(self.expression, self.timezone)

    def next_run(self, attempts: int, now: datetime) -> datetime:  # noqa: ARG002  # only the clock counts
        """Return the next time the expression fires, strictly after `now`."""
        return next_cron_run(self.expression, now, self.timezone)


def _check_cap(cap: timedelta, option: str, least: timedelta) -> None:
    if cap < least:
        raise refusal("cap", cap, f"no shorter than {option}, which is {least}")
