"""No two live instances have the same id."""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from bson import ObjectId

from monque_core import Job, Monque, MonqueConnectionError
from tests.support.happenings import Happenings
from tests.support.stored import jobs_in, stored
from tests.support.waiting import eventually
from tests.support.worker_process import WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pymongo.asynchronous.database import AsyncDatabase

    from tests.conftest import AnyDatabase

ID = "the only one"


def leases(db: AsyncDatabase[dict[str, Any]]) -> Any:
    return db["monque_jobs_meta"]


@pytest.mark.parametrize("entrance", ["initialize", "start", "enqueue"])
async def test_a_second_live_instance_with_the_same_id_is_refused(
    any_db: AnyDatabase, db: AsyncDatabase[dict[str, Any]], entrance: str
) -> None:
    first = Monque(any_db, scheduler_instance_id=ID, heartbeat_interval=0.2)
    second = Monque(db, scheduler_instance_id=ID, heartbeat_interval=0.2)
    happenings = Happenings(first)

    @first.worker("work")
    async def run(job: Job[int]) -> None: ...

    async with first:
        attempts: dict[str, Callable[[], Awaitable[object]]] = {
            "initialize": second.initialize,
            "start": second.start,
            "enqueue": partial(second.enqueue, "work", 0),
        }
        with pytest.raises(MonqueConnectionError, match=ID):
            await attempts[entrance]()
        assert not second.is_running
        await first.enqueue("work", 1)
        await happenings.reach("job:complete")

    assert [event.job.data for event in happenings.of("job:complete")] == [1]
    assert not happenings.of("job:error")
    # The id is free now, so the second instance may have it.
    async with second:
        assert second.is_running


def _claimed_by_node(**fields: object) -> dict[str, Any]:
    now = datetime.now(UTC)
    return {
        "name": "export",
        "data": None,
        "status": "processing",
        "nextRunAt": now - timedelta(hours=2),
        "failCount": 0,
        "createdAt": now - timedelta(hours=2),
        "updatedAt": now,
        "lockedAt": now,
        "claimedBy": ID,
        "lastHeartbeat": now,
        "heartbeatInterval": 30_000,
        **fields,
    }


@pytest.mark.parametrize(
    "left_behind",
    [{}, {"claimToken": ObjectId(), "claimedAt": datetime.now(UTC) - timedelta(days=1)}],
    ids=["never claimed here", "claimed here before"],
)
async def test_the_id_of_a_live_node_instance_is_refused(
    db: AsyncDatabase[dict[str, Any]], left_behind: dict[str, Any]
) -> None:
    await jobs_in(db).insert_one(_claimed_by_node(**left_behind))
    monque = Monque(db, scheduler_instance_id=ID)
    with pytest.raises(MonqueConnectionError, match="which runs a job export") as refusal:
        await monque.start()
    assert ID in str(refusal.value)
    assert not monque.is_running


@pytest.mark.parametrize(
    "fields",
    [
        {"claimedBy": "another"},
        {"status": "completed"},
        {"lastHeartbeat": datetime.now(UTC) - timedelta(minutes=5)},
        {"claimToken": ObjectId(), "claimedAt": datetime.now(UTC)},
    ],
    ids=["another id", "its job ended", "silent", "a claim of Python, which has leases"],
)
async def test_an_id_that_no_live_node_instance_has_is_free(
    db: AsyncDatabase[dict[str, Any]], fields: dict[str, Any]
) -> None:
    await jobs_in(db).insert_one(_claimed_by_node(**fields))
    async with Monque(db, scheduler_instance_id=ID) as monque:
        assert monque.is_running


