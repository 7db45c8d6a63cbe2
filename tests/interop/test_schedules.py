"""Schedules with a key are unique across both sides and continue on either side."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from monque_core import Job, JobStatus, Monque, next_cron_run
from tests.interop.node_worker import assert_one_document
from tests.support.happenings import Happenings
from tests.support.stored import jobs_in, stored
from tests.support.tally import Tally

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core.jobs.job import AnyJob
    from tests.interop.conftest import StartNodeWorker
    from tests.interop.node_worker import NodeWorker

_CRON = "30 4 * * *"
_CALLS = 20


async def _make_due(db: AsyncDatabase[dict[str, Any]], job: AnyJob) -> None:
    due = datetime.now(UTC) - timedelta(seconds=1)
    await jobs_in(db).update_one({"_id": job.id}, {"$set": {"nextRunAt": due}})


async def test_a_schedule_of_node_is_kept_and_changed_by_python(
    node_worker: NodeWorker, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(db)
    declared = await node_worker.schedule(_CRON, "report", "sales", uniqueKey="daily")

    same = await monque.schedule(_CRON, "report", "sales", unique_key="daily")
    assert (same.id, same.next_run_at) == (declared["_id"], declared["nextRunAt"])
    assert same.next_run_at == next_cron_run(_CRON, declared["createdAt"])

    changed = await monque.schedule("@hourly", "report", "sales", unique_key="daily")
    found = await node_worker.schedule(_CRON, "report", "sales", uniqueKey="daily")
    assert found["_id"] == changed.id == declared["_id"]
    assert found["repeatInterval"] == "@hourly"
    assert [job.id for job in await monque.get_schedules()] == [changed.id]


async def test_both_sides_at_once_make_one_schedule_per_key(
    node_worker: NodeWorker, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(db)
    for key in ("a", "b", "c"):
        of_python, of_node = await asyncio.gather(
            asyncio.gather(
                *(monque.schedule(_CRON, "report", 1, unique_key=key) for _ in range(_CALLS))
            ),
            asyncio.gather(
                *(node_worker.schedule(_CRON, "report", 1, uniqueKey=key) for _ in range(_CALLS)),
                return_exceptions=True,
            ),
        )
        assert_one_document(of_python, of_node)

    assert [job.unique_key for job in await monque.get_schedules()] == ["a", "b", "c"]
    assert await jobs_in(db).count_documents({}) == 3


async def test_without_a_key_each_side_has_its_own_schedule(
    node_worker: NodeWorker, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(db)
    of_node = await node_worker.schedule(_CRON, "report", "sales")
    of_python = await monque.schedule(_CRON, "report", "sales")

    assert "uniqueKey" not in of_node
    assert of_python.id != of_node["_id"]
    assert len(await monque.get_schedules()) == 2


async def test_a_schedule_that_node_gives_up_ends_until_it_is_retried(
    start_node_worker: StartNodeWorker, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(db)
    schedule = await monque.schedule(_CRON, "report", "sales", unique_key="daily")
    await _make_due(db, schedule)
    node_worker = await start_node_worker(maxRetries=1)
    await node_worker.work("report", "fails")
    await node_worker.see_end(schedule)

    given_up = await stored(db, schedule)
    assert (given_up.status, given_up.repeat_interval) == (JobStatus.FAILED, _CRON)
    again = await monque.retry_job(schedule.id)
    assert again is not None
    assert (again.status, again.repeat_interval) == (JobStatus.PENDING, _CRON)


async def test_a_schedule_of_python_is_run_and_moved_on_by_node_and_then_by_python(
    node_worker: NodeWorker, db: AsyncDatabase[dict[str, Any]]
) -> None:
    runs: Tally[Job[str]] = Tally()
    monque = Monque(db)
    happenings = Happenings(monque)
    schedule = await monque.schedule(_CRON, "report", "sales", unique_key="daily", priority=2)

    await _make_due(db, schedule)
    await node_worker.work("report")
    await node_worker.see_end(schedule)
    await node_worker.kill()

    after_node = await stored(db, schedule)
    assert (after_node.status, after_node.next_run_at) == (
        JobStatus.PENDING,
        next_cron_run(_CRON, after_node.updated_at),
    )
    assert (after_node.priority, after_node.unique_key) == (2, "daily")

    await _make_due(db, schedule)
    monque.worker("report", runs.add)
    await monque.run_until_idle()

    after_python = await stored(db, schedule)
    assert [run.data for run in runs] == ["sales"]
    assert happenings.of("job:error") == []
    assert (after_python.status, after_python.next_run_at) == (
        JobStatus.PENDING,
        next_cron_run(_CRON, after_python.updated_at),
    )
    assert await jobs_in(db).count_documents({}) == 1


async def test_python_removes_a_schedule_of_node(
    node_worker: NodeWorker, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(db)
    await node_worker.schedule(_CRON, "report", 1)
    await node_worker.schedule(_CRON, "report", 2, uniqueKey="two")

    assert await monque.unschedule("report", "two") == 1
    assert await monque.unschedule("report") == 1
    assert await jobs_in(db).count_documents({}) == 0


async def test_a_schedule_that_only_node_can_read_is_left_to_node(
    node_worker: NodeWorker, db: AsyncDatabase[dict[str, Any]]
) -> None:
    runs: Tally[Job[str]] = Tally()
    monque = Monque(db)
    monque.worker("report", runs.add)
    happenings = Happenings(monque)
    declared = await node_worker.schedule("H H * * *", "report", "sales", uniqueKey="daily")
    schedule = await monque.get_job(declared["_id"])
    assert schedule is not None
    await _make_due(db, schedule)

    await monque.run_until_idle()
    left = await stored(db, schedule)
    assert (left.status, left.repeat_interval) == (JobStatus.PENDING, "H H * * *")
    assert len(happenings.of("job:error")) == 1
    assert runs == []

    await node_worker.work("report")
    await node_worker.see_end(schedule)
    moved = await stored(db, schedule)
    assert (moved.status, moved.repeat_interval) == (JobStatus.PENDING, "H H * * *")
    assert moved.next_run_at > moved.updated_at


@pytest.mark.parametrize("cron", ["30 0 4 * * *", "30 4 L * *", "30 4 * * 5L", "@weekends"])
async def test_a_schedule_of_node_goes_on_in_python_whatever_its_expression(
    cron: str, node_worker: NodeWorker, db: AsyncDatabase[dict[str, Any]]
) -> None:
    runs: Tally[Job[str]] = Tally()
    monque = Monque(db)
    monque.worker("report", runs.add)
    declared = await node_worker.schedule(cron, "report", "sales", uniqueKey="daily")
    schedule = await monque.get_job(declared["_id"])
    assert schedule is not None
    await _make_due(db, schedule)
    await monque.run_until_idle()

    after = await stored(db, schedule)
    assert [run.id for run in runs] == [schedule.id]
    assert (after.status, after.repeat_interval) == (JobStatus.PENDING, cron)
    assert [after.next_run_at] == await node_worker.ticks(cron, after.updated_at, 1)


async def test_an_expression_that_node_refuses_is_stored_as_one_that_it_accepts(
    node_worker: NodeWorker, db: AsyncDatabase[dict[str, Any]]
) -> None:
    schedule = await Monque(db).schedule("0 9 * * 0,7", "report", None, unique_key="sundays")
    await _make_due(db, schedule)
    await node_worker.work("report")
    await node_worker.see_end(schedule)
    moved = await stored(db, schedule)
    assert moved.fail_reason is None
    assert moved.next_run_at == next_cron_run("0 9 * * SUN", moved.updated_at)


async def test_the_next_start_corrects_a_next_run_that_node_computed_without_the_time_zone(
    node_worker: NodeWorker, db: AsyncDatabase[dict[str, Any]]
) -> None:
    zone = "Pacific/Kiritimati"

    async def declare() -> AnyJob:
        return await Monque(db).schedule(_CRON, "report", 1, unique_key="daily", timezone=zone)

    schedule = await declare()
    await _make_due(db, schedule)
    await node_worker.work("report")
    await node_worker.see_end(schedule)
    moved = await stored(db, schedule)
    assert moved.next_run_at == next_cron_run(_CRON, moved.updated_at)

    repaired = await declare()
    assert repaired.next_run_at == next_cron_run(_CRON, moved.updated_at, zone)
    assert await stored(db, schedule) == repaired
