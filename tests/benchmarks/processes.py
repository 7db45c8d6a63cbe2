"""Throughput of several processes that drain one queue together."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tests.benchmarks import raw, start_barrier
from tests.benchmarks.measure import Reading
from tests.benchmarks.worker_app import CONCURRENCY
from tests.support.pages import ROOT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pymongo.asynchronous.database import AsyncDatabase

    Db = AsyncDatabase[dict[str, Any]]
    Process = asyncio.subprocess.Process

_PROCESSES = 2
_NAIVE_SHARE = 8
_POLL_SECONDS = 0.1


async def measure(db: Db, uri: str, count: int, batch_size: int) -> dict[str, Reading]:
    """Drain this many jobs with two processes at once; rates in jobs per second."""

    async def by_bare_calls(variant: str, jobs: int) -> float:
        await raw.fill(db["monque_jobs"], jobs)
        arguments = (
            "-m",
            "tests.benchmarks.raw_drain_process",
            uri,
            db.name,
            variant,
            str(batch_size),
        )
        async with AsyncExitStack() as stack:
            await start_barrier.reset(db)
            started = [
                await stack.enter_async_context(_started(*arguments)) for _ in range(_PROCESSES)
            ]
            for process in started:
                await _ready(process)
            seconds = await _seconds_until_drained(db, jobs)
            for process in started:
                assert await process.wait() == 0
        return jobs / seconds

    async def by_monque(handlers: str) -> float:
        await raw.fill(db["monque_jobs"], count)
        return count / await drain_with_workers(db, uri, count, _PROCESSES, handlers)

    naive = await by_bare_calls("naive", max(1, count // _NAIVE_SHARE))
    limit = await by_bare_calls("limit", count)
    own = await by_monque("coroutines")
    own_in_threads = await by_monque("threads")
    limit_in_threads = await by_bare_calls("limit in threads", count)
    return {
        f"drain, two processes, concurrency {CONCURRENCY}": Reading(own, limit, naive),
        f"drain, two processes, thread handlers, concurrency {CONCURRENCY}": Reading(
            own_in_threads, limit_in_threads, naive
        ),
    }


async def drain_with_workers(
    db: Db, uri: str, count: int, processes: int, handlers: str = "coroutines"
) -> float:
    """Run this many stored jobs with `monque worker`; return the seconds until the last outcome."""
    await start_barrier.reset(db)
    arguments = (
        *("-m", "monque_core.cli", "--uri", uri, "--database", db.name),
        *("worker", f"tests.benchmarks.worker_app:{handlers}"),
        *("--processes", str(processes), "--log-level", "warning"),
    )
    async with _started(*arguments) as supervisor:
        await _ready(supervisor, processes)
        seconds = await _seconds_until_drained(db, count)
        supervisor.send_signal(signal.SIGTERM)
        assert await supervisor.wait() == 0
    return seconds


@asynccontextmanager
async def _started(*arguments: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _ready(process: Process, times: int = 1) -> None:
    assert process.stdout is not None
    for _ in range(times):
        assert await process.stdout.readline() == start_barrier.READY


async def _seconds_until_drained(db: Db, count: int) -> float:
    """Release the processes, and return the seconds from then until the last outcome was written.

    The end is read from the server's oplog, so the polling interval does not matter.
    """
    jobs = db["monque_jobs"]
    begun_at = await start_barrier.release(db)
    for selection in ({"name": raw.NAME, "status": "pending"}, {"status": "processing"}):
        while await jobs.find_one(selection, {"_id": 1}) is not None:
            await asyncio.sleep(_POLL_SECONDS)
    completed = await jobs.count_documents({"status": "completed"})
    assert completed == count, f"{completed} of {count} jobs were completed"
    oplog = db.client["local"]["oplog.rs"]
    changes = oplog.find({"ns": f"{db.name}.{jobs.name}"}, sort=[("$natural", -1)], limit=1)
    (last,) = await changes.to_list()
    ended_at: datetime = last["wall"].replace(tzinfo=UTC)
    return ended_at.timestamp() - begun_at
