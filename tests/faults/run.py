"""Try to break monque for long: `make faults`, or `python -m tests.faults.run`."""

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
    "each in turn": lambda mongo, seed, _: experiments.each_in_turn(
        mongo, seed, outage=_OUTAGE_SECONDS
    ),
    "drain": lambda mongo, seed, _: experiments.drain(mongo, seed, 100_000),
    "rolling restart": lambda mongo, seed, _: experiments.rolling_restart(mongo, seed, rounds=3),
    "soak": lambda mongo, seed, seconds: experiments.soak(mongo, seed, seconds),
}


async def run(names: list[str], seed: int, seconds: float) -> dict[str, Any]:
    """Make the experiments one after the other, each on a replica set of its own."""
    results: dict[str, Any] = {}
    for name in names:
        began = time.monotonic()
        print(f"{name}, seed {seed} …", file=sys.stderr, flush=True)
        async with LocalMongo(replicas=3) as mongo:
            report = await EXPERIMENTS[name](mongo, seed, seconds)
        results[name] = {
            **report.summary,
            "seconds": round(time.monotonic() - began),
            "growth": growth(report.history),
            "broken promises": [str(violation) for violation in report.violations],
        }
        print(f"{report}\n  in {results[name]['seconds']} s", flush=True)
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "seed": seed,
        "results": results,
    }


def main() -> int:
    """Run the command line; the exit code tells whether every promise was kept."""
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("experiments", nargs="*", help=f"of {', '.join(EXPERIMENTS)}; all if none")
    parser.add_argument("--seed", type=int, default=None, help="to repeat a run (default: any)")
    parser.add_argument(
        "--seconds", type=float, default=600, help="of the campaign and of the soak (default: 600)"
    )
    parser.add_argument("--output", type=Path, default=Path("build", "faults.json"))
    options = parser.parse_args()
    for name in options.experiments:
        if name not in EXPERIMENTS:
            parser.error(f"{name!r} is none of {', '.join(EXPERIMENTS)}")
    seed = random.SystemRandom().randrange(1 << 16) if options.seed is None else options.seed
    result = asyncio.run(run(options.experiments or list(EXPERIMENTS), seed, options.seconds))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    broken = sum(len(one["broken promises"]) for one in result["results"].values())
    print(f"{broken} broken promise(s); written to {options.output}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
