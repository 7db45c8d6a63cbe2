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
from tests.benchmarks import (
    blocking,
    claiming,
    drain,
    idling,
    intake,
    memory,
    pickup,
    plots,
    reactive,
    settling,
)
from tests.benchmarks.measure import Measure

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from tests.benchmarks.measure import Reading

_RATE, _TIME, _PLANNING, _TIMES = "jobs/s", "ms", "docs/s", "×"
_DIGITS = {_RATE: 0, _PLANNING: 0, "bytes": 0, _TIME: 1, _TIMES: 2, "commands/s": 3, "ms/s": 2}
_IDLE_SECONDS = 60
_SMALLEST_TO_WARM_UP = 0.1

Line = tuple[str, str, "Reading"]


async def run(rounds: int, scale: float) -> dict[str, Any]:
    """Go round after round, so that what disturbs the machine disturbs everything alike."""
    measures: dict[str, Measure] = {}
    async with LocalMongo() as mongo, AsyncMongoClient[dict[str, Any]](mongo.uri) as client:
        server = await client.server_info()
        db = client["monque_bench"]
        if scale >= _SMALLEST_TO_WARM_UP:
            await _round(db, mongo.uri, scale / 10)
        for number in range(rounds):
            print(f"round {number + 1} of {rounds}", file=sys.stderr)
            lines = await _round(db, mongo.uri, scale)
            if number == rounds - 1:
                lines += await _once(db, mongo.uri, scale)
            for unit, name, reading in lines:
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


async def _round(db: AsyncDatabase[dict[str, Any]], uri: str, scale: float) -> list[Line]:
    def scaled(count: int) -> int:
        return max(10, round(count * scale))

    drained = await drain.measure(db, scaled(20_000))
    drained |= await drain.measure_processes(db, uri, scaled(20_000))
    settled = await settling.measure(db, scaled(3000))
    stored = await intake.measure(db, scaled(400), scaled(10_000))
    stored |= await asyncio.to_thread(blocking.measure, uri, db.name, scaled(400))
    picked_up = await pickup.measure(db, uri, scaled(150))
    planned = await reactive.measure_planning(db, scaled(20_000))
    reached = await reactive.measure_latency(db, scaled(1000))
    return [
        *_lines(_RATE, drained | settled | stored),
        *_lines(_TIME, picked_up),
        *_lines(_PLANNING, planned),
        *_lines(_TIME, reached),
    ]


async def _once(db: AsyncDatabase[dict[str, Any]], uri: str, scale: float) -> list[Line]:
    """Measure what takes long and hardly differs from round to round."""
    claimed = await claiming.measure(db, scale, max(5, round(100 * scale)))
    growth = {"claim, 1,000,000 jobs stored over 1,000": claiming.growth(claimed)}
    sizes = await memory.measure(db, max(10, round(2000 * scale)))
    commands, cpu = (await idling.measure(uri, db.name, _IDLE_SECONDS * min(1.0, scale))).items()
    return [
        *_lines(_TIME, claimed),
        *_lines(_TIMES, growth),
        *_lines("commands/s", dict([commands])),
        *_lines("ms/s", dict([cpu])),
        *_lines("bytes", sizes),
    ]


def _lines(unit: str, readings: dict[str, Reading]) -> list[Line]:
    return [(unit, name, reading) for name, reading in readings.items()]


def table(result: dict[str, Any]) -> str:
    """Give the result as a Markdown table."""
    lines = [
        "| measured | monque | limit | of the limit | naive | of the naive |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for measure in result["measures"]:
        of_limit, of_naive = measure["of_limit"], measure["of_naive"]
        cells = [
            measure["name"],
            *(_figure(measure[key], measure["unit"]) for key in ("monque", "limit")),
            "" if of_limit is None else f"{of_limit:.2f}",
            _figure(measure["naive"], measure["unit"]),
            "" if of_naive is None else f"{of_naive:.1f} ×",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _figure(value: float | None, unit: str) -> str:
    return "" if value is None else f"{value:,.{_DIGITS[unit]}f} {unit}"


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="the medians of so many (default: 3)")
    parser.add_argument("--scale", type=float, default=1.0, help="more or fewer jobs (default: 1)")
    parser.add_argument("--output", type=Path, default=Path("build", "bench.json"))
    parser.add_argument("--plots", type=Path, help="where the plots go (default: beside --output)")
    options = parser.parse_args()
    began = time.monotonic()
    result = asyncio.run(run(options.rounds, options.scale))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(table(result))
    for image in plots.draw(result, options.plots or options.output.parent):
        print(f"drawn: {image}", file=sys.stderr)
    print(f"\n{time.monotonic() - began:.0f} s; written to {options.output}", file=sys.stderr)


if __name__ == "__main__":
    main()
