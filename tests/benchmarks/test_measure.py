"""How readings become a line of the result."""

from __future__ import annotations

from functools import partial

from tests.benchmarks.measure import Measure, Reading, alternately


async def test_every_second_pass_runs_the_variants_in_reverse_order() -> None:
    order: list[str] = []

    async def note(variant: str) -> int:
        order.append(variant)
        return len(order)

    taken = await alternately(2, partial(note, "limit"), partial(note, "monque"))

    assert order == ["limit", "monque", "monque", "limit"]
    assert taken == [[1, 4], [2, 3]]


def test_a_summary_has_the_median_and_the_spread_of_the_ratios() -> None:
    readings = [Reading(6, 10, 2), Reading(9, 10, 1), Reading(7, 10, 1)]

    summary = Measure("drain", "jobs/s", readings).summary()

    assert summary["of_limit"] == 0.7
    assert summary["of_limit_spread"] == (0.6, 0.9)
    assert summary["of_naive_spread"] == (3, 9)


def test_a_single_round_has_no_spread() -> None:
    assert Measure("claim", "ms", [Reading(6, 10)]).summary()["of_limit_spread"] is None
