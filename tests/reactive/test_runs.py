"""What a handler receives, and what it can do with its run."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from monque_core import Job, Monque, ReactiveTask, SyncReactiveTask, WorkerRegistrationError
from tests.support.happenings import Happenings
from tests.support.reactions import note_runs, record_of, settle
from tests.support.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pymongo.asynchronous.collection import AsyncCollection

    from monque_core import Work
    from monque_core.testing import MovableClock

    Orders = AsyncCollection[dict[str, Any]]


async def test_a_run_knows_its_document_its_values_and_its_attempts(
    monque: Monque, orders: Orders
) -> None:
    given = Tally[ReactiveTask]()
    documents = Tally[Any]()

    @monque.reactive("orders", name="invoice", watch=["total"], debounce=0)
    async def invoice(task: ReactiveTask) -> None:
        given.add(task)
        documents.add(await task.document())
        documents.add(await task.document(projection={"note": 1, "_id": 0}))

    async with monque:
        await orders.insert_one({"_id": 1, "total": 5, "note": "x"})
        await settle(monque)
        record = await record_of(monque)
    (task,) = given
    assert (task.id, task.name, task.source_id) == (record.id, "invoice", 1)
    assert task.values == task.data == {"total": 5}
    assert task.attempts == 1
    assert documents == [{"_id": 1, "total": 5, "note": "x"}, {"note": "x"}]


@pytest.mark.parametrize("is_blocking", [False, True], ids=["async", "def"])
@pytest.mark.parametrize("change", ["leaves the filter", "is deleted"])
async def test_a_document_that_no_longer_matches_ends_the_run_quietly(
    monque: Monque, orders: Orders, change: str, is_blocking: bool
) -> None:
    happenings = Happenings(monque)
    started, went_on = Tally[None](), Tally[str]()
    has_changed = asyncio.Event()

    async def wait_first(work: Work, call_next: Callable[[], Awaitable[object]]) -> object:
        started.add(None)
        await has_changed.wait()
        return await call_next()

    async def invoice(task: ReactiveTask) -> None:
        try:
            await task.document()
        except Exception as error:
            went_on.add(repr(error))
        went_on.add("went on")

    def blocking_invoice(task: SyncReactiveTask) -> None:
        try:
            task.document()
        except Exception as error:
            went_on.add(repr(error))
        went_on.add("went on")

    monque.use(wait_first)
    handler: Any = blocking_invoice if is_blocking else invoice
    options: Any = {"name": "invoice", "filter": {"status": "paid"}, "debounce": 0}
    monque.reactive("orders", handler, **options)
    async with monque:
        await orders.insert_one({"_id": 1, "status": "paid"})
        await started.reach(1)
        if change == "is deleted":
            await orders.delete_one({"_id": 1})
        else:
            await orders.update_one({"_id": 1}, {"$set": {"status": "open"}})
        has_changed.set()
        (skipped,) = await happenings.reach("task:skipped")
        await settle(monque)
        record = await record_of(monque)
    assert went_on == []
    assert (skipped.task.source_id, skipped.task.status) == (1, "completed")
    assert skipped.duration >= timedelta(0)
    assert not happenings.of("task:complete")
    assert not happenings.of("task:fail")
    assert (record.status, record.history[-1].status) == ("completed", "skipped")
    assert record.last_success is None


async def test_a_def_handler_runs_in_a_thread_with_a_blocking_task(
    monque: Monque, orders: Orders
) -> None:
    seen = Tally[Any]()

    @monque.reactive("orders", name="invoice", watch=["total"], debounce=0)
    def invoice(task: SyncReactiveTask) -> None:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        seen.add((type(task), task.source_id, task.values, task.attempts, task.document()))

    async with monque:
        await orders.insert_one({"_id": 1, "total": 5})
        await settle(monque)
        assert (await record_of(monque)).status == "completed"
    assert seen == [(SyncReactiveTask, 1, {"total": 5}, 1, {"_id": 1, "total": 5})]


@pytest.mark.parametrize(
    ("until", "fails"),
    [(60, False), (timedelta(minutes=1), True), ("datetime", False)],
    ids=["seconds", "timedelta, raises", "datetime"],
)
async def test_a_deferred_run_runs_again_then_whatever_the_handler_does_after(
    monque: Monque, orders: Orders, clock: MovableClock, until: Any, fails: bool
) -> None:
    happenings = Happenings(monque)
    ran = Tally[int]()

    @monque.reactive("orders", name="invoice", debounce=0)
    async def invoice(task: ReactiveTask) -> None:
        ran.add(task.attempts)
        if len(ran) == 1:
            task.defer(clock.now() + timedelta(minutes=1) if until == "datetime" else until)
            if fails:
                raise OSError("busy")

    async with monque:
        await orders.insert_one({"_id": 1})
        await settle(monque)
        waiting = await record_of(monque)
        clock.advance(59)
        await settle(monque)
        assert len(ran) == 1
        clock.advance(1)
        await settle(monque)
        done = await record_of(monque)
    assert waiting.status == "pending"
    assert waiting.next_run_at == clock.now()
    assert waiting.due_at == done.due_at == clock.now() - timedelta(minutes=1)
    assert waiting.history[-1].status == "deferred"
    assert waiting.last_error == ("OSError: busy" if fails else None)
    # A deferral does not count as an attempt, unless the run failed.
    assert ran == [1, 2 if fails else 1]
    assert (done.status, done.last_error) == ("completed", None)
    assert [event.will_retry for event in happenings.of("task:fail")] == ([True] if fails else [])


async def test_a_change_ends_a_deferral(
    monque: Monque, orders: Orders, clock: MovableClock
) -> None:
    ran = Tally[Any]()

    @monque.reactive("orders", name="invoice", debounce=1)
    async def invoice(task: ReactiveTask) -> None:
        ran.add(task.values)
        if len(ran) == 1:
            task.defer(3600)

    async with monque:
        await orders.insert_one({"_id": 1, "total": 1})
        await settle(monque)
        clock.advance(1)
        await settle(monque)
        await orders.update_one({"_id": 1}, {"$set": {"total": 2}})
        await settle(monque)
        clock.advance(1)
        await settle(monque)
    assert ran == [{"total": 1}, {"total": 2}]


@pytest.mark.parametrize(("handler", "fails"), [("async", True), ("def", False), ("def", True)])
async def test_a_throttled_task_pauses_on_this_instance(
    monque: Monque, orders: Orders, handler: str, fails: bool
) -> None:
    ran, other = Tally[tuple[int, float]](), note_runs(monque, name="other")

    def throttle_first(task: Any) -> None:
        ran.add((task.source_id, time.monotonic()))
        if len(ran) == 1:
            task.throttle(0.5)
            if fails:
                raise OSError("slow down")

    async def async_throttle_first(task: Any) -> None:
        throttle_first(task)

    chosen: Any = throttle_first if handler == "def" else async_throttle_first
    monque.reactive("orders", chosen, name="invoice", debounce=0, concurrency=1)
    async with monque:
        await orders.insert_one({"_id": 1})
        await ran.reach(1)
        await orders.insert_one({"_id": 2})
        await ran.reach(2)
        await settle(monque)
    (first, throttled_at), (second, started_at) = ran
    assert (first, second) == (1, 2)
    assert started_at >= throttled_at + 0.5
    # Other tasks are not delayed, even on the same collection.
    assert sorted(other) == [(1, {}), (2, {})]


async def test_bad_times_are_refused_by_name(monque: Monque, orders: Orders) -> None:
    nonsense = (-1, timedelta(seconds=-1), "soon", None, datetime(2026, 1, 1), float("nan"))
    told = Tally[tuple[str, str]]()

    @monque.reactive("orders", name="invoice", debounce=0)
    async def invoice(task: ReactiveTask) -> None:
        for until in nonsense:
            for action in ("defer", "throttle"):
                with pytest.raises(ValueError, match=r"\(") as refused:
                    getattr(task, action)(until)
                told.add((f"{action}({until!r})", str(refused.value)))

    async with monque:
        await orders.insert_one({"_id": 1})
        await settle(monque)
        assert (await record_of(monque)).status == "completed"
    assert len(told) == 2 * len(nonsense)
    for call, message in told:
        assert message.startswith(call)


async def test_middleware_gets_the_task_where_it_gets_a_job(monque: Monque, orders: Orders) -> None:
    passed = Tally[tuple[type, str, Any]]()

    @monque.use
    async def note(work: Work, call_next: Callable[[], Awaitable[object]]) -> object:
        passed.add((type(work), work.name, work.data))
        assert work.id is not None
        return await call_next()

    note_runs(monque)

    @monque.worker("invoice")
    async def job(job: Job[Any]) -> None: ...

    async with monque:
        await orders.insert_one({"_id": 1, "total": 5})
        await monque.enqueue("invoice", "a job")
        await settle(monque)
    assert sorted(passed, key=lambda one: one[0].__name__) == [
        (Job, "invoice", "a job"),
        (ReactiveTask, "invoice", {"total": 5}),
    ]


async def test_a_job_may_have_the_name_of_a_task(monque: Monque, orders: Orders) -> None:
    happenings, jobs = Happenings(monque), Tally[Any]()
    ran = note_runs(monque)

    @monque.worker("invoice")
    async def work(job: Job[Any]) -> None:
        jobs.add(job.data)

    async with monque:
        await monque.enqueue("invoice", 7)
        await orders.insert_one({"_id": 1})
        await settle(monque)
        await monque.retry_reactive_tasks(name="invoice")
        await settle(monque)
    assert (jobs, ran) == ([7], [(1, {}), (1, {})])
    assert len(happenings.of("job:complete")) == 1
    assert len(happenings.of("task:complete")) == 2


async def test_two_tasks_cannot_have_one_name(monque: Monque) -> None:
    note_runs(monque, "orders")
    with pytest.raises(WorkerRegistrationError, match="invoice"):
        note_runs(monque, "returns")


async def test_events_tell_of_runs_as_they_are_stored(monque: Monque, orders: Orders) -> None:
    happenings = Happenings(monque)
    error = ValueError("no address")

    @monque.reactive("orders", name="invoice", watch=["total"], debounce=0)
    async def invoice(task: ReactiveTask) -> None:
        if task.values["total"] < 0:
            raise error

    async with monque:
        await orders.insert_one({"_id": 1, "total": 5})
        await settle(monque)
        await orders.insert_one({"_id": 2, "total": -5})
        await settle(monque)
    first, second = happenings.of("task:start")
    (completed,), (failed,) = happenings.of("task:complete"), happenings.of("task:fail")
    assert (first.task.source_id, first.task.status, first.task.attempts) == (1, "processing", 1)
    assert second.task.source_id == 2
    assert (completed.task.source_id, completed.task.status) == (1, "completed")
    assert completed.task.values == {"total": 5}
    assert completed.duration >= timedelta(0)
    assert (failed.task.source_id, failed.task.status, failed.task.attempts) == (2, "pending", 1)
    assert failed.error is error
    assert failed.will_retry
    assert failed.task.last_error == "ValueError: no address"
    assert not happenings.of("task:error")


async def test_the_last_runs_stay_on_the_record(
    monque: Monque, orders: Orders, clock: MovableClock
) -> None:
    note_runs(monque, history=2)
    async with monque:
        for total in range(4):
            await orders.update_one({"_id": 1}, {"$set": {"total": total}}, upsert=True)
            await settle(monque)
            clock.advance(1)
        record = await record_of(monque)
    assert [entry.status for entry in record.history] == ["completed"] * 2
    assert [entry.at for entry in record.history] == [
        clock.now() - timedelta(seconds=2),
        clock.now() - timedelta(seconds=1),
    ]
    assert record.last_success is not None
    assert record.last_success.at == record.completed_at == clock.now() - timedelta(seconds=1)


async def test_no_more_runs_of_a_task_than_its_concurrency_are_under_way(
    monque: Monque, orders: Orders
) -> None:
    running, most = 0, 0

    @monque.reactive("orders", name="invoice", debounce=0, concurrency=2)
    async def invoice(task: ReactiveTask) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.005)
        running -= 1

    async with monque:
        await orders.insert_many([{"_id": i} for i in range(20)])
        await settle(monque)
        assert await monque.count_reactive_tasks(status="completed") == 20
    assert most == 2


async def test_a_run_that_takes_longer_than_its_timeout_fails(
    monque: Monque, orders: Orders
) -> None:
    happenings = Happenings(monque)

    @monque.reactive("orders", name="invoice", debounce=0, timeout=0.05)
    async def invoice(task: ReactiveTask) -> None:
        await asyncio.Event().wait()

    async with monque:
        await orders.insert_one({"_id": 1})
        await settle(monque)
    (failed,) = happenings.of("task:fail")
    assert isinstance(failed.error, TimeoutError)
    assert failed.will_retry


async def test_aware_times_of_any_zone_are_accepted(
    monque: Monque, orders: Orders, clock: MovableClock
) -> None:
    later = clock.now().astimezone(UTC) + timedelta(hours=1)

    @monque.reactive("orders", name="invoice", debounce=0)
    async def invoice(task: ReactiveTask) -> None:
        task.defer(later)

    async with monque:
        await orders.insert_one({"_id": 1})
        await settle(monque)
        assert (await record_of(monque)).next_run_at == later
