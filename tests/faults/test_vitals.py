"""What a soak makes of the memory, threads, tasks and connections of its processes."""

from __future__ import annotations

import pytest

from tests.faults.lab.story import Story
from tests.faults.lab.vitals import KINDS, SHORTEST_LIFE, growth, leaks

STEADY = {"memory": 60 << 20, "objects": 50_000, "threads": 5, "tasks": 40, "connections": 8}


def lived(samples: int, kind: str = "", growth_each: float = 0) -> Story:
    """Return of a process that lived so long, and had more of one kind every second."""
    story = Story()
    for number in range(samples):
        grown = {kind: STEADY[kind] + number * growth_each} if kind else {}
        story.note("worker", "vitals", **{**STEADY, **grown})
    return story


def test_a_process_that_holds_still_has_no_leak() -> None:
    history = lived(SHORTEST_LIFE).history()
    assert growth(history) == {"worker": {kind: (STEADY[kind], STEADY[kind]) for kind in KINDS}}
    assert not leaks(history)


@pytest.mark.parametrize("kind", KINDS)
def test_what_grows_with_time_is_a_leak(kind: str) -> None:
    (leak,) = leaks(lived(SHORTEST_LIFE, kind, growth_each=STEADY[kind] / 100).history())
    assert f"of {kind}" in leak


def test_nothing_can_be_said_of_a_process_that_lived_for_a_moment() -> None:
    assert not growth(lived(SHORTEST_LIFE - 1, "memory", growth_each=1 << 20).history())
