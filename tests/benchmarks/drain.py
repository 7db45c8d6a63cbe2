"""Throughput of one process that drains a full queue of no-op jobs."""

from __future__ import annotations

import asyncio
import itertools
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

from monque_core import Monque
from tests.benchmarks import raw
from tests.benchmarks.measure import Reading, alternately

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Job
    from tests.benchmarks.cpu_meter import CpuMeter, CpuUsage

    Db = AsyncDatabase[dict[str, Any]]
    Readings = dict[str, Reading]

CONCURRENCIES = (5, 20, 100)
_NAIVE_SHARE = 8
_THREAD_SHARE = 4
_CPU_CONCURRENCY = 20


async def best_batch_size(db: Db, meter: CpuMeter, count: int, repetitions: int) -> int:
    """Return the batch size with which the bare calls are fastest."""
    taken = await alternately(
        repetitions, *(partial(_limit, db, meter, count, size) for size in raw.BATCH_SIZES)
    )
    rates = [median(count / spent.seconds for spent in each) for each in taken]
    return raw.BATCH_SIZES[rates.index(max(rates))]


async def measure(
    db: Db, meter: CpuMeter, count: int, batch_size: int, repetitions: int
) -> tuple[Readings, Readings]:
    """Drain this many jobs in each way, alternately: jobs per second, and CPU per job in µs."""
    naive = await _naive(db, meter, max(1, count // _NAIVE_SHARE))
    rates, cpu = await _measure_coroutines(db, meter, count, batch_size, repetitions, naive)
    in_threads = max(1, count // _THREAD_SHARE)
    rates |= await _measure_threads(db, meter, in_threads, batch_size, repetitions, naive)
    return rates, cpu


async def _measure_coroutines(
    db: Db, meter: CpuMeter, count: int, batch_size: int, repetitions: int, naive: float
) -> tuple[Readings, Readings]:
    limit = partial(_limit, db, meter, count, batch_size)
    variants = [
        variant
        for concurrency in CONCURRENCIES
        for variant in (limit, partial(_drain, db, meter, count, concurrency))
    ]
    taken = await alternately(repetitions, *variants)
    # The limit does not depend on the concurrency, so all its drains are pooled.
    limits = [spent for each in taken[0::2] for spent in each]
    own = dict(zip(CONCURRENCIES, taken[1::2], strict=True))
    rates = {
        f"drain, concurrency {concurrency}": Reading(
            _rate(count, spent), _rate(count, limits), naive
        )
        for concurrency, spent in own.items()
    }
    return rates, _cpu(count, own[_CPU_CONCURRENCY], limits)


async def _measure_threads(
    db: Db, meter: CpuMeter, count: int, batch_size: int, repetitions: int, naive: float
) -> Readings:
    readings = {}
    for concurrency in CONCURRENCIES:
        limits, own = await alternately(
            repetitions,
            partial(_limit_in_threads, db, meter, count, batch_size, concurrency),
            partial(_drain, db, meter, count, concurrency, threads=True),
        )
        reading = Reading(_rate(count, own), _rate(count, limits), naive)
        readings[f"drain, thread handlers, concurrency {concurrency}"] = reading
    return readings


def _rate(count: int, spent: list[CpuUsage]) -> float:
    return count / median(one.seconds for one in spent)


def _cpu(count: int, own: list[CpuUsage], limits: list[CpuUsage]) -> Readings:
    readings = {
        "client CPU per drained job": Reading(
            median(one.client_us_per(count) for one in own),
            median(one.client_us_per(count) for one in limits),
        )
    }
    of_server = [
        [told for one in each if (told := one.server_us_per(count)) is not None]
        for each in (own, limits)
    ]
    if all(of_server):
        monque, limit = map(median, of_server)
        readings["server CPU per drained job"] = Reading(monque, limit)
    return readings


async def _naive(db: Db, meter: CpuMeter, count: int) -> float:
    await raw.fill(db["monque_jobs"], count)
    before = meter.read()
    await raw.drain_one_by_one(db["monque_jobs"])
    seconds = meter.read().since(before).seconds
    await _assert_completed(db, count)
    return count / seconds


async def _limit(
    db: Db, meter: CpuMeter, count: int, batch_size: int, settle: raw.Settle | None = None
) -> CpuUsage:
    await raw.fill(db["monque_jobs"], count)
    before = meter.read()
    await raw.drain_in_batches(db["monque_jobs"], batch_size, settle)
    spent = meter.read().since(before)
    await _assert_completed(db, count)
    return spent


async def _limit_in_threads(
    db: Db, meter: CpuMeter, count: int, batch_size: int, threads: int
) -> CpuUsage:
    with ThreadPoolExecutor(threads) as pool:
        return await _limit(db, meter, count, batch_size, raw.run_in(pool))


async def _drain(
    db: Db, meter: CpuMeter, count: int, concurrency: int, *, threads: bool = False
) -> CpuUsage:
    await raw.fill(db["monque_jobs"], count)
    spent = await drain_jobs(Monque(db), meter, count, concurrency, threads=threads)
    await _assert_completed(db, count)
    return spent


async def drain_jobs(
    monque: Monque,
    meter: CpuMeter,
    count: int,
    concurrency: int,
    *,
    names: Sequence[str] = (raw.NAME,),
    threads: bool = False,
) -> CpuUsage:
    """Run this many stored no-op jobs, from start until every outcome is written."""
    await monque.initialize()
    loop = asyncio.get_running_loop()
    all_done = asyncio.Event()
    # `next` is atomic, so threads may share the counter.
    numbers = itertools.count(1)

    async def do_nothing(_: Job[object]) -> None:
        if next(numbers) == count:
            all_done.set()

    def do_nothing_in_a_thread(_: Job[object]) -> None:
        if next(numbers) == count:
            loop.call_soon_threadsafe(all_done.set)

    for name in names:
        handler = do_nothing_in_a_thread if threads else do_nothing
        monque.worker(name, handler, concurrency=concurrency)
    before = meter.read()
    await monque.start()
    await all_done.wait()
    await monque.stop()
    return meter.read().since(before)


async def _assert_completed(db: Db, count: int) -> None:
    completed = await db["monque_jobs"].count_documents({"status": "completed"})
    assert completed == count, f"{completed} of {count} jobs were completed"
