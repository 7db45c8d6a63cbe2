"""Readings of a benchmark, and their medians over several rounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading of one round: of monque, and of the limit and the naive way if any."""

    monque: float
    limit: float | None = None
    naive: float | None = None

    @property
    def of_limit(self) -> float | None:
        """Return monque's share of the limit."""
        return self.monque / self.limit if self.limit else None

    @property
    def of_naive(self) -> float | None:
        """Return monque's multiple of the naive way."""
        return self.monque / self.naive if self.naive else None


@dataclass(slots=True)
class Measure:
    """One line of the result: the readings of every round."""

    name: str
    unit: str
    readings: list[Reading] = field(default_factory=list)

    def summary(self) -> dict[str, object]:
        """Return the medians; ratios are taken within a round, where both saw the same machine."""
        readings = self.readings
        return {
            "name": self.name,
            "unit": self.unit,
            "monque": _median([reading.monque for reading in readings]),
            "limit": _median([reading.limit for reading in readings]),
            "of_limit": _median([reading.of_limit for reading in readings]),
            "of_limit_spread": _spread([reading.of_limit for reading in readings]),
            "naive": _median([reading.naive for reading in readings]),
            "of_naive": _median([reading.of_naive for reading in readings]),
            "of_naive_spread": _spread([reading.of_naive for reading in readings]),
            "rounds": [[reading.monque, reading.limit, reading.naive] for reading in readings],
        }


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _spread(values: Sequence[float | None]) -> tuple[float, float] | None:
    """Return the lowest and the highest value; None if there is only one."""
    known = [value for value in values if value is not None]
    return (min(known), max(known)) if len(known) > 1 else None


async def alternately(times: int, *variants: Callable[[], Awaitable[T]]) -> list[list[T]]:
    """Call each way this many times, in alternating order; return the results of each way.

    Every second pass runs backwards, so that no way always follows the same other one, and load on
    the machine affects all of them.
    """
    taken: list[list[T]] = [[] for _ in variants]
    for turn in range(times):
        numbers = range(len(variants)) if turn % 2 == 0 else reversed(range(len(variants)))
        for number in numbers:
            taken[number].append(await variants[number]())
    return taken


def percentile(values: list[float], share: float) -> float:
    """Return the value that this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
