"""The experiments, each short or long."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.faults.lab.lab import Lab

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monque_core import LocalMongo
    from tests.faults.lab.lab import Report


async def campaign(mongo: LocalMongo, seed: int, seconds: float, outage: float = 3) -> Report:
    """Do everything at random and at once, a stop in the middle of some of it."""
    async with Lab(mongo, seed, outage=outage) as lab:
        lab.fleet.keep(3)
        lab.fleet.produce(2, rate=25)
        await lab.adversary.act(seconds)
        return await lab.conclude()


async def each_in_turn(
    mongo: LocalMongo, seed: int, kinds: Sequence[str] | None = None, outage: float = 3
) -> Report:
    """Do one thing after the other, and tell a worker to stop in the middle of each."""
    async with Lab(mongo, seed, outage=outage) as lab:
        lab.fleet.keep(3)
        lab.fleet.produce(2, rate=25)
        await lab.fleet.until_up(3)
        for kind in kinds or lab.adversary.kinds:
            await lab.adversary.do(kind, stop_midway=True)
        return await lab.conclude()


async def sabotaged(
    mongo: LocalMongo,
    sabotage: str | None,
    kinds: Sequence[str],
    seconds: float = 2,
    **options: Any,
) -> Report:
    """Do one thing after the other to a monque that is broken on purpose."""
    async with Lab(mongo, 3, is_disturbed=False, sabotage=sabotage, **options) as lab:
        lab.fleet.keep(2)
        lab.fleet.produce(1, rate=60)
        await lab.fleet.until_up(2)
        # Some that are still at work when their first owner wakes up again.
        await lab.monque.enqueue_many("long", [{"seconds": 3}] * 6)
        await asyncio.sleep(seconds)
        for kind in kinds:
            await lab.adversary.do(kind)
        return await lab.conclude(8)


async def drain(
    mongo: LocalMongo, seed: int, jobs: int, kill_every: float = 3, job_seconds: float = 0
) -> Report:
    """Empty a full queue by four processes, one of which is killed every few seconds."""
    async with Lab(mongo, seed, is_disturbed=False) as lab:
        data = ({"op": "lab/1", "i": i, "seconds": job_seconds} for i in range(jobs))
        await lab.monque.enqueue_many("quick", data)
        lab.fleet.keep(4)
        await lab.fleet.until_up(2)
        while not await lab.until_quiet(kill_every):
            await lab.adversary.do("kill")
        return await lab.conclude()


async def rolling_restart(mongo: LocalMongo, seed: int, rounds: int = 1) -> Report:
    """Stop every worker and start another in its place, one after the other, under load."""
    async with Lab(mongo, seed, is_disturbed=False, shutdown_timeout=10) as lab:
        lab.fleet.keep(3)
        lab.fleet.produce(2, rate=40)
        await lab.fleet.until_up(3)
        for _ in range(rounds):
            for member in list(lab.fleet.workers):
                await lab.fleet.stop(member)
                await lab.fleet.until_up(3)
        return await lab.conclude()


async def soak(
    mongo: LocalMongo, seed: int, seconds: float, rate: float = 120, keep: float = 20
) -> Report:
    """Go on for long without any fault, finished jobs being kept for so many seconds."""
    retention = {"completed": keep, "failed": keep, "cancelled": keep, "interval": keep / 4}
    async with Lab(mongo, seed, is_disturbed=False, job_retention=retention) as lab:
        lab.fleet.keep(3)
        lab.fleet.produce(2, rate=rate, tasks=10, long_seconds=0.4)
        await lab.fleet.until_up(3)
        await asyncio.sleep(seconds)
        return await lab.conclude()
