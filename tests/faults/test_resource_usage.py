"""How resource usage over time is judged: memory, threads, tasks and connections."""

from __future__ import annotations

import pytest

from tests.faults.lab.history_builder import HistoryBuilder
from tests.faults.lab.resource_usage import METRICS, MIN_SAMPLES, growth, leaks

STEADY = {"memory": 60 << 20, "objects": 50_000, "threads": 5, "tasks": 40, "connections": 8}


def usage_history(samples: int, kind: str = "", growth_per_sample: float = 0) -> HistoryBuilder:
    """Return a history of one process with this many samples and optionally a growing resource."""
    history = HistoryBuilder()
    for number in range(samples):
        grown = {kind: STEADY[kind] + number * growth_per_sample} if kind else {}
        history.note("worker", "resource usage", **{**STEADY, **grown})
    return history


def test_constant_usage_is_not_a_leak() -> None:
    history = usage_history(MIN_SAMPLES).build()
    assert growth(history) == {"worker": {kind: (STEADY[kind], STEADY[kind]) for kind in METRICS}}
    assert not leaks(history)


@pytest.mark.parametrize("kind", METRICS)
def test_steadily_growing_usage_is_a_leak(kind: str) -> None:
    (leak,) = leaks(usage_history(MIN_SAMPLES, kind, growth_per_sample=STEADY[kind] / 100).build())
    assert f"{kind} grew" in leak


def test_short_lived_processes_are_not_evaluated() -> None:
    assert not growth(usage_history(MIN_SAMPLES - 1, "memory", growth_per_sample=1 << 20).build())
