"""Measure, print one table and write JSON: `make bench`, or `python -m tests.benchmarks.run`."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pymongo
from pymongo import AsyncMongoClient

from monque_core import LocalMongo
from tests.benchmarks import blocking, drain, intake, pickup, reactive
from tests.benchmarks.measure import Measure

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from tests.benchmarks.measure import Reading

_RATE, _TIME, _PLANNING = "jobs/s", "ms", "docs/s"


async def run(rounds: int, scale: float) -> dict[str, Any]:
    """Go round after round, so that what disturbs the machine disturbs everything alike."""
    measures: dict[str, Measure] = {}
    async with LocalMongo() as mongo, AsyncMongoClient[dict[str, Any]](mongo.uri) as client:
        server = await client.server_info()
        db = client["monque_bench"]
        await _round(db, mongo.uri, scale / 10)
        for number in range(rounds):
            print(f"round {number + 1} of {rounds}", file=sys.stderr)
            for unit, name, reading in await _round(db, mongo.uri, scale):
                measures.setdefault(name, Measure(name, unit)).readings.append(reading)
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "cores": os.cpu_count(),
            "processor": platform.machine(),
            "python": platform.python_version(),
            "pymongo": pymongo.version,
            "mongodb": server["version"],
        },
        "rounds": rounds,
        "scale": scale,
        "measures": [measure.summary() for measure in measures.values()],
    }


async def _round(
    db: AsyncDatabase[dict[str, Any]], uri: str, scale: float
) -> list[tuple[str, str, Reading]]:
    readings: list[tuple[str, str, Reading]] = []

    def scaled(count: int) -> int:
        return max(10, round(count * scale))

    drained = await drain.measure(db, scaled(5000))
    readings += [(_RATE, name, reading) for name, reading in drained.items()]
    stored = await intake.measure(db, scaled(400), scaled(10_000))
    readings += [(_RATE, name, reading) for name, reading in stored.items()]
    blocked = await asyncio.to_thread(blocking.measure, uri, db.name, scaled(400))
    readings += [(_RATE, name, reading) for name, reading in blocked.items()]
    picked_up = await pickup.measure(db, uri, scaled(150))
    readings += [(_TIME, name, reading) for name, reading in picked_up.items()]
    planned = await reactive.measure_planning(db, scaled(20_000))
    readings += [(_PLANNING, name, reading) for name, reading in planned.items()]
    reached = await reactive.measure_latency(db, scaled(1000))
    readings += [(_TIME, name, reading) for name, reading in reached.items()]
    return readings


def table(result: dict[str, Any]) -> str:
    """Give the result as a Markdown table."""
    lines = [
        "| measured | monque | limit | of the limit | naive | of the naive |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for measure in result["measures"]:
        digits = 1 if measure["unit"] == _TIME else 0
        naive, of_naive = measure["naive"], measure["of_naive"]
        cells = [
            measure["name"],
            f"{measure['monque']:,.{digits}f} {measure['unit']}",
            f"{measure['limit']:,.{digits}f} {measure['unit']}",
            f"{measure['of_limit']:.2f}",
            "" if naive is None else f"{naive:,.{digits}f} {measure['unit']}",
            "" if of_naive is None else f"{of_naive:.1f} ×",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="the medians of so many (default: 3)")
    parser.add_argument("--scale", type=float, default=1.0, help="more or fewer jobs (default: 1)")
    parser.add_argument("--output", type=Path, default=Path("build", "bench.json"))
    options = parser.parse_args()
    began = time.monotonic()
    result = asyncio.run(run(options.rounds, options.scale))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(table(result))
    print(f"\n{time.monotonic() - began:.0f} s; written to {options.output}", file=sys.stderr)


if __name__ == "__main__":
    main()
