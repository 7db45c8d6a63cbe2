"""Changes that the stream cannot report: the oplog rolled over, or the collection is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pymongo.errors import OperationFailure

from monque_core import Monque, ReactiveOptions
from tests.support.happenings import Happenings
from tests.support.reactions import note_runs, record_of, settle, statuses
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pymongo import AsyncMongoClient
    from pymongo.asynchronous.collection import AsyncCollection
    from pymongo.asynchronous.database import AsyncDatabase

    Orders = AsyncCollection[dict[str, Any]]
    Db = AsyncDatabase[dict[str, Any]]

QUICK = ReactiveOptions(flush_interval=0.01, leader_lease=3)


async def push_out_of_the_oplog(db: Db, token: Any) -> None:
    """Write until the server has dropped the history after a resume token."""
    filling = [{"fill": "x" * 10**6} for _ in range(10)]

    async def is_forgotten() -> bool:
        await db.other.insert_many([dict(one) for one in filling])
        try:
            async with await db.watch(start_after=token, max_await_time_ms=10) as stream:
                await stream.try_next()
        except OperationFailure as error:
            return error.code == 286
        return False

    await eventually(is_forgotten)


async def test_a_dropped_history_is_reconciled(forgetful_db: Db) -> None:
    monque = Monque(forgetful_db, reactive_options=QUICK)
    happenings, ran = Happenings(monque), note_runs(monque)
    orders = forgetful_db.orders
    await orders.insert_many([{"_id": i, "total": 1} for i in range(4)])
    async with monque:
        await settle(monque)
    ran.clear()
    async with await forgetful_db.watch() as stream:
        token = stream.resume_token
    await orders.update_one({"_id": 1}, {"$set": {"total": 2}})
    await orders.delete_one({"_id": 2})
    await orders.insert_one({"_id": 4, "total": 1})
    await push_out_of_the_oplog(forgetful_db, token)
    async with monque:
        await settle(monque)
        gone = await record_of(monque, 2)
        await orders.insert_one({"_id": 2, "total": 1})
        await settle(monque)
    assert sorted(ran[:2]) == [(1, {"total": 2}), (4, {"total": 1})]
    assert ran[2:] == [(2, {"total": 1})]
    assert gone.unmatched_at is not None
    assert any("cannot be resumed" in str(one.error) for one in happenings.of("task:error"))
    assert [event.reason for event in happenings.of("reconcile:start")] == [
        "the task is new",
        "the history of changes is lost",
    ]


@pytest.mark.parametrize("token", [{"_data": "nonsense"}, {"_data": "82" + "00" * 30}, {}])
async def test_an_unusable_resume_token_is_reconciled(
    monque: Monque, db: Db, orders: Orders, token: dict[str, str]
) -> None:
    ran = note_runs(monque)
    async with monque:
        await orders.insert_one({"_id": 1})
        await settle(monque)
    await db.monque_jobs_meta.update_one(
        {"_id": f"reactive:stream:{db.name}"}, {"$set": {"token": token}}
    )
    await orders.insert_one({"_id": 2})
    async with monque:
        await settle(monque)
        await orders.insert_one({"_id": 3})
        await settle(monque)
    assert ran == [(1, {}), (2, {}), (3, {})]


@pytest.mark.parametrize("is_running", [True, False], ids=["while running", "while stopped"])
async def test_a_dropped_and_recreated_collection_runs_again(
    monque: Monque, db: Db, orders: Orders, is_running: bool
) -> None:
    ran = note_runs(monque)
    other = note_runs(monque, "returns", name="return")
    await orders.insert_many([{"_id": i} for i in range(3)])
    await db.returns.insert_one({"_id": 1})
    async with monque:
        await settle(monque)
        if is_running:
            await orders.drop()
            await orders.insert_many([{"_id": i} for i in range(2)])
            await settle(monque)
    if not is_running:
        await orders.drop()
        await orders.insert_many([{"_id": i} for i in range(2)])
    async with monque:
        await settle(monque)
        gone = await record_of(monque, 2)
    assert sorted(ran) == [(0, {}), (0, {}), (1, {}), (1, {}), (2, {})]
    assert gone.unmatched_at is not None
    assert other == [(1, {})]


async def test_a_renamed_collection_is_a_new_collection(
    monque: Monque, db: Db, orders: Orders
) -> None:
    ran = note_runs(monque)
    await orders.insert_one({"_id": 1, "of": "orders"})
    await db.imported.insert_many([{"_id": 1, "of": "orders"}, {"_id": 2, "of": "imported"}])
    async with monque:
        await settle(monque)
        await db.imported.rename("orders", dropTarget=True)
        await settle(monque)
    assert sorted(ran, key=str) == [
        (1, {"of": "orders"}),
        (1, {"of": "orders"}),
        (2, {"of": "imported"}),
    ]


async def test_the_database_of_the_documents_may_be_dropped_and_filled_again(
    monque: Monque, client: AsyncMongoClient[dict[str, Any]], db: Db
) -> None:
    shop = client[f"{db.name}_shop"]
    ran = note_runs(monque, shop.orders)
    try:
        await shop.orders.insert_one({"_id": 1})
        async with monque:
            await settle(monque)
            await client.drop_database(shop)
            await shop.orders.insert_many([{"_id": 1}, {"_id": 2}])
            await eventually(lambda: len(ran) == 3)
            await shop.orders.update_one({"_id": 2}, {"$set": {"total": 1}})
            await settle(monque)
            assert await statuses(monque) == {1: "completed", 2: "completed"}
        assert sorted(ran[:3]) == [(1, {}), (1, {}), (2, {})]
        assert ran[3:] == [(2, {"total": 1})]
    finally:
        await client.drop_database(shop)


async def test_everything_may_be_dropped_and_filled_again(
    client: AsyncMongoClient[dict[str, Any]], db: Db, orders: Orders
) -> None:
    monque = Monque(db, reactive_options=ReactiveOptions(flush_interval=0.01, leader_lease=1.5))
    ran = note_runs(monque)
    await orders.insert_one({"_id": 1})
    async with monque:
        await settle(monque)
        await client.drop_database(db)
        await orders.insert_many([{"_id": 1}, {"_id": 2}])
        await eventually(lambda: len(ran) == 3)
        await orders.update_one({"_id": 2}, {"$set": {"total": 1}})
        await eventually(lambda: len(ran) == 4)
    assert sorted(ran[:3]) == [(1, {}), (1, {}), (2, {})]
    assert ran[3:] == [(2, {"total": 1})]
