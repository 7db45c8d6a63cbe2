"""What processes take up over time: memory, objects, threads, tasks and connections."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.faults.lab.history import History

KINDS = ("memory", "objects", "threads", "tasks", "connections")
MINUTE = 60
"""Samples, one a second."""
_SETTLING = 2 * MINUTE
"""How long pools and caches may fill up, which is no leak."""
SHORTEST_LIFE = _SETTLING + 2 * MINUTE
"""Of a process that lived for less, nothing can be said."""
_TOLERANCE = {"memory": 8 << 20, "objects": 3000, "threads": 1, "tasks": 4, "connections": 3}
"""By how much the last minute may differ from the third by chance."""


def growth(history: History) -> dict[str, dict[str, tuple[float, float]]]:
    """Give the medians of the third and of the last minute of each process that lived for long."""
    return {
        process: {kind: _from_third_to_last_minute(series[kind]) for kind in KINDS}
        for process, series in _series(history).items()
        if len(series["memory"]) >= SHORTEST_LIFE
    }


def leaks(history: History) -> list[str]:
    """Tell what has grown by more than it may."""
    return [
        f"{process} has {late:,.0f} of {kind}, after {early:,.0f}"
        for process, kinds in growth(history).items()
        for kind, (early, late) in kinds.items()
        if late > early + _TOLERANCE[kind]
    ]


def _series(history: History) -> dict[str, dict[str, list[float]]]:
    series: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for note in history.of("vitals"):
        for kind in KINDS:
            series[note.process][kind].append(note.details[kind])
    return {process: dict(kinds) for process, kinds in series.items()}


def _from_third_to_last_minute(values: Sequence[float]) -> tuple[float, float]:
    return median(values[_SETTLING : _SETTLING + MINUTE]), median(values[-MINUTE:])
