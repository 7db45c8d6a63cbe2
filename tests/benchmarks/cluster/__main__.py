"""What jobs cost with many instances: `python -m tests.benchmarks.cluster`."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sys
import time
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pymongo import AsyncMongoClient

from monque_core import LocalMongo
from tests.benchmarks.cluster import scenarios
from tests.benchmarks.cluster.scenarios import QUICK, Bench, Plan
from tests.benchmarks.cluster.tables import tables
from tests.benchmarks.run import commit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

SCENARIOS = ("idle", "lone", "busy", "full", "lost", "reactive")
_INSTANCES = (1, 4, 16, 64)
_QUICK_INSTANCES = (1, 2)
_DATABASE = "monque_cluster"
_PLAN_OPTIONS: dict[str, tuple[type[int | float], str]] = {
    "processes": (int, "client processes that share the instances"),
    "jobs": (int, "lone jobs or changes"),
    "gap_seconds": (float, "between lone jobs"),
    "idle_seconds": (float, "how long idle instances are counted"),
    "busy_seconds": (float, "how long each share of busy slots is measured"),
    "full_jobs": (int, "jobs of a full queue"),
    "lost_trials": (int, "how many processes are killed, and how many frozen"),
}


async def study(
    plan: Plan, names: Sequence[str], instances: Sequence[int], output: Path
) -> dict[str, Any]:
    """Measure these scenarios with each number of instances; store every row at once."""
    rows: dict[str, list[dict[str, Any]]] = {}
    async with LocalMongo() as mongo, AsyncMongoClient[dict[str, Any]](mongo.uri) as client:
        result = {
            "date": datetime.now(UTC).date().isoformat(),
            "commit": commit(),
            "python": platform.python_version(),
            "mongodb": (await client.server_info())["version"],
            "cores": os.cpu_count(),
            "plan": asdict(plan),
            "rows": rows,
        }
        bench = Bench(client[_DATABASE], mongo.uri, plan)
        async for scenario, row in _rows(bench, names, instances):
            # The load of the whole machine says how far to trust times and CPU.
            row["machine_load"] = os.getloadavg()[0]
            rows.setdefault(scenario, []).append(row)
            output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
            print(f"{time.strftime('%X')} {scenario}: {_brief(row)}", file=sys.stderr)
    return result


async def _rows(
    bench: Bench, names: Sequence[str], instances: Sequence[int]
) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    for count in instances:
        if {"idle", "lone"} & set(names):
            # The idle instances are the background of the lone jobs.
            idle, lone = await scenarios.idle_and_lone(bench, count)
            yield "idle", idle
            yield "lone", lone
        if "reactive" in names:
            yield "reactive", await scenarios.reactive(bench, count)
    if "busy" in names:
        for share in scenarios.BUSY_SHARES:
            for count in instances:
                yield "busy", await scenarios.busy(bench, count, share)
    if "full" in names:
        for seconds, job_names in scenarios.FULL_QUEUES:
            for count in instances:
                yield "full", await scenarios.full(bench, count, seconds, job_names)
    if "lost" in names:
        for fault in ("killed", "frozen"):
            yield "lost", await scenarios.lost(bench, fault)


def _brief(row: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in row.items()
        if not isinstance(value, dict | list)
    )


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.cluster", description=__doc__)
    parser.add_argument("--instances", type=_numbers, help="numbers of instances, by commas")
    parser.add_argument("--scenario", type=_scenarios, default=SCENARIOS, help="names, by commas")
    for name, (kind, text) in _PLAN_OPTIONS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, help=text)
    parser.add_argument("--quick", action="store_true", help="a trial run; figures mean little")
    parser.add_argument("--output", type=Path, default=Path("build", "cluster.json"))
    options = parser.parse_args()
    given = {name: getattr(options, name) for name in _PLAN_OPTIONS}
    plan = replace(
        QUICK if options.quick else Plan(),
        **{name: value for name, value in given.items() if value is not None},
    )
    instances = options.instances or (_QUICK_INSTANCES if options.quick else _INSTANCES)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    result = asyncio.run(study(plan, options.scenario, instances, options.output))
    print(f"{result['date']}, commit {result['commit'] or 'unknown'}\n\n{tables(result)}")


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def _scenarios(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in SCENARIOS:
            known = ", ".join(SCENARIOS)
            raise argparse.ArgumentTypeError(f"unknown scenario {name!r}; known are {known}")
    return names


if __name__ == "__main__":
    main()
