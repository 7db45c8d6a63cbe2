"""Listing records: pages, counts, retries and statistics, across collections and databases."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from bson import ObjectId
from pymongo import AsyncMongoClient, MongoClient

from monque_core.errors import InvalidCursorError
from monque_core.store.driver import Driver
from monque_core.store.leases import Leases
from monque_core.store.paging import PageRequest
from monque_core.store.tasks.indexes import task_indexes
from monque_core.store.tasks.listing import TaskListing
from monque_core.store.tasks.planner_state import LEADER, ParkedDocument, PlannerState
from monque_core.store.tasks.statistics import TaskStatistics
from monque_core.tasks.record import TaskStatus
from monque_core.tasks.selector import TaskSelector
from monque_core.tasks.views import ReactiveStats, ReactiveTaskStats
from tests.support.commands import CommandLog
from tests.support.declarations import a_declaration
from tests.support.plans import Plans, assert_sorted_by_the_index
from tests.support.task_bench import NOW, after

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core.store.paging import Direction
    from monque_core.tasks.views import TaskPage
    from tests.conftest import AnyDatabase

    Db = AsyncDatabase[dict[str, Any]]

EVERYTHING = TaskSelector()


async def page_of(
    listing: TaskListing,
    selector: TaskSelector,
    limit: int,
    cursor: str | None = None,
    direction: Direction = "forward",
) -> TaskPage:
    request = PageRequest.parse(selector.identity, limit, cursor, direction)
    return await listing.page(selector, request)


class Shop:
    """Records of tasks on several collections, stored as they are."""

    def __init__(self, db: Db, handle: Driver) -> None:
        self.db = db
        meta = handle.collection("monque_jobs_meta")
        self.planner_state = PlannerState(meta)
        self.leases = Leases(meta)
        self.listing = TaskListing(handle, self.planner_state)
        self.statistics = TaskStatistics(handle, self.planner_state, self.leases)

    async def declare(self, name: str, collection: str = "orders", **options: Any) -> None:
        database = options.pop("database", self.db.name)
        await self.planner_state.declare(a_declaration(database, collection, name, **options), NOW)

    async def put(
        self, name: str = "invoice", collection: str = "orders", **fields: Any
    ) -> dict[str, Any]:
        """Store a record, due now unless a field says otherwise."""
        database = fields.pop("database", self.db.name)
        record = {
            "_id": ObjectId(),
            "task": name,
            "sourceDocId": ObjectId(),
            "status": "pending",
            "attempts": 0,
            "nextRunAt": NOW,
            "dueAt": NOW,
            "createdAt": NOW,
            "updatedAt": NOW,
        } | fields
        await self.db.client[database][f"{collection}_tasks"].insert_one(record)
        return record

    async def ids(self, selector: TaskSelector = EVERYTHING, size: int = 3) -> list[Any]:
        """Read the whole list, page by page, forward and backward."""
        pages = [await page_of(self.listing, selector, size)]
        assert not pages[0].has_previous
        while pages[-1].has_next:
            pages.append(await page_of(self.listing, selector, size, pages[-1].cursor))
            assert pages[-1].has_previous
        way_back = [pages[-1]]
        while way_back[-1].has_previous:
            cursor = way_back[-1].cursor
            way_back.append(await page_of(self.listing, selector, size, cursor, "backward"))
        assert [page.tasks for page in reversed(way_back)] == [page.tasks for page in pages]
        return [task.id for page in pages for task in page.tasks]

    async def retry(self, selector: TaskSelector) -> int:
        return sum([n async for n in self.listing.retry(selector, after(60))])

    async def stored(self, record: dict[str, Any], collection: str = "orders") -> dict[str, Any]:
        found = await self.db[f"{collection}_tasks"].find_one({"_id": record["_id"]})
        assert found is not None
        return found


@pytest.fixture
async def shop(db: Db) -> Shop:
    """Yield the tasks `invoice` and `remind` on `orders`, and `quote` on `offers`."""
    shop = Shop(db, Driver(db))
    await shop.declare("invoice")
    await shop.declare("remind")
    await shop.declare("quote", "offers")
    return shop


class TestAPage:
    async def test_holds_records_as_they_are(self, shop: Shop) -> None:
        stored = await shop.put(
            sourceDocId={"a": 1},
            status="failed",
            attempts=2,
            nextRunAt=None,
            lastError="no such customer",
            lastObservedValues={"total": 5},
        )
        (task,) = (await page_of(shop.listing, EVERYTHING, 10)).tasks
        assert (task.id, task.name, task.collection) == (stored["_id"], "invoice", "orders")
        assert (task.source_id, task.status, task.attempts) == ({"a": 1}, "failed", 2)
        assert (task.last_error, task.data, task.due_at) == ("no such customer", {"total": 5}, NOW)

    async def test_has_the_newest_first_across_collections(self, shop: Shop) -> None:
        put = [
            await shop.put(*place) for place in [("invoice",), ("quote", "offers"), ("remind",)] * 4
        ]
        assert await shop.ids() == [record["_id"] for record in reversed(put)]

    async def test_holds_still_while_records_come_and_go(self, shop: Shop) -> None:
        put = [await shop.put() for _ in range(6)]
        first = await page_of(shop.listing, EVERYTHING, 2)
        newer = await shop.put()
        await shop.db["orders_tasks"].delete_one({"_id": put[4]["_id"]})
        second = await page_of(shop.listing, EVERYTHING, 2, first.cursor)
        assert [task.id for task in second.tasks] == [put[3]["_id"], put[2]["_id"]]
        back = await page_of(shop.listing, EVERYTHING, 2, second.cursor, "backward")
        assert [task.id for task in back.tasks] == [newer["_id"], put[5]["_id"]]

    async def test_that_is_empty_is_an_end_that_records_can_be_added_to(self, shop: Shop) -> None:
        assert (await page_of(shop.listing, EVERYTHING, 2)).cursor is None
        put = [await shop.put() for _ in range(2)]
        page = await page_of(shop.listing, EVERYTHING, 2)
        beyond = await page_of(shop.listing, EVERYTHING, 2, page.cursor, "backward")
        assert (list(beyond.tasks), beyond.has_next, beyond.has_previous) == ([], True, False)
        newer = await shop.put()
        again = await page_of(shop.listing, EVERYTHING, 5, beyond.cursor, "backward")
        assert [task.id for task in again.tasks] == [newer["_id"]]
        forward = await page_of(shop.listing, EVERYTHING, 5, beyond.cursor)
        assert [task.id for task in forward.tasks] == [put[1]["_id"], put[0]["_id"]]

    async def test_misses_nothing_of_a_copied_collection(self, shop: Shop, db: Db) -> None:
        """The copy has the ids of the original, and every page ends between two equal ids."""
        copy = f"{db.name}_copy"
        await shop.declare("copied", database=copy)
        ids = [ObjectId() for _ in range(5)]
        for id in ids:
            await shop.put(_id=id)
            await shop.put("copied", database=copy, _id=id)
        expected = sorted(ids * 2, reverse=True)
        for size in (1, 2, 3):
            assert await shop.ids(size=size) == expected
        await db.client.drop_database(copy)

    async def test_leaves_out_documents_that_are_not_records(
        self, shop: Shop, caplog: pytest.LogCaptureFixture
    ) -> None:
        await shop.put()
        await shop.put(status="lost")
        await shop.put(_id="stranger")
        await shop.put(attempts="many")
        assert len((await page_of(shop.listing, EVERYTHING, 9)).tasks) == 1
        assert "is left out" in caplog.text

    async def test_cannot_be_had_with_the_cursor_of_another_list(self, shop: Shop) -> None:
        for _ in range(3):
            await shop.put()
        cursor = (await page_of(shop.listing, EVERYTHING, 1)).cursor
        assert cursor is not None
        for wrong in ("", "x", cursor[:-2], f"{cursor}A"):
            with pytest.raises(InvalidCursorError):
                await page_of(shop.listing, EVERYTHING, 1, wrong)
        with pytest.raises(InvalidCursorError, match="another filter"):
            await page_of(shop.listing, TaskSelector(name="invoice"), 1, cursor)

    async def test_can_be_had_from_every_kind_of_database(
        self, db: Db, any_db: AnyDatabase
    ) -> None:
        handle = Driver(any_db)
        shop = Shop(db, handle)
        await shop.declare("invoice")
        put = [await shop.put() for _ in range(4)]
        assert await shop.ids() == [record["_id"] for record in reversed(put)]
        await handle.dismiss_threads()


class TestChoosing:
    async def chosen(self, shop: Shop, **options: Any) -> int:
        selector = TaskSelector(**options)
        found = await shop.ids(selector)
        assert len(found) == await shop.listing.count(selector)
        return len(found)

    async def test_is_by_name_collection_and_database(self, shop: Shop, db: Db) -> None:
        for place in [("invoice",), ("invoice",), ("remind",), ("quote", "offers")]:
            await shop.put(*place)
        assert await self.chosen(shop) == 4
        assert await self.chosen(shop, name="invoice") == 2
        assert await self.chosen(shop, collection="orders") == 3
        assert await self.chosen(shop, collection="offers", name="invoice") == 0
        assert await self.chosen(shop, database=db.name) == 4
        assert await self.chosen(shop, database="elsewhere") == 0
        assert await self.chosen(shop, name="unknown") == 0

    async def test_is_by_status(self, shop: Shop) -> None:
        for status in (*TaskStatus.ALL, "failed"):
            await shop.put(status=status)
        await shop.put("quote", "offers", status="failed")
        assert await self.chosen(shop, status="failed") == 3
        assert await self.chosen(shop, status=["failed", "processing_dirty"]) == 4
        assert await self.chosen(shop, status="failed", name="invoice") == 2

    @pytest.mark.parametrize("id", [1, "$a", {"a": 1}, ObjectId("5f0000000000000000000000"), NOW])
    async def test_is_by_source_of_any_type(self, shop: Shop, id: object) -> None:
        await shop.put(sourceDocId=id)
        await shop.put("remind", sourceDocId=id)
        await shop.put("quote", "offers", sourceDocId=id)
        await shop.put()
        assert await self.chosen(shop, source_id=id) == 3
        assert await self.chosen(shop, source_id=id, name="remind") == 1

    @pytest.mark.parametrize(
        "part", ["(.*)", "a+b", "$x", "\\d", "two\nlines", "50% #1", "\0", "^", "é", "|", "x y-z"]
    )
    async def test_is_by_a_part_of_the_error_as_it_is_written(self, shop: Shop, part: str) -> None:
        await shop.put(lastError=f"before {part} after")
        await shop.put(lastError="before after")
        await shop.put(lastError=5)
        await shop.put()
        assert await self.chosen(shop, error=part) == 1

    async def test_knows_tasks_that_no_instance_has_any_more(self, shop: Shop) -> None:
        await shop.planner_state.declare(
            a_declaration(shop.db.name, "bills", "old"), NOW - timedelta(days=9)
        )
        await shop.put("old", "bills")
        assert await self.chosen(shop, name="old") == 1

    @pytest.mark.parametrize(
        ("option", "value", "words"),
        [
            ("status", "fail", "did you mean 'failed'"),
            ("status", [], "one or more of 'pending'"),
            ("status", 5, "one or more of 'pending'"),
            ("error", "", "a text that is not empty"),
            ("collection", 5, "a text that is not empty"),
            ("name", "two words", "holds whitespace"),
        ],
    )
    def test_refuses_bad_arguments(self, option: str, value: Any, words: str) -> None:
        with pytest.raises(ValueError, match=f"{option}=.*{words}"):
            TaskSelector(**{option: value})

    def test_is_the_same_however_it_is_written(self) -> None:
        one = TaskSelector(status=["failed", "pending"])
        assert one.identity == TaskSelector(status={"pending", "failed"}).identity
        assert one.identity != TaskSelector(status="failed").identity


class TestRetrying:
    @pytest.mark.parametrize("status", ["pending", "completed", "failed"])
    async def test_makes_what_is_not_running_due_at_once(self, shop: Shop, status: str) -> None:
        record = await shop.put(
            status=status, attempts=4, nextRunAt=None, lastError="bad", firstErrorAt=NOW
        )
        assert await shop.retry(TaskSelector(name="invoice")) == 1
        stored = await shop.stored(record)
        assert (stored["status"], stored["attempts"]) == ("pending", 0)
        assert stored["nextRunAt"] == after(60).replace(tzinfo=None)
        assert "firstErrorAt" not in stored

    @pytest.mark.parametrize("status", ["processing", "processing_dirty"])
    async def test_makes_what_is_running_dirty(self, shop: Shop, status: str) -> None:
        record = await shop.put(status=status, attempts=2)
        assert await shop.retry(EVERYTHING) == 1
        stored = await shop.stored(record)
        assert (stored["status"], stored["attempts"]) == ("processing_dirty", 2)
        assert stored["nextRunAt"] == record["nextRunAt"].replace(tzinfo=None)

    async def test_is_for_the_chosen_only(self, shop: Shop) -> None:
        for status in ("failed", "failed", "completed"):
            await shop.put(status=status, nextRunAt=None)
        await shop.put("quote", "offers", status="failed", nextRunAt=None)
        assert await shop.retry(TaskSelector(status="failed", collection="orders")) == 2
        assert await shop.listing.count(TaskSelector(status="pending")) == 2
        assert await shop.listing.count(TaskSelector(status="failed")) == 1

    async def test_goes_in_batches_and_meets_each_once(self, shop: Shop) -> None:
        await shop.db["orders_tasks"].insert_many(
            [
                {"task": "invoice", "sourceDocId": n, "status": "failed", "attempts": 1}
                for n in range(2_500)
            ]
        )
        batches = [n async for n in shop.listing.retry(TaskSelector(name="invoice"), NOW)]
        assert batches == [1000, 1000, 500]


class TestFigures:
    async def test_count_records_by_task_and_status(self, shop: Shop, db: Db) -> None:
        for status in (*TaskStatus.ALL, "failed"):
            await shop.put(status=status)
        await shop.put("quote", "offers", status="completed")
        await shop.put("unknown", status="completed")
        await shop.put(status="lost")
        stats = await shop.statistics.read(NOW)
        invoice, quote, remind = stats.tasks
        assert invoice == ReactiveTaskStats(
            name="invoice",
            database=db.name,
            collection="orders",
            pending=1,
            processing=1,
            processing_dirty=1,
            completed=1,
            failed=2,
            lag=timedelta(0),
            reconciling=True,
        )
        assert invoice.total == 6
        assert (quote.completed, quote.total, quote.lag) == (1, 1, None)
        assert remind.total == 0

    async def test_tell_for_how_long_the_oldest_has_been_due(self, shop: Shop) -> None:
        await shop.put(dueAt=after(-30), nextRunAt=after(600))
        await shop.put(dueAt=after(-90), status="completed")
        await shop.put(dueAt=after(-10))
        await shop.put(dueAt="soon")
        await shop.put("remind", dueAt=after(5))
        await shop.put("quote", "offers", dueAt=None)
        lags = {task.name: task.lag for task in (await shop.statistics.read(NOW)).tasks}
        assert lags == {"invoice": timedelta(seconds=30), "remind": timedelta(0), "quote": None}

    async def test_tell_of_the_planning(self, shop: Shop, db: Db) -> None:
        (invoice, *_) = await shop.planner_state.declarations(NOW)
        assert invoice.reconciliation is not None
        await shop.planner_state.mark_reconciled("invoice", invoice.reconciliation.ticket, NOW, 1)
        await shop.planner_state.set_error("invoice", "bad filter", 1)
        await shop.planner_state.park(
            ParkedDocument("invoice", db.name, "orders", None, "null", NOW), 1
        )
        (stats, *_) = (await shop.statistics.read(NOW)).tasks
        assert (stats.reconciled_at, stats.reconciling) == (NOW, False)
        assert (stats.parked, stats.error) == (1, "bad filter")

    async def test_tell_who_leads_as_long_as_someone_does(self, shop: Shop) -> None:
        assert (await shop.statistics.read(NOW)).leader is None
        await shop.leases.take(LEADER, "me", timedelta(minutes=1))
        assert (await shop.statistics.read(NOW)).leader == "me"
        await shop.leases.lay_down(LEADER, "me")
        assert (await shop.statistics.read(NOW)).leader is None

    async def test_tell_how_far_behind_the_slowest_stream_is(self, shop: Shop, db: Db) -> None:
        assert (await shop.statistics.read(NOW)).stream_lag is None
        await shop.declare("far", "orders", database="far-away")
        await shop.planner_state.save_token(db.name, {"resume": {}}, after(-5), 1)
        await shop.planner_state.save_token("far-away", {"resume": {}}, after(-60), 1)
        await shop.planner_state.save_token("forgotten", {"resume": {}}, after(-9000), 1)
        assert (await shop.statistics.read(NOW)).stream_lag == timedelta(seconds=60)

    async def test_are_none_where_nothing_is_declared(self, db: Db) -> None:
        assert await Shop(db, Driver(db)).statistics.read(NOW) == ReactiveStats(tasks=[])


@pytest.fixture(scope="module")
def crowd(uri: str) -> Iterator[str]:
    """Yield the name of a database with 20,000 records."""
    name, chance = f"test_{uuid4().hex}", random.Random(7)
    with MongoClient[dict[str, Any]](uri) as client:
        records = client[name]["orders_tasks"]
        records.create_indexes(list(task_indexes()))
        records.insert_many(
            [
                {
                    "_id": ObjectId(),
                    "task": task,
                    "sourceDocId": n,
                    "status": chance.choices(TaskStatus.ALL, [1, 1, 1, 94, 3])[0],
                    "attempts": 1,
                    "dueAt": NOW,
                }
                for n in range(5_000)
                for task in ("audit", "index", "invoice", "ship")
            ],
            ordered=False,
        )
        yield name
        client.drop_database(name)


class TestAmongMany:
    @pytest.fixture
    async def looking(self, crowd: str, uri: str) -> AsyncIterator[tuple[Shop, Plans]]:
        log = CommandLog()
        with MongoClient[dict[str, Any]](uri) as explaining:
            plans = Plans(explaining[crowd], "orders_tasks")
            log.on_sending = plans.explain
            async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
                shop = Shop(client[crowd], Driver(client[crowd]))
                for name in ("audit", "index", "invoice", "ship"):
                    await shop.declare(name)
                yield shop, plans

    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"name": "invoice"},
            {"status": "failed"},
            {"name": "invoice", "status": ["failed", "pending"]},
            {"source_id": 77},
            {"name": "ship", "source_id": 77},
        ],
        ids=str,
    )
    async def test_a_page_examines_hardly_more_than_it_returns(
        self, looking: tuple[Shop, Plans], options: dict[str, Any]
    ) -> None:
        shop, plans = looking
        selector = TaskSelector(**options)
        first = await page_of(shop.listing, selector, 20)
        second = await page_of(shop.listing, selector, 20, first.cursor)
        await page_of(shop.listing, selector, 20, second.cursor, "backward")
        assert plans.made
        for plan in plans.made:
            # Each pair of a name and a status is one index range, and one task of four is selected.
            assert "COLLSCAN" not in plan.stages, str(plan)
            assert plan.keys <= 2 * plan.returned + 2 * 20, str(plan)
            assert plan.docs <= plan.returned + 20, str(plan)
        if "source_id" not in options:
            assert_sorted_by_the_index(plans.made)

    async def test_statistics_are_counted_on_the_index(self, looking: tuple[Shop, Plans]) -> None:
        shop, plans = looking
        stats = await shop.statistics.read(NOW)
        assert sum(task.total for task in stats.tasks) == 20_000
        (plan,) = plans.made
        pending = sum(task.pending for task in stats.tasks)
        assert plan.indexes == {"monque_py_tasks_status"}, str(plan)
        assert plan.docs <= pending, str(plan)
