"""Measure throughput, latency and cost; print a table, write JSON and draw plots."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import time
from dataclasses import dataclass, replace
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
    enqueueing,
    idle,
    memory,
    outcomes,
    pickup,
    plots,
    processes,
    raw,
    reactive,
)
from tests.benchmarks.cpu_meter import CpuMeter
from tests.benchmarks.measure import Measure

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from tests.benchmarks.measure import Reading

_RATE, _TIME, _PLANNING, _TIMES = "jobs/s", "ms", "docs/s", "×"
_CPU, _IDLE_CPU, _COMMANDS, _SIZE = "µs", "ms/s", "commands/s", "bytes"
_DIGITS = {_TIME: 1, _CPU: 1, _TIMES: 2, _IDLE_CPU: 2, _COMMANDS: 3}
_IDLE_SECONDS = 240
"""As long as an instance's longest period, and two or four times its other periods."""
_SMALLEST_FULL_SCALE = 0.1
_EPILOG = """\
Each line compares monque with the same work in bare PyMongo calls:
  limit  the fastest way known, with batches and without the features of a queue
  naive  one job at a time, as in a simple queue of one's own
"""
_ROOT = Path(__file__).parents[2]

Line = tuple[str, str, "Reading"]


@dataclass(frozen=True, slots=True)
class _Bench:
    """The server, and the amount of work."""

    db: AsyncDatabase[dict[str, Any]]
    uri: str
    meter: CpuMeter
    scale: float
    batch_size: int = raw.BATCH_SIZES[0]
    """The batch size of the limits that claim in batches."""

    @property
    def is_full_run(self) -> bool:
        """Return whether this is more than a trial or a warm-up."""
        return self.scale >= _SMALLEST_FULL_SCALE

    @property
    def repetitions(self) -> int:
        """Return the number of alternations per round for measurements that alternate."""
        return 2 if self.is_full_run else 1

    def scaled(self, count: int) -> int:
        return max(10, round(count * self.scale))


async def run(rounds: int, scale: float) -> dict[str, Any]:
    """Measure in rounds, so that load on the machine affects all measurements alike."""
    measures: dict[str, Measure] = {}
    async with LocalMongo() as mongo, AsyncMongoClient[dict[str, Any]](mongo.uri) as client:
        server = await client.server_info()
        db, meter = client["monque_bench"], CpuMeter(mongo.nodes[0].pid)
        bench = _Bench(db, mongo.uri, meter, scale)
        count = bench.scaled(20_000)
        batch_size = await drain.best_batch_size(db, meter, count, bench.repetitions)
        bench = replace(bench, batch_size=batch_size)
        if bench.is_full_run:
            await _round(replace(bench, scale=scale / 20))
        for number in range(rounds):
            print(f"round {number + 1} of {rounds} …", file=sys.stderr)
            lines = await _round(bench)
            if number == rounds - 1:
                lines += await _once(bench)
            for unit, name, reading in lines:
                measures.setdefault(name, Measure(name, unit)).readings.append(reading)
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": {
            "cores": os.cpu_count(),
            "processor": platform.machine(),
            "python": platform.python_version(),
            "pymongo": pymongo.version,
            "mongodb": server["version"],
        },
        "rounds": rounds,
        "scale": scale,
        "limit_batch_size": batch_size,
        "measures": [measure.summary() for measure in measures.values()],
    }


async def _round(bench: _Bench) -> list[Line]:
    db, uri, scaled, repetitions = bench.db, bench.uri, bench.scaled, bench.repetitions
    drained, spent = await drain.measure(
        db, bench.meter, scaled(20_000), bench.batch_size, repetitions
    )
    drained |= await processes.measure(db, uri, scaled(20_000), bench.batch_size)
    settled = await outcomes.measure(db, scaled(10_000), bench.batch_size)
    stored = await enqueueing.measure(db, scaled(200), scaled(10_000), repetitions)
    stored |= await asyncio.to_thread(blocking.measure, uri, db.name, scaled(400))
    picked_up = await pickup.measure(db, uri, scaled(200), scaled(400), 2 * repetitions)
    planned = await reactive.measure_planning(db, scaled(10_000), repetitions)
    reached = await reactive.measure_latency(db, scaled(600), repetitions)
    return [
        *_lines(_RATE, drained),
        *_lines(_CPU, spent),
        *_lines(_RATE, settled | stored),
        *_lines(_TIME, picked_up),
        *_lines(_PLANNING, planned),
        *_lines(_TIME, reached),
    ]


async def _once(bench: _Bench) -> list[Line]:
    """Measure what takes long and hardly varies between rounds."""
    db, scale = bench.db, bench.scale
    claimed = await claiming.measure(db, scale, bench.scaled(60))
    growth = {"claim, 1,000,000 jobs stored over 1,000": claiming.growth(claimed)}
    sizes = await memory.measure(db, bench.scaled(2000))
    idle_costs = await idle.measure(db, bench.uri, _IDLE_SECONDS * min(1.0, scale))
    commands, cpu = idle_costs.items()
    return [
        *_lines(_TIME, claimed),
        *_lines(_TIMES, growth),
        *_lines(_COMMANDS, dict([commands])),
        *_lines(_IDLE_CPU, dict([cpu])),
        *_lines(_SIZE, sizes),
    ]


def _lines(unit: str, readings: dict[str, Reading]) -> list[Line]:
    return [(unit, name, reading) for name, reading in readings.items()]


def commit() -> str | None:
    """Return the commit of the sources, marked if they were modified; None without git."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        told = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return told.stdout.strip()


def table(result: dict[str, Any]) -> str:
    """Return the result as a Markdown table."""
    lines = [
        "| benchmark | monque | limit | monque/limit | lowest to highest | naive | monque/naive |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for measure in result["measures"]:
        of_limit, of_naive = measure["of_limit"], measure["of_naive"]
        spread = measure["of_limit_spread"]
        cells = [
            measure["name"],
            *(_figure(measure[key], measure["unit"]) for key in ("monque", "limit")),
            "" if of_limit is None else f"{of_limit:.2f}",
            "" if spread is None else f"{spread[0]:.2f} to {spread[1]:.2f}",
            _figure(measure["naive"], measure["unit"]),
            "" if of_naive is None else f"{of_naive:.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _figure(value: float | None, unit: str) -> str:
    return "" if value is None else f"{value:,.{_DIGITS.get(unit, 0)}f} {unit}"


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.run",
        description=__doc__,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=3,
        help="number of rounds; the table shows medians (default: %(default)s)",
    )
    parser.add_argument(
        "--scale",
        type=float,
        default=1.0,
        help="factor for the number of jobs; 0.01 is a quick trial (default: %(default)s)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("build", "bench.json"),
        help="file for the results as JSON (default: %(default)s)",
    )
    parser.add_argument(
        "--plots", type=Path, help="directory for the plots (default: that of --output)"
    )
    options = parser.parse_args()
    began = time.monotonic()
    result = asyncio.run(run(options.rounds, options.scale))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(f"{result['date']}, commit {result['commit'] or 'unknown'}\n\n{table(result)}")
    for image in plots.draw(result, options.plots or options.output.parent):
        print(f"plot: {image}", file=sys.stderr)
    seconds = time.monotonic() - began
    print(f"\nfinished in {seconds:.0f} s; results are in {options.output}", file=sys.stderr)


if __name__ == "__main__":
    main()
