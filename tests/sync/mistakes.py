"""Wrong uses of SyncMonque that type checkers find, each suppressed where it is reported.

Both checkers report unneeded suppressions, so no mistake goes unnoticed.
"""
# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict, assert_type

from monque_core import Job, JobPage, JobSelector, QueueStats, QueueView, SyncMonque

if TYPE_CHECKING:
    from datetime import datetime

    from pymongo.database import Database


class Mail(TypedDict):
    to: str


def right(db: Database[dict[str, Any]], when: datetime) -> None:
    monque = SyncMonque(db, max_retries=3)
    assert_type(monque.enqueue("mail", Mail(to="ada"), delay=3, unique_key="ada"), Job[Mail])
    assert_type(monque.enqueue_many("count", [1, 2], unique_key=str), list[Job[int]])
    assert_type(monque.now("count", 1), Job[int])
    assert_type(monque.schedule("@daily", "count", 1, timezone="UTC"), Job[int])
    assert_type(monque.unschedule("count"), int)
    found = monque.get_job("6afaa9c30191623cca4a2d4a")
    assert found is not None
    monque.cancel_job(found.id)
    monque.reschedule_job(found.id, when)
    assert_type(monque.delete_job(found.id), bool)
    assert_type(monque.delete_jobs(JobSelector(name="count"), everything=True), int)
    assert_type(monque.get_jobs_with_cursor(direction="backward", limit=3), JobPage)
    assert_type(monque.get_queue_stats(), QueueStats)
    assert_type(monque.get_queue_view_summaries(), list[QueueView])
    with monque as entered:
        assert_type(entered, SyncMonque)

    @monque.worker("mail", concurrency=3)
    def send(job: Job[Mail]) -> int:
        return len(job.data["to"])

    assert_type(send(Job.__new__(Job)), int)

    @monque.on("job:complete")
    async def listen(event: object) -> None: ...

    monque.off("job:complete", listen)


def wrong_arguments(monque: SyncMonque) -> None:
    monque.enqueue("x")  # type: ignore[call-arg]
    monque.enqueue(7, 1)  # type: ignore[arg-type]
    monque.enqueue("x", 1, unique_kez="a")  # type: ignore[call-arg]
    monque.enqueue("x", 1, priority="high")  # type: ignore[arg-type]
    monque.enqueue_many("x", 7)  # type: ignore[arg-type]
    monque.schedule("@daily")  # type: ignore[call-arg]
    monque.unschedule(7)  # type: ignore[arg-type]
    monque.get_jobs(limit="ten")  # type: ignore[arg-type]
    monque.get_jobs_with_cursor(direction="sideways")  # type: ignore[arg-type]
    monque.cancel_jobs("x")  # type: ignore[arg-type]
    monque.stop(timeout="soon")  # type: ignore[arg-type]
    monque.worker("x", 7)  # type: ignore[call-overload]
    monque.enque("x", 1)  # type: ignore[attr-defined]


def wrong_results(monque: SyncMonque) -> None:
    job: Job[str] = monque.enqueue("x", 1)  # type: ignore[arg-type]
    assert job.data
    assert monque.now("x", 1).data.upper()  # type: ignore[attr-defined]


async def not_awaitable(monque: SyncMonque) -> None:
    await monque.enqueue("x", 1)  # type: ignore[misc]


def wrong_options(db: Database[dict[str, Any]]) -> None:
    SyncMonque(db, max_retires=3)  # type: ignore[call-arg]
    SyncMonque(db, max_retries="3")  # type: ignore[arg-type]
