"""What a job costs as everything grows: `python -m tests.benchmarks.growth`."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import sys
import time
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pymongo import AsyncMongoClient

from monque_core import LocalMongo, Monque
from tests.benchmarks import raw
from tests.benchmarks.drainer import drain_with_processes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Job

    Db = AsyncDatabase[dict[str, Any]]

STORED = (0, 10_000, 100_000, 1_000_000)
CONCURRENCIES = (1, 5, 20, 100, 500)
NAMES = (1, 10, 100, 1000)
INSTANCES = (1, 2, 4, 8)
IDLE_INSTANCES = (0, 1, 4)
_CONCURRENCY = 20
_SMALLEST_TO_START_PROCESSES = 0.01
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


@dataclass(frozen=True, slots=True)
class Cost:
    """What one job cost, from its claim to its outcome."""

    dimension: str
    size: int
    jobs_per_second: float
    server_cpu_us: float | None
    """Microseconds of the server's CPU per job, where the system tells."""
    client_cpu_us: float | None


class Meter:
    """Looks at the clocks before and after."""

    def __init__(self, server_pid: int) -> None:
        self._pid = server_pid

    def server_cpu(self) -> float | None:
        """Give the seconds of CPU that the server has used so far."""
        try:
            fields = Path(f"/proc/{self._pid}/stat").read_text(encoding="ascii")
        except OSError:
            return None
        user, system = fields.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / _TICKS_PER_SECOND


async def study(scale: float) -> dict[str, Any]:
    """Measure one dimension after the other."""
    costs: list[Cost] = []
    async with LocalMongo() as mongo, AsyncMongoClient[dict[str, Any]](mongo.uri) as client:
        db, meter = client["monque_growth"], Meter(mongo.nodes[0].pid)
        count = max(100, round(10_000 * scale))
        await raw.fill(db["monque_jobs"], count)
        await _drain(db, count, 1, _CONCURRENCY)
        async for cost in _dimensions(db, mongo.uri, meter, count, scale):
            print(
                f"{cost.dimension} {cost.size:,}: {cost.jobs_per_second:,.0f} jobs/s",
                file=sys.stderr,
            )
            costs.append(cost)
        oplog, insert = await _life(db, meter, count)
    return {
        "costs": [asdict(cost) for cost in costs],
        "oplog_bytes_per_job": oplog,
        "server_cpu_us_per_insert": insert,
    }


async def _dimensions(
    db: Db, uri: str, meter: Meter, count: int, scale: float
) -> AsyncIterator[Cost]:
    for stored in STORED:
        finished = round(stored * scale)
        yield await _cost("jobs stored", stored, db, meter, count, 1, _CONCURRENCY, finished)
    for concurrency in CONCURRENCIES:
        yield await _cost("concurrency of a worker", concurrency, db, meter, count, 1, concurrency)
    for names in NAMES:
        yield await _cost("names", names, db, meter, count, names, _CONCURRENCY)
    for idle in IDLE_INSTANCES:
        async with _idle_instances(db, idle):
            yield await _cost("idle instances", idle, db, meter, count, 1, _CONCURRENCY)
    # A process takes longer to start than a trial run has.
    for instances in INSTANCES if scale >= _SMALLEST_TO_START_PROCESSES else INSTANCES[:1]:
        jobs = count * min(instances, 2)
        await raw.fill(db["monque_jobs"], jobs)
        server = meter.server_cpu()
        seconds = await drain_with_processes(instances, uri, db.name, "monque")
        spent = _microseconds(server, meter.server_cpu(), jobs)
        yield Cost("instances", instances, jobs / seconds, spent, None)


async def _cost(
    dimension: str,
    size: int,
    db: Db,
    meter: Meter,
    count: int,
    names: int,
    concurrency: int,
    finished: int = 0,
) -> Cost:
    await raw.fill(db["monque_jobs"], finished, status="completed")
    per_name = max(1, count // names)
    for number in range(names):
        await raw.add(db["monque_jobs"], per_name, name=_name(number))
    await db.client.admin.command("fsync")
    server, client = meter.server_cpu(), time.process_time()
    jobs = per_name * names
    seconds = await _drain(db, jobs, names, concurrency)
    return Cost(
        dimension,
        size,
        jobs / seconds,
        _microseconds(server, meter.server_cpu(), jobs),
        _microseconds(client, time.process_time(), jobs),
    )


async def _drain(db: Db, count: int, names: int, concurrency: int) -> float:
    monque = Monque(db)
    await monque.initialize()
    numbers, all_done = itertools.count(1), asyncio.Event()

    async def do_nothing(_: Job[object]) -> None:
        if next(numbers) == count:
            all_done.set()

    for number in range(names):
        monque.worker(_name(number), do_nothing, concurrency=concurrency)
    began = time.perf_counter()
    await monque.start()
    await all_done.wait()
    await monque.stop()
    return time.perf_counter() - began


@asynccontextmanager
async def _idle_instances(db: Db, count: int) -> AsyncIterator[None]:
    """Let so many instances wait for jobs of another name, each with a change stream."""
    async with AsyncExitStack() as stack:
        for _ in range(count):
            monque, connected = Monque(db), asyncio.Event()
            monque.on("changestream:connected", lambda _, connected=connected: connected.set())
            monque.worker("never", _never)
            await stack.enter_async_context(monque)
            await connected.wait()
        yield


async def _never(_: Job[object]) -> None: ...


async def _life(db: Db, meter: Meter, count: int) -> tuple[float, float | None]:
    """Give the oplog's bytes of a job from insert to completion, and the insert's CPU."""
    oplog = db.client["local"]["oplog.rs"]
    (latest,) = await oplog.find({}, sort=[("$natural", -1)], limit=1).to_list()
    await raw.prepare(db["monque_jobs"])
    monque = Monque(db)
    await monque.initialize()
    before = meter.server_cpu()
    await monque.enqueue_many(_name(0), [{"number": number} for number in range(count)])
    insert = _microseconds(before, meter.server_cpu(), count)
    await _drain(db, count, 1, _CONCURRENCY)
    sizes: list[dict[str, Any]] = [
        {"$match": {"ts": {"$gt": latest["ts"]}, "ns": f"{db.name}.monque_jobs"}},
        {"$group": {"_id": None, "bytes": {"$sum": {"$bsonSize": "$$ROOT"}}}},
    ]
    # Inserts of many are in the oplog as a transaction is: in one entry without this namespace.
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


def _microseconds(before: float | None, after: float | None, jobs: int) -> float | None:
    return None if before is None or after is None else (after - before) / jobs * 1e6


def table(result: dict[str, Any]) -> str:
    """Give the result as a Markdown table."""
    lines = [
        "| | | jobs/s | server CPU per job | client CPU per job |",
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
        f"{result['oplog_bytes_per_job']:,.0f} bytes of oplog per job",
        f"{'unknown' if insert is None else round(insert)} µs of server CPU per insert",
    ]
    return "\n".join(lines)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.growth", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="more or fewer jobs (default: 1)")
    parser.add_argument("--output", type=Path, default=Path("build", "growth.json"))
    options = parser.parse_args()
    result = asyncio.run(study(options.scale))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(table(result))


if __name__ == "__main__":
    main()
