"""When the records of deleted documents are deleted."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from monque_core import Monque, MonqueOptions, ReactiveOptions
from monque_core.reactive import Cleanup
from tests.support.reactions import note_runs, record_of, settle, statuses
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pymongo.asynchronous.collection import AsyncCollection
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core.testing import MovableClock

    Orders = AsyncCollection[dict[str, Any]]


@pytest.fixture
def monque_options() -> MonqueOptions:
    """Search often, because the clock is moved by hand."""
    return {"reactive_options": ReactiveOptions(flush_interval=0.01, cleanup_interval=0.1)}


async def remaining(monque: Monque) -> list[Any]:
    return sorted(await statuses(monque))


@pytest.mark.parametrize(
    ("when", "left"),
    [
        ("deleted", ["left", "stays"]),
        ("unmatched", ["stays"]),
        ("never", ["deleted", "left", "stays"]),
    ],
)
async def test_records_are_deleted_long_enough_after_their_documents(
    monque: Monque,
    db: AsyncDatabase[dict[str, Any]],
    orders: Orders,
    clock: MovableClock,
    when: Any,
    left: list[str],
) -> None:
    note_runs(monque, filter={"status": "paid"}, cleanup=Cleanup(when, keep_for=60))
    every = ["deleted", "left", "stays"]
    async with monque:
        await orders.insert_many([{"_id": id, "status": "paid"} for id in every])
        await settle(monque)
        await orders.delete_one({"_id": "deleted"})
        await orders.update_one({"_id": "left"}, {"$set": {"status": "open"}})
        await settle(monque)
        clock.advance(59)
        await _has_been_cleaned(db)
        assert await remaining(monque) == every
        clock.advance(1)
        await _has_been_cleaned(db)
        await eventually(lambda: _are(monque, left))


async def _are(monque: Monque, ids: list[str]) -> bool:
    return await remaining(monque) == ids


async def _has_been_cleaned(db: AsyncDatabase[dict[str, Any]]) -> None:
    """Wait for another cleanup pass, which deletes expired records unless `expected` is empty."""
    long_ago = datetime(2000, 1, 1, tzinfo=UTC)
    stale = {"task": "invoice", "sourceDocId": "stale", "status": "completed"}
    await db.orders_tasks.insert_one({**stale, "unmatchedAt": long_ago, "updatedAt": long_ago})
    cleanup = await db.monque_jobs_meta.find_one({"_id": "reactive:task:invoice"})
    assert cleanup is not None
    if cleanup["cleanup"]["when"] == "never":
        await db.orders_tasks.delete_one({"sourceDocId": "stale"})
        await asyncio.sleep(0.3)
        return

    async def is_gone() -> bool:
        return await db.orders_tasks.count_documents({"sourceDocId": "stale"}) == 0

    await eventually(is_gone)


async def test_by_default_they_are_kept_for_a_day(
    monque: Monque, orders: Orders, clock: MovableClock
) -> None:
    note_runs(monque)
    async with monque:
        await orders.insert_one({"_id": 1})
        await settle(monque)
        await orders.delete_one({"_id": 1})
        await settle(monque)
        gone = await record_of(monque)
        assert gone.unmatched_at == clock.now()
        clock.advance(86400)
        await eventually(lambda: _are(monque, []))


async def test_without_retention_they_are_deleted_at_once(monque: Monque, orders: Orders) -> None:
    note_runs(monque, cleanup=Cleanup(keep_for=0))
    async with monque:
        await orders.insert_many([{"_id": 1}, {"_id": 2}])
        await settle(monque)
        await orders.delete_one({"_id": 1})
        await eventually(lambda: _are_only_two(monque))


async def _are_only_two(monque: Monque) -> bool:
    return await remaining(monque) == [2]


async def test_a_document_that_comes_back_keeps_its_record(
    monque: Monque, orders: Orders, clock: MovableClock
) -> None:
    ran = note_runs(monque, cleanup=Cleanup(keep_for=60))
    async with monque:
        await orders.insert_many([{"_id": "back"}, {"_id": "gone"}])
        await settle(monque)
        before = await record_of(monque, "back")
        await orders.delete_many({})
        await settle(monque)
        clock.advance(30)
        await orders.insert_one({"_id": "back"})
        await settle(monque)
        clock.advance(31)
        await eventually(lambda: _are(monque, ["back"]))
        after = await record_of(monque, "back")
    assert (after.id, after.unmatched_at) == (before.id, None)
    assert ran.count(("back", {})) == 2


async def test_records_of_documents_deleted_without_an_event_are_deleted(
    db: Any, clock: MovableClock, orders: Orders
) -> None:
    pace = ReactiveOptions(flush_interval=0.01, cleanup_interval=3600)
    monque = Monque(db, clock=clock, reactive_options=pace)
    note_runs(monque, cleanup=Cleanup(keep_for=0))
    await orders.insert_many([{"_id": 1}, {"_id": 2}])
    async with monque:
        await settle(monque)
    await orders.delete_one({"_id": 1})
    # No event will report this deletion.
    await db.monque_jobs_meta.delete_one({"_id": f"reactive:stream:{db.name}"})
    async with monque:
        await eventually(lambda: _are_only_two(monque))
