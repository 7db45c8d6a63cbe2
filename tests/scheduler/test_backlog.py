"""Jobs that were claimed ahead of the free slots."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

from pymongo import AsyncMongoClient

from monque_core import Monque
from monque_core.scheduler.dispatcher import Dispatcher
from tests.support.commands import CommandLog
from tests.support.polling import NO_POLLS
from tests.support.steps import releases
from tests.support.stored import count_by_status, jobs_in
from tests.support.tally import Tally
from tests.support.waiting import eventually

if TYPE_CHECKING:
    import pytest
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Job


class ShortThenLong:
    """A worker that had short jobs, and therefore prefetches, when it gets long ones."""

    def __init__(self, db: AsyncDatabase[dict[str, Any]]) -> None:
        self.monque = Monque(db, **NO_POLLS)
        self.starts = Tally[Any]()
        self.long_ones = Tally[Any]()
        self.may_end = asyncio.Event()
        self.monque.worker("sudden", self._handle, concurrency=2)

    async def store(self) -> None:
        await self.monque.enqueue_many("sudden", [f"short {n}" for n in range(400)])
        await self.monque.enqueue_many("sudden", [f"long {n}" for n in range(100)])

    async def _handle(self, job: Job[str]) -> None:
        self.starts.add(job.id)
        if job.data.startswith("long"):
            self.long_ones.add(job.id)
            await self.may_end.wait()


async def test_prefetched_jobs_not_started_within_a_second_are_released(
    uri: str, database_name: str
) -> None:
    log = CommandLog()
    async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
        db = client[database_name]
        sudden = ShortThenLong(db)
        await sudden.store()
        async with sudden.monque:
            await sudden.long_ones.reach(2)

            async def only_two_are_claimed() -> bool:
                return (await count_by_status(db)).get("processing") == 2

            await eventually(only_two_are_claimed)
            waiting = await jobs_in(db).find({"status": "pending"}).to_list()
            was_claimed_ahead = any(map(releases, log.sent))
            sudden.may_end.set()
            await sudden.starts.reach(500)

        assert was_claimed_ahead
        assert len(waiting) == 98
        for document in waiting:
            assert document.get("claims", 0) == 0
            assert not document.keys() & {
                "claimedBy",
                "lockedAt",
                "lastHeartbeat",
                "heartbeatInterval",
                "failReason",
            }
            assert document["failCount"] == 0
        assert set(Counter(sudden.starts).values()) == {1}
        assert await count_by_status(db) == {"completed": 500}
        assert await jobs_in(db).count_documents({"claims": 1}) == 500


async def test_prefetched_jobs_are_released_at_stop(
    uri: str, database_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = CommandLog()
    handed_back = asyncio.Event()
    hand_back = Dispatcher.release_unstarted

    async def tell_when_done(dispatcher: Dispatcher) -> None:
        await hand_back(dispatcher)
        handed_back.set()

    # A release in the log may come from before the stop if the machine or the jobs are slow.
    monkeypatch.setattr(Dispatcher, "release_unstarted", tell_when_done)
    async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
        db = client[database_name]
        sudden = ShortThenLong(db)
        await sudden.store()
        async with sudden.monque:
            await sudden.long_ones.reach(2)
            stopping = asyncio.create_task(sudden.monque.stop())
            await handed_back.wait()
            sudden.may_end.set()
            await stopping

        assert any(map(releases, log.sent))
        assert await count_by_status(db) == {"completed": 402, "pending": 98}
        assert await jobs_in(db).count_documents({"status": "pending", "claims": {"$gt": 0}}) == 0
        assert len(set(sudden.starts)) == len(sudden.starts) == 402
