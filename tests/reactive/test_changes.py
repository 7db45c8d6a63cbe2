"""Which changes trigger a task, and what its run gets."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from bson import Decimal128, Int64, ObjectId

from monque_core import Monque, ReactiveOptions
from tests.support.reactions import note_runs, record_of, settle, statuses
from tests.support.tally import Tally

if TYPE_CHECKING:
    from pymongo import AsyncMongoClient
    from pymongo.asynchronous.collection import AsyncCollection
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import ReactiveTask

    Orders = AsyncCollection[dict[str, Any]]

PAID = {"status": "paid"}


async def test_a_task_runs_for_new_documents_and_changed_watched_values(
    monque: Monque, orders: Orders
) -> None:
    ran = note_runs(monque, watch=["status", "total"], filter=PAID)
    async with monque:
        await orders.insert_one({"_id": 1, "status": "open", "total": 5})
        await settle(monque)
        assert ran == []
        await orders.update_one({"_id": 1}, {"$set": PAID})
        await settle(monque)
        await orders.update_one({"_id": 1}, {"$set": {"total": 6}})
        await settle(monque)
        await orders.update_one({"_id": 1}, {"$set": {"note": "unwatched"}})
        await orders.update_one({"_id": 1}, {"$set": {"total": 6}})
        await settle(monque)
        await orders.replace_one({"_id": 1}, {"status": "paid", "total": 7, "note": "new"})
        await settle(monque)
    assert ran == [(1, {"status": "paid", "total": total}) for total in (5, 6, 7)]


async def test_without_a_watch_every_change_of_the_document_counts(
    monque: Monque, orders: Orders
) -> None:
    ran = note_runs(monque)
    async with monque:
        await orders.insert_one({"_id": 1, "total": 5})
        await settle(monque)
        await orders.update_one({"_id": 1}, {"$set": {"note": "anything"}})
        await settle(monque)
    assert ran == [(1, {"total": 5}), (1, {"note": "anything", "total": 5})]


async def test_reordered_fields_are_not_a_change(monque: Monque, orders: Orders) -> None:
    ran = note_runs(monque, watch=["a", "b"])
    async with monque:
        await orders.insert_one({"_id": 1, "a": 1, "b": 2})
        await settle(monque)
        await orders.replace_one({"_id": 1}, {"b": 2, "a": 1})
        await settle(monque)
    assert len(ran) == 1


async def test_computed_values_can_be_watched(monque: Monque, orders: Orders) -> None:
    ran = note_runs(monque, watch={"count": {"$size": "$lines"}, "customer.name": 1})
    async with monque:
        await orders.insert_one({"_id": 1, "lines": ["a"], "customer": {"name": "Ada", "age": 1}})
        await settle(monque)
        await orders.update_one({"_id": 1}, {"$set": {"lines": ["b"], "customer.age": 2}})
        await settle(monque)
        await orders.update_one({"_id": 1}, {"$push": {"lines": "c"}})
        await settle(monque)
    assert ran == [
        (1, {"count": 1, "customer": {"name": "Ada"}}),
        (1, {"count": 2, "customer": {"name": "Ada"}}),
    ]


async def test_existing_documents_run_once(monque: Monque, orders: Orders) -> None:
    await orders.insert_many([{"_id": i, "status": "paid" if i % 2 else "open"} for i in range(6)])
    ran = note_runs(monque, filter=PAID)
    async with monque:
        await settle(monque)
    async with monque:
        await settle(monque)
    assert sorted(id for id, _ in ran) == [1, 3, 5]


async def test_equal_ids_in_two_collections_of_one_batch_are_two_documents(
    db: AsyncDatabase[dict[str, Any]], client: AsyncMongoClient[dict[str, Any]]
) -> None:
    # With such a long debounce, changes may be buffered for up to half of it.
    monque = Monque(db, reactive_options=ReactiveOptions(flush_interval=0.5))
    orders = note_runs(monque, "orders", name="order", debounce=1)
    returns = note_runs(monque, "returns", name="return", debounce=1)
    async with monque:
        await settle(monque)
        async with client.start_session() as session, await session.start_transaction():
            await db.orders.insert_one({"_id": 1, "of": "order"}, session=session)
            await db.returns.insert_one({"_id": 1, "of": "return"}, session=session)
        await orders.reach(1)
        await returns.reach(1)
        await settle(monque)
    assert orders == [(1, {"of": "order"})]
    assert returns == [(1, {"of": "return"})]


async def test_two_tasks_on_one_collection_have_records_of_their_own(
    monque: Monque, orders: Orders
) -> None:
    totals = note_runs(monque, name="totals", watch=["total"])
    notes = note_runs(monque, name="notes", watch=["note"])
    async with monque:
        await orders.insert_one({"_id": 1, "total": 1, "note": "a"})
        await settle(monque)
        await orders.update_one({"_id": 1}, {"$set": {"note": "b"}})
        await settle(monque)
    assert totals == [(1, {"total": 1})]
    assert notes == [(1, {"note": "a"}), (1, {"note": "b"})]


async def test_leaving_the_filter_and_coming_back_with_equal_values_runs_again(
    monque: Monque, orders: Orders
) -> None:
    ran = note_runs(monque, watch=["total"], filter=PAID)
    async with monque:
        await orders.insert_one({"_id": 1, "status": "paid", "total": 5})
        await settle(monque)
        await orders.update_one({"_id": 1}, {"$set": {"status": "open"}})
        await settle(monque)
        assert (await record_of(monque)).values is None
        await orders.update_one({"_id": 1}, {"$set": PAID})
        await settle(monque)
    assert ran == [(1, {"total": 5})] * 2


async def test_deleting_and_inserting_again_with_the_same_id_runs_again(
    monque: Monque, orders: Orders
) -> None:
    ran = note_runs(monque)
    async with monque:
        await orders.insert_one({"_id": 1, "total": 5})
        await settle(monque)
        first = await record_of(monque)
        await orders.delete_one({"_id": 1})
        await settle(monque)
        await orders.insert_one({"_id": 1, "total": 5})
        await settle(monque)
        assert (await record_of(monque)).id == first.id
        # Also when both arrive in one batch, where only the last state is visible.
        await orders.delete_one({"_id": 1})
        await orders.insert_one({"_id": 1, "total": 5})
        await settle(monque)
    assert ran == [(1, {"total": 5})] * 3


async def test_watched_texts_that_look_like_fields_stay_texts(
    monque: Monque, orders: Orders
) -> None:
    values = {"price": "$5", "path": "$total", "system": "$$ROOT", "dots": "a.b", "total": 1}
    ran = note_runs(monque)
    async with monque:
        await orders.insert_one({"_id": "$id", **values})
        await settle(monque)
        await orders.update_one({"_id": "$id"}, {"$set": {"price": "$6"}})
        await settle(monque)
        await orders.update_one({"_id": "$id"}, {"$set": {"price": "$6"}})
        await settle(monque)
    assert ran == [("$id", values), ("$id", {**values, "price": "$6"})]


async def test_a_field_that_is_null_is_not_a_field_that_is_missing(
    monque: Monque, orders: Orders
) -> None:
    ran = note_runs(monque, watch=["total"])
    async with monque:
        await orders.insert_one({"_id": 1})
        await settle(monque)
        await orders.update_one({"_id": 1}, {"$set": {"total": None}})
        await settle(monque)
        await orders.update_one({"_id": 1}, {"$unset": {"total": ""}})
        await settle(monque)
    assert ran == [(1, {}), (1, {"total": None}), (1, {})]


OWNER = ObjectId()
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


FILTERS: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ({"owner": OWNER}, {"owner": OWNER}, {"owner": str(OWNER)}),
    ({"at": {"$gte": NEW_YEAR}}, {"at": NEW_YEAR}, {"at": datetime(2025, 12, 31, tzinfo=UTC)}),
    ({"total": None}, {"total": None}, {"total": 0}),
    ({"total": {"$exists": False}}, {}, {"total": None}),
    ({"total": {"$type": "null"}}, {"total": None}, {}),
    (
        {"lines": {"$elemMatch": {"sku": "a", "n": {"$gt": 1}}}},
        {"lines": [{"sku": "a", "n": 2}]},
        {"lines": [{"sku": "a", "n": 1}, {"sku": "b", "n": 2}]},
    ),
    ({"$expr": {"$gt": ["$paid", "$due"]}}, {"paid": 2, "due": 1}, {"paid": 1, "due": 2}),
    ({"$nor": [{"status": "open"}, {"status": "void"}]}, {"status": "paid"}, {"status": "void"}),
    ({"code": {"$regex": "^a", "$options": "i"}}, {"code": "Ab"}, {"code": "ba"}),
    ({"tags": "vip"}, {"tags": ["new", "vip"]}, {"tags": ["new"]}),
    ({"total": Decimal128("1.5")}, {"total": 1.5}, {"total": "1.5"}),
    ({"total": {"$in": [Int64(5)]}}, {"total": 5.0}, {"total": 6}),
    ({"price": "$5"}, {"price": "$5"}, {"price": "$6"}),
]


async def test_filters_mean_what_they_mean_to_the_server(
    monque: Monque, db: AsyncDatabase[dict[str, Any]]
) -> None:
    """What matches and what does not, both for a new task and for a changed document."""
    collections = {f"orders_{i}": case for i, case in enumerate(FILTERS)}
    ran = {
        name: note_runs(monque, name, name=name, filter=filter)
        for name, (filter, _, _) in collections.items()
    }

    async def insert(when: str) -> None:
        for name, (_, matching, other) in collections.items():
            documents = [{"_id": when, **matching}, {"_id": f"not {when}", **other}]
            await db[name].insert_many(documents)

    await insert("before")
    async with monque:
        await settle(monque)
        await insert("later")
        await settle(monque)
    for name, (filter, _, _) in collections.items():
        assert [id for id, _ in ran[name]] == ["before", "later"], filter


async def test_ids_of_every_type_are_planned(monque: Monque, orders: Orders) -> None:
    ids = [1, 2.5, "a", ObjectId(), NEW_YEAR, b"\x01", True, {"a": 1, "b": [1]}, Int64(2**40)]
    await orders.insert_many([{"_id": id} for id in ids])
    await orders.insert_one({"_id": "later"})
    ran = note_runs(monque)
    async with monque:
        await settle(monque)
        await orders.update_many({}, {"$set": {"n": 1}})
        await settle(monque)
    seen = [id for id, _ in ran]
    for id in [*ids[:4], *ids[5:], "later"]:
        assert sum(type(one) is type(id) and one == id for one in seen) == 2, id
    assert len(seen) == 2 * (len(ids) + 1)


async def test_a_collection_of_another_database_can_be_watched(
    monque: Monque, client: AsyncMongoClient[dict[str, Any]], db: AsyncDatabase[dict[str, Any]]
) -> None:
    other = client[f"{db.name}_other"]
    here = note_runs(monque, "orders", name="here")
    there = note_runs(monque, other.orders, name="there")
    try:
        async with monque:
            await db.orders.insert_one({"_id": 1, "where": "here"})
            await other.orders.insert_one({"_id": 1, "where": "there"})
            await settle(monque)
            await other.orders.update_one({"_id": 1}, {"$set": {"where": "still there"}})
            await settle(monque)
        assert here == [(1, {"where": "here"})]
        assert there == [(1, {"where": "there"}), (1, {"where": "still there"})]
        assert await other.orders_tasks.count_documents({"task": "there"}) == 1
        assert await db.orders_tasks.count_documents({"task": "there"}) == 0
    finally:
        await client.drop_database(other.name)


async def test_a_change_while_the_handler_runs_runs_it_once_more(
    monque: Monque, orders: Orders
) -> None:
    seen = Tally[int]()
    may_end = asyncio.Event()

    @monque.reactive("orders", name="invoice", watch=["total"], debounce=0)
    async def invoice(task: ReactiveTask) -> None:
        seen.add(task.values["total"])
        await may_end.wait()

    async with monque:
        await orders.insert_one({"_id": 1, "total": 1})
        await seen.reach(1)
        for total in (2, 3):
            await orders.update_one({"_id": 1}, {"$set": {"total": total}})
            await _until_planned(monque, total)
        assert await statuses(monque) == {1: "processing_dirty"}
        assert seen == [1]
        may_end.set()
        await settle(monque)
        assert seen == [1, 3]
        assert await statuses(monque) == {1: "completed"}


async def _until_planned(monque: Monque, total: int) -> None:
    async with asyncio.timeout(120):
        while (await record_of(monque)).values != {"total": total}:
            await asyncio.sleep(0.01)


async def test_documents_inserted_while_starting_run_once_like_those_before(
    db: AsyncDatabase[dict[str, Any]], orders: Orders
) -> None:
    monque = Monque(db, worker_concurrency=50)
    ran = note_runs(monque, debounce=0.1)
    await orders.insert_many([{"_id": i} for i in range(1000)])

    async def insert_more() -> None:
        for i in range(1000, 1500, 10):
            await orders.insert_many([{"_id": id} for id in range(i, i + 10)])

    inserting = asyncio.create_task(insert_more())
    async with monque:
        await inserting
        await ran.reach(1500)
        await settle(monque)
        assert await monque.count_reactive_tasks(name="invoice", status="completed") == 1500
    assert sorted(id for id, _ in ran) == list(range(1500))
