"""The scenarios: each returns one row of its table for a number of instances."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.benchmarks import raw
from tests.benchmarks.cluster.client import ORDERS, Assignment, name_of
from tests.benchmarks.cluster.counters import Counters, settle
from tests.benchmarks.cluster.processes import Arrival, producing, running
from tests.benchmarks.measure import percentile

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pymongo.asynchronous.database import AsyncDatabase

    from tests.benchmarks.cluster.counters import ServerLoad
    from tests.benchmarks.cluster.processes import Cluster, Producer

    Db = AsyncDatabase[dict[str, Any]]
    Row = dict[str, Any]

BUSY_SHARES = (0.3, 0.6)
FULL_QUEUES = ((0.0, 1), (0.0, 100), (0.05, 1), (0.05, 100))
"""The seconds of a job, and the number of names."""
_FULL_CONCURRENCY = 20
_BUSY_CONCURRENCY = 5
_BUSY_JOB_SECONDS = 0.2
_LONGEST_PICKUP = 60.0
_LONGEST_DRAIN = 300.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is measured."""

    processes: int = 4
    jobs: int = 100
    """Of those that come one at a time."""
    gap_seconds: float = 0.1
    warm_up_jobs: int = 10
    quiet_seconds: int = 3
    idle_seconds: float = 60.0
    busy_seconds: float = 20.0
    busy_warm_up_seconds: float = 3.0
    busy_jobs_per_second: float = 250.0
    """The most that one machine is to run; more instances get fewer slots."""
    full_jobs: int = 20_000
    lost_instances: int = 16
    lost_processes: int = 8
    lost_trials: int = 20
    longest_pickup: float = _LONGEST_PICKUP


QUICK = Plan(
    processes=2,
    jobs=5,
    gap_seconds=0.02,
    warm_up_jobs=2,
    quiet_seconds=1,
    idle_seconds=1.0,
    busy_seconds=1.0,
    busy_warm_up_seconds=0.5,
    busy_jobs_per_second=30.0,
    full_jobs=200,
    lost_instances=2,
    lost_processes=2,
    lost_trials=1,
)


@dataclass(frozen=True, slots=True)
class Bench:
    """The server and how much it is given to do."""

    db: Db
    uri: str
    plan: Plan

    def assignment(self, instances: int, **fields: Any) -> Assignment:
        """Return what all processes do together."""
        return Assignment(uri=self.uri, database=self.db.name, instances=instances, **fields)

    async def prepare(self) -> None:
        """Drop everything, and create what instances would otherwise create in a race."""
        await self.db.client.drop_database(self.db.name)
        await raw.prepare(self.db["monque_jobs"])
        await self.db.create_collection(ORDERS)

    @asynccontextmanager
    async def idle_cluster(
        self, assignment: Assignment, processes: int | None = None
    ) -> AsyncIterator[tuple[Cluster, Producer]]:
        """Start instances and a producer, run a few jobs, and wait until all is quiet."""
        await self.prepare()
        async with (
            producing(assignment) as producer,
            running(assignment, processes or self.plan.processes) as cluster,
        ):
            await self.quiet(assignment.instances)
            for _ in range(self.plan.warm_up_jobs):
                await _run_one(cluster, producer, self.plan)
            await self.quiet(assignment.instances)
            yield cluster, producer

    async def quiet(self, instances: int) -> None:
        """Wait until the instances send hardly any commands."""
        if not await settle(self.db, instances, self.plan.quiet_seconds):
            print(f"{instances} instances did not become quiet", file=sys.stderr)

    async def load(self, seconds: float) -> ServerLoad:
        """Return what the server does in this time."""
        before = await Counters.read(self.db)
        await asyncio.sleep(seconds)
        return (await Counters.read(self.db)).since(before)

    async def settled_since(self, before: Counters) -> ServerLoad:
        """Wait until the outcome of every started job is stored; return the load until then."""
        deadline = time.monotonic() + _LONGEST_DRAIN
        command, sent = {"count": "monque_jobs", "query": {"status": "processing"}}, 1
        while (await self.db.command(command))["n"]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"jobs were not settled within {_LONGEST_DRAIN} s")
            await asyncio.sleep(0.02)
            sent += 1
        return (await Counters.read(self.db)).since(before).without_counts(sent)


async def idle_and_lone(bench: Bench, instances: int) -> tuple[Row, Row]:
    """Measure idle instances, and then jobs that come one at a time."""
    async with bench.idle_cluster(bench.assignment(instances)) as (cluster, producer):
        background = await bench.load(bench.plan.idle_seconds)
        lone = await _one_at_a_time(bench, cluster, producer, background)
    return _idle_row(instances, background), {"instances": instances, **lone}


async def reactive(bench: Bench, instances: int) -> Row:
    """Measure changes that come one at a time: one leader plans, all instances run."""
    assignment = bench.assignment(instances, is_reactive=True)
    async with bench.idle_cluster(assignment) as (cluster, producer):
        background = await bench.load(bench.plan.idle_seconds)
        row = await _one_at_a_time(bench, cluster, producer, background)
    return {"instances": instances, **row}


