"""Starting and stopping, on every kind of handle and server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from monque_core import Job, Monque, ReactiveOptions, ReactiveTask, SyncMonque, SyncReactiveTask
from tests.support.happenings import Happenings
from tests.support.leftovers import Leftovers
from tests.support.patience import wait_until
from tests.support.reactions import note_runs, record_of, settle, statuses
from tests.support.tally import Tally
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pymongo.asynchronous.collection import AsyncCollection
    from pymongo.asynchronous.database import AsyncDatabase
    from pymongo.database import Database

    Orders = AsyncCollection[dict[str, Any]]
    Db = AsyncDatabase[dict[str, Any]]

QUICK = ReactiveOptions(flush_interval=0.01)


async def test_every_kind_of_handle_works(any_db: Any, orders: Orders) -> None:
    monque = Monque(any_db, reactive_options=QUICK)
    # A collection object names a collection as well as a text does.
    ran = note_runs(monque, any_db["orders"])
    async with monque:
        await orders.insert_one({"_id": 1})
        await ran.reach(1)
        await orders.update_one({"_id": 1}, {"$set": {"total": 1}})
        await ran.reach(2)
        await settle(monque)
        assert await statuses(monque) == {1: "completed"}
    assert ran == [(1, {}), (1, {"total": 1})]


async def test_without_change_streams_the_server_is_polled(
    standalone_db: Db,
) -> None:
    monque = Monque(standalone_db, reactive_options=QUICK)
    happenings, ran = Happenings(monque), note_runs(monque)
    await standalone_db.orders.insert_one({"_id": 1})
    async with monque:
        await happenings.reach("changestream:fallback")
        await settle(monque)
        assert ran == [(1, {})]
        await standalone_db.orders.update_one({"_id": 1}, {"$set": {"total": 1}})
        await standalone_db.orders.insert_one({"_id": 2})
        await settle(monque)
    assert sorted(id for id, _ in ran) == [1, 1, 2]


async def test_stopping_leaves_nothing_behind(db: Db, orders: Orders) -> None:
    leftovers = Leftovers()
    monque = Monque(db, reactive_options=QUICK)
    happenings, ran = Happenings(monque), note_runs(monque)
    note_runs(monque, "returns", name="return")
    threads = Tally[Any]()

    @monque.reactive("orders", name="thread", debounce=0)
    def run_in_thread(task: SyncReactiveTask) -> None:
        threads.add(task.source_id)

    for id in range(4):
        await monque.start()
        await orders.insert_one({"_id": id})
        await ran.reach(id + 1)
        await threads.reach(id + 1)
        await monque.stop()
        assert not leftovers.tasks
        assert not leftovers.threads
        assert (await monque.get_reactive_stats()).leader is None
    assert sorted(id for id, _ in ran) == sorted(threads) == [0, 1, 2, 3]
    assert len(happenings.of("leader:acquired")) == len(happenings.of("leader:lost")) == 4
    terms = [event.term for event in happenings.of("leader:acquired")]
    assert terms == sorted(set(terms))


async def test_stopping_at_any_moment_of_a_start_leaves_nothing_behind(
    db: Db, orders: Orders
) -> None:
    leftovers = Leftovers()
    monque = Monque(db, reactive_options=QUICK)
    ran = note_runs(monque)
    await orders.insert_one({"_id": 1})
    for pause in (0, 0.001, 0.01, 0.03):
        await monque.start()
        await asyncio.sleep(pause)
        await monque.stop()
        assert not leftovers.tasks
        assert (await monque.get_reactive_stats()).leader is None
    async with monque:
        await settle(monque)
    assert ran == [(1, {})]


async def test_a_stop_that_runs_out_of_time_hands_runs_back(db: Db, orders: Orders) -> None:
    first, second = (Monque(db, reactive_options=QUICK) for _ in range(2))
    started = Tally[int]()

    @first.reactive("orders", name="invoice", debounce=0)
    async def never_end(task: ReactiveTask) -> None:
        started.add(task.attempts)
        await asyncio.Event().wait()

    ran = note_runs(second)
    await orders.insert_one({"_id": 1})
    await first.start()
    await started.reach(1)
    await first.stop(timeout=0)
    record = await record_of(first)
    assert (record.status, record.attempts, record.claimed_by) == ("pending", 0, None)
    async with second:
        await ran.reach(1)


async def test_jobs_and_tasks_share_the_slots_of_an_instance(db: Db, orders: Orders) -> None:
    monque = Monque(db, instance_concurrency=2, worker_concurrency=2, reactive_options=QUICK)
    order: Tally[str] = Tally()
    running, most = 0, 0

    async def work(kind: str) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.003)
        running -= 1
        order.add(kind)

    @monque.worker("job")
    async def run_job(job: Job[Any]) -> None:
        await work("job")

    @monque.reactive("orders", name="invoice", debounce=0)
    async def invoice(task: ReactiveTask) -> None:
        await work("task")

    await monque.enqueue_many("job", range(100))
    await orders.insert_many([{"_id": i} for i in range(100)])
    async with monque:
        await order.reach(200)
        await settle(monque)
    assert (order.count("job"), order.count("task")) == (100, 100)
    assert most == 2
    # Neither waits for the other to finish: both are among the first half.
    both = order[:150]
    assert both.count("job") >= 20
    assert both.count("task") >= 20


async def test_sync_monque_runs_reactive_tasks(blocking_db: Database[dict[str, Any]]) -> None:
    def use() -> list[Any]:
        monque = SyncMonque(blocking_db, reactive_options=QUICK)
        ran: list[Any] = []

        @monque.reactive("orders", name="invoice", debounce=0)
        def invoice(task: SyncReactiveTask) -> None:
            ran.append((task.source_id, task.document()["total"]))

        with monque:
            blocking_db.orders.insert_one({"_id": 1, "total": 5})
            wait_until(lambda: len(ran) == 1)

            @monque.reactive("returns", name="return", debounce=0)
            async def register_later(task: ReactiveTask) -> None:
                ran.append(task.source_id)

            blocking_db.returns.insert_one({"_id": "later"})
            wait_until(lambda: len(ran) == 2)
            monque.run_until_idle()
            assert monque.retry_reactive_tasks(name="invoice") == 1
            wait_until(lambda: len(ran) == 3)
            monque.run_until_idle()
            monque.reconcile("invoice")
            assert monque.count_reactive_tasks(status="completed") == 2
            (record,) = monque.get_reactive_tasks(name="invoice").tasks
            assert record.source_id == 1
            assert [task.completed for task in monque.get_reactive_stats().tasks] == [1, 1]
        return ran

    assert await asyncio.to_thread(use) == [(1, 5), "later", (1, 5)]


async def test_planning_continues_after_an_outage(db: Db, orders: Orders) -> None:
    """A change stream that is ended, for example by an operator, resumes where it was."""
    monque = Monque(db, reactive_options=QUICK)
    ran = note_runs(monque)
    async with monque:
        await settle(monque)
        for i in range(3):
            await _kill_streams(db)
            await orders.insert_one({"_id": i})
            await ran.reach(i + 1)
    assert ran == [(0, {}), (1, {}), (2, {})]


async def _kill_streams(db: Db) -> None:
    pipeline: list[dict[str, Any]] = [
        {"$currentOp": {"idleCursors": True}},
        {"$match": {"cursor.originatingCommand.$db": db.name, "cursor.tailable": True}},
    ]

    async def found() -> list[Any]:
        return await (await db.client.admin.aggregate(pipeline)).to_list()

    for operation in await eventually(found):
        name = operation["ns"].partition(".")[2]
        await db.command("killCursors", name, cursors=[operation["cursor"]["cursorId"]])
