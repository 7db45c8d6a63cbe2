"""Renewing all claims with one write per interval."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from bson import ObjectId
from pymongo import AsyncMongoClient

from monque_core import Job, Monque
from tests.support.commands import CommandLog
from tests.support.happenings import Happenings
from tests.support.steps import renews
from tests.support.stored import jobs_in, stored, stored_jobs
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pymongo.asynchronous.database import AsyncDatabase

HEARTBEAT = 0.2


@pytest.fixture
def log() -> CommandLog:
    return CommandLog()


@pytest.fixture
async def watched_db(
    uri: str, db: AsyncDatabase[dict[str, Any]], log: CommandLog
) -> AsyncIterator[AsyncDatabase[dict[str, Any]]]:
    """Yield the test's database through a client whose commands are recorded."""
    async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
        yield client[db.name]


def beats(log: CommandLog) -> int:
    return sum(renews(command) for command in log.sent)


async def test_one_write_per_interval_keeps_any_number_of_claims_alive(
    watched_db: AsyncDatabase[dict[str, Any]], db: AsyncDatabase[dict[str, Any]], log: CommandLog
) -> None:
    monque = Monque(watched_db, heartbeat_interval=HEARTBEAT, worker_concurrency=150)
    happenings = Happenings(monque)
    may_end = threading.Event()

    @monque.worker("coroutine")
    async def wait(job: Job[int]) -> None:
        while not may_end.is_set():
            await asyncio.sleep(0.05)

    @monque.worker("function", concurrency=20)
    def block(job: Job[int]) -> None:
        may_end.wait()

    await monque.enqueue_many("coroutine", range(150))
    await monque.enqueue_many("function", range(20))
    async with monque:
        await happenings.reach("job:start", 170)
        claimed = {job.id: job for job in await stored_jobs(db)}
        began = asyncio.get_running_loop().time()
        before = beats(log)
        await eventually(lambda: beats(log) >= before + 5)
        intervals = (asyncio.get_running_loop().time() - began) / HEARTBEAT
        renewed = beats(log) - before
        renewals = await stored_jobs(db)
        may_end.set()
        await happenings.reach("job:complete", 170)

    assert renewed <= intervals + 1
    for job in renewals:
        assert job.locked_at is not None
        assert job.locked_at == job.last_heartbeat == job.updated_at
        assert job.locked_at - claimed[job.id].locked_at >= timedelta(seconds=3 * HEARTBEAT)  # type: ignore[operator]
        assert job.heartbeat_interval == HEARTBEAT * 1000
    assert not happenings.of("job:error")


async def test_an_idle_instance_sends_no_heartbeats(
    watched_db: AsyncDatabase[dict[str, Any]], log: CommandLog
) -> None:
    monque = Monque(watched_db, heartbeat_interval=0.1)
    happenings = Happenings(monque)

    @monque.worker("work")
    async def run(job: Job[int]) -> None: ...

    async with monque:
        await monque.enqueue("work", 1)
        await happenings.reach("job:complete")
        await monque.run_until_idle()
        before = beats(log)
        await asyncio.sleep(0.5)
        assert beats(log) == before


async def test_only_live_claims_of_the_instance_are_renewed(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    monque = Monque(db, heartbeat_interval=0.1, recover_stale_jobs=False)
    happenings = Happenings(monque)
    may_end = asyncio.Event()

    @monque.worker("work")
    async def wait(job: Job[int]) -> None:
        await may_end.wait()

    then = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=5)
    async with monque:
        mine = await monque.enqueue("work", 1)
        (started,) = await happenings.reach("job:start")
        claim = {
            "name": "work",
            "status": "processing",
            "nextRunAt": then,
            "createdAt": then,
            "updatedAt": then,
            "lockedAt": then,
            "lastHeartbeat": then,
            "heartbeatInterval": 100,
        }
        strangers = [
            # Left behind by an earlier process with this instance id; no run here has it.
            {**claim, "claimedBy": monque.scheduler_instance_id, "claimToken": ObjectId()},
            {**claim, "claimedBy": "another", "claimToken": ObjectId()},
            # An equal token would be a coincidence, and the claim would still not be ours.
            {**claim, "claimedBy": "another", "claimToken": started.job.claim_token},
            {**claim, "claimedBy": monque.scheduler_instance_id},
            {
                **claim,
                "claimedBy": monque.scheduler_instance_id,
                "status": "completed",
                "claimToken": started.job.claim_token,
            },
        ]
        await jobs_in(db).insert_many(strangers)
        first = (await stored(db, mine)).last_heartbeat
        assert first is not None

        async def is_renewed() -> bool:
            heartbeat = (await stored(db, mine)).last_heartbeat
            return heartbeat is not None and heartbeat >= first + timedelta(seconds=0.3)

        await eventually(is_renewed)
        for stranger in strangers:
            assert await jobs_in(db).find_one({"_id": stranger["_id"]}) == stranger
        may_end.set()
        await happenings.reach("job:complete")


async def test_heartbeats_go_on_while_stop_waits_for_running_jobs(
    watched_db: AsyncDatabase[dict[str, Any]], log: CommandLog
) -> None:
    monque = Monque(watched_db, heartbeat_interval=0.1)
    happenings = Happenings(monque)
    may_end = asyncio.Event()

    @monque.worker("work")
    async def wait(job: Job[int]) -> None:
        await may_end.wait()

    await monque.start()
    await monque.enqueue("work", 1)
    await happenings.reach("job:start")
    stopping = asyncio.create_task(monque.stop())
    await asyncio.sleep(0.05)
    before = beats(log)
    await eventually(lambda: beats(log) >= before + 4)
    assert not stopping.done()
    may_end.set()
    await stopping

    assert len(happenings.of("job:complete")) == 1
    assert not happenings.of("job:error")
