"""How fast jobs run and claims come back, and so how far ahead to claim."""

from __future__ import annotations

_WEIGHT = 0.2
LARGEST_AHEAD = 400


class Pace:
    """Moving averages of run time per name and of the time a claim takes, in seconds."""

    def __init__(self) -> None:
        self._run_seconds: dict[str, float] = {}
        self._claim_seconds = 0.0

    def ran(self, name: str, seconds: float) -> None:
        """Note how long a run took."""
        average = self._run_seconds.get(name)
        self._run_seconds[name] = (
            seconds if average is None else average + _WEIGHT * (seconds - average)
        )

    def claimed(self, seconds: float) -> None:
        """Note how long a claim took, from the look to the read-back."""
        self._claim_seconds += _WEIGHT * (seconds - self._claim_seconds)

    def slowed(self, name: str) -> None:
        """Note that jobs claimed ahead were not reached in time."""
        self._run_seconds[name] = max(1.0, self._run_seconds.get(name, 1.0))

    def ahead(self, name: str, slots: int) -> int:
        """Tell how many jobs these slots get through while one claim is on its way."""
        run_seconds = self._run_seconds.get(name)
        if run_seconds is None:
            return 0
        return min(LARGEST_AHEAD, int(slots * self._claim_seconds / max(run_seconds, 1e-6)))