async def test_of_two_concurrent_starts_with_one_id_one_is_refused(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    for _ in range(5):
        instances = [Monque(db, scheduler_instance_id=ID, heartbeat_interval=0.2) for _ in range(3)]
        results = await asyncio.gather(
            *(instance.start() for instance in instances), return_exceptions=True
        )
        running = [instance for instance in instances if instance.is_running]
        for instance in instances:
            await instance.stop()

        assert len(running) == 1
        refusals = [result for result in results if result is not None]
        assert len(refusals) == 2
        for refusal in refusals:
            assert isinstance(refusal, MonqueConnectionError)
            assert ID in str(refusal)


async def test_a_clean_stop_frees_the_id_at_once(any_db: AnyDatabase) -> None:
    for _ in range(3):
        # Each lease is half an hour long, and no start with the same id would wait that long.
        monque = Monque(any_db, scheduler_instance_id=ID, heartbeat_interval=600)
        async with monque:
            assert monque.is_running


async def test_a_start_waits_for_the_lease_of_a_killed_predecessor_and_recovers_its_jobs(
    db: AsyncDatabase[dict[str, Any]], uri: str
) -> None:
    successor = Monque(db, scheduler_instance_id=ID, heartbeat_interval=0.5)
    happenings = Happenings(successor)

    @successor.worker("on-loop")
    async def run(job: Job[int]) -> None: ...

    producer = Monque(db)
    job = await producer.enqueue("on-loop", 1)
    async with WorkerProcess(
        uri, db.name, "on-loop", scheduler_instance_id=ID, heartbeat_interval=0.5
    ) as predecessor:
        await predecessor.hear("started")
        predecessor.kill()
        await predecessor.end()
        lease = await leases(db).find_one({"_id": f"instance:{ID}"})
        assert lease is not None
        await successor.start()
        started_at = datetime.now(UTC).replace(tzinfo=None)
        assert started_at >= lease["expiresAt"]
        await happenings.reach("job:complete")
        await successor.stop()

    # An equal id does not make it its own: the token decides.
    assert [event.count for event in happenings.of("stale:recovered")] == [1]
    assert (await stored(db, job)).claims == 2
    assert not happenings.of("job:error")


async def test_an_instance_that_lost_its_id_says_so(db: AsyncDatabase[dict[str, Any]]) -> None:
    monque = Monque(db, scheduler_instance_id=ID, heartbeat_interval=0.1)
    happenings = Happenings(monque)
    async with monque:
        far = datetime.now(UTC) + timedelta(hours=1)
        await leases(db).update_one(
            {"_id": f"instance:{ID}"}, {"$set": {"holder": "another", "expiresAt": far}}
        )
        told = (await happenings.reach("job:error"))[0]

    assert isinstance(told.error, MonqueConnectionError)
    assert ID in str(told.error)
    # It releases only its own lease.
    lease = await leases(db).find_one({"_id": f"instance:{ID}"})
    assert lease is not None
    assert lease["holder"] == "another"


async def test_instances_with_generated_ids_never_conflict(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    instances = [Monque(db) for _ in range(3)]
    async with instances[0], instances[1], instances[2]:
        found = {lease["_id"] async for lease in leases(db).find()}
        assert found == {f"instance:{instance.scheduler_instance_id}" for instance in instances}
    assert await leases(db).count_documents({}) == 0


async def test_run_obeys_a_signal_while_it_waits_for_a_predecessors_lease(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    expires_at = datetime.now(UTC) + timedelta(hours=1)
    lease = {"_id": f"instance:{ID}", "holder": "killed", "expiresAt": expires_at}
    await leases(db).insert_one(lease)
    monque = Monque(db, scheduler_instance_id=ID)
    before = signal.getsignal(signal.SIGTERM)
    running = asyncio.create_task(monque.run())
    await eventually(lambda: signal.getsignal(signal.SIGTERM) != before)

    os.kill(os.getpid(), signal.SIGTERM)
    await running

    assert not monque.is_running


async def test_leases_of_dead_instances_are_removed(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    await Monque(db).initialize()
    indexes = await leases(db).index_information()
    assert indexes["monque_py_expiry"]["key"] == [("expiresAt", 1)]
    assert indexes["monque_py_expiry"]["expireAfterSeconds"] == 86400
