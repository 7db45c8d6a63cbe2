"""Records of deleted documents are found and eventually deleted, and no others."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from bson import ObjectId
from pymongo import AsyncMongoClient, MongoClient

from monque_core.store.driver import Driver
from monque_core.store.tasks.indexes import task_indexes
from monque_core.store.tasks.record_cleanup import RecordCleanup
from monque_core.store.tasks.source_collections import LastId
from monque_core.tasks.definition import Cleanup, define
from tests.support.commands import CommandLog
from tests.support.plans import Plans, assert_sorted_by_the_index, assert_tight
from tests.support.task_bench import NOW, TaskBench

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from monque_core.tasks.definition import Declaration

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
LATER = NOW + 2 * DAY
MIXED: list[Any] = [
    *(1, 2.5, "a", "$b", {"a": 1}, {"b": {"c": "$d"}}, b"x", True, NOW),
    ObjectId("5f0000000000000000000000"),
]


@pytest.fixture
def upkeep(bench: TaskBench) -> RecordCleanup:
    return RecordCleanup(bench.handle)


def declaration(bench: TaskBench) -> Declaration:
    return bench.definitions["invoice"].declaration


async def gone(bench: TaskBench, *ids: Any, at: Any = NOW) -> None:
    """Plan documents that are deleted afterwards, and plan the deletion."""
    for id in ids:
        await bench.put(id)
        await bench.source.delete_one({"_id": {"$eq": id}})
        await bench.plan(deleted=(id,), now=at)


async def recorded(bench: TaskBench) -> list[Any]:
    found = await bench.records.find({}, sort=[("sourceDocId", 1)]).to_list()
    return [record["sourceDocId"] for record in found]


async def all_orphans(upkeep: RecordCleanup, bench: TaskBench, size: int) -> list[Any]:
    orphans: list[Any] = []
    after: LastId | None = None
    while True:
        page = await upkeep.orphans(declaration(bench), after, size)
        orphans += page.ids
        if page.after is None:
            return orphans
        after = page.after


async def cleaned(upkeep: RecordCleanup, bench: TaskBench, now: Any = LATER, **options: Any) -> int:
    return sum([n async for n in upkeep.clean(declaration(bench), now, **options)])


class TestOrphans:
    @pytest.mark.parametrize("size", [1, 3, 100])
    async def test_are_found_whatever_the_type_of_their_ids(
        self, bench: TaskBench, upkeep: RecordCleanup, size: int
    ) -> None:
        for id in MIXED:
            await bench.put(id)
        await bench.source.delete_many({"_id": {"$nin": MIXED[::2]}})
        expected = MIXED[1::2]
        assert sorted(map(repr, await all_orphans(upkeep, bench, size))) == sorted(
            map(repr, expected)
        )

    async def test_are_all_records_of_a_dropped_collection(self, own_bench: TaskBench) -> None:
        for id in range(7):
            await own_bench.put(id)
        await own_bench.source.drop()
        upkeep = RecordCleanup(own_bench.handle)
        assert await all_orphans(upkeep, own_bench, 3) == list(range(7))

    async def test_are_of_one_task_only(self, bench: TaskBench, upkeep: RecordCleanup) -> None:
        bench.define("remind")
        await bench.source.insert_many([{"_id": id} for id in range(4)])
        await bench.plan(0, 1, 2, 3, task="remind")
        await bench.plan(0, 1)
        await bench.source.delete_many({})
        assert await all_orphans(upkeep, bench, 2) == [0, 1]

    async def test_are_not_those_that_are_re_armed_already(
        self, bench: TaskBench, upkeep: RecordCleanup
    ) -> None:
        await gone(bench, 1)
        await bench.put(2)
        await bench.source.delete_many({})
        assert await all_orphans(upkeep, bench, 10) == [2]

    async def test_are_none_where_an_equal_id_is_of_another_type(
        self, bench: TaskBench, upkeep: RecordCleanup
    ) -> None:
        await bench.put(1)
        await bench.source.delete_one({"_id": 1})
        await bench.source.insert_one({"_id": 1.0})
        assert await all_orphans(upkeep, bench, 10) == []

    async def test_are_told_apart_where_the_source_does_not(self, own_bench: TaskBench) -> None:
        db = own_bench.source.database
        await db.create_collection("orders", collation={"locale": "en", "strength": 2})
        await own_bench.put("a")
        await own_bench.source.delete_one({"_id": "a"})
        await own_bench.source.insert_one({"_id": "A"})
        assert await all_orphans(RecordCleanup(own_bench.handle), own_bench, 10) == ["a"]

    async def test_are_none_where_there_is_nothing(
        self, bench: TaskBench, upkeep: RecordCleanup
    ) -> None:
        assert await all_orphans(upkeep, bench, 10) == []


class TestCleaning:
    async def test_deletes_what_is_gone_and_was_kept_for_long_enough(
        self, bench: TaskBench, upkeep: RecordCleanup
    ) -> None:
        await gone(bench, *MIXED)
        await bench.put("there")
        assert await cleaned(upkeep, bench, NOW + DAY - HOUR) == 0
        assert await cleaned(upkeep, bench, NOW + DAY) == len(MIXED)
        assert await recorded(bench) == ["there"]

    async def test_waits_until_the_record_is_quiet(
        self, bench: TaskBench, upkeep: RecordCleanup
    ) -> None:
        await gone(bench, 1)
        await bench.records.update_one({}, {"$set": {"updatedAt": NOW + HOUR}})
        assert await cleaned(upkeep, bench, NOW + DAY) == 0
        assert await cleaned(upkeep, bench, NOW + DAY + HOUR) == 1

    @pytest.mark.parametrize(
        ("status", "count"),
        [
            ("pending", 1),
            ("completed", 1),
            ("failed", 1),
            ("processing", 0),
            ("processing_dirty", 0),
        ],
    )
    async def test_spares_what_is_running(
        self, bench: TaskBench, upkeep: RecordCleanup, status: str, count: int
    ) -> None:
        await gone(bench, 1)
        await bench.records.update_one({}, {"$set": {"status": status}})
        assert await cleaned(upkeep, bench) == count

    async def test_spares_what_came_back_though_nobody_has_planned_it_yet(
        self, bench: TaskBench, upkeep: RecordCleanup
    ) -> None:
        await gone(bench, 1, 2)
        await bench.source.insert_one({"_id": 1})
        assert await cleaned(upkeep, bench) == 1
        assert await recorded(bench) == [1]

    async def test_spares_what_no_longer_matches_unless_that_is_meant(
        self, bench: TaskBench, upkeep: RecordCleanup
    ) -> None:
        bench.define(filter={"status": "paid"})
        for id in (1, 2, 3):
            await bench.put(id, status="paid")
        await bench.put(1, status="open")
        await bench.source.delete_one({"_id": 2})
        await bench.plan(deleted=(2,))
        assert await cleaned(upkeep, bench) == 1
        assert await recorded(bench) == [1, 3]
        bench.define(filter={"status": "paid"}, cleanup=Cleanup("unmatched"))
        assert await cleaned(upkeep, bench) == 1
        assert await recorded(bench) == [3]

    async def test_spares_what_matches_again_though_nobody_has_planned_it_yet(
        self, bench: TaskBench, upkeep: RecordCleanup
    ) -> None:
        bench.define(filter={"status": "paid"}, cleanup=Cleanup("unmatched"))
        await bench.put(1, status="paid")
        await bench.put(1, status="open")
        await bench.source.update_one({"_id": 1}, {"$set": {"status": "paid"}})
        assert await cleaned(upkeep, bench) == 0

    async def test_deletes_nothing_if_that_is_not_wanted(
        self, bench: TaskBench, upkeep: RecordCleanup
    ) -> None:
        await gone(bench, 1)
        bench.define(cleanup=Cleanup("never", 0))
        assert await cleaned(upkeep, bench) == 0
        assert await recorded(bench) == [1]

    async def test_may_happen_at_once(self, bench: TaskBench, upkeep: RecordCleanup) -> None:
        bench.define(cleanup=Cleanup("deleted", 0))
        await gone(bench, 1)
        assert await cleaned(upkeep, bench, NOW) == 1

    async def test_leaves_other_tasks_alone(self, bench: TaskBench, upkeep: RecordCleanup) -> None:
        bench.define("remind")
        await bench.source.insert_one({"_id": 1})
        for task in ("invoice", "remind"):
            await bench.plan(1, task=task)
        await bench.source.delete_one({"_id": 1})
        for task in ("invoice", "remind"):
            await bench.plan(deleted=(1,), task=task)
        assert await cleaned(upkeep, bench) == 1
        assert [record["task"] async for record in bench.records.find()] == ["remind"]

    @pytest.mark.parametrize("together", [True, False], ids=["at one time", "at many times"])
    async def test_gets_past_what_stays_in_batches_of_any_size(
        self, bench: TaskBench, upkeep: RecordCleanup, together: bool
    ) -> None:
        """All these documents left the filter, but only the odd ones are deleted."""
        bench.define(filter={"status": "paid"})
        for id in range(20):
            at = NOW if together else NOW + id // 4 * HOUR
            await bench.put(id, status="paid")
            await bench.put(id, now=at, status="open")
        await bench.source.delete_many({"_id": {"$mod": [2, 1]}})
        batches = [n async for n in upkeep.clean(declaration(bench), LATER, batch_size=3)]
        assert sum(batches) == 10
        assert max(batches) <= 3
        assert await recorded(bench) == list(range(0, 20, 2))

    async def test_ends_where_nothing_can_be_deleted(
        self, bench: TaskBench, upkeep: RecordCleanup
    ) -> None:
        await gone(bench, *range(6))
        await bench.source.insert_many([{"_id": id} for id in range(6)])
        assert await cleaned(upkeep, bench, batch_size=2) == 0


class Racing(CommandLog):
    """Lets a test act between the look at the sources and the deletion."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self._act = act

    def started(self, event: Any) -> None:
        if event.command_name == "delete":
            self._act()


