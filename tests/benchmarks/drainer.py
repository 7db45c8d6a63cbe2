"""Processes that empty one queue together: `python -m tests.benchmarks.drainer …`."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Any

from pymongo import AsyncMongoClient

from monque_core import Monque
from tests.benchmarks import raw

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Job

    Db = AsyncDatabase[dict[str, Any]]

_CONCURRENCY = 20


async def drain_with_processes(processes: int, uri: str, database: str, way: str) -> float:
    """Start so many processes, let them begin at once, and give the seconds until the last job."""
    arguments = ("-m", "tests.benchmarks.drainer", uri, database, way)
    pipe = asyncio.subprocess.PIPE
    started = [
        await asyncio.create_subprocess_exec(sys.executable, *arguments, stdin=pipe, stdout=pipe)
        for _ in range(processes)
    ]
    for process in started:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
    began = time.monotonic()
    ends = await asyncio.gather(*(process.communicate(b"go\n") for process in started))
    assert all(process.returncode == 0 for process in started)
    return max(float(said) for said, _ in ends) - began


async def _main(uri: str, database: str, way: str) -> None:
    async with AsyncMongoClient[dict[str, Any]](uri) as client:
        db = client[database]
        await db["monque_jobs"].find_one()
        ended = await (_monque(db) if way == "monque" else _raw(db, way))
        print(ended, flush=True)


async def _raw(db: Db, way: str) -> float:
    await _told_to_go()
    if way == "limit":
        await raw.drain_in_batches(db["monque_jobs"])
    else:
        await raw.claim_all_one_by_one(db["monque_jobs"])
    return time.monotonic()


async def _monque(db: Db) -> float:
    monque = Monque(db)
    await monque.initialize()
    latest = 0.0

    @monque.worker(raw.NAME, concurrency=_CONCURRENCY)
    async def do_nothing(_: Job[object]) -> None:
        nonlocal latest
        latest = time.monotonic()

    await _told_to_go()
    await monque.run_until_idle()
    return latest


async def _told_to_go() -> None:
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
