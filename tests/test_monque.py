"""The class `Monque`."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from bson import ObjectId
from pymongo import AsyncMongoClient, MongoClient

from monque_core import (
    LocalMongo,
    Monque,
    MonqueConnectionError,
)
from tests.support.commands import CommandLog
from tests.support.leftovers import Leftovers
from tests.support.polling import NO_POLLS, QUICK_POLLS
from tests.support.stored import count_by_status, jobs_in
from tests.support.tally import Tally
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Job
    from monque_core.local.node import Node
    from tests.conftest import AnyDatabase


CALLS: dict[str, Callable[[Monque], Any]] = {
    "enqueue": lambda monque: monque.enqueue("a", 1),
    "enqueue_many": lambda monque: monque.enqueue_many("a", [1]),
    "now": lambda monque: monque.now("a", 1),
    "schedule": lambda monque: monque.schedule("@daily", "a", 1),
    "unschedule": lambda monque: monque.unschedule("a"),
    "start": lambda monque: monque.start(),
    "run_until_idle": lambda monque: monque.run_until_idle(),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
async def test_whatever_is_called_first_initializes(
    db: AsyncDatabase[dict[str, Any]], call: Callable[[Monque], Any]
) -> None:
    monque = Monque(db)
    await call(monque)
    await monque.stop()

    indexes = await jobs_in(db).index_information()
    assert any(index.get("unique") and name != "_id_" for name, index in indexes.items())


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
async def test_a_database_that_is_away_is_a_connection_error_with_its_cause(
    absent_uri: str, call: Callable[[Monque], Any]
) -> None:
    leftovers = Leftovers()
    with MongoClient[dict[str, Any]](absent_uri) as client:
        monque = Monque(client.nowhere)
        with pytest.raises(MonqueConnectionError) as raised:
            await call(monque)
        assert raised.value.__cause__ is not None
        assert not monque.is_running
        await monque.stop()
    assert not leftovers.tasks
    assert not leftovers.threads


async def test_initialize_is_idempotent_and_concurrent_calls_share_it(
    uri: str, database_name: str
) -> None:
    log = CommandLog()
    async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
        monque = Monque(client[database_name])
        await asyncio.gather(*(monque.initialize() for _ in range(5)), monque.enqueue("a", 1))
        await monque.initialize()

    prepared = [command["createIndexes"] for command in log.sent if "createIndexes" in command]
    assert sorted(prepared) == ["monque_jobs", "monque_jobs_meta"]


async def test_run_until_idle_runs_only_due_jobs(
    any_db: AnyDatabase, db: AsyncDatabase[dict[str, Any]]
) -> None:
    leftovers = Leftovers()
    monque = Monque(any_db, base_retry_interval=600, **NO_POLLS)
    runs = Tally[str]()

    @monque.worker("work", concurrency=2)
    async def work(job: Job[str]) -> None:
        runs.add(job.data)
        if job.data == "leads to more":
            await monque.enqueue_many("work", ["more"] * 5)
        if job.data == "fails":
            raise ValueError("and is retried in twenty minutes")

    await monque.enqueue_many("work", ["due"] * 10)
    await monque.enqueue_many("work", ["fails", "leads to more"])
    await monque.enqueue("work", "future", delay=600)
    await monque.schedule("@yearly", "work", "recurring")
    await monque.enqueue("foreign", "no worker here")
    await monque.run_until_idle()

    assert sorted(runs) == ["due"] * 10 + ["fails", "leads to more"] + ["more"] * 5
    assert await count_by_status(db) == {"completed": 16, "pending": 4}
    assert not monque.is_running
    assert not leftovers.tasks
    assert not leftovers.threads


async def test_run_until_idle_of_a_running_instance_leaves_it_running(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    monque = Monque(db, **NO_POLLS)
    runs = Tally[int]()

    @monque.worker("work")
    async def work(job: Job[int]) -> None:
        await asyncio.sleep(0.01)
        runs.add(job.data)

    async with monque:
        await monque.run_until_idle()
        await monque.enqueue_many("work", range(10))
        await monque.run_until_idle()
        assert len(runs) == 10
        assert monque.is_running
        await monque.enqueue("work", 10)
        await runs.reach(11)


async def test_run_until_idle_without_workers_returns_at_once(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    monque = Monque(db, **NO_POLLS)
    await monque.enqueue("foreign", None)
    await monque.run_until_idle()

    assert await count_by_status(db) == {"pending": 1}


async def test_run_until_idle_gives_up_after_its_timeout(
    any_db: AnyDatabase, db: AsyncDatabase[dict[str, Any]]
) -> None:
    leftovers = Leftovers()
    monque = Monque(any_db, shutdown_timeout=0.1, **NO_POLLS)
    started = asyncio.Event()

    @monque.worker("endless")
    async def wait(job: Job[None]) -> None:
        started.set()
        await asyncio.sleep(3600)

    await monque.enqueue("endless", None)
    with pytest.raises(TimeoutError):
        await monque.run_until_idle(timeout=1)

    assert started.is_set()
    assert not monque.is_running
    assert await count_by_status(db) == {"pending": 1}
    assert not leftovers.tasks


async def test_an_instance_is_healthy_while_it_runs_and_mongodb_answers(
    frail_mongo: LocalMongo, node: Node
) -> None:
    async with AsyncMongoClient[dict[str, Any]](frail_mongo.uri) as client:
        monque = Monque(client[f"health_{uuid4().hex}"], heartbeat_interval=0.1, **QUICK_POLLS)

        @monque.worker("unused")
        async def unused(job: Job[None]) -> None:
            raise AssertionError("there is no job")

        await monque.initialize()
        assert not monque.is_healthy
        async with monque:
            assert monque.is_healthy
            await asyncio.to_thread(node.suspend)
            # The call hangs instead of failing; only the time without an answer shows the outage.
            await eventually(lambda: not monque.is_healthy)
            await asyncio.to_thread(node.resume)
            await eventually(lambda: monque.is_healthy)
        assert not monque.is_healthy


async def test_the_instance_id_is_the_one_given_or_a_new_one(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    given = str(uuid4())
    assert Monque(db, scheduler_instance_id=given).scheduler_instance_id == given
    assert Monque(db).scheduler_instance_id != Monque(db).scheduler_instance_id


async def test_jobs_live_in_the_collection_that_was_named(
    any_db: AnyDatabase, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(any_db, collection_name="elsewhere", **NO_POLLS)
    runs = Tally[int]()

    @monque.worker("work")
    async def work(job: Job[int]) -> None:
        runs.add(job.data)

    async with monque:
        await monque.enqueue("work", 1)
        await runs.reach(1)

    names = set(await db.list_collection_names())
    assert {"elsewhere"} <= names <= {"elsewhere", "elsewhere_meta", "elsewhere_signals"}
    assert await jobs_in(db, "elsewhere").count_documents({"status": "completed"}) == 1


async def test_documents_of_other_programs_run(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    monque = Monque(db, **NO_POLLS)
    runs = Tally[Any]()

    @monque.worker("work", concurrency=2)
    async def work(job: Job[Any]) -> None:
        runs.add(job.data)

    now = datetime.now(UTC)
    await jobs_in(db).insert_many(
        [
            {
                "_id": ObjectId(),
                "name": "work",
                "data": {"from": "Node"},
                "status": "pending",
                "nextRunAt": now,
                "failCount": 0,
                "createdAt": now,
                "updatedAt": now,
                **nulls,
            }
            for nulls in (
                {},
                {"lockedAt": None, "claimedBy": None, "lastHeartbeat": None, "uniqueKey": None},
            )
        ]
    )
    async with monque:
        await runs.reach(2)

    assert runs == [{"from": "Node"}] * 2
    assert await count_by_status(db) == {"completed": 2}


@pytest.mark.parametrize("given", [None, "mongodb://127.0.0.1", {}, object()])
async def test_a_non_database_is_refused(given: Any) -> None:
    with pytest.raises(TypeError, match="PyMongo AsyncDatabase, a PyMongo Database or a Motor"):
        Monque(given)


async def test_a_client_in_place_of_a_database_gets_a_hint(uri: str) -> None:
    with (
        MongoClient[dict[str, Any]](uri) as client,
        pytest.raises(TypeError, match=r"client\['name'\]"),
    ):
        Monque(client)
