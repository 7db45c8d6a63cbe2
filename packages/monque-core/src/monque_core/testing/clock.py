"""`MovableClock`: a clock that tests control."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from monque_core.display import brief_repr
from monque_core.durations import to_timedelta
from monque_core.validation import check_aware

if TYPE_CHECKING:
    from monque_core.durations import Duration

NOON: Final = datetime(2026, 3, 2, 12, tzinfo=UTC)
"""The default time of a clock, a Monday."""


class MovableClock:
    """A clock that stands still until a test moves it, with the precision of MongoDB.

    Pass it to a `Monque` as the option `clock`.
    """

    def __init__(self, instant: datetime = NOON) -> None:
        self._instant = check_aware(instant, field="instant")

    def __repr__(self) -> str:
        return f"<MovableClock at {self._instant}>"

    def now(self) -> datetime:
        """Return the current time of the clock."""
        return self._instant

    def advance(self, duration: Duration) -> None:
        """Move the clock forward by seconds or a `timedelta`."""
        try:
            step = to_timedelta(duration)
        except ValueError as error:
            raise ValueError(f"advance({brief_repr(duration)}): the duration {error}") from None
        if step < timedelta(0):
            raise ValueError(
                f"advance({brief_repr(duration)}) would move the clock back: use set() for that"
            )
        self._instant = check_aware(self._instant + step, field="instant")

    def set(self, instant: datetime) -> None:
        """Set the clock to a timezone-aware time."""
        self._instant = check_aware(instant, field="instant")
