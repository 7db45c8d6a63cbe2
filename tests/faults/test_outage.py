"""An outage of the database: nothing is lost, nothing runs twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from pymongo import AsyncMongoClient, MongoClient

from monque_core import Job, Monque, MonqueConnectionError
from tests.support.happenings import Happenings
from tests.support.stored import jobs_in, stored, stored_jobs
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import LocalMongo
    from monque_core.local.node import Node

HEARTBEAT = 0.5
AWAY_SECONDS = 4 * HEARTBEAT
"""Longer than it takes for claims to become stale."""

FAILING = ("retries", "fails", "recurs-failing")
OUTCOMES = {
    ("succeeds", "completed", 0): 20,
    ("retries", "pending", 1): 3,
    ("fails", "failed", 1): 3,
    ("recurs", "pending", 0): 1,
    ("recurs-failing", "pending", 0): 1,
    ("recurs-failing", "failed", 1): 1,
}


class Workplace:
    """An instance that runs jobs of every outcome, and a rival that competes for them."""

    def __init__(self, db: object, jobs: AsyncDatabase[dict[str, Any]]) -> None:
        self.worker, self.rival = (
            Monque(
                db,
                heartbeat_interval=HEARTBEAT,
                poll_interval=0.1,
                base_retry_interval=3600,
                worker_concurrency=20,
            )
            for _ in range(2)
        )
        self.happenings, self.elsewhere = Happenings(self.worker), Happenings(self.rival)
        self._jobs = jobs
        self._runs: Counter[tuple[str, int]] = Counter()
        self._may_end = asyncio.Event()
        for name in {name for name, _, _ in OUTCOMES}:
            self.worker.worker(name, self._run)
            self.rival.worker(name, self._run)

    async def open(self) -> None:
        """Store the jobs and start them all on one of the instances."""
        await self.worker.enqueue_many("succeeds", range(20))
        await self.worker.enqueue_many("retries", range(3))
        await self.worker.enqueue_many("fails", range(3), max_retries=1)
        for name in ("recurs", "recurs-failing"):
            await self.worker.schedule("0 0 1 1 *", name, 0)
        await jobs_in(self._jobs).update_many(
            {"repeatInterval": {"$exists": True}},
            {"$set": {"nextRunAt": datetime.now(UTC) - timedelta(seconds=1), "maxRetries": 1}},
        )
        await self.worker.start()
        await self.happenings.reach("job:start", 28)
        await self.rival.start()
        assert self.worker.is_healthy

    async def end_runs(self) -> None:
        """End all runs, and wait until both instances notice the outage.

        That takes as long as the driver retries: it does not report an outage, only failed
        attempts, and an attempt that succeeds after the outage reports nothing.
        """
        self._may_end.set()
        for seen in (self.happenings, self.elsewhere):
            await seen.reach("job:error")

    async def close(self) -> None:
        """Wait until everything is settled, and check that each outcome was written once."""
        await eventually(lambda: self.worker.is_healthy)
        await self.happenings.reach("job:complete", 21)
        await self.happenings.reach("job:fail", 7)
        # Long enough for stale claims to be recovered.
        await asyncio.sleep(2 * HEARTBEAT)
        await self.rival.stop()
        await self.worker.stop()
        assert len(self._runs) == 28
        assert set(self._runs.values()) == {1}
        assert len(self.happenings.of("job:complete")) == 21
        assert len(self.happenings.of("job:fail")) == 7
        for seen in (self.happenings, self.elsewhere):
            assert not seen.of("stale:recovered")
            (told,) = seen.of("job:error")
            assert isinstance(told.error, MonqueConnectionError)
        jobs = await stored_jobs(self._jobs)
        assert Counter((job.name, job.status, job.fail_count) for job in jobs) == OUTCOMES

    async def _run(self, job: Job[int]) -> None:
        self._runs[job.name, job.data] += 1
        await self._may_end.wait()
        if job.name in FAILING:
            raise RuntimeError("as told")


@pytest.mark.parametrize("how", ["frozen", "killed"])
async def test_outcomes_are_kept_until_they_can_be_written(
    frail_mongo: LocalMongo, node: Node, how: str
) -> None:
    # No machine takes a one-second stall for an outage; failed attempts do not queue up.
    patience: dict[str, Any] = {
        "serverSelectionTimeoutMS": 1000,
        "socketTimeoutMS": 1000,
        "maxConnecting": 20,
    }
    with MongoClient[dict[str, Any]](frail_mongo.uri, **patience) as blocking:
        async with (
            AsyncMongoClient[dict[str, Any]](frail_mongo.uri, **patience) as client,
            AsyncMongoClient[dict[str, Any]](frail_mongo.uri) as patient,
        ):
            workplaces = []
            for impatient in (client, blocking):
                name = f"outage_{uuid4().hex}"
                workplace = Workplace(impatient[name], patient[name])
                await workplace.open()
                workplaces.append(workplace)
            await asyncio.to_thread(node.suspend if how == "frozen" else node.kill)
            await asyncio.gather(
                asyncio.sleep(AWAY_SECONDS), *(workplace.end_runs() for workplace in workplaces)
            )
            for workplace in workplaces:
                assert not workplace.worker.is_healthy
                assert not workplace.happenings.of("job:complete")
            await asyncio.to_thread(node.resume if how == "frozen" else node.start)
            for workplace in workplaces:
                await workplace.close()


async def test_an_idle_instance_survives_every_outage_and_reports_each_once(
    frail_mongo: LocalMongo, node: Node
) -> None:
    async with AsyncMongoClient[dict[str, Any]](
        frail_mongo.uri, serverSelectionTimeoutMS=1000
    ) as client:
        db = client[f"outage_{uuid4().hex}"]
        monque = Monque(db, poll_interval=0.1, heartbeat_interval=0.5)
        happenings = Happenings(monque)

        @monque.worker("quick")
        async def run(job: Job[int]) -> None: ...

        async with monque:
            for outage in (1, 2):
                # The driver may have resumed the stream by itself, which is not reported.
                await eventually(lambda: happenings.follows_changes)
                await asyncio.to_thread(node.kill)
                await happenings.reach("job:error", outage)
                await asyncio.to_thread(node.start)
                await eventually(lambda: monque.is_healthy)
                job = await monque.enqueue("quick", outage)
                await happenings.reach("job:complete", outage)
                assert (await stored(db, job)).status == "completed"

        errors = [event.error for event in happenings.of("job:error")]
        assert len(errors) == 2
        assert all(isinstance(error, MonqueConnectionError) for error in errors)
