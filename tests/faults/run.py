"""Run fault experiments: workers, producers and MongoDB are killed, frozen and cut off.

A checker then validates the recorded history against the guarantees in docs/guarantees.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from monque_core import LocalMongo
from tests.faults.lab import experiments
from tests.faults.lab.resource_usage import growth

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.faults.lab.lab import Report

    Experiment = Callable[[LocalMongo, int, float], Awaitable[Report]]

_OUTAGE_SECONDS = 10.0

EXPERIMENTS: dict[str, Experiment] = {
    "campaign": lambda mongo, seed, seconds: experiments.campaign(
        mongo, seed, seconds, _OUTAGE_SECONDS
    ),
    "every-fault": lambda mongo, seed, _: experiments.every_fault(
        mongo, seed, outage=_OUTAGE_SECONDS
    ),
    "drain": lambda mongo, seed, _: experiments.drain(mongo, seed, 100_000),
    "rolling-restart": lambda mongo, seed, _: experiments.rolling_restart(mongo, seed, rounds=3),
    "listeners": lambda mongo, seed, _: experiments.listeners(mongo, seed, trials=5),
    "lost-listeners": lambda mongo, seed, _: experiments.lost_listeners(mongo, seed, trials=3),
    "soak": lambda mongo, seed, seconds: experiments.soak(mongo, seed, seconds),
}


async def run(names: list[str], seed: int, seconds: float) -> dict[str, Any]:
    """Run the experiments one after the other, each on a replica set of its own."""
    results: dict[str, Any] = {}
    for number, name in enumerate(names, 1):
        began = time.monotonic()
        print(f"[{number}/{len(names)}] {name} …", file=sys.stderr, flush=True)
        async with LocalMongo(replicas=3) as mongo:
            report = await EXPERIMENTS[name](mongo, seed, seconds)
        elapsed = round(time.monotonic() - began)
        results[name] = {
            **report.summary,
            "seconds": elapsed,
            "growth": growth(report.history),
            "violations": [str(violation) for violation in report.violations],
        }
        print(f"{name}: {'FAILED' if report.violations else 'passed'} in {elapsed} s")
        print(report, flush=True)
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "seed": seed,
        "results": results,
    }


def main() -> int:
    """Run the command line; return 1 if there are violations."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.run",
        description=__doc__,
        epilog="The exit code is 1 if a guarantee was violated.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "experiments",
        nargs="*",
        metavar="experiment",
        help=f"any of {', '.join(EXPERIMENTS)} (default: all, about half an hour)",
    )
    parser.add_argument(
        "--seed", type=int, help="seed of all random choices, to repeat a run (default: random)"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=600,
        help="duration of the fault phase of campaign and of soak (default: 600)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("build", "faults.json"),
        help="file for the results as JSON (default: %(default)s)",
    )
    options = parser.parse_args()
    for name in options.experiments:
        if name not in EXPERIMENTS:
            parser.error(f"unknown experiment {name!r}; known are {', '.join(EXPERIMENTS)}")
    seed = random.SystemRandom().randrange(1 << 16) if options.seed is None else options.seed
    print(f"seed {seed}", file=sys.stderr)
    result = asyncio.run(run(options.experiments or list(EXPERIMENTS), seed, options.seconds))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    violations = sum(len(one["violations"]) for one in result["results"].values())
    print(f"{violations} violation(s); results are in {options.output}", file=sys.stderr)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
