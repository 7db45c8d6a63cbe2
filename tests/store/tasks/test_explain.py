"""Every hot query on 24,000 records examines about as much as it returns."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pytest
from bson import ObjectId
from pymongo import AsyncMongoClient, MongoClient

from monque_core.store.tasks.indexes import task_indexes
from monque_core.store.tasks.outcomes import TaskSettlement
from monque_core.store.tasks.queue import TaskCandidate
from monque_core.tasks.outcome import RELEASED, SUCCEEDED, Retrying
from monque_core.tasks.record import TaskRecord
from tests.support.plans import Plans, assert_sorted_by_the_index, assert_tight
from tests.support.task_bench import NOW, TaskBench, after

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from monque_core.tasks.outcome import Outcome
    from tests.support.commands import CommandLog

DOCUMENTS: Final = 6_000
TASKS: Final = ["invoice", "ship", "index", "audit"]
DAY: Final = timedelta(days=1)


def records() -> Iterator[dict[str, Any]]:
    """Store records as they are after some weeks: mostly completed, some pending, few running."""
    chance = random.Random(7)
    for id in range(DOCUMENTS):
        for task in TASKS:
            status = chance.choices(
                ["completed", "pending", "failed", "processing"], [70, 20, 8, 2]
            )
            is_active = status[0] in ("pending", "processing")
            times = [chance.uniform(-600, 0), chance.uniform(1, 86_400)]
            due_in = chance.choice(times) if status[0] == "pending" else chance.uniform(1, 60)
            record: dict[str, Any] = {
                "task": task,
                "sourceDocId": id,
                "status": status[0],
                "attempts": chance.randrange(3),
                "nextRunAt": after(due_in) if is_active else None,
                "dueAt": after(-600),
                "createdAt": NOW - DAY,
                "updatedAt": NOW - DAY,
                "lastObservedValues": {"n": id},
                "plannedTerm": 1,
            }
            if status[0] == "processing":
                record |= {"claimedBy": "other", "claimToken": ObjectId()}
            yield record


@pytest.fixture(scope="module")
def crowd(uri: str) -> Iterator[str]:
    """Yield the name of a database full of records."""
    name = f"test_{uuid4().hex}"
    with MongoClient[dict[str, Any]](uri) as client:
        db = client[name]
        db["orders_tasks"].create_indexes(list(task_indexes()))
        db["orders_tasks"].insert_many(list(records()), ordered=False)
        db["orders"].insert_many([{"_id": id, "n": id} for id in range(DOCUMENTS)])
        yield name
        client.drop_database(name)


@pytest.fixture
def plans(crowd: str, uri: str, log: CommandLog) -> Iterator[Plans]:
    """Return the plans of the commands on the records."""
    with MongoClient[dict[str, Any]](uri) as client:
        plans = Plans(client[crowd], "orders_tasks")
        log.on_sending = plans.explain
        yield plans


@pytest.fixture
async def bench(crowd: str, uri: str, log: CommandLog, plans: Plans) -> AsyncIterator[TaskBench]:
    """Yield a bench whose commands are explained as they are sent."""
    async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
        bench = TaskBench(client[crowd])
        for task in TASKS:
            bench.define(task)
        yield bench


async def a_batch(bench: TaskBench, count: int) -> list[TaskRecord]:
    found = await bench.queue().look(TASKS, count, NOW)
    chosen = [one for one in found if isinstance(one, TaskCandidate)]
    claimed = await bench.queue().claim_batch(chosen, ObjectId(), NOW)
    records = [one for one in claimed if isinstance(one, TaskRecord)]
    assert len(records) == count
    return records


class TestLook:
    @pytest.mark.parametrize("names", [TASKS[:1], TASKS[:2], TASKS])
    async def test_over_tasks_with_much_to_do(
        self, bench: TaskBench, plans: Plans, names: list[str]
    ) -> None:
        assert len(await bench.queue().look(names, 50, NOW)) == 50
        assert_tight(plans, seeks=len(names), count=1)
        assert_sorted_by_the_index(plans.made)

    async def test_over_tasks_with_nothing_to_do(self, bench: TaskBench, plans: Plans) -> None:
        assert await bench.queue().look(TASKS, 50, NOW - DAY) == []
        assert_tight(plans, seeks=len(TASKS), count=1)

    async def test_at_each_task(self, bench: TaskBench, plans: Plans) -> None:
        assert len(await bench.queue().look_at_each(dict.fromkeys(TASKS, 5), NOW)) == 20
        assert_tight(plans, seeks=len(TASKS), count=1)
        assert_sorted_by_the_index(plans.made)

    async def test_ahead(self, bench: TaskBench, plans: Plans) -> None:
        upcoming = await bench.queue().upcoming(TASKS, after(60), after(3600), 20)
        assert len(upcoming) == 20
        assert_tight(plans, seeks=len(TASKS), count=1)


class TestClaim:
    async def test_of_the_first(self, bench: TaskBench, plans: Plans) -> None:
        await bench.claim("ship")
        assert_tight(plans, seeks=1, count=1)

    async def test_of_a_batch(self, bench: TaskBench, plans: Plans) -> None:
        await a_batch(bench, 40)
        assert_tight(plans, seeks=len(TASKS), count=3)

    async def test_that_no_reply_told_of(self, bench: TaskBench, plans: Plans) -> None:
        now = after(0.123)
        record = await bench.claim("index", now=now)
        plans.made.clear()
        token = record.claim_token
        assert token is not None
        assert await bench.queue().claimed_with(token, ["index"], now) == [record]
        assert_tight(plans, seeks=len(TASKS), count=1)


class TestRunning:
    async def test_renewal(self, bench: TaskBench, plans: Plans) -> None:
        records = await a_batch(bench, 30)
        plans.made.clear()
        assert await bench.outcomes().renew(records, after(1)) == {}
        assert_tight(plans, count=1)

    async def test_renewal_of_what_was_partly_lost(self, bench: TaskBench, plans: Plans) -> None:
        records = await a_batch(bench, 30)
        await bench.settle(records[0], SUCCEEDED)
        plans.made.clear()
        assert len(await bench.outcomes().renew(records, after(1))) == 1
        assert_tight(plans, count=2)

    async def test_settlement(self, bench: TaskBench, plans: Plans) -> None:
        records = await a_batch(bench, 30)
        plans.made.clear()
        outcomes: list[Outcome] = [SUCCEEDED, Retrying("oops", after(9)), RELEASED]
        settlements = [
            TaskSettlement(record, outcomes[n % 3], timedelta(seconds=1))
            for n, record in enumerate(records)
        ]
        assert "lost" not in await bench.outcomes().settle(settlements, after(1))
        assert_tight(plans, count=31)


class TestPlanning:
    async def test_reads_its_documents_by_id(
        self, crowd: str, uri: str, log: CommandLog, bench: TaskBench
    ) -> None:
        bench.define("ship", watch=["n"], filter={"n": {"$gte": 0}})
        with MongoClient[dict[str, Any]](uri) as client:
            plans = Plans(client[crowd], "orders")

            def explain(name: str, command: Mapping[str, Any]) -> None:
                # The server does not explain pipelines with `$merge`, so explain their read part.
                stages = [stage for stage in command.get("pipeline", ()) if "$merge" not in stage]
                plans.explain(name, {**command, "pipeline": stages} if stages else command)

            log.on_sending = explain
            assert (await bench.plan(*range(1000, 1500), task="ship")).matched == 500
            assert_tight(plans, count=2)

    async def test_finds_each_record_by_its_document(
        self, crowd: str, uri: str, bench: TaskBench
    ) -> None:
        with MongoClient[dict[str, Any]](uri) as client:
            db = client[crowd]
            db.command("profile", 2)
            try:
                await bench.plan(*range(200), task="ship", term=2)
            finally:
                db.command("profile", 0)
            updates = list(
                db["system.profile"].find({"op": "update", "ns": f"{crowd}.orders_tasks"})
            )
            db["system.profile"].drop()
        assert len(updates) == 200
        for update in updates:
            assert update["planSummary"] == "IXSCAN { sourceDocId: 1, task: 1 }"
            assert (update["keysExamined"], update["docsExamined"]) == (1, 1)

    async def test_rearms_only_what_left(self, bench: TaskBench, plans: Plans) -> None:
        await bench.source.delete_many({"_id": {"$gte": 2000, "$lt": 2010}})
        plans.made.clear()
        await bench.plan(*range(1500, 2500), deleted=(1500, 2000), task="audit")
        assert [next(iter(plan.command)) for plan in plans.made] == ["update"] * 3
        assert [plan.returned for plan in plans.made] == [10, 1, 1]
        assert_tight(plans, seeks=12, count=3)
