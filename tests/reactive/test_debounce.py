"""How long a task waits until its document stops changing."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from monque_core import Monque
from tests.support.reactions import note_runs, record_of, settle

if TYPE_CHECKING:
    from pymongo.asynchronous.collection import AsyncCollection
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core.testing import MovableClock

    Orders = AsyncCollection[dict[str, Any]]


async def test_a_burst_of_changes_causes_one_run_afterwards(
    monque: Monque, orders: Orders, clock: MovableClock
) -> None:
    ran = note_runs(monque, debounce=1)
    async with monque:
        await orders.insert_one({"_id": 1, "total": 1})
        await settle(monque)
        clock.advance(0.9)
        await orders.update_one({"_id": 1}, {"$set": {"total": 2}})
        await settle(monque)
        clock.advance(0.9)
        await settle(monque)
        assert ran == []
        clock.advance(0.1)
        await settle(monque)
        assert ran == [(1, {"total": 2})]


async def test_the_first_due_time_is_kept_when_a_run_is_postponed(
    monque: Monque, orders: Orders, clock: MovableClock
) -> None:
    note_runs(monque, debounce=1)
    began_at = clock.now()
    async with monque:
        await orders.insert_one({"_id": 1, "total": 1})
        await settle(monque)
        clock.advance(0.9)
        await orders.update_one({"_id": 1}, {"$set": {"total": 2}})
        await settle(monque)
        record = await record_of(monque)
    assert record.due_at == began_at + timedelta(seconds=1)
    assert record.next_run_at == began_at + timedelta(seconds=1.9)


async def test_a_steady_flow_of_changes_postpones_a_run_no_longer_than_max_wait(
    monque: Monque, orders: Orders, clock: MovableClock
) -> None:
    ran = note_runs(monque, debounce=1, max_wait=2.5)
    async with monque:
        await orders.insert_one({"_id": 1, "total": 0})
        await settle(monque)
        for total in range(1, 5):
            clock.advance(0.5)
            await orders.update_one({"_id": 1}, {"$set": {"total": total}})
            await settle(monque)
            assert ran == []
        clock.advance(0.5)
        await settle(monque)
        assert ran == [(1, {"total": 4})]


async def test_updates_every_20_ms_do_not_keep_a_task_from_running(
    db: AsyncDatabase[dict[str, Any]], orders: Orders
) -> None:
    monque = Monque(db)
    ran = note_runs(monque, debounce=1, max_wait=1.5)

    async def never_rest() -> None:
        for total in range(10**6):
            await orders.update_one({"_id": 1}, {"$set": {"total": total}}, upsert=True)
            await asyncio.sleep(0.02)

    async with monque:
        writing = asyncio.create_task(never_rest())
        await ran.reach(2)
        assert not writing.done()
        writing.cancel()
        await asyncio.wait([writing])
        await settle(monque)
        record = await record_of(monque)
    newest = await orders.find_one({"_id": 1})
    assert newest is not None
    assert record.values == {"total": newest["total"]}


async def test_a_change_after_a_run_is_debounced_again(
    monque: Monque, orders: Orders, clock: MovableClock
) -> None:
    ran = note_runs(monque, debounce=1)
    async with monque:
        await orders.insert_one({"_id": 1, "total": 1})
        await settle(monque)
        clock.advance(1)
        await settle(monque)
        await orders.update_one({"_id": 1}, {"$set": {"total": 2}})
        await settle(monque)
        assert ran == [(1, {"total": 1})]
        clock.advance(1)
        await settle(monque)
        assert ran == [(1, {"total": 1}), (1, {"total": 2})]
