"""How the cost of a job grows with load: `python -m tests.benchmarks.growth`."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from pymongo import AsyncMongoClient

from monque_core import JobRetention, LocalMongo, Monque
from monque_core.store.listener_seats import SEATS
from tests.benchmarks import raw
from tests.benchmarks.cpu_meter import CpuMeter
from tests.benchmarks.drain import drain_jobs
from tests.benchmarks.latency_proxy import with_latency
from tests.benchmarks.measure import alternately
from tests.benchmarks.processes import drain_with_workers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Job
    from tests.benchmarks.cpu_meter import CpuUsage

    Db = AsyncDatabase[dict[str, Any]]

STORED = (0, 10_000, 100_000, 1_000_000)
CONCURRENCIES = (1, 5, 20, 100, 500)
NAMES = (1, 10, 100, 1000)
INSTANCES = (1, 2, 4, 8)
IDLE_INSTANCES = (0, 1, 4)
RETENTION = (0, 1)
"""Off and on."""
ADDED_MS = (0, 5, 20)
_RETENTION_REPETITIONS = 6
_CONCURRENCY = 20
_SMALLEST_SCALE_FOR_PROCESSES = 0.01


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one job, from its claim to its outcome."""

    dimension: str
    size: int
    jobs_per_second: float
    server_cpu_us: float | None
    """Microseconds of the server's CPU time per job, where the system reports it."""
    client_cpu_us: float | None


async def measure(scale: float) -> dict[str, Any]:
    """Measure one dimension after the other."""
    costs: list[Cost] = []
    async with LocalMongo() as mongo, AsyncMongoClient[dict[str, Any]](mongo.uri) as client:
        bench = _Bench(client["monque_growth"], mongo.uri, CpuMeter(mongo.nodes[0].pid), scale)
        await bench.cost("warm-up", 0)
        async for cost in _dimensions(bench):
            print(
                f"{cost.dimension} {cost.size:,}: {cost.jobs_per_second:,.0f} jobs/s",
                file=sys.stderr,
            )
            costs.append(cost)
        oplog, insert = await _write_costs(bench)
    return {
        "costs": [asdict(cost) for cost in costs],
        "oplog_bytes_per_job": oplog,
        "server_cpu_us_per_insert": insert,
    }


