"""Keeping a job that kills its process from taking others down with it, again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from monque_core.scheduler.runs import Run

_TRIAL_SECONDS = 1.0


class Probation:
    """One suspicious run at a time, until it has ended or lived for a while.

    Every run that is under way when its process dies counts as interrupted. If all of them came
    back together each time, the innocent would be given up with the guilty.
    """

    def __init__(self) -> None:
        self._run: Run[Any] | None = None
        self._until = 0.0

    def begin(self, run: Run[Any], now: float) -> None:
        """Put a run on trial."""
        self._run = run
        self._until = now + _TRIAL_SECONDS

    def end(self, run: Run[Any]) -> bool:
        """Note that a run has ended, and tell whether it was on trial."""
        if self._run is not run:
            return False
        self._run = None
        return True

    def ends_at(self, now: float) -> float | None:
        """Tell when the trial is over at the latest, None if there is none."""
        return self._until if self._run is not None and now < self._until else None


def is_suspicious(claims: float, failures: float, limit: int) -> bool:
    """Tell whether a waiting job was interrupted twice, or one more time would be its last."""
    return claims > failures and (claims - failures >= 2 or claims + 1 >= limit)
