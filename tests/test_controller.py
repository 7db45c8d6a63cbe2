"""Managing jobs through an instance, on every kind of handle."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest
from bson import ObjectId

from monque_core import (
    InvalidJobError,
    JobSelector,
    JobStateError,
    JobStatus,
    Monque,
)
from monque_core.events import JobCancelled, JobDeleted, JobRetried, JobsChanged
from monque_core.testing import MovableClock
from tests.support.happenings import Happenings
from tests.support.polling import NO_POLLS, QUICK_POLLS
from tests.support.samples import NOW, a_job, a_schedule
from tests.support.stored import count_by_status, jobs_in, stored, stored_jobs
from tests.support.stores import put
from tests.support.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core.jobs.job import AnyJob
    from tests.conftest import AnyDatabase

    Db = AsyncDatabase[dict[str, Any]]
    Single = Callable[[Monque, Any], Coroutine[Any, Any, Any]]
    Bulk = Callable[..., Coroutine[Any, Any, int]]

RUN_AT: Final = datetime(2026, 3, 2, 18, tzinfo=UTC)
SINGLE: Final[dict[str, Single]] = {
    "cancel": lambda monque, job_id: monque.cancel_job(job_id),
    "retry": lambda monque, job_id: monque.retry_job(job_id),
    "reschedule": lambda monque, job_id: monque.reschedule_job(job_id, RUN_AT),
    "delete": lambda monque, job_id: monque.delete_job(job_id),
}
BULK: Final[dict[str, Bulk]] = {
    "cancel": lambda monque, *given, **options: monque.cancel_jobs(*given, **options),
    "retry": lambda monque, *given, **options: monque.retry_jobs(*given, **options),
    "delete": lambda monque, *given, **options: monque.delete_jobs(*given, **options),
}
SUITABLE: Final = {
    "cancel": "pending",
    "retry": "failed",
    "reschedule": "pending",
    "delete": "completed",
}
TABLE: Final = {
    "cancel": {"pending": "cancelled", "cancelled": "cancelled"},
    "retry": {"failed": "pending", "cancelled": "pending"},
    "reschedule": {"pending": "pending"},
}
every_single = pytest.mark.parametrize("action", SINGLE)
every_bulk = pytest.mark.parametrize("action", BULK)


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture
def monque(db: Db, clock: MovableClock) -> Monque:
    return Monque(db, clock=clock, recover_stale_jobs=False)


class TestEachHandle:
    async def test_cancels_retries_moves_and_deletes(self, any_db: AnyDatabase, db: Db) -> None:
        monque = Monque(any_db)
        job = await monque.enqueue("a", {"n": 1}, unique_key="key")
        cancelled = await monque.cancel_job(job.id)
        assert cancelled is not None
        assert cancelled == await stored(db, job)
        assert cancelled.status == "cancelled"
        retried = await monque.retry_job(str(job.id))
        assert retried is not None
        assert retried == await stored(db, job)
        assert retried.status == "pending"
        moved = await monque.reschedule_job(job.id, RUN_AT)
        assert moved is not None
        assert moved == await stored(db, job)
        assert moved.next_run_at == RUN_AT
        assert await monque.delete_job(str(job.id)) is True
        assert await monque.delete_job(job.id) is False
        await monque.stop()

    async def test_does_it_to_many(self, any_db: AnyDatabase, db: Db) -> None:
        monque = Monque(any_db)
        await monque.enqueue_many("a", range(30))
        assert await monque.cancel_jobs(JobSelector("a", "pending")) == 30
        assert await monque.retry_jobs(JobSelector(status="cancelled")) == 30
        assert await count_by_status(db) == {"pending": 30}
        assert await monque.delete_jobs(JobSelector("a")) == 30
        assert await count_by_status(db) == {}
        await monque.stop()


class TestOneJob:
    @pytest.mark.parametrize("action", TABLE)
    @pytest.mark.parametrize("status", JobStatus.ALL)
    @pytest.mark.parametrize("kind", [ObjectId, str])
    async def test_is_treated_as_its_status_demands(
        self, db: Db, monque: Monque, action: str, status: Any, kind: Any
    ) -> None:
        job = a_job(status=status, fail_count=3, claims=3)
        await put(db, job)
        if status in TABLE[action]:
            result = await SINGLE[action](monque, kind(job.id))
            assert result.status == TABLE[action][status]
            assert result == await stored(db, job)
            return
        with pytest.raises(JobStateError, match=f"cannot {action} job {job.id}: it is") as caught:
            await SINGLE[action](monque, kind(job.id))
        error = caught.value
        assert (error.job_id, error.current_status, error.action) == (job.id, status, action)
        assert await stored(db, job) == job

    @pytest.mark.parametrize("status", JobStatus.ALL)
    async def test_is_deleted_in_any_status(self, db: Db, monque: Monque, status: Any) -> None:
        job = a_job(status=status)
        await put(db, job)
        assert await monque.delete_job(job.id)
        assert await stored_jobs(db) == []

    @every_single
    async def test_that_does_not_exist_returns_none(
        self, db: Db, monque: Monque, action: str
    ) -> None:
        told = Happenings(monque)
        result = await SINGLE[action](monque, ObjectId())
        assert result is (False if action == "delete" else None)
        assert told.names == []

    @every_single
    @pytest.mark.parametrize(
        "job_id", ["", "abc", "g" * 24, "a" * 23, b"a" * 12, 5, None, {"$ne": None}, a_job()]
    )
    async def test_with_a_bad_id_is_refused_before_anything_is_touched(
        self, db: Db, monque: Monque, action: str, job_id: Any
    ) -> None:
        with pytest.raises(InvalidJobError, match="must be the id of a job, an ObjectId or its 24"):
            await SINGLE[action](monque, job_id)
        assert await db.list_collection_names() == []

    @pytest.mark.parametrize("run_at", [datetime(2026, 1, 1), "tomorrow", 5, None])
    async def test_is_not_moved_to_a_bad_time(self, db: Db, monque: Monque, run_at: Any) -> None:
        with pytest.raises(InvalidJobError, match="run_at="):
            await monque.reschedule_job(ObjectId(), run_at)
        assert await db.list_collection_names() == []

    async def test_is_moved_to_any_zone_and_to_the_past(self, db: Db, monque: Monque) -> None:
        job = a_job()
        await put(db, job)
        moved = await monque.reschedule_job(
            job.id, datetime.fromisoformat("2020-01-01T02:00+02:00")
        )
        assert moved is not None
        assert moved.next_run_at == datetime(2020, 1, 1, tzinfo=UTC)
        assert moved.next_run_at.tzinfo is UTC

    async def test_is_stamped_by_the_clock_of_the_instance(
        self, db: Db, monque: Monque, clock: MovableClock
    ) -> None:
        job = a_job(status="failed", fail_reason="boom")
        await put(db, job)
        retried = await monque.retry_job(job.id)
        assert retried is not None
        assert retried.next_run_at == retried.updated_at == clock.now()
        assert (retried.fail_count, retried.claims, retried.fail_reason) == (0, 0, None)

    async def test_that_is_cancelled_and_retried_is_due_as_it_was(
        self, db: Db, monque: Monque, clock: MovableClock
    ) -> None:
        due_at = clock.now() + timedelta(days=1000)
        job = await monque.enqueue("a", 1, run_at=due_at)
        await monque.cancel_job(job.id)
        retried = await monque.retry_job(job.id)
        assert retried is not None
        assert retried == await stored(db, job)
        assert (retried.status, retried.next_run_at) == ("pending", due_at)

    async def test_that_was_due_when_it_was_cancelled_is_due_when_it_is_retried(
        self, db: Db, monque: Monque, clock: MovableClock
    ) -> None:
        job = await monque.enqueue("a", 1, delay=60)
        await monque.cancel_job(job.id)
        clock.advance(61)
        retried = await monque.retry_job(job.id)
        assert retried is not None
        assert retried == await stored(db, job)
        assert retried.next_run_at == clock.now()

    async def test_whose_key_is_active_again_is_not_retried(self, db: Db, monque: Monque) -> None:
        job = a_job(status="failed", unique_key="key")
        await put(db, job)
        await monque.enqueue(job.name, None, unique_key="key")
        told = Happenings(monque)
        with pytest.raises(JobStateError, match="its unique key is active again"):
            await monque.retry_job(job.id)
        assert await stored(db, job) == job
        assert told.names == []


class TestEvents:
    async def test_of_a_cancellation_come_once(self, db: Db, monque: Monque) -> None:
        job = a_job()
        await put(db, job)
        told = Happenings(monque)
        cancelled = await monque.cancel_job(job.id)
        await monque.cancel_job(job.id)
        assert list(told.all) == [("job:cancelled", JobCancelled(cancelled))]  # type: ignore[arg-type]  # it was there

    @pytest.mark.parametrize("status", ["failed", "cancelled"])
    async def test_of_a_retry_tell_what_was_before(
        self, db: Db, monque: Monque, status: Any
    ) -> None:
        job = a_job(status=status)
        await put(db, job)
        told = Happenings(monque)
        retried = await monque.retry_job(job.id)
        assert retried is not None
        assert list(told.all) == [("job:retried", JobRetried(retried, status))]
        assert retried.status == "pending"

    async def test_of_a_deletion_tell_the_id(self, db: Db, monque: Monque) -> None:
        job = a_job()
        await put(db, job)
        told = Happenings(monque)
        await monque.delete_job(str(job.id))
        await monque.delete_job(str(job.id))
        assert list(told.all) == [("job:deleted", JobDeleted(job.id))]

    async def test_of_a_move_are_none(self, db: Db, monque: Monque) -> None:
        job = a_job()
        await put(db, job)
        told = Happenings(monque)
        await monque.reschedule_job(job.id, RUN_AT)
        assert told.names == []

    @pytest.mark.parametrize("action", TABLE)
    async def test_of_a_refusal_are_none(self, db: Db, monque: Monque, action: str) -> None:
        job = a_job(status="completed")
        await put(db, job)
        told = Happenings(monque)
        with pytest.raises(JobStateError):
            await SINGLE[action](monque, job.id)
        assert told.names == []

    @every_bulk
    async def test_of_many_are_one(self, db: Db, monque: Monque, action: str) -> None:
        await put(db, *(a_job(status=SUITABLE[action]) for _ in range(5)))
        told = Happenings(monque)
        assert await BULK[action](monque, JobSelector("send-email")) == 5
        event = {"cancel": "cancelled", "retry": "retried", "delete": "deleted"}[action]
        assert list(told.all) == [(f"jobs:{event}", JobsChanged(5))]

    @every_bulk
    async def test_of_none_are_none(self, db: Db, monque: Monque, action: str) -> None:
        await put(db, a_job())
        told = Happenings(monque)
        assert await BULK[action](monque, JobSelector("absent")) == 0
        assert told.names == []

    async def test_come_after_the_write(self, db: Db, blocking_db: Any, monque: Monque) -> None:
        job = a_job()
        await put(db, job)
        seen = []

        def look(_: object) -> None:
            seen.append(blocking_db["monque_jobs"].find_one({"_id": job.id})["status"])

        monque.on("job:cancelled", look)
        monque.on("job:retried", look)
        await monque.cancel_job(job.id)
        await monque.retry_job(job.id)
        assert seen == ["cancelled", "pending"]


class TestManyJobs:
    @every_bulk
    async def test_are_not_all_jobs_unless_that_is_said(
        self, db: Db, monque: Monque, action: str
    ) -> None:
        jobs = [a_job(name=name, status=SUITABLE[action]) for name in ("a", "b", "c")]
        await put(db, *jobs)
        with pytest.raises(ValueError, match=r"selects every job: .*everything=True"):
            await BULK[action](monque, JobSelector())
        assert await stored_jobs(db) == jobs
        assert await BULK[action](monque, JobSelector(), everything=True) == 3

    @every_bulk
    async def test_may_be_narrowed_even_if_all_jobs_are_allowed(
        self, db: Db, monque: Monque, action: str
    ) -> None:
        await put(db, *(a_job(name=name, status=SUITABLE[action]) for name in ("a", "b")))
        assert await BULK[action](monque, JobSelector("a"), everything=True) == 1

    @every_bulk
    async def test_are_refused_before_anything_is_touched(
        self, db: Db, monque: Monque, action: str
    ) -> None:
        with pytest.raises(ValueError, match="everything=True"):
            await BULK[action](monque, JobSelector())
        for selector in ("a", None, {"name": "a"}, ["a"]):
            with pytest.raises(TypeError, match=r"JobSelector"):
                await BULK[action](monque, selector)
        assert await db.list_collection_names() == []

    @every_bulk
    async def test_are_counted_as_they_go(self, db: Db, monque: Monque, action: str) -> None:
        await put(db, *(a_job(status=SUITABLE[action]) for _ in range(1100)))
        counts: list[int] = []
        selector = JobSelector("send-email")
        assert await BULK[action](monque, selector, progress=counts.append) == 1100
        assert sum(counts) == 1100
        assert max(counts) <= 1000

    @every_bulk
    async def test_are_chosen_by_age(
        self, db: Db, monque: Monque, clock: MovableClock, action: str
    ) -> None:
        for days in range(6):
            created = clock.now() - timedelta(days=days)
            await put(db, a_job(created_at=created, status=SUITABLE[action]))
        day = timedelta(days=1)
        assert await BULK[action](monque, JobSelector(older_than=4 * day)) == 1
        assert await BULK[action](monque, JobSelector(newer_than=clock.now() - day)) == 1
        between = JobSelector(older_than=clock.now() - day, newer_than=3 * 86_400)
        assert await BULK[action](monque, between) == 1

    async def test_that_are_chosen_by_a_status_they_may_not_have_are_left(
        self, db: Db, monque: Monque
    ) -> None:
        await put(db, *(a_job(status=status) for status in JobStatus.ALL))
        assert await monque.cancel_jobs(JobSelector(status=["processing", "completed"])) == 0
        assert await monque.retry_jobs(JobSelector(status="pending")) == 0
        assert await monque.retry_jobs(JobSelector(status=["pending", "failed"])) == 1
        assert await count_by_status(db) == {
            "pending": 2,
            "processing": 1,
            "completed": 1,
            "cancelled": 1,
        }

    async def test_that_are_cancelled_and_retried_are_due_as_they_were(
        self, db: Db, monque: Monque, clock: MovableClock
    ) -> None:
        due_at = clock.now() + timedelta(days=1000)
        await monque.enqueue_many("a", range(3), run_at=due_at)
        await monque.enqueue("a", 3, run_at=due_at, unique_key="key")
        await put(db, a_job(name="a", status="failed", next_run_at=due_at))
        await monque.cancel_jobs(JobSelector("a"))
        assert await monque.retry_jobs(JobSelector("a")) == 5
        due = [job.next_run_at for job in await stored_jobs(db)]
        assert due.count(due_at) == 4
        assert min(due) <= clock.now() + timedelta(seconds=1)

    async def test_that_are_schedules_are_cancelled_only_if_that_is_asked_for(
        self, db: Db, monque: Monque
    ) -> None:
        await monque.enqueue_many("report", range(3))
        await monque.schedule("0 * * * *", "report", None)
        assert await monque.cancel_jobs(JobSelector("report")) == 3
        assert len(await monque.get_schedules()) == 1
        assert await monque.cancel_jobs(JobSelector("report"), schedules=True) == 1
        assert await monque.get_schedules() == []

    async def test_that_are_retried_become_due_over_a_short_while(
        self, db: Db, monque: Monque, clock: MovableClock
    ) -> None:
        await put(db, *(a_job(status="failed") for _ in range(200)))
        assert await monque.retry_jobs(JobSelector(status="failed")) == 200
        due = [job.next_run_at for job in await stored_jobs(db)]
        assert min(due) >= clock.now()
        assert timedelta(milliseconds=500) < max(due) - clock.now() <= timedelta(seconds=2)

    async def test_that_are_retried_by_the_thousand_do_not_wait_long(
        self, db: Db, monque: Monque, clock: MovableClock
    ) -> None:
        await put(db, *(a_job(status="failed") for _ in range(3200)))
        assert await monque.retry_jobs(JobSelector(status="failed")) == 3200
        due = [job.next_run_at for job in await stored_jobs(db)]
        assert timedelta(seconds=20) < max(due) - clock.now() <= timedelta(seconds=30)

    async def test_that_are_few_to_be_retried_among_many_do_not_wait(
        self, db: Db, monque: Monque, clock: MovableClock
    ) -> None:
        await put(db, *(a_job(status="completed") for _ in range(3000)), a_job(status="failed"))
        assert await monque.retry_jobs(JobSelector("send-email")) == 1
        (job,) = await stored_jobs(db, status="pending")
        assert job.next_run_at - clock.now() <= timedelta(milliseconds=10)

    async def test_whose_keys_are_active_again_are_skipped(self, db: Db, monque: Monque) -> None:
        failed = [a_job(status="failed", unique_key=f"key-{n % 3}") for n in range(6)]
        await put(db, *failed, a_job(unique_key="key-0"))
        told = Happenings(monque)
        assert await monque.retry_jobs(JobSelector(status="failed")) == 2
        assert told.of("jobs:retried") == [JobsChanged(2)]
        assert await count_by_status(db) == {"pending": 3, "failed": 4}


class TestARunningInstance:
    async def test_runs_a_job_that_is_retried_at_once(self, db: Db) -> None:
        monque, ran = Monque(db, max_retries=1, **NO_POLLS), Tally[int]()
        told = Happenings(monque)

        @monque.worker("a")
        async def handle(job: AnyJob) -> None:
            ran.add(job.claims)
            if len(ran) == 1:
                raise RuntimeError("boom")

        async with monque:
            job = await monque.enqueue("a", None)
            await told.reach("job:fail")
            await monque.retry_job(job.id)
            await told.reach("job:complete")
        assert list(ran) == [1, 1]
        after = await stored(db, job)
        assert (after.status, after.fail_count, after.fail_reason) == ("completed", 0, None)

    async def test_runs_a_job_that_is_moved_to_now(self, db: Db) -> None:
        monque, ran = Monque(db, **NO_POLLS), Tally[str]()

        @monque.worker("a")
        async def handle(job: AnyJob) -> None:
            ran.add(job.data)

        async with monque:
            job = await monque.enqueue("a", "sooner", delay=3600)
            await monque.reschedule_job(job.id, datetime.now(UTC))
            await ran.reach(1)

    async def test_does_not_run_a_job_that_is_moved_away(self, db: Db, clock: MovableClock) -> None:
        monque, ran = Monque(db, clock=clock, **QUICK_POLLS), Tally[str]()

        @monque.worker("a")
        async def handle(job: AnyJob) -> None:
            ran.add(job.data)

        async with monque:
            job = await monque.enqueue("a", "later", delay=60)
            await monque.reschedule_job(job.id, clock.now() + timedelta(hours=1))
            clock.advance(120)
            await monque.enqueue("a", "now")
            await ran.reach(1)
            await monque.run_until_idle()
            assert list(ran) == ["now"]
            clock.advance(3600)
            await ran.reach(2)

    async def test_runs_jobs_that_another_instance_retries_in_bulk(self, db: Db) -> None:
        operator, monque, ran = Monque(db), Monque(db, **NO_POLLS), Tally[int]()
        told = Happenings(monque)
        await put(db, *(a_job(name="a", status="failed", data=n) for n in range(20)))

        @monque.worker("a")
        async def handle(job: AnyJob) -> None:
            ran.add(job.data)

        async with monque:
            await told.reach("changestream:connected")
            assert await operator.retry_jobs(JobSelector("a")) == 20
            await ran.reach(20)
        assert sorted(ran) == list(range(20))

    async def test_does_not_run_cancelled_jobs(self, db: Db) -> None:
        monque, ran = Monque(db), Tally[int]()

        @monque.worker("a")
        async def handle(job: AnyJob) -> None:
            ran.add(job.data)

        await monque.enqueue_many("a", range(10))
        assert await monque.cancel_jobs(JobSelector("a")) == 10
        await monque.enqueue("a", 99)
        await monque.run_until_idle()
        assert list(ran) == [99]

    async def test_refuses_to_cancel_a_running_job(self, db: Db) -> None:
        monque, ran, may_end = Monque(db), Tally[int](), asyncio.Event()

        @monque.worker("a")
        async def handle(job: AnyJob) -> None:
            ran.add(job.data)
            await may_end.wait()

        async with monque:
            job = await monque.enqueue("a", 1)
            await ran.reach(1)
            for action in TABLE:
                with pytest.raises(JobStateError, match="it is processing"):
                    await SINGLE[action](monque, job.id)
            may_end.set()
        assert (await stored(db, job)).status == "completed"


class TestAJobThatIsDeletedWhileItRuns:
    async def test_is_cancelled_when_its_instance_finds_out(self, db: Db) -> None:
        monque = Monque(db, heartbeat_interval=0.1, lock_timeout=60)
        told, ends = Happenings(monque), Tally[str]()

        @monque.worker("a")
        async def handle(job: AnyJob) -> None:
            ends.add("began")
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                ends.add("cancelled")
                raise

        async with monque:
            job = await monque.enqueue("a", 1)
            await ends.reach(1)
            assert await monque.delete_job(job.id)
            await ends.reach(2)
        assert list(ends) == ["began", "cancelled"]
        assert await stored_jobs(db) == []
        assert not {"job:complete", "job:fail", "job:error"} & set(told.names)

    @pytest.mark.parametrize("fails", [False, True])
    @pytest.mark.parametrize("is_recurring", [False, True])
    async def test_leaves_nothing_behind_when_it_ends(
        self, db: Db, fails: bool, is_recurring: bool
    ) -> None:
        monque = Monque(db, max_retries=1)
        told, began, may_end = Happenings(monque), Tally[int](), asyncio.Event()

        @monque.worker("report")
        async def handle(job: AnyJob) -> None:
            began.add(1)
            await may_end.wait()
            if fails:
                raise RuntimeError("boom")

        now = datetime.now(UTC)
        make = a_schedule if is_recurring else a_job
        job = make(name="report", next_run_at=now, created_at=now, updated_at=now)
        await put(db, job)
        async with monque:
            await began.reach(1)
            assert await monque.delete_jobs(JobSelector("report")) == 1
            may_end.set()
        assert not {"job:complete", "job:fail", "job:error"} & set(told.names)
        left = await stored_jobs(db)
        assert [job.id for job in left if job.is_recurring] == []
        assert left == []

    async def test_is_logged_as_a_cancellation_and_not_as_an_error(
        self, db: Db, caplog: pytest.LogCaptureFixture
    ) -> None:
        monque = Monque(db)
        began, may_end = Tally[int](), asyncio.Event()

        @monque.worker("a")
        async def handle(job: AnyJob) -> None:
            began.add(1)
            await may_end.wait()

        with caplog.at_level(logging.INFO, "monque"):
            async with monque:
                job = await monque.enqueue("a", 1)
                await began.reach(1)
                await monque.delete_job(job.id)
                may_end.set()
        assert f"job a {job.id} was deleted while it ran" in caplog.messages
        assert not [record for record in caplog.records if record.levelno > logging.INFO]


class TestSchedules:
    async def test_that_are_cancelled_come_back_by_retry_or_anew(
        self, db: Db, monque: Monque, clock: MovableClock
    ) -> None:
        schedule = await monque.schedule("0 * * * *", "report", None)
        await monque.cancel_job(schedule.id)
        assert await monque.get_schedules() == []
        retried = await monque.retry_job(schedule.id)
        assert retried is not None
        assert (retried.next_run_at, retried.repeat_interval) == (schedule.next_run_at, "0 * * * *")
        assert await monque.get_schedules() == [retried]
        await monque.cancel_job(schedule.id)
        anew = await monque.schedule("0 * * * *", "report", None)
        assert anew.id != schedule.id
        with pytest.raises(JobStateError, match="unique key is active again"):
            await monque.retry_job(schedule.id)

    async def test_that_are_moved_keep_their_ticks(
        self, db: Db, monque: Monque, clock: MovableClock
    ) -> None:
        ran = Tally[datetime]()

        @monque.worker("report")
        async def handle(job: AnyJob) -> None:
            ran.add(clock.now())

        schedule = await monque.schedule("0 * * * *", "report", None)
        await monque.reschedule_job(schedule.id, clock.now())
        await monque.run_until_idle()
        assert list(ran) == [clock.now()]
        after = await stored(db, schedule)
        assert (after.status, after.next_run_at) == ("pending", schedule.next_run_at)

    async def test_that_are_deleted_are_gone_until_scheduled_again(
        self, db: Db, monque: Monque
    ) -> None:
        schedule = await monque.schedule("0 * * * *", "report", None)
        assert await monque.delete_job(schedule.id)
        assert await monque.get_schedules() == []
        assert not (await monque.schedule("0 * * * *", "report", None)).deduplicated


async def test_races_of_instances_over_one_job_have_one_winner(db: Db) -> None:
    instances = [Monque(db) for _ in range(4)]
    await asyncio.gather(*(instance.initialize() for instance in instances))
    told = [Happenings(instance) for instance in instances]
    for _ in range(10):
        job = a_job(status="failed")
        await put(db, job)
        results = await asyncio.gather(
            *(instance.retry_job(job.id) for instance in instances), return_exceptions=True
        )
        assert sum(isinstance(result, JobStateError) for result in results) == 3
    assert sum(len(one.of("job:retried")) for one in told) == 10


async def test_whatever_is_called_first_initializes(db: Db) -> None:
    await Monque(db).cancel_jobs(JobSelector("a"))
    names = [index["name"] async for index in await jobs_in(db).list_indexes()]
    assert "monque_py_claim" in names


async def test_an_action_within_a_handler_is_possible(db: Db) -> None:
    monque = Monque(db)
    other = await monque.enqueue("b", None, delay=3600)

    @monque.worker("a")
    async def handle(job: AnyJob) -> None:
        await monque.cancel_job(other.id)
        await monque.delete_job(job.id)

    told = Happenings(monque)
    async with monque:
        await monque.enqueue("a", NOW)
        await told.reach("job:deleted")
    (left,) = await stored_jobs(db)
    assert (left.id, left.status) == (other.id, "cancelled")
