"""The experiments; their arguments make them short or long."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.faults.lab.lab import Lab
from tests.faults.lab.listener_trials import ListenerTrials
from tests.faults.lab.rules.experiments import (
    all_jobs_complete,
    every_call_is_answered,
    every_fault_is_injected,
    jobs_are_taken_over,
    lost_listeners_are_replaced,
    no_claim_is_lost,
    no_outage_is_reported,
    no_process_leaks,
    processes_are_stopped,
)
from tests.faults.lab.takeovers import percentiles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monque_core import LocalMongo
    from tests.faults.lab.lab import Report

_WORKERS = 3
_TEAM = 5
"""Two listeners and three on standby."""
_NEVER = 600
"""A poll interval that is longer than any experiment with it."""
_TAKEOVER_SECONDS = 5.0
_REPLACED_SECONDS = 60.0
_PRODUCERS = 2
LISTENER_FAULTS = ("none", "kill", "freeze", "cut", "half-open", "busy", "all busy")
_WITHOUT_A_FAULT = (every_call_is_answered, no_outage_is_reported, no_claim_is_lost)


async def campaign(mongo: LocalMongo, seed: int, seconds: float, outage: float = 3) -> Report:
    """Inject all kinds of faults concurrently at random, with stops during some of them."""
    async with Lab(mongo, seed, outage=outage) as lab:
        lab.processes.start_workers(_WORKERS)
        lab.processes.start_producers(_PRODUCERS, rate=25)
        await lab.fault_injector.inject_randomly(seconds)
        return await lab.finish()


async def every_fault(
    mongo: LocalMongo, seed: int, outage: float = 3, part: int = 1, parts: int = 1
) -> Report:
    """Inject each kind of fault once, one after the other, and stop a worker during each.

    With several parts, each part injects some of the kinds.
    """
    async with Lab(mongo, seed, outage=outage) as lab:
        lab.processes.start_workers(_WORKERS)
        lab.processes.start_producers(_PRODUCERS, rate=25)
        await lab.processes.wait_until_up(_WORKERS)
        kinds = list(lab.fault_injector.kinds)[part - 1 :: parts]
        for kind in kinds:
            await lab.fault_injector.inject(kind, stop_midway=True)
        return await lab.finish(every_fault_is_injected(kinds))


async def broken_variant(
    mongo: LocalMongo,
    variant: str | None,
    kinds: Sequence[str],
    seed: int = 3,
    operations: int = 120,
    **options: Any,
) -> Report:
    """Inject faults one after the other into a broken variant of monque.

    The faults begin after the producer made this many calls and ended: it would keep a slow machine
    busy, and delays are not violations.
    """
    async with Lab(mongo, seed, has_network_faults=False, variant=variant, **options) as lab:
        lab.processes.start_workers(2)
        lab.processes.start_producers(1, rate=60)
        await lab.processes.wait_until_up(2)
        await lab.processes.wait_until_recorded("invoked", operations)
        await lab.processes.stop_producers()
        await lab.wait_until_idle(6)
        # Some of these still run when their first owner resumes.
        long = await lab.enqueue_many("long", [{"seconds": 3}] * 6, priority=9)
        # Not all: without recovery, a claim whose reply came late may never end.
        await lab.processes.wait_until_run(long, len(long) // 2)
        for kind in kinds:
            await lab.fault_injector.inject(kind)
        if variant is None:
            return await lab.finish()
        return await lab.finish(seconds=6)


async def drain(
    mongo: LocalMongo, seed: int, jobs: int, kill_every: float = 3, job_seconds: float = 0
) -> Report:
    """Drain a full queue with four workers, and kill one of them every few seconds."""
    async with Lab(mongo, seed, has_network_faults=False) as lab:
        await lab.enqueue_many("quick", [{"seconds": job_seconds}] * jobs)
        lab.processes.start_workers(4)
        await lab.processes.wait_until_up(2)
        while not await lab.wait_until_idle(kill_every):
            # So that one survives, on a machine where processes start slowly.
            await lab.processes.wait_until_up(2)
            await lab.fault_injector.inject("kill")
        return await lab.finish(all_jobs_complete(jobs))


async def rolling_restart(mongo: LocalMongo, seed: int, rounds: int = 1) -> Report:
    """Stop and replace each worker, one after the other, under load."""
    async with Lab(mongo, seed, has_network_faults=False, shutdown_timeout=10) as lab:
        lab.processes.start_workers(_WORKERS)
        lab.processes.start_producers(_PRODUCERS, rate=40)
        await lab.processes.wait_until_up(_WORKERS)
        for _ in range(rounds):
            for worker in list(lab.processes.workers):
                await lab.processes.stop(worker)
                await lab.processes.wait_until_up(_WORKERS)
        return await lab.finish(
            *_WITHOUT_A_FAULT,
            processes_are_stopped(_WORKERS * rounds + _WORKERS + _PRODUCERS),
        )


async def soak(
    mongo: LocalMongo,
    seed: int,
    seconds: float,
    rate: float = 120,
    keep_seconds: float = 20,
    deleted: int = 100,
) -> Report:
    """Run for a long time without faults; finished jobs are kept for this many seconds.

    The run is extended until enough jobs have been deleted.
    """
    retention = {
        "completed": keep_seconds,
        "failed": keep_seconds,
        "cancelled": keep_seconds,
        "interval": keep_seconds / 4,
    }
    async with Lab(mongo, seed, has_network_faults=False, job_retention=retention) as lab:
        lab.processes.start_workers(_WORKERS)
        lab.processes.start_producers(_PRODUCERS, rate=rate, tasks=10, long_seconds=0.4)
        await lab.processes.wait_until_up(_WORKERS)
        await asyncio.sleep(seconds)
        await lab.wait_until_deleted(deleted)
        return await lab.finish(*_WITHOUT_A_FAULT, no_process_leaks)


def _polling(seconds: float) -> dict[str, Any]:
    """Return the options of workers that poll this often while others listen for them."""
    return {
        "poll_interval": _NEVER,
        "safety_poll_interval": seconds,
        # With it, a job may be prefetched behind one that runs for long.
        "instance_concurrency": None,
    }


async def listeners(
    mongo: LocalMongo,
    seed: int,
    kinds: Sequence[str] = LISTENER_FAULTS,
    trials: int = 1,
    variant: str | None = None,
) -> Report:
    """Store lone jobs, each while the listener that is to claim it is faulty.

    Nobody finds them by a poll.
    """
    async with Lab(mongo, seed, variant=variant, **_polling(_NEVER)) as lab:
        lab.processes.start_workers(_TEAM)
        team = ListenerTrials(lab, _TEAM)
        for _ in range(trials):
            for kind in kinds:
                await team.run(kind)
        rule = jobs_are_taken_over(_TAKEOVER_SECONDS)
        # With a broken variant, jobs may never end.
        report = await (lab.finish(rule) if variant is None else lab.finish(rule, seconds=6))
    report.summary.update(percentiles(report.history))
    return report


async def lost_listeners(
    mongo: LocalMongo, seed: int, trials: int = 1, variant: str | None = None
) -> Report:
    """Kill both listeners at once: a safety poll finds the job, and others take the seats."""
    poll = 2
    async with Lab(mongo, seed, variant=variant, **_polling(poll)) as lab:
        lab.processes.start_workers(_TEAM)
        team = ListenerTrials(lab, _TEAM)
        for _ in range(trials):
            gone = await team.run("all killed")
            await team.wait_until_replaced(gone, _REPLACED_SECONDS)
        report = await lab.finish(
            jobs_are_taken_over(poll + _TAKEOVER_SECONDS), lost_listeners_are_replaced
        )
    report.summary.update(percentiles(report.history))
    return report
