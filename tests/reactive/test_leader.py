"""One instance plans for all, and another one takes over when it stops."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from monque_core import Monque, ReactiveOptions
from tests.support.happenings import Happenings
from tests.support.reactions import note_runs, record_of, settle
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pymongo.asynchronous.collection import AsyncCollection
    from pymongo.asynchronous.database import AsyncDatabase

    from tests.support.proxy import Proxy

    Orders = AsyncCollection[dict[str, Any]]
    Db = AsyncDatabase[dict[str, Any]]


def instance_on(db: Db, lease: float = 6) -> Monque:
    pace = ReactiveOptions(flush_interval=0.01, flush_size=100, leader_lease=lease)
    return Monque(db, reactive_options=pace)


def plans(command: Mapping[str, Any]) -> bool:
    pipeline = command.get("pipeline") or [{}]
    return "aggregate" in command and "$merge" in pipeline[-1]


def renews(command: Mapping[str, Any]) -> bool:
    return "findAndModify" in command and command["query"].get("_id") == "reactive:leader"


def looks_at_the_lease(command: Mapping[str, Any]) -> bool:
    pipeline = command.get("pipeline") or [{}]
    return "aggregate" in command and pipeline[0].get("$match") == {"_id": "reactive:leader"}


async def test_the_leader_plans_the_tasks_of_other_processes(db: Db, orders: Orders) -> None:
    leader, other = instance_on(db), instance_on(db)
    leading, following = Happenings(leader), Happenings(other)
    ran, ran_there = note_runs(leader, "orders"), note_runs(other, "returns", name="return")
    async with leader:
        (acquired,) = await leading.reach("leader:acquired")
        async with other:
            await db.returns.insert_one({"_id": 1})
            await orders.insert_one({"_id": 2})
            await ran_there.reach(1)
            await ran.reach(1)
            stats = await other.get_reactive_stats()
    assert (ran, ran_there) == ([(2, {})], [(1, {})])
    assert stats.leader == acquired.instance_id == leader.scheduler_instance_id
    assert [task.name for task in stats.tasks] == ["invoice", "return"]
    assert not following.of("leader:acquired")
    (lost,) = leading.of("leader:lost")
    assert (lost.instance_id, lost.term) == (acquired.instance_id, acquired.term)


async def test_a_stopped_leader_hands_over_at_once(db: Db, orders: Orders) -> None:
    first, second = instance_on(db, lease=600), instance_on(db, lease=6)
    leading, following = Happenings(first), Happenings(second)
    note_runs(first)
    ran = note_runs(second)
    await first.start()
    (before,) = await leading.reach("leader:acquired")
    async with second:
        await first.stop()
        (after,) = await following.reach("leader:acquired")
        await orders.insert_one({"_id": 1})
        await ran.reach(1)
    assert after.term > before.term
    assert (await first.get_reactive_stats()).leader is None


async def test_a_scan_that_takes_longer_than_the_lease_stays_with_its_leader(
    db: Db, proxied_db: Db, proxy: Proxy, orders: Orders
) -> None:
    leader, other = instance_on(proxied_db), instance_on(db)
    leading, following = Happenings(leader), Happenings(other)
    note_runs(leader)
    note_runs(other)
    await orders.insert_many([{"_id": i} for i in range(250)])
    fault = proxy.strike("hold request", plans)
    async with leader:
        await fault.strikes()
        (acquired,) = await leading.reach("leader:acquired")
        async with other:
            lease = await db.monque_jobs_meta.find_one({"_id": "reactive:leader"})
            assert lease is not None
            ends_at = lease["expiresAt"].replace(tzinfo=UTC)
            await eventually(lambda: datetime.now(UTC) > ends_at)
            assert not leading.of("reconcile:complete")
            fault.release()
            (done,) = await leading.reach("reconcile:complete")
            await settle(leader)
            page = await leader.get_reactive_tasks(limit=250)
    assert done.documents == 250
    assert not following.of("leader:acquired")
    assert {record.planned_term for record in page.tasks} == {acquired.term}
    assert [record.attempts for record in page.tasks] == [1] * 250


async def test_late_writes_of_a_former_leader_are_ignored(
    db: Db, proxied_db: Db, proxy: Proxy, orders: Orders
) -> None:
    former, successor = instance_on(proxied_db, lease=2), instance_on(db, lease=2)
    leading, following = Happenings(former), Happenings(successor)
    ran = note_runs(former)
    ran_there = note_runs(successor)
    await orders.insert_many([{"_id": i, "total": 1} for i in range(5)])
    held = proxy.strike("hold request", plans)
    async with former:
        await held.strikes()
        # The lease can neither be renewed nor acquired again at once.
        faults = [proxy.strike("hold request", test) for test in (renews, looks_at_the_lease)]
        async with successor:
            (lost,) = await leading.reach("leader:lost")
            (acquired,) = await following.reach("leader:acquired")
            assert acquired.term > lost.term
            await following.reach("reconcile:complete")
            await eventually(lambda: len(ran) + len(ran_there) == 5)
            await settle(successor)
            before = await db.orders_tasks.find({}, sort=[("_id", 1)]).to_list()
            for fault in (held, *faults):
                fault.release()
            await asyncio.sleep(0.5)
            after = await db.orders_tasks.find({}, sort=[("_id", 1)]).to_list()
            await orders.update_many({}, {"$set": {"total": 2}})
            await eventually(lambda: len(ran) + len(ran_there) == 10)
            stats = await successor.get_reactive_stats()
    assert after == before
    assert {record["plannedTerm"] for record in before} == {acquired.term}
    assert stats.leader == successor.scheduler_instance_id
    totals = sorted((id, values["total"]) for id, values in [*ran, *ran_there])
    assert totals == [(i, total) for i in range(5) for total in (1, 2)]


async def test_a_task_that_is_registered_after_the_start_is_planned_too(
    monque: Monque, db: Db, orders: Orders
) -> None:
    happenings = Happenings(monque)
    await orders.insert_one({"_id": 1})
    await db.returns.insert_one({"_id": 2})
    async with monque:
        await settle(monque)
        assert not happenings.of("leader:acquired")
        first = note_runs(monque)
        await settle(monque)
        second, third = note_runs(monque, name="second"), note_runs(monque, "returns", name="third")
        await settle(monque)
        await orders.insert_one({"_id": 3})
        await db.returns.insert_one({"_id": 4})
        await settle(monque)
    assert first == second == [(1, {}), (3, {})]
    assert third == [(2, {}), (4, {})]


async def test_changes_without_a_running_instance_are_planned_at_the_next_start(
    monque: Monque, orders: Orders
) -> None:
    happenings, ran = Happenings(monque), note_runs(monque)
    async with monque:
        await orders.insert_many([{"_id": i, "total": 1} for i in range(3)])
        await settle(monque)
    await orders.update_one({"_id": 0}, {"$set": {"total": 2}})
    await orders.delete_one({"_id": 1})
    await orders.insert_one({"_id": 3, "total": 1})
    ran.clear()
    async with monque:
        await settle(monque)
        gone = await record_of(monque, 1)
    assert sorted(ran) == [(0, {"total": 2}), (3, {"total": 1})]
    assert gone.unmatched_at is not None
    # From the stream alone: the task was reconciled only when it was new.
    assert len(happenings.of("reconcile:start")) == 1


async def test_a_flush_whose_reply_is_lost_is_planned_again_and_runs_once(
    proxied_db: Db, proxy: Proxy, orders: Orders
) -> None:
    monque = instance_on(proxied_db)
    happenings, ran = Happenings(monque), note_runs(monque)
    async with monque:
        await settle(monque)
        fault = proxy.strike("lose reply", plans)
        await orders.insert_many([{"_id": i} for i in range(5)])
        await fault.strikes()
        await ran.reach(5)
        await settle(monque)
        first = await record_of(monque, 0)
    assert sorted(ran) == [(i, {}) for i in range(5)]
    (acquired,) = happenings.of("leader:acquired")
    # In a new term, so that pending writes of a former leader are refused.
    assert (first.planned_term or 0) > acquired.term
