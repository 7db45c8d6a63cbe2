"""The source of "now": the server's time, or the time that a test sets."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol, runtime_checkable


@runtime_checkable
class Clock(Protocol):
    """Anything that returns an aware point in time."""

    def now(self) -> datetime:
        """Return the current time, timezone-aware."""
        ...


@dataclass(frozen=True, slots=True)
class ServerTime:
    """A reading of the server's clock, made between two values of `time.monotonic_ns()`."""

    instant: datetime
    asked_ns: int
    answered_ns: int

    @property
    def took_ns(self) -> int:
        """Return how long the reading took: the server's clock was read at some point in it."""
        return self.answered_ns - self.asked_ns


_LARGE_STEP_MS = 1000
_MILLISECOND_NS = 1_000_000
_LONG_AGO_NS = -(1 << 80)
_LONGEST_TRUST_NS = 60_000 * _MILLISECOND_NS


class ServerClock:
    """MongoDB's clock, extrapolated by the monotonic clock between two readings.

    The wall clocks of workers disagree and jump; the server's clock is shared by all.
    """

    def __init__(self) -> None:
        self._zero_ns = self._wall_zero_ns = _wall_zero_ns()
        self._read_at_ns = _LONG_AGO_NS
        self._bounds_ns = (_LONG_AGO_NS, -_LONG_AGO_NS)
        self._latest_ms = 0

    def now(self) -> datetime:
        """Return server time in UTC, in whole milliseconds as BSON stores it."""
        now_ms = (self._zero_ns + time.monotonic_ns()) // _MILLISECOND_NS
        # A small correction never turns time back: a due job must stay due.
        if not 0 < self._latest_ms - now_ms < _LARGE_STEP_MS:
            self._latest_ms = now_ms
        return _from_milliseconds(self._latest_ms)

    def adjust(self, server_time: datetime, asked_ns: int, answered_ns: int) -> None:
        """Apply a reading of the server's clock, made between two `time.monotonic_ns()` values.

        Each reading bounds the offset: by when it may have been made, and by the server's
        millisecond. The intersection of several readings is narrower than each. A reading outside
        of it comes from a clock that was set, or from another primary; it moves the bounds no
        farther than necessary, so that a slow reply does no harm.
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
        """Whether the last reading is so old that the clocks may have drifted apart."""
        return time.monotonic_ns() - self._read_at_ns > _LONGEST_TRUST_NS

    @property
    def has_jumped(self) -> bool:
        """Whether this machine was suspended, or its clock set, since the last reading."""
        return abs(_wall_zero_ns() - self._wall_zero_ns) > _LARGE_STEP_MS * _MILLISECOND_NS

    @property
    def offset(self) -> timedelta:
        """Return how far the server is ahead of this machine's wall clock."""
        return self.now() - datetime.now(UTC)


def adjust(clock: Clock, reading: ServerTime) -> None:
    """Adjust a `ServerClock` by a reading; a user's clock stays as it is."""
    if isinstance(clock, ServerClock):
        clock.adjust(reading.instant, reading.asked_ns, reading.answered_ns)


class StorableClock:
    """A user's clock, rounded down to UTC milliseconds as BSON stores them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now(self) -> datetime:
        """Return the time of the wrapped clock, which must be aware."""
        instant = self._clock.now()
        if instant.utcoffset() is None:
            raise ValueError(f"{self._clock!r} returned {instant!r}, which has no time zone")
        return truncate(instant)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def _wall_zero_ns() -> int:
    """Return the wall time at which the monotonic clock was 0; it stops during suspend."""
    return time.time_ns() - time.monotonic_ns()


def _from_milliseconds(milliseconds: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=milliseconds)


def _to_milliseconds(instant: datetime) -> int:
    return (instant - _EPOCH) // _MILLISECOND


def truncate(instant: datetime) -> datetime:
    """Return an aware instant in UTC milliseconds, so that it equals itself after storage."""
    return _from_milliseconds(_to_milliseconds(instant))
