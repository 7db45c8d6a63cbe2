"""How readings become a line of the result."""

from __future__ import annotations

from functools import partial

from tests.benchmarks.measure import Measure, Reading, alternately


async def test_ways_are_tried_by_turns_every_other_time_backwards() -> None:
    order: list[str] = []

    async def note(way: str) -> int:
        order.append(way)
        return len(order)

    taken = await alternately(2, partial(note, "limit"), partial(note, "monque"))

    assert order == ["limit", "monque", "monque", "limit"]
    assert taken == [[1, 4], [2, 3]]


def test_a_summary_tells_the_median_of_the_ratios_and_how_far_they_lie_apart() -> None:
    readings = [Reading(6, 10, 2), Reading(9, 10, 1), Reading(7, 10, 1)]

    summary = Measure("drain", "jobs/s", readings).summary()

    assert summary["of_limit"] == 0.7
    assert summary["of_limit_spread"] == (0.6, 0.9)
    assert summary["of_naive_spread"] == (3, 9)


def test_one_round_alone_has_no_spread() -> None:
    assert Measure("claim", "ms", [Reading(6, 10)]).summary()["of_limit_spread"] is None
