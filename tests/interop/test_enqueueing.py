"""Each side runs jobs of the other and continues where the other failed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from monque_core import Job, JobStatus, Monque
from tests.support.happenings import Happenings
from tests.support.pages import page_text
from tests.support.stored import jobs_in, stored
from tests.support.tally import Tally

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from tests.interop.conftest import StartNodeWorker
    from tests.interop.node_worker import NodeWorker

_WRITTEN_BY_NODE = {
    "_id",
    "name",
    "data",
    "status",
    "nextRunAt",
    "failCount",
    "createdAt",
    "updatedAt",
}
_CLAIM = {"claimedBy", "lockedAt", "lastHeartbeat", "heartbeatInterval"}


async def test_python_runs_jobs_of_node_at_once(
    node_worker: NodeWorker, db: AsyncDatabase[dict[str, Any]]
) -> None:
    runs: Tally[Job[dict[str, str]]] = Tally()
    monque = Monque(db)
    monque.worker("greet", runs.add)
    happenings = Happenings(monque)

    async with monque:
        await happenings.reach("changestream:connected")
        written = await node_worker.enqueue("greet", {"to": "Ada"})
        await happenings.reach("job:complete")

    (job,) = runs
    assert written.keys() == _WRITTEN_BY_NODE
    assert (job.id, job.data, job.created_at) == (
        written["_id"],
        {"to": "Ada"},
        written["createdAt"],
    )
    assert (await stored(db, job)).status == JobStatus.COMPLETED


async def test_node_runs_jobs_of_python_and_keeps_unknown_fields(
    node_worker: NodeWorker, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(db)
    plain = await monque.enqueue("greet", {"to": "Ada"})
    fullest = await monque.enqueue(
        "greet", "Bob", priority=7, max_retries=3, timeout=60, unique_key="bob"
    )
    later = await monque.enqueue("greet", "Eve", delay=3600)

    await node_worker.work("greet")
    await node_worker.see_end(plain)
    await node_worker.see_end(fullest)

    assert [run["data"] for run in node_worker.of("started")] == [{"to": "Ada"}, "Bob"]
    ended = await stored(db, fullest)
    assert ended.status == JobStatus.COMPLETED
    assert (ended.claimed_by, ended.locked_at, ended.last_heartbeat) == (None, None, None)
    assert (ended.priority, ended.max_retries, ended.timeout, ended.unique_key) == (
        fullest.priority,
        fullest.max_retries,
        fullest.timeout,
        fullest.unique_key,
    )
    assert (await stored(db, later)).status == JobStatus.PENDING


async def test_a_job_that_node_failed_is_tried_again_by_python_after_about_the_same_backoff(
    node_worker: NodeWorker, db: AsyncDatabase[dict[str, Any]]
) -> None:
    await node_worker.work("greet", "fails")
    monque = Monque(db)
    job = await monque.enqueue("greet", "Ada")
    await node_worker.see_end(job)

    failed = await stored(db, job)
    assert (failed.status, failed.fail_count) == (JobStatus.PENDING, 1)
    assert failed.fail_reason == 'no luck with "Ada"'
    # Two seconds, ± 25 %.
    assert 1.4 <= (failed.next_run_at - failed.updated_at) / timedelta(seconds=1) <= 2.6

    await node_worker.kill()
    await monque.reschedule_job(job.id, failed.created_at)
    runs: Tally[Job[str]] = Tally()
    monque.worker("greet", runs.add)
    await monque.run_until_idle()

    ended = await stored(db, job)
    assert [run.fail_count for run in runs] == [1]
    assert (ended.status, ended.fail_count, ended.fail_reason) == (JobStatus.COMPLETED, 1, None)


async def test_node_continues_the_retries_of_a_job_that_failed_in_python(
    start_node_worker: StartNodeWorker, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(db, max_retries=3)
    happenings = Happenings(monque)

    @monque.worker("greet")
    async def fail(job: Job[str]) -> None:
        raise ValueError(job.data)

    job = await monque.enqueue("greet", "Ada")
    await monque.run_until_idle()
    (failure,) = happenings.of("job:fail")
    assert failure.will_retry

    node_worker = await start_node_worker(maxRetries=3, baseRetryInterval=10)
    await monque.reschedule_job(job.id, job.created_at)
    await node_worker.work("greet", "fails")
    await node_worker.hear("ended", 2)

    ended = await stored(db, job)
    assert (ended.status, ended.fail_count) == (JobStatus.FAILED, 3)
    assert ended.claimed_by is None


async def test_both_sides_find_and_manage_jobs_of_the_other(
    node_worker: NodeWorker, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(db)
    tomorrow = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    later = await node_worker.enqueue("greet", "Ada", runAt=tomorrow)

    seen = await monque.get_job(later["_id"])
    assert seen is not None
    assert (seen.data, seen.next_run_at) == ("Ada", tomorrow)
    assert (await monque.get_queue_stats("greet")).pending == 1
    assert await monque.cancel_job(later["_id"]) is not None

    await node_worker.work("greet")
    job = await monque.enqueue("greet", "Bob")
    await node_worker.see_end(job)
    assert [run["data"] for run in node_worker.of("started")] == ["Bob"]
    assert await jobs_in(db).count_documents({"name": "greet", "status": "cancelled"}) == 1


async def test_node_writes_only_fields_that_the_page_on_the_format_documents(
    node_worker: NodeWorker, db: AsyncDatabase[dict[str, Any]]
) -> None:
    await node_worker.schedule("* * * * *", "schedule", None, uniqueKey="key")
    await node_worker.work("waits", "waits")
    await node_worker.work("fails", "fails")
    await node_worker.enqueue("waits", None)
    await node_worker.enqueue("fails", None)
    await node_worker.hear("started", 2)
    await node_worker.hear("ended")

    written = {field async for job in jobs_in(db).find() for field in job}
    claimed = await jobs_in(db).find_one({"status": "processing"})
    assert claimed is not None
    assert claimed.keys() - _WRITTEN_BY_NODE == _CLAIM
    assert written == _WRITTEN_BY_NODE | _CLAIM | {"repeatInterval", "uniqueKey", "failReason"}
    page = page_text("docs/reference/document-format.md")
    assert [field for field in written if f"\n| `{field}` |" not in page] == []
