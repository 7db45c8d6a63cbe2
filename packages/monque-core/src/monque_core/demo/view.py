"""Views of the demonstration, and the plain one: a line per second, for pipes and logs."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from monque_core.jobs.job import JobStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from monque_core.demo.metrics import DemoMetrics

_LINE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class DemoSnapshot:
    """The state of the demonstration at one moment."""

    phase: str
    counts: Mapping[str, int]
    """The number of jobs in each status."""
    metrics: DemoMetrics
    next_run_in: float
    """Seconds until the next run of the schedule."""


class View(Protocol):
    """Shows snapshots until it is closed."""

    def show(self, snapshot: DemoSnapshot) -> None:
        """Show a snapshot in place of the previous one."""
        ...

    def close(self) -> None:
        """Keep the last snapshot and stop."""
        ...


class PlainView:
    """Prints one line per second."""

    def __init__(self) -> None:
        self._next = 0.0

    def show(self, snapshot: DemoSnapshot) -> None:
        """Print a line if the last one is at least a second old."""
        metrics = snapshot.metrics
        if metrics.elapsed < self._next:
            return
        self._next = metrics.elapsed + _LINE_SECONDS
        counts = "  ".join(f"{status} {snapshot.counts.get(status, 0)}" for status in JobStatus.ALL)
        latency = metrics.recent_latency()
        speed = f"{metrics.rate:.0f} jobs/s, due to running {latency or 'not measured yet'}"
        print(f"{metrics.elapsed:5.1f} s  {snapshot.phase}  {counts}  {speed}")
        if metrics.recent:
            print(f"         last event: {metrics.recent[-1].strip()}")
        sys.stdout.flush()

    def close(self) -> None:
        """Do nothing: printed lines stay."""