class TestARace:
    @pytest.fixture
    async def racing(
        self, bench: TaskBench, uri: str
    ) -> AsyncIterator[Callable[[Callable[[Any], object]], Awaitable[int]]]:
        """Return a cleanup that calls a function right before the deletion."""
        with MongoClient[dict[str, Any]](uri) as blocking:
            db = blocking[bench.database]

            async def clean(act: Callable[[Any], object]) -> int:
                log = Racing(lambda: act(db))
                async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
                    upkeep = RecordCleanup(Driver(client[bench.database]))
                    return await cleaned(upkeep, bench)

            yield clean

    async def test_with_a_planned_return_is_lost_by_the_deletion(
        self, bench: TaskBench, racing: Any
    ) -> None:
        await gone(bench, 1, 2)

        def come_back(db: Any) -> None:
            db["orders"].insert_one({"_id": 1})
            db["orders_tasks"].update_one(
                {"sourceDocId": 1},
                {"$unset": {"unmatchedAt": ""}, "$set": {"lastObservedValues": {}}},
            )

        assert await racing(come_back) == 1
        assert await recorded(bench) == [1]

    async def test_with_a_return_and_another_end_is_lost_by_the_deletion(
        self, bench: TaskBench, racing: Any
    ) -> None:
        await gone(bench, 1)

        def come_and_go(db: Any) -> None:
            db["orders_tasks"].update_one(
                {}, {"$set": {"unmatchedAt": NOW + HOUR, "updatedAt": NOW + HOUR}}
            )

        assert await racing(come_and_go) == 0

    @pytest.mark.parametrize("change", [{"status": "processing"}, {"updatedAt": LATER}], ids=str)
    async def test_with_a_worker_is_lost_by_the_deletion(
        self, bench: TaskBench, racing: Any, change: dict[str, Any]
    ) -> None:
        await gone(bench, 1)
        assert await racing(lambda db: db["orders_tasks"].update_one({}, {"$set": change})) == 0

    async def test_with_an_unplanned_return_leaves_a_document_to_be_planned_afresh(
        self, bench: TaskBench, racing: Any
    ) -> None:
        await gone(bench, 1)
        assert await racing(lambda db: db["orders"].insert_one({"_id": 1})) == 1
        await bench.plan(1, now=LATER)
        assert (await bench.record(1))["status"] == "pending"