@dataclass(frozen=True, slots=True)
class _Bench:
    """The server, and the amount of work."""

    db: Db
    uri: str
    meter: CpuMeter
    scale: float

    @property
    def count(self) -> int:
        """Return the number of jobs per measurement."""
        return max(100, round(10_000 * self.scale))

    async def cost(
        self,
        dimension: str,
        size: int,
        *,
        monque: Monque | None = None,
        names: int = 1,
        concurrency: int = _CONCURRENCY,
        finished: int = 0,
        idle: int = 0,
    ) -> Cost:
        """Drain a queue with one instance, next to finished jobs and idle instances."""
        jobs = self.db["monque_jobs"]
        await raw.fill(jobs, finished, status="completed")
        per_name = max(1, self.count // names)
        for number in range(names):
            await raw.add(jobs, per_name, name=_name(number))
        monque = monque or Monque(self.db)
        # Otherwise an index that the instance adds would be built during the drain.
        await monque.initialize()
        await self.db.client.admin.command("fsync")
        count, all_names = per_name * names, [_name(number) for number in range(names)]
        # After filling the collection, because dropping it ends its change streams.
        async with _idle_instances(self.db, idle):
            spent = await drain_jobs(monque, self.meter, count, concurrency, names=all_names)
        await self.assert_completed(finished + count)
        return _cost(dimension, size, count, spent)

    async def assert_completed(self, count: int) -> None:
        completed = await self.db["monque_jobs"].count_documents({"status": "completed"})
        assert completed == count, f"{completed} of {count} jobs were completed"


async def _dimensions(bench: _Bench) -> AsyncIterator[Cost]:
    for stored in STORED:
        yield await bench.cost("jobs stored", stored, finished=round(stored * bench.scale))
    for concurrency in CONCURRENCIES:
        yield await bench.cost("concurrency of a worker", concurrency, concurrency=concurrency)
    for names in NAMES:
        yield await bench.cost("names", names, names=names)
    for cost in await _costs_of_retention(bench):
        yield cost
    for added_ms in ADDED_MS:
        yield await _cost_with_latency(bench, added_ms)
    for idle in IDLE_INSTANCES:
        yield await bench.cost("idle instances", idle, idle=idle)
    # In a trial run, starting a process takes longer than everything else.
    processes = INSTANCES if bench.scale >= _SMALLEST_SCALE_FOR_PROCESSES else INSTANCES[:1]
    for instances in processes:
        yield await _cost_of_processes(bench, instances)


async def _costs_of_retention(bench: _Bench) -> list[Cost]:
    """Return medians of several alternating drains: the difference is smaller than the noise."""

    async def cost(is_on: int) -> Cost:
        kept = JobRetention(completed=3600) if is_on else None
        return await bench.cost("retention", is_on, monque=Monque(bench.db, job_retention=kept))

    taken = await alternately(
        _RETENTION_REPETITIONS, *(partial(cost, is_on) for is_on in RETENTION)
    )
    return [_median(costs) for costs in taken]


def _median(costs: list[Cost]) -> Cost:
    server = [cost.server_cpu_us for cost in costs if cost.server_cpu_us is not None]
    client = [cost.client_cpu_us for cost in costs if cost.client_cpu_us is not None]
    return replace(
        costs[0],
        jobs_per_second=median(cost.jobs_per_second for cost in costs),
        server_cpu_us=median(server) if server else None,
        client_cpu_us=median(client) if client else None,
    )


async def _cost_with_latency(bench: _Bench, added_ms: int) -> Cost:
    """Drain over a network with this much added to each round trip."""
    async with (
        with_latency(bench.uri, added_ms / 1000) as uri,
        AsyncMongoClient[dict[str, Any]](uri) as client,
    ):
        monque = Monque(client[bench.db.name])
        return await bench.cost("ms added to a round trip", added_ms, monque=monque)


async def _cost_of_processes(bench: _Bench, instances: int) -> Cost:
    jobs = bench.count * min(instances, 2)
    await raw.fill(bench.db["monque_jobs"], jobs)
    before = bench.meter.read()
    seconds = await drain_with_workers(bench.db, bench.uri, jobs, instances)
    server = bench.meter.read().since(before).server_us_per(jobs)
    return Cost("instances", instances, jobs / seconds, server, None)


def _cost(dimension: str, size: int, jobs: int, spent: CpuUsage) -> Cost:
    server, client = spent.server_us_per(jobs), spent.client_us_per(jobs)
    return Cost(dimension, size, jobs / spent.seconds, server, client)


@asynccontextmanager
async def _idle_instances(db: Db, count: int) -> AsyncIterator[None]:
    """Run idle instances with a worker for another name; at most two have a change stream."""
    async with AsyncExitStack() as stack:
        for number in range(count):
            monque, connected = Monque(db), asyncio.Event()
            monque.on("changestream:connected", lambda _, connected=connected: connected.set())
            monque.worker("never", _never)
            await stack.enter_async_context(monque)
            if number < SEATS:
                await connected.wait()
        yield


async def _never(_: Job[object]) -> None: ...


async def _write_costs(bench: _Bench) -> tuple[float, float | None]:
    """Return the oplog bytes of a job from insert to completion, and the CPU time of its insert."""
    db, count = bench.db, bench.count
    oplog = db.client["local"]["oplog.rs"]
    (latest,) = await oplog.find({}, sort=[("$natural", -1)], limit=1).to_list()
    await raw.prepare(db["monque_jobs"])
    monque = Monque(db)
    await monque.initialize()
    before = bench.meter.read()
    await monque.enqueue_many(_name(0), [{"number": number} for number in range(count)])
    insert = bench.meter.read().since(before).server_us_per(count)
    await drain_jobs(monque, bench.meter, count, _CONCURRENCY)
    sizes: list[dict[str, Any]] = [
        {"$match": {"ts": {"$gt": latest["ts"]}, "ns": f"{db.name}.monque_jobs"}},
        {"$group": {"_id": None, "bytes": {"$sum": {"$bsonSize": "$$ROOT"}}}},
    ]
    # A bulk insert is one oplog entry like a transaction, without this namespace.
    together: list[dict[str, Any]] = [
        {"$match": {"ts": {"$gt": latest["ts"]}, "o.applyOps": {"$exists": True}}},
        {"$group": {"_id": None, "bytes": {"$sum": {"$bsonSize": "$$ROOT"}}}},
    ]
    total = 0
    for pipeline in (sizes, together):
        found = await (await oplog.aggregate(pipeline)).to_list()
        total += found[0]["bytes"] if found else 0
    return total / count, insert


def _name(number: int) -> str:
    return raw.NAME if number == 0 else f"{raw.NAME}-{number}"


def table(result: dict[str, Any]) -> str:
    """Return the result as a Markdown table."""
    lines = [
        "| dimension | size | jobs/s | server CPU per job | client CPU per job |",
        "|---|---:|---:|---:|---:|",
    ]
    for cost in result["costs"]:
        spent = (cost["server_cpu_us"], cost["client_cpu_us"])
        server, client = ("" if one is None else f"{one:,.0f} µs" for one in spent)
        rate = f"{cost['jobs_per_second']:,.0f}"
        lines.append(f"| {cost['dimension']} | {cost['size']:,} | {rate} | {server} | {client} |")
    insert = result["server_cpu_us_per_insert"]
    lines += [
        "",
        f"{result['oplog_bytes_per_job']:,.0f} bytes in the oplog per job",
        f"{'unknown' if insert is None else round(insert)} µs of server CPU per insert",
    ]
    return "\n".join(lines)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.growth", description=__doc__)
    parser.add_argument(
        "--scale",
        type=float,
        default=1.0,
        help="factor for the number of jobs; 0.001 is a quick trial (default: 1)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("build", "growth.json"),
        help="file for the results as JSON (default: %(default)s)",
    )
    options = parser.parse_args()
    result = asyncio.run(measure(options.scale))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(table(result))


if __name__ == "__main__":
    main()
