"""What the demonstration shows, as plain lines: one per second, for pipes and log files."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from monque_core.jobs.job import JobStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from monque_core.demo.meter import Meter

_LINE_GAP = 1.0


@dataclass(frozen=True, slots=True)
class Picture:
    """One moment of the demonstration."""

    phase: str
    counts: Mapping[str, int]
    """How many jobs the collection holds in each status."""
    meter: Meter
    next_tick_in: float
    """Seconds until the schedule fires."""


class View(Protocol):
    """Something that shows pictures until it is closed."""

    def show(self, picture: Picture) -> None:
        """Show this moment in place of the one before."""
        ...

    def close(self) -> None:
        """Leave the last picture and show no more."""
        ...


class Lines:
    """A plain line per second."""

    def __init__(self) -> None:
        self._next = 0.0

    def show(self, picture: Picture) -> None:
        """Print a line if the last one is a second old."""
        meter = picture.meter
        if meter.elapsed < self._next:
            return
        self._next = meter.elapsed + _LINE_GAP
        counts = "  ".join(f"{status} {picture.counts.get(status, 0)}" for status in JobStatus.ALL)
        latency = meter.recent_latency()
        speed = f"{meter.rate:.0f} jobs/s, due to running {latency or 'not measured yet'}"
        print(f"{meter.elapsed:5.1f} s  {picture.phase}  {counts}  {speed}")
        if meter.recent:
            print(f"         last event: {meter.recent[-1].strip()}")
        sys.stdout.flush()

    def close(self) -> None:
        """Do nothing: printed lines stay."""
