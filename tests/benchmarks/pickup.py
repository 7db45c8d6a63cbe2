"""Latency of an idle instance from an insert to the handler."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import asynccontextmanager
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from monque_core import Monque
from tests.benchmarks import raw
from tests.benchmarks.measure import Reading, alternately, percentile

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Job

    Db = AsyncDatabase[dict[str, Any]]

SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_GAP_SECONDS = 0.01


async def measure(db: Db, uri: str, here: int, elsewhere: int, blocks: int) -> dict[str, Reading]:
    """Send this many jobs one at a time, from this and from another process; milliseconds.

    Blocks of jobs go alternately to an instance and to bare calls, so that both see the same load
    of the machine.
    """
    block = -(-here // blocks)
    bare_here, local = await alternately(
        blocks,
        partial(_from_this_process_to_bare_calls, db, block),
        partial(_from_this_process, db, block),
    )
    block = -(-elsewhere // blocks)
    async with _insert_process(db, uri) as inserter:
        bare_elsewhere, foreign = await alternately(
            blocks,
            partial(inserter.to_a_bare_stream, block),
            partial(inserter.to_an_instance, block),
        )
    return {
        f"pick-up {origin} {label}": Reading(
            percentile([*chain(*times)], share), percentile([*chain(*bare)], share)
        )
        for origin, times, bare in (
            ("from here", local, bare_here),
            ("from another process", foreign, bare_elsewhere),
        )
        for label, share in SHARES.items()
    }


async def _from_this_process(db: Db, count: int) -> list[float]:
    await raw.prepare(db["monque_jobs"])
    latencies = _Latencies(count)
    monque = latencies.instance(db)
    async with monque:
        await latencies.connected.wait()
        for _ in range(count):
            await asyncio.sleep(_GAP_SECONDS)
            await monque.enqueue(raw.NAME, {"sent": time.monotonic_ns()})
        return await latencies.all()


async def _from_this_process_to_bare_calls(db: Db, count: int) -> list[float]:
    """Insert and claim: the minimum latency for an instance that already knows of the job."""
    jobs = db["monque_jobs"]
    await raw.prepare(jobs)
    times = []
    for _ in range(count):
        await asyncio.sleep(_GAP_SECONDS)
        document = raw.document({"sent": time.monotonic_ns()})
        await jobs.insert_one(document)
        times.append(await _claimed_after(jobs, document["_id"]))
    return times


class _InsertProcess:
    """Another process, which sends jobs on request."""

    def __init__(self, db: Db, process: asyncio.subprocess.Process) -> None:
        self._db = db
        self._process = process

    async def to_an_instance(self, count: int) -> list[float]:
        """Send to an idle Monque."""
        await raw.prepare(self._db["monque_jobs"])
        latencies = _Latencies(count)
        async with latencies.instance(self._db):
            await latencies.connected.wait()
            self._send(count)
            return await latencies.all()

    async def to_a_bare_stream(self, count: int) -> list[float]:
        """Send to a bare loop that watches for inserts and claims each: the minimum latency."""
        jobs = self._db["monque_jobs"]
        await raw.prepare(jobs)
        times: list[float] = []
        async with await jobs.watch([{"$match": {"operationType": "insert"}}]) as stream:
            self._send(count)
            while len(times) < count:
                change = await stream.next()
                times.append(await _claimed_after(jobs, change["documentKey"]["_id"]))
        return times

    def _send(self, count: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{count}\n".encode())


@asynccontextmanager
async def _insert_process(db: Db, uri: str) -> AsyncIterator[_InsertProcess]:
    arguments = ("-m", "tests.benchmarks.insert_process", uri, db.name, str(_GAP_SECONDS))
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdin=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    try:
        yield _InsertProcess(db, process)
    finally:
        process.stdin.close()
        code = await process.wait()
    assert code == 0


class _Latencies:
    """The latencies from sending to the handler."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._times: list[float] = []
        self._complete = asyncio.Event()
        self.connected = asyncio.Event()

    def instance(self, db: Db) -> Monque:
        """Yield an instance that receives the jobs."""
        monque = Monque(db)
        monque.on("changestream:connected", lambda _: self.connected.set())
        monque.worker(raw.NAME, self._arrive)
        return monque

    async def all(self) -> list[float]:
        """Wait for the last one."""
        await self._complete.wait()
        return self._times

    async def _arrive(self, job: Job[dict[str, int]]) -> None:
        self._times.append(_milliseconds_since(job.data["sent"]))
        if len(self._times) == self._count:
            self._complete.set()


async def _claimed_after(jobs: raw.Jobs, job_id: object) -> float:
    claimed = await raw.claim_one(jobs, {"_id": job_id})
    assert claimed is not None
    return _milliseconds_since(claimed["data"]["sent"])


def _milliseconds_since(monotonic_ns: int) -> float:
    # The monotonic clock is shared by the machine, so readings of two processes are comparable.
    return (time.monotonic_ns() - monotonic_ns) / 1e6
