"""The experiments, each short or long."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.faults.lab.demands import (
    all_are_done,
    each_is_done,
    every_call_is_answered,
    no_claim_is_lost,
    no_outage_is_told,
    nothing_grows,
    so_many_are_stopped,
)
from tests.faults.lab.lab import Lab

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monque_core import LocalMongo
    from tests.faults.lab.lab import Report

_WORKERS = 3
_PRODUCERS = 2
_WITHOUT_A_FAULT = (every_call_is_answered, no_outage_is_told, no_claim_is_lost)


async def campaign(mongo: LocalMongo, seed: int, seconds: float, outage: float = 3) -> Report:
    """Do everything at random and at once, a stop in the middle of some of it."""
    async with Lab(mongo, seed, outage=outage) as lab:
        lab.fleet.keep(_WORKERS)
        lab.fleet.produce(_PRODUCERS, rate=25)
        await lab.adversary.act(seconds)
        return await lab.conclude()


async def each_in_turn(
    mongo: LocalMongo, seed: int, outage: float = 3, part: int = 1, parts: int = 1
) -> Report:
    """Do one thing after the other, and tell a worker to stop in the middle of each.

    In several parts, each does some of them.
    """
    async with Lab(mongo, seed, outage=outage) as lab:
        lab.fleet.keep(_WORKERS)
        lab.fleet.produce(_PRODUCERS, rate=25)
        await lab.fleet.until_up(_WORKERS)
        kinds = list(lab.adversary.kinds)[part - 1 :: parts]
        for kind in kinds:
            await lab.adversary.do(kind, stop_midway=True)
        return await lab.conclude(each_is_done(kinds))


async def sabotaged(
    mongo: LocalMongo,
    sabotage: str | None,
    kinds: Sequence[str],
    seed: int = 3,
    operations: int = 120,
    **options: Any,
) -> Report:
    """Do one thing after the other to a monque that is broken on purpose.

    The faults begin when the producer has asked for so many operations, and is gone: it keeps a
    slow machine busy, and what is late there is no flaw.
    """
    async with Lab(mongo, seed, is_disturbed=False, sabotage=sabotage, **options) as lab:
        lab.fleet.keep(2)
        lab.fleet.produce(1, rate=60)
        await lab.fleet.until_up(2)
        await lab.fleet.until_noted("asks", operations)
        await lab.fleet.stop_producers()
        await lab.until_quiet(6)
        # Some that are still at work when their first owner wakes up again.
        long = await lab.enqueue_many("long", [{"seconds": 3}] * 6, priority=9)
        # Not all: without recovery a claim whose reply came late may stay where it is for ever.
        await lab.fleet.until_run(long, len(long) // 2)
        for kind in kinds:
            await lab.adversary.do(kind)
        if sabotage is None:
            return await lab.conclude()
        return await lab.conclude(seconds=6)


async def drain(
    mongo: LocalMongo, seed: int, jobs: int, kill_every: float = 3, job_seconds: float = 0
) -> Report:
    """Empty a full queue by four processes, one of which is killed every few seconds."""
    async with Lab(mongo, seed, is_disturbed=False) as lab:
        await lab.enqueue_many("quick", [{"seconds": job_seconds}] * jobs)
        lab.fleet.keep(4)
        await lab.fleet.until_up(2)
        while not await lab.until_quiet(kill_every):
            # So that there is one to go on, on a machine where they are slow to start.
            await lab.fleet.until_up(2)
            await lab.adversary.do("kill")
        return await lab.conclude(all_are_done(jobs))


async def rolling_restart(mongo: LocalMongo, seed: int, rounds: int = 1) -> Report:
    """Stop every worker and start another in its place, one after the other, under load."""
    async with Lab(mongo, seed, is_disturbed=False, shutdown_timeout=10) as lab:
        lab.fleet.keep(_WORKERS)
        lab.fleet.produce(_PRODUCERS, rate=40)
        await lab.fleet.until_up(_WORKERS)
        for _ in range(rounds):
            for member in list(lab.fleet.workers):
                await lab.fleet.stop(member)
                await lab.fleet.until_up(_WORKERS)
        return await lab.conclude(
            *_WITHOUT_A_FAULT,
            so_many_are_stopped(_WORKERS * rounds + _WORKERS + _PRODUCERS),
        )


async def soak(
    mongo: LocalMongo,
    seed: int,
    seconds: float,
    rate: float = 120,
    keep: float = 20,
    deleted: int = 100,
) -> Report:
    """Go on for long without any fault, finished jobs being kept for so many seconds.

    It takes longer where so many have not been deleted by then.
    """
    retention = {"completed": keep, "failed": keep, "cancelled": keep, "interval": keep / 4}
    async with Lab(mongo, seed, is_disturbed=False, job_retention=retention) as lab:
        lab.fleet.keep(_WORKERS)
        lab.fleet.produce(_PRODUCERS, rate=rate, tasks=10, long_seconds=0.4)
        await lab.fleet.until_up(_WORKERS)
        await asyncio.sleep(seconds)
        await lab.until_deleted(deleted)
        return await lab.conclude(*_WITHOUT_A_FAULT, nothing_grows)
