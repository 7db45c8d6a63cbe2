"""Documents and tasks that cannot be planned do not block the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monque_core import Monque, UnplannableError
from tests.support.happenings import Happenings
from tests.support.reactions import note_runs, settle, statuses
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pymongo.asynchronous.collection import AsyncCollection
    from pymongo.asynchronous.database import AsyncDatabase

    Orders = AsyncCollection[dict[str, Any]]
    Db = AsyncDatabase[dict[str, Any]]


async def test_a_bad_document_is_reported_and_parked_and_runs_after_its_repair(
    monque: Monque, orders: Orders
) -> None:
    happenings = Happenings(monque)
    ran = note_runs(monque, watch={"count": {"$size": "$lines"}})
    await orders.insert_many([{"_id": i, "lines": 5 if i == 7 else []} for i in range(10)])
    async with monque:
        await settle(monque)
        assert sorted(id for id, _ in ran) == [0, 1, 2, 3, 4, 5, 6, 8, 9]
        (event,) = happenings.of("task:error")
        (task,) = (await monque.get_reactive_stats()).tasks
        assert (task.parked, task.reconciling, task.error) == (1, False, None)
        # Other documents are planned as before, also in the same batch.
        await orders.update_many({"_id": {"$in": [7, 8]}}, {"$set": {"note": 1}})
        await orders.insert_one({"_id": 10, "lines": [1]})
        await settle(monque)
        assert (10, {"count": 1}) in ran
        await orders.update_one({"_id": 7}, {"$set": {"lines": [1, 2]}})
        await settle(monque)
        (task,) = (await monque.get_reactive_stats()).tasks
    assert isinstance(event.error, UnplannableError)
    assert "7" in str(event.error)
    assert ran[-1] == (7, {"count": 2})
    assert task.parked == 0


async def test_a_parked_document_is_not_planned_repeatedly(monque: Monque, orders: Orders) -> None:
    happenings, ran = Happenings(monque), note_runs(monque, watch={"count": {"$size": "$lines"}})
    async with monque:
        await orders.insert_one({"_id": 1, "lines": None})
        await settle(monque)
    async with monque:
        await orders.insert_one({"_id": 2, "lines": []})
        await settle(monque)
    assert ran == [(2, {"count": 0})]
    assert len(happenings.of("task:error")) == 1


async def test_a_task_that_cannot_be_planned_loses_nothing_until_it_can(
    monque: Monque, db: Db, orders: Orders
) -> None:
    happenings, ran = Happenings(monque), note_runs(monque)
    other = note_runs(monque, "returns", name="return")
    async with monque:
        await orders.insert_one({"_id": 1, "total": 1})
        await settle(monque)
        # A validator that no record satisfies.
        await db.command("collMod", "orders_tasks", validator={"never": True})
        await orders.update_one({"_id": 1}, {"$set": {"total": 2}})
        await orders.insert_one({"_id": 2, "total": 1})
        await happenings.reach("task:error")
        await db.returns.insert_one({"_id": 1})
        await other.reach(1)
        assert ran == [(1, {"total": 1})]
        await db.command("collMod", "orders_tasks", validator={})
        await eventually(lambda: len(ran) == 3)
        await settle(monque)
        stats = await monque.get_reactive_stats()
        assert set((await statuses(monque)).values()) == {"completed"}
    assert sorted(id for id, _ in ran) == [1, 1, 2]
    assert (1, {"total": 2}) in ran
    assert [task.error for task in stats.tasks] == [None, None]
