"""How long an idle instance takes from an insert to the handler."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Any

from monque_core import Monque
from tests.benchmarks import raw
from tests.benchmarks.measure import Reading, percentile

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Job

SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_GAP_SECONDS = 0.025


async def measure(db: AsyncDatabase[dict[str, Any]], uri: str, count: int) -> dict[str, Reading]:
    """Send so many jobs one at a time, from here and from another process; milliseconds."""
    bare = await _from_elsewhere_to_a_bare_stream(db, uri, count)
    foreign = await _from_elsewhere(db, uri, count)
    local = await _from_here(db, count)
    return {
        f"pick-up {origin} {label}": Reading(percentile(times, share), percentile(bare, share))
        for origin, times in (("from here", local), ("from another process", foreign))
        for label, share in SHARES.items()
    }


async def _from_here(db: AsyncDatabase[dict[str, Any]], count: int) -> list[float]:
    await raw.prepare(db["monque_jobs"])
    arrivals = _Arrivals(count)
    monque = arrivals.instance(db)
    async with monque:
        await arrivals.connected.wait()
        for _ in range(count):
            await asyncio.sleep(_GAP_SECONDS)
            await monque.enqueue(raw.NAME, {"sent": time.monotonic_ns()})
        return await arrivals.all()


async def _from_elsewhere(db: AsyncDatabase[dict[str, Any]], uri: str, count: int) -> list[float]:
    await raw.prepare(db["monque_jobs"])
    arrivals = _Arrivals(count)
    async with arrivals.instance(db):
        await arrivals.connected.wait()
        await _send_from_elsewhere(db, uri, count)
        return await arrivals.all()


async def _from_elsewhere_to_a_bare_stream(
    db: AsyncDatabase[dict[str, Any]], uri: str, count: int
) -> list[float]:
    """Watch for inserts and claim each: what any pick-up has to wait for."""
    jobs = db["monque_jobs"]
    await raw.prepare(jobs)
    times: list[float] = []
    async with await jobs.watch([{"$match": {"operationType": "insert"}}]) as stream:
        sending = asyncio.create_task(_send_from_elsewhere(db, uri, count))
        while len(times) < count:
            change = await stream.next()
            job_id = change["documentKey"]["_id"]
            claimed = await raw.claim_one(jobs, {"_id": job_id})
            assert claimed is not None
            times.append(_milliseconds_since(claimed["data"]["sent"]))
        await sending
    return times


async def _send_from_elsewhere(db: AsyncDatabase[dict[str, Any]], uri: str, count: int) -> None:
    arguments = ("-m", "tests.benchmarks.sender", uri, db.name, str(count), str(_GAP_SECONDS))
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments)
    assert await process.wait() == 0


class _Arrivals:
    """The times from sending to the handler."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._times: list[float] = []
        self._complete = asyncio.Event()
        self.connected = asyncio.Event()

    def instance(self, db: AsyncDatabase[dict[str, Any]]) -> Monque:
        """Give an instance whose jobs arrive here."""
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


def _milliseconds_since(monotonic_ns: int) -> float:
    # The monotonic clock is the machine's, so readings of two processes can be compared.
    return (time.monotonic_ns() - monotonic_ns) / 1e6
