"""Reconciliation: examining all documents of a task for missed or redefined work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from bson import ObjectId

from monque_core import Monque, MonqueError, ReactiveOptions
from tests.support.happenings import Happenings
from tests.support.reactions import note_runs, record_of, settle, statuses
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pymongo.asynchronous.collection import AsyncCollection
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core.testing import MovableClock
    from tests.support.proxy import Proxy

    Orders = AsyncCollection[dict[str, Any]]
    Db = AsyncDatabase[dict[str, Any]]

QUICK = ReactiveOptions(flush_interval=0.01, flush_size=2, leader_lease=2)


def restarted(db: Db, clock: MovableClock) -> Monque:
    """Yield a later instance, which can declare tasks differently."""
    pace = ReactiveOptions(flush_interval=0.01, flush_size=2)
    return Monque(db, clock=clock, reactive_options=pace)


async def test_a_new_task_examines_existing_documents_in_batches_and_reports_it(
    db: Db, clock: MovableClock, orders: Orders
) -> None:
    monque = restarted(db, clock)
    happenings, ran = Happenings(monque), note_runs(monque)
    # Ids of types that are never equal under a plain comparison.
    ids = [None, 1, 2.5, "a", {"b": 1}, ObjectId(), True][1:]
    await orders.insert_many([{"_id": id} for id in ids])
    async with monque:
        await settle(monque)
        stats = await monque.get_reactive_stats()
    (started,), (done,) = happenings.of("reconcile:start"), happenings.of("reconcile:complete")
    assert (started.task_name, started.reason) == ("invoice", "the task is new")
    assert (done.task_name, done.documents) == ("invoice", 6)
    assert len(ran) == 6
    assert stats.tasks[0].reconciled_at == clock.now()
    assert not stats.tasks[0].reconciling


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"filter": {"status": {"$in": ["paid", "open"]}}}, [(2, {"total": 2})]),
        ({"watch": ["status"]}, [(1, {"status": "paid"})]),
        ({"watch": ["status"], "reconcile_on_change": False}, []),
        ({"filter": {"status": "paid"}}, []),
    ],
    ids=["filter", "watch", "not asked for", "same"],
)
async def test_a_changed_filter_or_watch_examines_existing_documents(
    db: Db, clock: MovableClock, orders: Orders, changed: dict[str, Any], expected: list[Any]
) -> None:
    declared: dict[str, Any] = {"watch": ["total"], "filter": {"status": "paid"}}
    before, after = restarted(db, clock), restarted(db, clock)
    note_runs(before, **declared)
    happenings, ran = Happenings(after), note_runs(after, **{**declared, **changed})
    await orders.insert_many(
        [{"_id": 1, "status": "paid", "total": 1}, {"_id": 2, "status": "open", "total": 2}]
    )
    async with before:
        await settle(before)
    async with after:
        await settle(after)
    assert ran == expected
    reasons = [event.reason for event in happenings.of("reconcile:start")]
    assert reasons == (["its filter or watch has changed"] if expected else [])


async def test_a_narrower_filter_rearms_documents_outside_of_it(
    db: Db, clock: MovableClock, orders: Orders
) -> None:
    before, after = restarted(db, clock), restarted(db, clock)
    note_runs(before)
    ran = note_runs(after, filter={"status": "paid"})
    await orders.insert_one({"_id": 1, "status": "open"})
    async with before:
        await settle(before)
    async with after:
        await settle(after)
        record = await record_of(after)
    assert ran == []
    assert (record.values, record.unmatched_at) == (None, clock.now())


async def test_reconciliation_can_be_requested_by_name(
    monque: Monque, db: Db, orders: Orders
) -> None:
    happenings, ran = Happenings(monque), note_runs(monque)
    async with monque:
        await orders.insert_many([{"_id": 1}, {"_id": 2}])
        await settle(monque)
        # As if the change had been missed.
        await db.orders_tasks.delete_one({"sourceDocId": 2})
        await monque.reconcile("invoice")
        await settle(monque)
        (_, done) = await happenings.reach("reconcile:complete", 2)
    assert sorted(ran) == [(1, {}), (2, {}), (2, {})]
    assert (done.reason, done.documents) == ("it was requested", 2)


@pytest.mark.parametrize(("name", "error"), [("unknown", MonqueError), ("", ValueError)])
async def test_only_a_known_task_can_be_reconciled(
    monque: Monque, name: str, error: type[Exception]
) -> None:
    with pytest.raises(error, match=r"name|unknown reactive task 'unknown'"):
        await monque.reconcile(name)


def scans_beyond(id: int, command: Mapping[str, Any]) -> bool:
    place = {"$expr": {"$gt": ["$_id", {"$literal": id}]}}
    return command.get("find") == "orders" and command.get("filter") == place


async def test_the_next_leader_continues_where_the_last_one_stopped(
    db: Db, proxied_db: Db, proxy: Proxy, orders: Orders
) -> None:
    first = Monque(proxied_db, reactive_options=QUICK)
    second = Monque(db, reactive_options=QUICK)
    note_runs(first)
    note_runs(second)
    following = Happenings(second)
    await orders.insert_many([{"_id": i} for i in range(100, 120)])
    fault = proxy.strike("hold request", lambda command: scans_beyond(109, command))
    await first.start()
    await fault.strikes()
    await first.stop(timeout=0)
    async with second:
        (done,) = await following.reach("reconcile:complete")
        await eventually(lambda: _are_complete(second, 20))
    assert done.documents == 10


async def _are_complete(monque: Monque, count: int) -> bool:
    done = await statuses(monque)
    return len(done) == count and set(done.values()) == {"completed"}


async def test_changes_are_planned_during_a_scan(
    proxied_db: Db, proxy: Proxy, orders: Orders
) -> None:
    monque = Monque(proxied_db, reactive_options=QUICK)
    happenings, ran = Happenings(monque), note_runs(monque)
    await orders.insert_many([{"_id": i} for i in range(100, 110)])
    fault = proxy.strike("hold request", lambda command: scans_beyond(105, command))
    async with monque:
        await fault.strikes()
        await orders.insert_one({"_id": 1})
        await ran.wait_until(lambda: (1, {}) in ran)
        assert not happenings.of("reconcile:complete")
        fault.release()
        await happenings.reach("reconcile:complete")
        await settle(monque)
    assert sorted(ran) == [(i, {}) for i in [1, *range(100, 110)]]


async def test_a_task_that_was_undeclared_for_a_day_is_examined_again(
    monque: Monque, clock: MovableClock, orders: Orders
) -> None:
    happenings, ran = Happenings(monque), note_runs(monque)
    async with monque:
        await orders.insert_one({"_id": 1})
        await settle(monque)
        clock.advance(3 * 86400)
        await orders.insert_one({"_id": 2})
        await settle(monque)
        await orders.insert_one({"_id": 3})
        await settle(monque)
    assert ran == [(1, {}), (2, {}), (3, {})]
    assert happenings.of("reconcile:start")[-1].reason == "no instance had it for a day"


@pytest.mark.parametrize(
    ("on_version_change", "expected"),
    [("nothing", []), ("failed", [2]), ("all", [1, 2])],
)
async def test_a_new_version_reruns_the_documents_it_requests(
    db: Db, clock: MovableClock, orders: Orders, on_version_change: str, expected: list[int]
) -> None:
    before, same, after = (restarted(db, clock) for _ in range(3))

    @before.reactive("orders", name="invoice", debounce=0)
    async def invoice(task: Any) -> None:
        if task.source_id == 2:
            raise OSError("given up")

    options: Any = {"on_version_change": on_version_change}
    ran_same, ran = note_runs(same, **options), note_runs(after, version=2, **options)
    await orders.insert_many([{"_id": i} for i in (1, 2, 3)])
    async with before:
        await settle(before)
        await db.orders_tasks.update_one(
            {"sourceDocId": 2}, {"$set": {"status": "failed", "nextRunAt": None}}
        )
        # A document that is gone has nothing to run for.
        await orders.delete_one({"_id": 3})
        await settle(before)
    for instance in (same, after):
        async with instance:
            await settle(instance)
    async with after:
        await settle(after)
    assert ran_same == []
    assert sorted(id for id, _ in ran) == expected
