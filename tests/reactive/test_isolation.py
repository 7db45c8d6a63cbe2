"""A failure in one task or document does not harm the others."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from bson.binary import UuidRepresentation
from pymongo import AsyncMongoClient

from monque_core import Job, Monque, MonqueConnectionError, ReactiveOptions, ReactiveTask
from monque_core.reactive.leader import Leadership
from tests.support.happenings import Happenings
from tests.support.leftovers import Leftovers
from tests.support.reactions import note_runs, record_of, settle
from tests.support.tally import Tally
from tests.support.waiting import eventually

if TYPE_CHECKING:
    import pytest
    from pymongo.asynchronous.collection import AsyncCollection
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core.store.leases import Grant

    Orders = AsyncCollection[dict[str, Any]]

QUICK = ReactiveOptions(flush_interval=0.01)


async def test_repeated_run_until_idle_leaves_nothing_behind(
    monque: Monque, orders: Orders
) -> None:
    ran = note_runs(monque)
    happenings = Happenings(monque)
    before = Leftovers()
    for number in range(10):
        await orders.insert_one({"_id": number})
        await settle(monque)
        assert not before.tasks
        assert len(happenings.of("leader:lost")) == number + 1
    assert sorted(source_id for source_id, _ in ran) == list(range(10))


async def test_ids_are_told_apart_by_the_codec_of_the_users_handle(
    uri: str, db: AsyncDatabase[dict[str, Any]]
) -> None:
    options: dict[str, Any] = {"uuidRepresentation": "standard"}
    async with AsyncMongoClient[dict[str, Any]](uri, **options) as client:
        assert client.codec_options.uuid_representation == UuidRepresentation.STANDARD
        monque = Monque(client[db.name], reactive_options=QUICK)
        ran = note_runs(monque)
        async with monque:
            await settle(monque)
            source_id = uuid4()
            await client[db.name]["orders"].insert_one({"_id": source_id})
            await settle(monque)
        assert [key for key, _ in ran] == [source_id]


async def test_a_throttled_task_takes_no_slot_from_jobs(
    db: AsyncDatabase[dict[str, Any]], orders: Orders
) -> None:
    monque = Monque(db, instance_concurrency=1, reactive_options=QUICK)
    throttled, jobs = Tally[Any](), Tally[int]()

    @monque.reactive("orders", name="invoice", debounce=0)
    async def invoice(task: ReactiveTask) -> None:
        throttled.add(task.source_id)
        task.throttle(3600)

    @monque.worker("send")
    async def send(job: Job[int]) -> None:
        jobs.add(job.data)

    async with monque:
        await orders.insert_many([{"_id": 1}, {"_id": 2}])
        await throttled.reach(1)
        await monque.enqueue_many("send", range(20))
        await jobs.reach(20)
        # `run_until_idle` does not wait for it: it is due only in an hour.
        await settle(monque)
        assert len(throttled) == 1


async def test_neither_jobs_nor_tasks_starve_in_the_last_slot(
    db: AsyncDatabase[dict[str, Any]], orders: Orders
) -> None:
    monque = Monque(db, instance_concurrency=1, reactive_options=QUICK)
    turns = Tally[str]()

    @monque.reactive("orders", name="same", debounce=0)
    async def invoice(task: ReactiveTask) -> None:
        turns.add("task")
        await asyncio.sleep(0.01)

    @monque.worker("same")
    async def send(job: Job[int]) -> None:
        turns.add("job")
        await asyncio.sleep(0.01)

    await orders.insert_many([{"_id": n} for n in range(40)])
    await monque.enqueue_many("same", range(40))
    async with monque:
        await turns.reach(80)
    both_at_work = turns[turns.index("task") :][:30]
    assert both_at_work.count("task") >= 8
    assert both_at_work.count("job") >= 8


async def test_a_task_that_cannot_be_declared_does_not_block_others(
    monque: Monque, db: AsyncDatabase[dict[str, Any]], orders: Orders
) -> None:
    await db["accounts_tasks"].create_index([("other", 1)], name="monque_py_tasks_source")
    happenings = Happenings(monque)
    refused = note_runs(monque, "accounts", name="refused")
    ran = note_runs(monque)
    async with monque:
        await happenings.reach("task:error", 1)
        await orders.insert_one({"_id": 1})
        await settle(monque)
        assert [source_id for source_id, _ in ran] == [1]
        await db["accounts"].insert_one({"_id": 2})
        await db["accounts_tasks"].drop_index("monque_py_tasks_source")
        await refused.reach(1)
    assert "'refused'" in str(happenings.of("task:error")[0].error)


async def test_a_deferral_interrupted_by_a_stop_is_not_a_failure(
    monque: Monque, orders: Orders
) -> None:
    happenings = Happenings(monque)
    started = asyncio.Event()

    @monque.reactive("orders", name="invoice", debounce=0)
    async def invoice(task: ReactiveTask) -> None:
        task.defer(3600)
        started.set()
        await asyncio.sleep(3600)

    async with monque:
        await orders.insert_one({"_id": 1})
        await started.wait()
        await monque.stop(0.1)
    record = await record_of(monque)
    assert (record.status, record.attempts, record.last_error) == ("pending", 0, None)
    assert record.next_run_at is not None
    assert record.due_at is not None
    assert (record.next_run_at - record.due_at).total_seconds() > 3000
    assert not happenings.of("task:fail")
    assert not happenings.of("task:error")


async def test_a_wait_for_planning_survives_a_failure_of_planning(
    monque: Monque, orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = note_runs(monque)
    async with monque:
        await settle(monque)
        progress = monque._store.tasks.planner_state
        read, faults = progress.declarations, [MonqueConnectionError("as told")]

        async def read_badly_once(now: Any) -> Any:
            if faults:
                raise faults.pop()
            return await read(now)

        monkeypatch.setattr(progress, "declarations", read_badly_once)
        await orders.insert_one({"_id": 1})
        await settle(monque)
        assert [source_id for source_id, _ in ran] == [1]


async def test_scans_and_changes_use_the_same_declaration(
    db: AsyncDatabase[dict[str, Any]], orders: Orders
) -> None:
    pace = ReactiveOptions(flush_interval=0.01, leader_lease=3)
    leader = Monque(db, reactive_options=pace)
    other = Monque(db, reactive_options=pace)
    note_runs(leader, filter={"status": "paid"})
    ran = note_runs(other, filter={"status": {"$in": ["paid", "sent"]}})
    await orders.insert_one({"_id": 1, "status": "new"})
    async with leader:
        await settle(leader)
        happenings = Happenings(leader)
        async with other:
            await happenings.reach("reconcile:complete", 1)
            await orders.update_one({"_id": 1}, {"$set": {"status": "sent"}})
            await eventually(lambda: bool(ran) or bool(leader_ran(happenings)))


def leader_ran(happenings: Happenings) -> list[Any]:
    return happenings.of("task:complete") + happenings.of("task:skipped")


async def test_on_a_server_without_change_streams_a_long_scan_comes_to_its_end(
    standalone_db: AsyncDatabase[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monque_core.reactive.follower._UNWATCHED_GAP", 0.02)
    await standalone_db["orders"].insert_many([{"_id": n} for n in range(60)])
    monque = Monque(
        standalone_db, reactive_options=ReactiveOptions(flush_size=1, flush_interval=0.01)
    )
    ran = note_runs(monque)
    happenings = Happenings(monque)
    async with monque:
        await happenings.reach("reconcile:complete", 1)
        await ran.reach(60)
    assert sorted(source_id for source_id, _ in ran) == list(range(60))


async def test_a_late_reply_does_not_revert_the_term(
    monque: Monque, monkeypatch: pytest.MonkeyPatch
) -> None:
    await monque.initialize()
    leases = monque._store.leases
    leadership = Leadership(leases, "me", QUICK.leader_lease)  # type: ignore[arg-type]  # made a timedelta
    assert await leadership.take()
    first = leadership.term
    take, may_arrive = leases.take, asyncio.Event()

    async def arrive_late(*given: Any, **more: Any) -> Grant | None:
        grant = await take(*given, **more)
        if not more.get("new_term"):
            await may_arrive.wait()
        return grant

    monkeypatch.setattr(leases, "take", arrive_late)
    renewing = asyncio.create_task(leadership.take())
    await asyncio.sleep(0.05)
    await leadership.begin_term()
    second = leadership.term
    may_arrive.set()
    assert await renewing
    assert leadership.term == second > first
