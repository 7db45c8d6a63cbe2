"""The source of "now": server time, or whatever a test says it is."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol, runtime_checkable


@runtime_checkable
class Clock(Protocol):
    """Anything that can tell an aware point in time."""

    def now(self) -> datetime:
        """Give the current time, timezone-aware."""
        ...


_LARGE_STEP_MS = 1000
_MILLISECOND_NS = 1_000_000
_LONG_AGO_NS = -(1 << 80)
_LONGEST_TRUST_NS = 60_000 * _MILLISECOND_NS


class ServerClock:
    """MongoDB's clock, kept by this process's monotonic one between two measurements.

    Workers' wall clocks disagree and jump; the server's is the one thing they share.
    """

    def __init__(self) -> None:
        self._zero_ns = self._wall_zero_ns = _wall_zero_ns()
        self._read_at_ns = _LONG_AGO_NS
        self._bounds_ns = (_LONG_AGO_NS, -_LONG_AGO_NS)
        self._latest_ms = 0

    def now(self) -> datetime:
        """Give server time in UTC, in whole milliseconds as BSON stores it."""
        now_ms = (self._zero_ns + time.monotonic_ns()) // _MILLISECOND_NS
        # A small correction never turns time back: what was due would not be due any more.
        if not 0 < self._latest_ms - now_ms < _LARGE_STEP_MS:
            self._latest_ms = now_ms
        return _from_milliseconds(self._latest_ms)

    def adjust(self, server_time: datetime, asked_ns: int, answered_ns: int) -> None:
        """Take a reading of the server's clock, made between two `time.monotonic_ns()` values.

        Nobody knows when between them, nor what the server cut off below its millisecond. What
        readings agree on is narrower than each of them. One that agrees with none of those before
        is of a clock that was set anew, or of another primary's; it moves this one no farther
        than it must, so that no slow answer can spoil it.
        """
        read_ns = _to_milliseconds(server_time) * _MILLISECOND_NS
        low, high = read_ns - answered_ns, read_ns + _MILLISECOND_NS - asked_ns
        known_low, known_high = self._bounds_ns
        if known_high < low:
            self._bounds_ns = low, min(high, low + known_high - known_low)
        elif high < known_low:
            self._bounds_ns = max(low, high - known_high + known_low), high
        else:
            self._bounds_ns = max(low, known_low), min(high, known_high)
        self._zero_ns = sum(self._bounds_ns) // 2
        self._read_at_ns = answered_ns
        self._wall_zero_ns = _wall_zero_ns()

    @property
    def is_old(self) -> bool:
        """Tell whether the last reading was so long ago that the clocks may have drifted apart."""
        return time.monotonic_ns() - self._read_at_ns > _LONGEST_TRUST_NS

    @property
    def has_jumped(self) -> bool:
        """Tell whether this machine has slept, or its clock was set, since the last reading."""
        return abs(_wall_zero_ns() - self._wall_zero_ns) > _LARGE_STEP_MS * _MILLISECOND_NS

    @property
    def offset(self) -> timedelta:
        """Tell how far the server is ahead of this machine's wall clock."""
        return self.now() - datetime.now(UTC)


class StorableClock:
    """A clock of the user's, in whole milliseconds of UTC as BSON stores them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now(self) -> datetime:
        """Give the time of the clock within, which must be aware."""
        instant = self._clock.now()
        if instant.utcoffset() is None:
            raise ValueError(f"{self._clock!r} gave {instant!r}, which has no time zone")
        return truncate(instant)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def _wall_zero_ns() -> int:
    """Give the time of day at which the monotonic clock, which sleeps with the machine, was 0."""
    return time.time_ns() - time.monotonic_ns()


def _from_milliseconds(milliseconds: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=milliseconds)


def _to_milliseconds(instant: datetime) -> int:
    return (instant - _EPOCH) // _MILLISECOND


def truncate(instant: datetime) -> datetime:
    """Cut an aware instant to UTC milliseconds, so that it equals itself after storage."""
    return _from_milliseconds(_to_milliseconds(instant))
