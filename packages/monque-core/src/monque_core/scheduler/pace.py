"""How fast jobs run and claims come back, and so how far ahead to claim."""

from __future__ import annotations

_WEIGHT = 0.2
_LARGEST_AHEAD = 2000
_LARGEST_CLAIM = 1000
_SMALLEST_LARGE_CLAIM = 100
_LONGEST_CLAIM_SECONDS = 0.25
_OVERDUE_SECONDS = 1.0


class Pace:
    """Moving averages of run times, per name and over all, and of claim times, in seconds."""

    def __init__(self) -> None:
        self._by_name: dict[str, float] = {}
        self._over_all: float | None = None
        self._claim_seconds = 0.0
        self._seconds_per_claimed = 0.0

    def ran(self, name: str, seconds: float) -> None:
        """Note how long a run took."""
        self._by_name[name] = _average(self._by_name.get(name), seconds)
        self._over_all = _average(self._over_all, seconds)

    def claimed(self, count: int, seconds: float) -> None:
        """Note how long a claim of so many took, from the look to the read-back."""
        self._claim_seconds = _average(self._claim_seconds, seconds)
        self._seconds_per_claimed = _average(self._seconds_per_claimed, seconds / count)

    def largest_claim(self) -> int:
        """Tell how many to claim at most, fewer where each takes long because it is large."""
        in_time = int(_LONGEST_CLAIM_SECONDS / max(self._seconds_per_claimed, 1e-6))
        return min(_LARGEST_CLAIM, max(_SMALLEST_LARGE_CLAIM, in_time))

    def slowed(self, name: str) -> None:
        """Note that a job claimed ahead was not reached in time."""
        self._by_name[name] = max(_OVERDUE_SECONDS, self._by_name.get(name, 0.0))
        self._over_all = max(_OVERDUE_SECONDS, self._over_all or 0.0)

    def ahead(self, name: str, slots: int) -> int:
        """Tell how many jobs of a name to hold, so that these slots never wait for a claim."""
        return self._at_hand(self._by_name.get(name), slots)

    def ahead_in_all(self, slots: int) -> int:
        """Tell how many jobs of any name to hold, so that these slots never wait for a claim."""
        return self._at_hand(self._over_all, slots)

    def _at_hand(self, run_seconds: float | None, slots: int) -> int:
        if run_seconds is None:
            return 0
        work = slots * self._claim_seconds / max(run_seconds, 1e-6)
        # More is asked for when half of it has started: the other half lasts until that comes.
        return min(_LARGEST_AHEAD, int(2 * work))


def _average(average: float | None, value: float) -> float:
    return value if average is None else average + _WEIGHT * (value - average)
