"""What a benchmark measures, and the medians over several rounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median


@dataclass(frozen=True, slots=True)
class Reading:
    """One figure of one round: monque's, the limit's, and the naive way's where there is one."""

    monque: float
    limit: float
    naive: float | None = None

    @property
    def of_limit(self) -> float:
        """Give monque's share of the limit."""
        return self.monque / self.limit

    @property
    def of_naive(self) -> float | None:
        """Give monque's multiple of the naive way."""
        return None if self.naive is None else self.monque / self.naive


@dataclass(slots=True)
class Measure:
    """One line of the result: the readings of every round."""

    name: str
    unit: str
    readings: list[Reading] = field(default_factory=list)

    def summary(self) -> dict[str, object]:
        """Give the medians; ratios are taken within a round, where both saw the same machine."""
        naive = [reading.naive for reading in self.readings if reading.naive is not None]
        of_naive = [reading.of_naive for reading in self.readings if reading.of_naive is not None]
        return {
            "name": self.name,
            "unit": self.unit,
            "monque": median(reading.monque for reading in self.readings),
            "limit": median(reading.limit for reading in self.readings),
            "of_limit": median(reading.of_limit for reading in self.readings),
            "naive": median(naive) if naive else None,
            "of_naive": median(of_naive) if of_naive else None,
            "rounds": [[reading.monque, reading.limit, reading.naive] for reading in self.readings],
        }


def percentile(values: list[float], share: float) -> float:
    """Give the value that this share of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
