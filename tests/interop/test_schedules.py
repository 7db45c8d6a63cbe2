"""A schedule is one, whichever side declares it, and goes on whichever side runs it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from monque_core import Job, JobStatus, Monque, next_cron_run
from tests.support.happenings import Happenings
from tests.support.stored import jobs_in, stored
from tests.support.tally import Tally

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core.jobs.job import AnyJob
    from tests.interop.neighbour import Neighbour

_CRON = "30 4 * * *"


async def _make_due(db: AsyncDatabase[dict[str, Any]], job: AnyJob) -> None:
    due = datetime.now(UTC) - timedelta(seconds=1)
    await jobs_in(db).update_one({"_id": job.id}, {"$set": {"nextRunAt": due}})


async def test_a_schedule_of_node_is_kept_and_changed_by_python(
    neighbour: Neighbour, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(db)
    declared = await neighbour.schedule(_CRON, "report", "sales", uniqueKey="daily")

    same = await monque.schedule(_CRON, "report", "sales", unique_key="daily")
    assert (same.id, same.next_run_at) == (declared["_id"], declared["nextRunAt"])
    assert same.next_run_at == next_cron_run(_CRON, declared["createdAt"])

    changed = await monque.schedule("@hourly", "report", "sales", unique_key="daily")
    found = await neighbour.schedule(_CRON, "report", "sales", uniqueKey="daily")
    assert found["_id"] == changed.id == declared["_id"]
    assert found["repeatInterval"] == "@hourly"
    assert [job.id for job in await monque.get_schedules()] == [changed.id]


async def test_a_schedule_of_python_is_run_and_moved_on_by_node_and_then_by_python(
    neighbour: Neighbour, db: AsyncDatabase[dict[str, Any]]
) -> None:
    runs: Tally[Job[str]] = Tally()
    monque = Monque(db)
    happenings = Happenings(monque)
    schedule = await monque.schedule(_CRON, "report", "sales", unique_key="daily", priority=2)

    await _make_due(db, schedule)
    await neighbour.work("report")
    await neighbour.see_end(schedule)
    await neighbour.kill()

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
    neighbour: Neighbour, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(db)
    await neighbour.schedule(_CRON, "report", 1)
    await neighbour.schedule(_CRON, "report", 2, uniqueKey="two")

    assert await monque.unschedule("report", "two") == 1
    assert await monque.unschedule("report") == 1
    assert await jobs_in(db).count_documents({}) == 0
