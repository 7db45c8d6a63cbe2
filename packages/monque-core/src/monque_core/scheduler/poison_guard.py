"""Keeping a job that kills its process from taking others down with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from monque_core.scheduler.runs import Run

_ISOLATION_SECONDS = 1.0


class PoisonGuard:
    """Isolates suspected poison jobs: one at a time, until it has ended or run for a second.

    Every run that is under way when its process dies counts as interrupted. If all of them came
    back together each time, the innocent jobs would be given up along with the poison job.
    """

    def __init__(self) -> None:
        self.waiting_recovered: set[str] = set()
        """Names with a recovered job that waits for a free slot."""
        self.waiting_suspects: set[str] = set()
        """Names with a suspected poison job that waits for isolation."""
        self._isolated: Run[Any] | None = None
        self._until = 0.0

    def isolate(self, run: Run[Any], now: float) -> None:
        """Begin the isolation of a run."""
        self._isolated = run
        self._until = now + _ISOLATION_SECONDS

    def ended(self, run: Run[Any]) -> bool:
        """Whether a run that has ended was isolated."""
        if self._isolated is not run:
            return False
        self._isolated = None
        return True

    def isolated_until(self, now: float) -> float:
        """Return when the isolation ends at the latest, infinity if there is none."""
        return self._until if self.is_isolating(now) else float("inf")

    def is_isolating(self, now: float) -> bool:
        """Whether a suspected poison job runs in isolation."""
        return self._isolated is not None and now < self._until

    def is_held(self, name: str, now: float) -> bool:
        """Whether a suspect of this name waits for the isolation of another to end."""
        return name in self.waiting_suspects and self.is_isolating(now)

    def looked_at(
        self, names: Iterable[str], waiting_recovered: set[str], waiting_suspects: set[str]
    ) -> None:
        """Update what waits, after a look at these names."""
        self.waiting_recovered.difference_update(names)
        self.waiting_recovered |= waiting_recovered
        self.waiting_suspects.difference_update(names)
        self.waiting_suspects |= waiting_suspects


def is_suspect(claims: float, failures: float, max_runs: int | None) -> bool:
    """Whether a waiting job was interrupted twice, or one more interruption would be its last."""
    is_last = max_runs is not None and claims + 1 >= max_runs
    return claims > failures and (claims - failures >= 2 or is_last)
