"""A clock that stands still until a test moves it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from monque_core.display import brief_repr
from monque_core.durations import to_timedelta
from monque_core.validation import check_aware

if TYPE_CHECKING:
    from monque_core.durations import Duration

NOON: Final = datetime(2026, 3, 2, 12, tzinfo=UTC)
"""Where a clock stands that was told nothing: on a Monday."""


class MovableClock:
    """Time as a test tells it, in whole milliseconds of UTC as MongoDB stores them.

    Give it to a `Monque` as its option `clock`.
    """

    def __init__(self, instant: datetime = NOON) -> None:
        self._instant = check_aware(instant, field="instant")

    def __repr__(self) -> str:
        return f"<MovableClock at {self._instant}>"

    def now(self) -> datetime:
        """Tell the time at which the clock stands."""
        return self._instant

    def advance(self, duration: Duration) -> None:
        """Move the clock forward, by seconds or a `timedelta`."""
        try:
            step = to_timedelta(duration)
        except ValueError as error:
            raise ValueError(f"advance({brief_repr(duration)}): the duration {error}") from None
        if step < timedelta(0):
            raise ValueError(
                f"advance({brief_repr(duration)}) would go back: set() moves a clock anywhere"
            )
        self._instant = check_aware(self._instant + step, field="instant")

    def set(self, instant: datetime) -> None:
        """Move the clock to a time, which must be timezone-aware."""
        self._instant = check_aware(instant, field="instant")