@pytest.fixture(scope="module")
def crowd(uri: str) -> Iterator[str]:
    """Yield the name of a database with 20,000 records, of which 2,000 are unmatched."""
    name = f"test_{uuid4().hex}"
    with MongoClient[dict[str, Any]](uri) as client:
        db = client[name]
        db["orders_tasks"].create_indexes(list(task_indexes()))
        db["orders_tasks"].insert_many(
            [
                {
                    "task": task,
                    "sourceDocId": n if n % 2 else str(n),
                    "status": "completed",
                    "updatedAt": NOW,
                }
                | (
                    {"unmatchedAt": NOW - n % 7 * HOUR}
                    if n % 10 == 0
                    else {"lastObservedValues": {"n": n}}
                )
                for n in range(5_000)
                for task in ("audit", "index", "invoice", "ship")
            ],
            ordered=False,
        )
        db["orders"].insert_many([{"_id": n if n % 2 else str(n)} for n in range(5_000)])
        yield name
        client.drop_database(name)


class TestAmongMany:
    @pytest.fixture
    async def looking(self, crowd: str, uri: str) -> AsyncIterator[tuple[RecordCleanup, Plans]]:
        log = CommandLog()
        with MongoClient[dict[str, Any]](uri) as explaining:
            plans = Plans(explaining[crowd], "orders_tasks")
            log.on_sending = plans.explain
            async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
                yield RecordCleanup(Driver(client[crowd])), plans

    async def test_orphans_are_found_by_the_index(
        self, looking: tuple[RecordCleanup, Plans], crowd: str
    ) -> None:
        upkeep, plans = looking
        task = define(crowd, "orders", name="invoice").declaration
        for after in (None, LastId(2_001), LastId("300"), LastId(None)):
            page = await upkeep.orphans(task, after, 500)
            assert page.ids == []
        # Between any two keys of this task lies a key of another one.
        assert_tight(plans, seeks=500, count=4)
        assert_sorted_by_the_index(plans.made)

    async def test_cleanup_examines_only_unmatched_records(
        self, looking: tuple[RecordCleanup, Plans], crowd: str
    ) -> None:
        upkeep, plans = looking
        task = define(crowd, "orders", name="invoice").declaration
        batches = [n async for n in upkeep.clean(task, LATER, batch_size=200)]
        assert batches == [0, 0, 0]
        looks = [plan for plan in plans.made if "find" in plan.command]
        assert sum(plan.returned for plan in looks) == 500
        for plan in looks:
            assert plan.indexes == {"monque_py_tasks_unmatched"}, str(plan)
            assert plan.docs <= plan.returned + 200, str(plan)
        assert_sorted_by_the_index(looks)
        deletions = [plan for plan in plans.made if "delete" in plan.command]
        assert deletions
        for plan in deletions:
            assert plan.docs <= 2 * 200, str(plan)
