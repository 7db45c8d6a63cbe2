"""How long runs and claims take, which decides how far ahead to claim."""

from __future__ import annotations

_WEIGHT = 0.2
_OVERDUE_SECONDS = 1.0


class Timings:
    """Moving averages of run times, per name and over all names, and of claim times."""

    def __init__(self) -> None:
        self._by_name: dict[str, float] = {}
        self.run_seconds: float | None = None
        """Average duration of a run of any name, None before the first."""
        self.claim_seconds = 0.0
        self.claim_seconds_per_job = 0.0

    def of(self, name: str) -> float | None:
        """Return the average duration of a run of this name, None before the first."""
        return self._by_name.get(name)

    def ran(self, name: str, seconds: float) -> None:
        """Record the duration of a run."""
        of_name = self._by_name.get(name, seconds)
        self._by_name[name] = of_name + _WEIGHT * (seconds - of_name)
        over_all = seconds if self.run_seconds is None else self.run_seconds
        self.run_seconds = over_all + _WEIGHT * (seconds - over_all)

    def claimed(self, count: int, seconds: float) -> None:
        """Record the duration of a claim, from the look to the read-back."""
        per_job = seconds / count
        self.claim_seconds += _WEIGHT * (seconds - self.claim_seconds)
        self.claim_seconds_per_job += _WEIGHT * (per_job - self.claim_seconds_per_job)

    def prefetched_too_long(self, name: str) -> None:
        """Record that a prefetched job found no slot in time: fewer are to be prefetched."""
        self._by_name[name] = max(_OVERDUE_SECONDS, self._by_name.get(name, 0.0))
        self.run_seconds = max(_OVERDUE_SECONDS, self.run_seconds or 0.0)