async def busy(bench: Bench, instances: int, share: float) -> Row:
    """Measure pick-up while this share of all slots is busy; jobs arrive at random times."""
    plan = bench.plan
    most = plan.busy_jobs_per_second * _BUSY_JOB_SECONDS / max(BUSY_SHARES) / instances
    concurrency = max(1, min(_BUSY_CONCURRENCY, int(most)))
    rate = share * instances * concurrency / _BUSY_JOB_SECONDS
    assignment = bench.assignment(instances, concurrency=concurrency, job_seconds=_BUSY_JOB_SECONDS)
    async with bench.idle_cluster(assignment) as (cluster, producer):
        await producer.insert(round(rate * plan.busy_warm_up_seconds), rate)
        before, runs = await Counters.read(bench.db), cluster.runs
        cluster.drain_arrivals()
        began = time.monotonic_ns()
        count = max(1, round(rate * plan.busy_seconds))
        late = await producer.insert(count, rate)
        after, runs = await Counters.read(bench.db), cluster.runs - runs
        arrivals = list[Arrival]()
        while len(arrivals) < count:
            arrival = await cluster.next_arrival(plan.longest_pickup)
            if arrival.sent_ns >= began:
                arrivals.append(arrival)
    load = after.since(before)
    return {
        "instances": instances,
        "share": share,
        "concurrency": concurrency,
        "jobs": count,
        "jobs_per_second": count / load.seconds,
        "producer_late_seconds": late,
        **_pickup([arrival.milliseconds for arrival in arrivals]),
        **load.per(max(1, runs)),
    }


async def full(bench: Bench, instances: int, job_seconds: float, names: int) -> Row:
    """Measure a backlog: all instances start at once and run it to its end."""
    await bench.prepare()
    count = bench.plan.full_jobs
    if job_seconds:
        # As long for few instances as for many, as far as the machine allows.
        slots = instances * _FULL_CONCURRENCY
        count = min(count, round(slots * 2.5 / job_seconds))
    per_name = max(1, count // names)
    count = per_name * names
    for number in range(names):
        await raw.add(bench.db["monque_jobs"], per_name, name=name_of(number))
    assignment = bench.assignment(
        instances,
        concurrency=_FULL_CONCURRENCY,
        names=names,
        job_seconds=job_seconds,
        has_times=False,
        has_listener=True,
        is_gated=True,
    )
    async with running(assignment, bench.plan.processes) as cluster:
        await bench.db.client.admin.command("fsync")
        before = await Counters.read(bench.db)
        began = cluster.release()
        await cluster.wait_for_runs(count, _LONGEST_DRAIN)
        load = await bench.settled_since(before)
        seconds = (cluster.last_ns - began) / 1e9
    completed = await bench.db["monque_jobs"].count_documents({"status": "completed"})
    assert completed == count, f"{completed} of {count} jobs were completed"
    purposes = {name: sent / count for name, sent in sorted(cluster.purposes.items())}
    return {
        "instances": instances,
        "job_ms": job_seconds * 1000,
        "names": names,
        "jobs": count,
        "jobs_per_second": count / seconds,
        "claims": purposes.get("claim", 0.0),
        **load.per(count),
        "by_purpose": purposes,
    }


async def lost(bench: Bench, fault: str) -> Row:
    """Measure the pick-up of a job right after one process was killed or frozen."""
    plan, delays = bench.plan, list[float]()
    choose = random.Random(0)
    assignment = bench.assignment(plan.lost_instances)
    async with bench.idle_cluster(assignment, plan.lost_processes) as (cluster, producer):
        for _ in range(plan.lost_trials):
            lost = choose.randrange(len(cluster))
            if fault == "killed":
                await cluster.kill(lost)
            else:
                cluster.freeze(lost)
            delays.append(await _run_one(cluster, producer, plan))
            if fault == "killed":
                await cluster.restart(lost)
            else:
                cluster.thaw(lost)
            await bench.quiet(plan.lost_instances)
    return {
        "instances": plan.lost_instances,
        "processes": plan.lost_processes,
        "fault": fault,
        "trials": plan.lost_trials,
        **_pickup(delays),
        "max_ms": max(delays),
        "all_ms": delays,
    }


async def _one_at_a_time(
    bench: Bench, cluster: Cluster, producer: Producer, background: ServerLoad
) -> Row:
    plan = bench.plan
    before = await Counters.read(bench.db)
    times = []
    for _ in range(plan.jobs):
        times.append(await _run_one(cluster, producer, plan))
        await asyncio.sleep(plan.gap_seconds)
    load = await bench.settled_since(before)
    return {
        "jobs": plan.jobs,
        **_pickup(times),
        **load.without(background).per(plan.jobs),
        "with_background": load.per(plan.jobs),
    }


async def _run_one(cluster: Cluster, producer: Producer, plan: Plan) -> float:
    """Insert one job and wait for its handler; return the milliseconds in between."""
    await producer.insert(1)
    return (await cluster.next_arrival(plan.longest_pickup)).milliseconds


def _idle_row(instances: int, load: ServerLoad) -> Row:
    cpu = load.cpu_seconds
    per_second = {name: count / load.seconds for name, count in sorted(load.commands.items())}
    return {
        "instances": instances,
        "seconds": load.seconds,
        "commands_per_second": load.total / load.seconds,
        "commands_per_second_and_instance": load.total / load.seconds / instances,
        "get_mores_per_second_and_instance": per_second.get("getMore", 0.0) / instances,
        "server_cpu_ms_per_second": None if cpu is None else cpu * 1e3 / load.seconds,
        "by_name": per_second,
    }


def _pickup(milliseconds: list[float]) -> Row:
    return {
        "pickup_p50_ms": percentile(milliseconds, 0.5),
        "pickup_p99_ms": percentile(milliseconds, 0.99),
    }
