"""Listing reactive tasks, and running them again."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from bson import Code, Regex

from monque_core import Fixed, InvalidCursorError, Monque, ReactiveTask
from monque_core.jobs.outcome import LONGEST_REASON
from tests.support.reactions import note_runs, record_of, settle, statuses
from tests.support.tally import Tally

if TYPE_CHECKING:
    from pymongo.asynchronous.collection import AsyncCollection
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core.testing import MovableClock

    Orders = AsyncCollection[dict[str, Any]]
    Db = AsyncDatabase[dict[str, Any]]


async def fill(monque: Monque, db: Db) -> None:
    """Leave three completed orders, a failed one, and a return."""

    @monque.reactive("orders", name="invoice", debounce=0, retry=Fixed(1, max_attempts=1))
    async def invoice(task: ReactiveTask) -> None:
        if task.values["fails"]:
            raise OSError("no (paper)")

    note_runs(monque, "returns", name="return")
    await db.orders.insert_many([{"_id": i, "fails": i == 3} for i in range(4)])
    await db.returns.insert_one({"_id": 0})
    await settle(monque)


async def test_records_are_found_by_their_fields(monque: Monque, db: Db) -> None:
    async with monque:
        await fill(monque, db)
        cases: list[tuple[dict[str, Any], int]] = [
            ({}, 5),
            ({"name": "invoice"}, 4),
            ({"collection": "returns"}, 1),
            ({"status": "failed"}, 1),
            ({"status": ["failed", "completed"], "name": "invoice"}, 4),
            ({"source_id": 0}, 2),
            ({"source_id": 0, "name": "return"}, 1),
            ({"error": "(paper"}, 1),
            ({"error": "else"}, 0),
            ({"name": "unknown"}, 0),
        ]
        for chosen, count in cases:
            page = await monque.get_reactive_tasks(**chosen)
            assert len(page.tasks) == await monque.count_reactive_tasks(**chosen) == count, chosen


async def test_pages_lead_forward_and_backward(monque: Monque, db: Db) -> None:
    async with monque:
        await fill(monque, db)
        whole = [record.id for record in (await monque.get_reactive_tasks()).tasks]
        first = await monque.get_reactive_tasks(limit=2)
        second = await monque.get_reactive_tasks(limit=2, cursor=first.cursor)
        third = await monque.get_reactive_tasks(limit=2, cursor=second.cursor)
        back = await monque.get_reactive_tasks(limit=2, cursor=third.cursor, direction="backward")
        with pytest.raises(InvalidCursorError):
            await monque.get_reactive_tasks(name="invoice", cursor=first.cursor)
    pages = [first, second, third]
    assert [record.id for page in pages for record in page.tasks] == whole
    assert [page.has_next for page in pages] == [True, True, False]
    assert [record.id for record in back.tasks] == [record.id for record in second.tasks]


async def test_stats_count_records_and_report_the_progress_of_planning(
    monque: Monque, db: Db, clock: MovableClock
) -> None:
    async with monque:
        await fill(monque, db)
        note_runs(monque, "later", name="later", debounce=60)
        await db.later.insert_one({"_id": 1})
        await settle(monque)
        clock.advance(50)
        stats = await monque.get_reactive_stats()
        clock.advance(9)
        await asyncio.sleep(0)
        early = await monque.get_reactive_stats()
    by_name = {task.name: task for task in stats.tasks}
    assert list(by_name) == ["invoice", "later", "return"]
    assert (by_name["invoice"].completed, by_name["invoice"].failed) == (3, 1)
    assert by_name["invoice"].total == 4
    assert by_name["invoice"].lag is None
    assert (by_name["later"].pending, by_name["later"].lag) == (1, timedelta(0))
    assert {task.lag for task in early.tasks} == {None, timedelta(0)}
    assert stats.leader == monque.scheduler_instance_id
    assert stats.stream_lag is not None


async def test_finished_records_run_again_with_all_attempts(monque: Monque, db: Db) -> None:
    async with monque:
        await fill(monque, db)
        assert await monque.retry_reactive_tasks(status="failed") == 1
        await settle(monque)
        record = await record_of(monque, 3)
        assert (record.status, record.attempts, len(record.history)) == ("failed", 1, 2)
        assert await monque.retry_reactive_tasks(name="return") == 1
        await settle(monque)
        assert len((await record_of(monque, 0, "return")).history) == 2
        assert await monque.retry_reactive_tasks(everything=True) == 5
        await settle(monque)
        assert len((await record_of(monque, 0, "return")).history) == 3


async def test_running_records_run_once_more_afterwards(monque: Monque, orders: Orders) -> None:
    started, may_end = Tally[int](), asyncio.Event()

    @monque.reactive("orders", name="invoice", debounce=0)
    async def invoice(task: ReactiveTask) -> None:
        started.add(task.attempts)
        await may_end.wait()

    async with monque:
        await orders.insert_one({"_id": 1})
        await started.reach(1)
        assert await monque.retry_reactive_tasks(source_id=1) == 1
        assert await statuses(monque) == {1: "processing_dirty"}
        may_end.set()
        await started.reach(2)
        await settle(monque)
        assert await statuses(monque) == {1: "completed"}
    assert started == [1, 1]


async def test_rerunning_everything_must_be_explicit(monque: Monque) -> None:
    with pytest.raises(ValueError, match="everything=True"):
        await monque.retry_reactive_tasks()


@pytest.mark.parametrize(
    "nonsense",
    [{"status": "done"}, {"status": []}, {"name": ""}, {"error": ""}, {"collection": 5}],
)
async def test_bad_selections_are_refused(monque: Monque, nonsense: dict[str, Any]) -> None:
    (option,) = nonsense
    for method in ("get_reactive_tasks", "count_reactive_tasks", "retry_reactive_tasks"):
        with pytest.raises(ValueError, match=option):
            await getattr(monque, method)(**nonsense)


@pytest.mark.parametrize("nonsense", [{"limit": 0}, {"limit": True}, {"direction": "sideways"}])
async def test_bad_page_arguments_are_refused(monque: Monque, nonsense: dict[str, Any]) -> None:
    (option,) = nonsense
    with pytest.raises(ValueError, match=option):
        await monque.get_reactive_tasks(**nonsense)


@pytest.mark.parametrize(
    "source_id",
    [2**64, object(), "\ud800", [1], re.compile("a"), Regex("a"), Code("a"), {"a": object()}],
    ids=lambda value: type(value).__name__,
)
async def test_an_id_that_no_document_can_have_is_refused(monque: Monque, source_id: Any) -> None:
    for call in (
        monque.get_reactive_tasks,
        monque.count_reactive_tasks,
        monque.retry_reactive_tasks,
    ):
        with pytest.raises(ValueError, match=r"option source_id=.* the _id of a document"):
            await call(source_id=source_id)


@pytest.mark.parametrize("letter", ["x", "(", "\0", "送", "🐟"])
async def test_the_longest_error_that_is_stored_can_be_searched_for(
    letter: str, monque: Monque, db: Db
) -> None:
    text = letter * LONGEST_REASON
    async with monque:
        await fill(monque, db)
        await db.orders_tasks.update_one({"status": "failed"}, {"$set": {"lastError": text}})
        assert await monque.count_reactive_tasks(error=text) == 1


async def test_a_longer_error_than_any_that_is_stored_is_refused(monque: Monque) -> None:
    with pytest.raises(ValueError, match="at most 8000 characters"):
        await monque.get_reactive_tasks(error="x" * 100_000)
