"""Processes that are killed or frozen in the middle of their work."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

from monque_core import Fixed, Monque, ReactiveOptions
from tests.support.happenings import Happenings
from tests.support.reactions import note_runs, record_of, settle, statuses
from tests.support.reactive_process import ReactiveProcess
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pymongo.asynchronous.collection import AsyncCollection
    from pymongo.asynchronous.database import AsyncDatabase

    from tests.support.proxy import Proxy

    Orders = AsyncCollection[dict[str, Any]]
    Db = AsyncDatabase[dict[str, Any]]

PACE: dict[str, Any] = {"flush_interval": 0.01, "leader_lease": 1.5, "visibility_timeout": 1.5}


def survivor_of(db: Db) -> Monque:
    return Monque(db, reactive_options=ReactiveOptions(**PACE))


def plans(command: Mapping[str, Any]) -> bool:
    """Return whether a command writes records for at least one document."""
    pipeline = command.get("pipeline") or [{}]
    return "aggregate" in command and "$merge" in pipeline[-1]


async def test_a_leader_killed_during_a_flush_loses_nothing_and_its_late_write_is_refused(
    db: Db, proxy: Proxy, orders: Orders
) -> None:
    survivor = survivor_of(db)
    happenings, ran = Happenings(survivor), note_runs(survivor)
    async with ReactiveProcess(proxy.uri, db.name, "quick", pace=PACE) as leader:
        await leader.hear("leads")
        async with survivor:
            fault = proxy.strike("hold request", plans)
            await orders.insert_many([{"_id": i} for i in range(5)])
            await fault.strikes()
            leader.kill()
            await happenings.reach("leader:acquired")
            await ran.reach(5)
            await settle(survivor)
            before = await db.orders_tasks.find({}, sort=[("_id", 1)]).to_list()
            fault.release()
            await _reaches_the_server(db)
            after = await db.orders_tasks.find({}, sort=[("_id", 1)]).to_list()
    assert sorted(ran) == [(i, {}) for i in range(5)]
    assert not leader.of("ran")
    assert after == before
    assert len(before) == 5


def saves_a_token(command: Mapping[str, Any]) -> bool:
    key = command.get("query", {}).get("_id")
    return "findAndModify" in command and str(key).startswith("reactive:stream:")


async def test_a_leader_killed_before_saving_its_token_causes_no_second_planning(
    db: Db, proxy: Proxy, orders: Orders
) -> None:
    async with ReactiveProcess(proxy.uri, db.name, "quick", pace=PACE) as leader:
        await leader.hear("leads")
        await orders.insert_one({"_id": 1})
        await leader.hear("completed")
        fault = proxy.strike("hold request", saves_a_token)
        async with db.client.start_session() as session, await session.start_transaction():
            await orders.delete_one({"_id": 1}, session=session)
            await orders.insert_one({"_id": 1}, session=session)
        await leader.hear("completed", 2)
        await fault.strikes()
        leader.kill()
    survivor = survivor_of(db)
    happenings, ran = Happenings(survivor), note_runs(survivor)
    async with survivor:
        await happenings.reach("leader:acquired")
        await settle(survivor)
        assert ran == []
        await orders.delete_one({"_id": 1})
        await orders.insert_one({"_id": 1})
        await settle(survivor)
    assert ran == [(1, {})]


async def _reaches_the_server(db: Db) -> None:
    """Wait until the server has no running aggregation of a dead leader."""
    await asyncio.sleep(0.2)
    pipeline: list[dict[str, Any]] = [
        {"$currentOp": {}},
        {"$match": {"ns": f"{db.name}.orders", "command.pipeline.$merge": {"$exists": True}}},
    ]

    async def is_over() -> bool:
        return not await (await db.client.admin.aggregate(pipeline)).to_list()

    await eventually(is_over)


async def test_a_worker_killed_in_the_middle_of_a_run_is_taken_over(
    db: Db, uri: str, orders: Orders
) -> None:
    survivor = survivor_of(db)
    ran = note_runs(survivor, retry=Fixed(1))
    await orders.insert_one({"_id": 1})
    async with ReactiveProcess(uri, db.name, "waits", pace=PACE) as worker:
        await worker.hear("ran")
        async with survivor:
            worker.kill()
            await ran.reach(1)
            await settle(survivor)
            record = await record_of(survivor)
    assert (record.status, record.attempts) == ("completed", 2)
    assert [entry.status for entry in record.history] == ["interrupted", "completed"]
    assert ran == [(1, {})]


async def test_a_task_that_kills_every_process_is_given_up(
    db: Db, uri: str, orders: Orders
) -> None:
    await orders.insert_one({"_id": 1})
    pace = {**PACE, "visibility_timeout": 0.5, "leader_lease": 0.5}
    for _ in range(2):
        async with ReactiveProcess(uri, db.name, "kills", pace=pace, max_attempts=2) as victim:
            await victim.end()
            assert victim.of("ran")
    survivor = Monque(db, reactive_options=ReactiveOptions(**pace))
    happenings = Happenings(survivor)
    ran = note_runs(survivor, retry=Fixed(1, max_attempts=2))
    async with survivor:
        (failed,) = await happenings.reach("task:fail")
        await settle(survivor)
        record = await record_of(survivor)
    assert (record.status, record.attempts, record.next_run_at) == ("failed", 2, None)
    assert "died" in (record.last_error or "")
    assert (failed.task.source_id, failed.will_retry) == (1, False)
    assert ran == []


async def test_a_frozen_worker_that_wakes_after_its_lock_expired_changes_nothing(
    db: Db, uri: str, orders: Orders
) -> None:
    survivor = survivor_of(db)
    ran = note_runs(survivor)
    await orders.insert_one({"_id": 1})
    async with ReactiveProcess(uri, db.name, "waits", pace=PACE) as frozen:
        await frozen.hear("ran")
        async with survivor:
            frozen.freeze()
            await ran.reach(1)
            await settle(survivor)
            before = await db.orders_tasks.find_one({})
            # Its run ends at the moment it resumes, before or after it notices the loss.
            frozen.let_runs_end()
            frozen.thaw()
            errors = await frozen.hear("error")
            after = await db.orders_tasks.find_one({})
        assert "OwnershipLostError" in {error["kind"] for error in errors}
        assert not frozen.of("completed")
    assert after == before
    assert before is not None
    assert (before["status"], before["attempts"]) == ("completed", 2)


async def test_killing_the_leader_under_load_loses_no_change_and_repeats_only_its_runs(
    db: Db, uri: str, orders: Orders
) -> None:
    survivor = survivor_of(db)
    ran = note_runs(survivor, retry=Fixed(0.01), history=20)
    count = 150

    async def insert_all() -> None:
        for i in range(0, count, 3):
            await orders.insert_many([{"_id": id} for id in range(i, i + 3)])
            await asyncio.sleep(0.005)

    async with ReactiveProcess(uri, db.name, "quick", pace=PACE, history=20) as leader:
        await leader.hear("leads")
        async with survivor:
            inserting = asyncio.create_task(insert_all())
            await leader.hear("ran", 20)
            leader.kill()
            await leader.end()
            await inserting

            async def is_done() -> bool:
                done = await statuses(survivor)
                return len(done) == count and set(done.values()) == {"completed"}

            await eventually(is_done)
            await settle(survivor)
            page = await survivor.get_reactive_tasks(limit=count)
    runs = Counter(line["id"] for line in leader.of("ran")) + Counter(id for id, _ in ran)
    assert sorted(runs) == list(range(count))
    for record in page.tasks:
        interrupted = sum(entry.status == "interrupted" for entry in record.history)
        assert 1 <= runs[record.source_id] <= 1 + interrupted, record


async def test_stopping_the_leader_under_load_loses_no_change_and_repeats_no_run(
    db: Db, orders: Orders
) -> None:
    leader, survivor = survivor_of(db), survivor_of(db)
    leading, following = Happenings(leader), Happenings(survivor)
    ran, ran_there = note_runs(leader), note_runs(survivor)
    count = 150

    async def insert_all() -> None:
        for i in range(0, count, 3):
            await orders.insert_many([{"_id": id} for id in range(i, i + 3)])
            await asyncio.sleep(0.005)

    await leader.start()
    await leading.reach("leader:acquired")
    async with survivor:
        inserting = asyncio.create_task(insert_all())
        await ran.reach(20)
        await leader.stop()
        await following.reach("leader:acquired")
        await inserting
        await eventually(lambda: len(ran) + len(ran_there) >= count)
        await settle(survivor)
        assert set((await statuses(survivor)).values()) == {"completed"}
    assert sorted(id for id, _ in [*ran, *ran_there]) == list(range(count))
