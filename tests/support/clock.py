"""A clock that stands still until a test moves it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class MovableClock:
    """Time as a test tells it."""

    def __init__(self, instant: datetime = datetime(2026, 3, 2, 12, 0, 30, tzinfo=UTC)) -> None:
        self.instant = instant

    def now(self) -> datetime:
        return self.instant

    def advance(self, **duration: float) -> None:
        self.instant += timedelta(**duration)
