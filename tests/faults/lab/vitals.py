"""What processes take up over time: memory, objects, threads, tasks and connections."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.faults.lab.history import History

KINDS = ("memory", "objects", "threads", "tasks", "connections")
_FEWEST_SAMPLES = 60
_TOLERANCE = {"memory": 32 << 20, "objects": 3000, "threads": 2, "tasks": 8, "connections": 4}
"""What a process may have more of at its end: caches and pools that fill up, and no leak.

Memory that was once needed for a moment, as when a busy machine lets much pile up, stays with the
allocator; the number of objects tells what is still in use.
"""


def growth(history: History) -> dict[str, dict[str, tuple[float, float]]]:
    """Give the medians of the second and of the last fifth of each process that lived for long."""
    return {
        process: {kind: (_fifth(series[kind], 1), _fifth(series[kind], 4)) for kind in KINDS}
        for process, series in _series(history).items()
        if len(series["memory"]) >= _FEWEST_SAMPLES
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


def _fifth(values: Sequence[float], number: int) -> float:
    size = len(values) // 5
    return median(values[number * size : (number + 1) * size])
