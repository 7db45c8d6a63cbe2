"""Resource usage of processes over time: memory, objects, threads, tasks and connections."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.faults.lab.history import History

METRICS = ("memory", "objects", "threads", "tasks", "connections")
MINUTE = 60
"""The number of samples, one per second."""
_WARM_UP = 2 * MINUTE
"""Pools and caches may fill up during this time, which is not a leak."""
MIN_SAMPLES = _WARM_UP + 2 * MINUTE
"""A shorter series is not evaluated."""
_TOLERANCE = {"memory": 8 << 20, "objects": 3000, "threads": 1, "tasks": 4, "connections": 3}
"""The normal variation between the third and the last minute."""


def growth(history: History) -> dict[str, dict[str, tuple[float, float]]]:
    """Return the medians of the third and the last minute of each long-lived process."""
    return {
        process: {kind: _from_third_to_last_minute(series[kind]) for kind in METRICS}
        for process, series in _series(history).items()
        if len(series["memory"]) >= MIN_SAMPLES
    }


def leaks(history: History) -> list[str]:
    """Return a description of each resource that grew by more than the tolerance."""
    return [
        f"{process}: {kind} grew from {early:,.0f} to {late:,.0f}"
        for process, kinds in growth(history).items()
        for kind, (early, late) in kinds.items()
        if late > early + _TOLERANCE[kind]
    ]


def _series(history: History) -> dict[str, dict[str, list[float]]]:
    series: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for note in history.of("resource usage"):
        for kind in METRICS:
            series[note.process][kind].append(note.details[kind])
    return {process: dict(kinds) for process, kinds in series.items()}


def _from_third_to_last_minute(values: Sequence[float]) -> tuple[float, float]:
    return median(values[_WARM_UP : _WARM_UP + MINUTE]), median(values[-MINUTE:])
