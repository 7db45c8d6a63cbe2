"""How many runs overlap."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

from monque_core import Monque
from tests.support.polling import NO_POLLS
from tests.support.tally import Tally

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Job
    from tests.conftest import AnyDatabase


class Overlap:
    """Current and highest number of concurrent runs, by name and in total."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.now: dict[str, int] = {}
        self.most: dict[str, int] = {}
        self.most_in_all = 0

    def begin(self, name: str) -> None:
        with self._lock:
            self.now[name] = self.now.get(name, 0) + 1
            self.most[name] = max(self.most.get(name, 0), self.now[name])
            self.most_in_all = max(self.most_in_all, sum(self.now.values()))

    def end(self, name: str) -> None:
        with self._lock:
            self.now[name] -= 1


async def test_a_worker_s_concurrency_is_used_and_never_exceeded(any_db: AnyDatabase) -> None:
    monque = Monque(any_db, worker_concurrency=2, max_retries=1, **NO_POLLS)
    overlap, runs = Overlap(), Tally[str]()
    limits = {"by-default": 2, "seven": 7, "one": 1}
    full = {name: asyncio.Event() for name in limits}

    async def handle(job: Job[int]) -> None:
        overlap.begin(job.name)
        if overlap.most[job.name] == limits[job.name]:
            full[job.name].set()
        await full[job.name].wait()
        await asyncio.sleep(0.003)
        overlap.end(job.name)
        runs.add(job.name)
        if job.data % 5 == 0:
            raise ValueError("a failure gives its slot back too")

    monque.worker("by-default", handle)
    monque.worker("seven", handle, concurrency=7)
    monque.worker("one", handle, concurrency=1)
    for name in ("by-default", "seven", "one"):
        await monque.enqueue_many(name, range(50))
    async with monque:
        await runs.reach(150)

    assert overlap.most == limits


async def test_the_instance_s_concurrency_is_used_and_never_exceeded(any_db: AnyDatabase) -> None:
    monque = Monque(any_db, instance_concurrency=4, **NO_POLLS)
    overlap, runs = Overlap(), Tally[str]()
    full = asyncio.Event()

    async def handle(job: Job[int]) -> None:
        overlap.begin(job.name)
        if overlap.most_in_all == 4:
            full.set()
        await full.wait()
        await asyncio.sleep(0.003)
        overlap.end(job.name)
        runs.add(job.name)

    for name in ("a", "b", "c"):
        monque.worker(name, handle, concurrency=3)
        await monque.enqueue_many(name, range(40))
    async with monque:
        await runs.reach(120)

    assert overlap.most_in_all == 4
    assert all(most <= 3 for most in overlap.most.values())


async def test_threads_obey_the_same_limits(any_db: AnyDatabase) -> None:
    monque = Monque(any_db, instance_concurrency=5, **NO_POLLS)
    overlap, runs = Overlap(), Tally[str]()
    full = threading.Event()

    def handle(job: Job[int]) -> None:
        overlap.begin(job.name)
        if overlap.most_in_all == 5:
            full.set()
        full.wait(120)
        time.sleep(0.005)
        overlap.end(job.name)
        runs.add(job.name)

    for name in ("a", "b"):
        monque.worker(name, handle, concurrency=3)
        await monque.enqueue_many(name, range(30))
    async with monque:
        await runs.reach(60)

    assert overlap.most_in_all == 5
    assert all(most <= 3 for most in overlap.most.values())


async def test_as_many_threads_run_as_there_are_slots(db: AsyncDatabase[dict[str, Any]]) -> None:
    monque = Monque(db, **NO_POLLS)
    all_there = threading.Barrier(60)
    runs = Tally[int]()

    @monque.worker("crowd", concurrency=60)
    def meet(job: Job[int]) -> None:
        all_there.wait(120)
        runs.add(job.data)

    await monque.enqueue_many("crowd", range(60))
    async with monque:
        await runs.reach(60)

    assert sorted(runs) == list(range(60))
