"""Reading jobs through an instance, on every kind of handle."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final

import pytest
from bson import ObjectId
from pymongo import AsyncMongoClient

from monque_core import (
    AggregationTimeoutError,
    InvalidCursorError,
    InvalidJobError,
    JobSelector,
    JobStatus,
    Monque,
)
from monque_core.jobs.views import QueueStats, QueueView, QueueWorker
from monque_core.store import statistics
from tests.support.commands import CommandLog
from tests.support.samples import NOW, a_job, a_schedule
from tests.support.stored import jobs_in, stored
from tests.support.stores import put
from tests.support.tally import Tally

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import JobPage
    from monque_core.jobs.job import AnyJob
    from tests.conftest import AnyDatabase

    Db = AsyncDatabase[dict[str, Any]]

SECOND: Final = timedelta(seconds=1)
SORTS: Final = [
    f"{minus}{field}"
    for field in ("created_at", "updated_at", "next_run_at")
    for minus in ("", "-")
]


@pytest.fixture
def monque(db: Db) -> Monque:
    return Monque(db, stats_cache_ttl=0, recover_stale_jobs=False)


@pytest.fixture
def log() -> CommandLog:
    return CommandLog()


@pytest.fixture
async def logged_db(
    uri: str, database_name: str, log: CommandLog
) -> AsyncIterator[AsyncDatabase[dict[str, Any]]]:
    """Yield the test's database with every command recorded."""
    async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
        yield client[database_name]


class TestEachHandle:
    async def test_returns_jobs_pages_and_statistics(self, any_db: AnyDatabase, db: Db) -> None:
        monque = Monque(any_db)
        jobs = await monque.enqueue_many("a", range(7))
        schedule = await monque.schedule("@daily", "b", None)
        assert await monque.get_job(str(jobs[3].id)) == await stored(db, jobs[3])
        newest = await monque.get_jobs(name="a", limit=2)
        assert [job.data for job in newest] == [6, 5]
        first = await monque.get_jobs_with_cursor(limit=5, filter=JobSelector("a"))
        assert [job.data for job in first.jobs] == [6, 5, 4, 3, 2]
        second = await monque.get_jobs_with_cursor(
            cursor=first.cursor, limit=5, filter=JobSelector("a")
        )
        assert [job.data for job in second.jobs] == [1, 0]
        assert [job.id for job in await monque.get_schedules()] == [schedule.id]
        assert await monque.get_queue_stats("a") == QueueStats(pending=7)
        assert [view.name for view in await monque.get_queue_view_summaries()] == ["a", "b"]
        await monque.stop()


class TestGetJob:
    @pytest.mark.parametrize("kind", [ObjectId, str, lambda job_id: str(job_id).upper()])
    async def test_knows_ids_and_their_texts(self, db: Db, monque: Monque, kind: Any) -> None:
        job = a_job(data={"a": [1, None]}, priority=3, unique_key="key")
        await put(db, a_job(), job)
        assert await monque.get_job(kind(job.id)) == job

    async def test_gives_nothing_for_an_unknown_one(self, monque: Monque) -> None:
        assert await monque.get_job(ObjectId()) is None

    @pytest.mark.parametrize("job_id", ["", "abc", "z" * 24, b"a" * 12, 5, None, {"$ne": 1}])
    async def test_refuses_what_is_no_id(self, db: Db, monque: Monque, job_id: Any) -> None:
        with pytest.raises(InvalidJobError, match="the id of a job, an ObjectId or its 24 hex"):
            await monque.get_job(job_id)
        assert await db.list_collection_names() == []


class TestGetJobs:
    async def test_gives_the_newest_hundred_first(self, db: Db, monque: Monque) -> None:
        await put(db, *(a_job(data=n) for n in range(120)))
        found = await monque.get_jobs()
        assert [job.data for job in found] == list(range(119, 19, -1))

    async def test_takes_a_name_and_statuses(self, db: Db, monque: Monque) -> None:
        jobs = [a_job(name=name, status=status) for name in "ab" for status in JobStatus.ALL]
        await put(db, *jobs)
        assert await monque.get_jobs(name="a") == jobs[4::-1]
        assert await monque.get_jobs(status="failed") == [jobs[8], jobs[3]]
        assert await monque.get_jobs(name="a", status="failed") == [jobs[3]]
        both = await monque.get_jobs(name="b", status=["cancelled", "pending"])
        assert both == [jobs[9], jobs[5]]
        assert await monque.get_jobs(name="absent") == []

    async def test_skips(self, db: Db, monque: Monque) -> None:
        await put(db, *(a_job(data=n) for n in range(10)))
        found = await monque.get_jobs(limit=3, skip=4)
        assert [job.data for job in found] == [5, 4, 3]

    @pytest.mark.parametrize(
        ("options", "field"),
        [
            ({"name": ""}, "name"),
            ({"name": " "}, "name"),
            ({"status": "faild"}, "status"),
            ({"status": []}, "status"),
            ({"limit": 0}, "limit"),
            ({"limit": -1}, "limit"),
            ({"limit": 1.5}, "limit"),
            ({"limit": True}, "limit"),
            ({"limit": None}, "limit"),
            ({"skip": -1}, "skip"),
            ({"skip": "1"}, "skip"),
        ],
    )
    async def test_refuses_before_anything_is_touched(
        self, db: Db, monque: Monque, options: Any, field: str
    ) -> None:
        with pytest.raises(InvalidJobError, match=f"{field}=") as caught:
            await monque.get_jobs(**options)
        assert caught.value.field == field
        assert await db.list_collection_names() == []


async def all_pages(monque: Monque, **options: Any) -> list[JobPage]:
    pages = [await monque.get_jobs_with_cursor(**options)]
    while pages[-1].has_next:
        assert len(pages) < 100
        pages.append(await monque.get_jobs_with_cursor(cursor=pages[-1].cursor, **options))
    return pages


def data(*pages: JobPage) -> list[Any]:
    return [job.data for page in pages for job in page.jobs]


class TestPages:
    @pytest.mark.parametrize("sort", SORTS)
    async def test_go_forward_and_backward_over_all_jobs(
        self, db: Db, monque: Monque, sort: str
    ) -> None:
        jobs = [
            a_job(data=n, updated_at=NOW + n * 3 % 7 * SECOND, next_run_at=NOW - n % 4 * SECOND)
            for n in range(23)
        ]
        await put(db, *jobs)
        pages = await all_pages(monque, sort=sort, limit=4)
        field, is_descending = sort.removeprefix("-"), sort.startswith("-")
        in_order = sorted(
            jobs, key=lambda job: (getattr(job, field), job.id), reverse=is_descending
        )
        assert data(*pages) == [job.data for job in in_order]
        back = [pages[-1]]
        while back[-1].has_previous:
            page = await monque.get_jobs_with_cursor(
                cursor=back[-1].cursor, direction="backward", sort=sort, limit=4
            )
            back.append(page)
        assert [data(page) for page in reversed(back)] == [data(page) for page in pages]
        assert not back[-1].has_previous

    async def test_are_of_fifty_and_the_newest_first_unless_told(
        self, db: Db, monque: Monque
    ) -> None:
        await put(db, *(a_job(data=n) for n in range(60)))
        page = await monque.get_jobs_with_cursor()
        assert data(page) == list(range(59, 9, -1))
        assert (page.has_next, page.has_previous) == (True, False)

    async def test_of_nothing(self, monque: Monque) -> None:
        page = await monque.get_jobs_with_cursor()
        assert (list(page.jobs), page.cursor) == ([], None)
        assert (page.has_next, page.has_previous) == (False, False)

    async def test_backward_without_a_cursor_is_the_first(self, db: Db, monque: Monque) -> None:
        await put(db, *(a_job(data=n) for n in range(3)))
        page = await monque.get_jobs_with_cursor(direction="backward", limit=2)
        assert data(page) == [2, 1]

    async def test_are_stable_while_jobs_change(self, db: Db, monque: Monque) -> None:
        """Between two pages, jobs come and go on both sides; each other job is seen once."""
        jobs = [a_job(data=n) for n in range(60)]
        await put(db, *jobs)
        pages = [await monque.get_jobs_with_cursor(limit=7)]
        deleted: set[int] = set()
        while pages[-1].has_next:
            step = len(pages)
            await put(db, a_job(data=f"new-{step}"))
            gone = {59 - 7 * step + 2, max(0, 59 - 7 * step - 3)}
            deleted |= gone
            await jobs_in(db).delete_many({"data": {"$in": list(gone)}})
            await jobs_in(db).update_many({"data": {"$gte": 0}}, {"$set": {"status": "completed"}})
            pages.append(await monque.get_jobs_with_cursor(cursor=pages[-1].cursor, limit=7))
        seen = data(*pages)
        assert len(seen) == len(set(seen))
        assert not set(range(60)) - deleted - set(seen)
        assert [n for n in seen if isinstance(n, int)] == sorted(set(seen), reverse=True)

    async def test_take_any_filter(self, db: Db, monque: Monque) -> None:
        now = datetime.now(UTC)
        for n in range(12):
            made = now - n * timedelta(hours=1)
            await put(db, a_job(data=n, name="ab"[n % 2], status="failed", created_at=made))
        chosen = JobSelector("a", ["failed", "pending"], older_than=now - 2.5 * timedelta(hours=1))
        pages = await all_pages(monque, filter=chosen, limit=2, sort="created_at")
        assert [data(page) for page in pages] == [[4, 6], [8, 10]]


class TestCursors:
    async def cursor(self, db: Db, monque: Monque, **options: Any) -> str:
        await put(db, *(a_job(status="failed") for _ in range(3)))
        page = await monque.get_jobs_with_cursor(limit=1, **options)
        assert page.cursor is not None
        return page.cursor

    @pytest.mark.parametrize("sort", SORTS[:-1])
    async def test_of_another_sort_are_refused(self, db: Db, monque: Monque, sort: str) -> None:
        cursor = await self.cursor(db, monque, sort=SORTS[-1])
        with pytest.raises(InvalidCursorError, match="another filter or sort"):
            await monque.get_jobs_with_cursor(cursor=cursor, sort=sort)

    @pytest.mark.parametrize(
        "other",
        [
            None,
            JobSelector("send-email"),
            JobSelector(status="failed"),
            JobSelector("send-email", ["failed", "pending"]),
            JobSelector("send-email", "failed", older_than=60),
            JobSelector("send-email", "failed", newer_than=60),
        ],
    )
    async def test_of_another_filter_are_refused(
        self, db: Db, monque: Monque, other: JobSelector | None
    ) -> None:
        cursor = await self.cursor(db, monque, filter=JobSelector("send-email", "failed"))
        with pytest.raises(InvalidCursorError, match="another filter or sort"):
            await monque.get_jobs_with_cursor(cursor=cursor, filter=other)

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (JobSelector(), None),
            (JobSelector(status="failed"), JobSelector(status=["failed"])),
            (JobSelector(status=["failed", "pending"]), JobSelector(status=("pending", "failed"))),
            (JobSelector(newer_than=3600), JobSelector(newer_than=timedelta(hours=1))),
            (
                JobSelector(newer_than=NOW),
                JobSelector(newer_than=NOW.astimezone(timezone(timedelta(hours=2)))),
            ),
        ],
    )
    async def test_of_the_same_filter_in_other_words_are_taken(
        self, db: Db, monque: Monque, one: JobSelector, other: JobSelector | None
    ) -> None:
        now = datetime.now(UTC)
        await put(db, *(a_job(status="failed", created_at=now) for _ in range(3)))
        page = await monque.get_jobs_with_cursor(limit=1, filter=one)
        assert page.has_next
        second = await monque.get_jobs_with_cursor(cursor=page.cursor, limit=1, filter=other)
        assert len(second.jobs) == 1

    async def test_may_be_turned_with_another_limit(self, db: Db, monque: Monque) -> None:
        await put(db, *(a_job(data=n) for n in range(10)))
        first = await monque.get_jobs_with_cursor(limit=2)
        second = await monque.get_jobs_with_cursor(cursor=first.cursor, limit=5)
        assert data(second) == [7, 6, 5, 4, 3]

    @pytest.mark.parametrize("cursor", ["", "abc", "ä", 5, b"abc", "A" * 2000])
    async def test_that_are_invalid_are_refused_before_any_command(
        self, db: Db, monque: Monque, cursor: Any
    ) -> None:
        with pytest.raises(InvalidCursorError):
            await monque.get_jobs_with_cursor(cursor=cursor)
        assert await db.list_collection_names() == []

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"sort": "name"}, "sort='name' must be one of created_at, updated_at, next_run_at"),
            ({"sort": "--created_at"}, "sort='--created_at' must be one of"),
            ({"sort": None}, "sort=None must be"),
            ({"direction": "up"}, "direction='up' must be 'forward' or 'backward'"),
            ({"limit": 0}, "limit=0"),
            ({"limit": "5"}, "limit='5'"),
        ],
    )
    async def test_do_not_hide_other_errors(
        self, db: Db, monque: Monque, options: Any, message: str
    ) -> None:
        with pytest.raises(ValueError, match=message):
            await monque.get_jobs_with_cursor(**options)
        assert await db.list_collection_names() == []

    @pytest.mark.parametrize("chosen", ["a", {"name": "a"}, ["a"], 5])
    async def test_need_a_selector(self, db: Db, monque: Monque, chosen: Any) -> None:
        with pytest.raises(TypeError, match="JobSelector"):
            await monque.get_jobs_with_cursor(filter=chosen)
        assert await db.list_collection_names() == []

    async def test_are_taken_by_another_process(self, db: Db, monque: Monque, uri: str) -> None:
        """Also if the filter contains a set, whose order differs between processes."""
        await put(db, *(a_job(data=n, status=JobStatus.ALL[n % 5]) for n in range(10)))
        statuses: Any = {"failed", "pending", "cancelled", "completed"}
        page = await monque.get_jobs_with_cursor(limit=3, filter=JobSelector(status=statuses))
        program = (
            "import asyncio, sys\n"
            "from pymongo import AsyncMongoClient\n"
            "from monque_core import JobSelector, Monque\n"
            "async def main(uri, name, cursor):\n"
            "    async with AsyncMongoClient(uri) as client:\n"
            f"        chosen = JobSelector(status={{{', '.join(map(repr, statuses))}}})\n"
            "        monque = Monque(client[name], recover_stale_jobs=False)\n"
            "        page = await monque.get_jobs_with_cursor(\n"
            "            cursor=cursor, limit=9, filter=chosen)\n"
            "        print(sorted(job.data for job in page.jobs))\n"
            "asyncio.run(main(*sys.argv[1:]))\n"
        )
        assert page.cursor is not None
        for seed in ("1", "2"):
            told = await asyncio.to_thread(
                subprocess.run,
                [sys.executable, "-c", program, uri, db.name, page.cursor],
                env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
                capture_output=True,
                text=True,
                timeout=200,
                check=False,
            )
            wanted = [n for n in range(10) if n % 5 != 1 and n not in data(page)]
            assert told.stdout.strip() == str(wanted), told.stderr


class TestSchedules:
    async def test_are_counted_by_name(self, db: Db, monque: Monque) -> None:
        schedules = [a_schedule(name=name, unique_key=name) for name in ("c", "a", "b")]
        await put(db, *schedules, a_job(name="a"), a_schedule(name="a", status="cancelled"))
        assert [job.name for job in await monque.get_schedules()] == ["a", "b", "c"]
        assert await monque.get_schedules("a") == [schedules[1]]
        assert await monque.get_schedules("absent") == []

    async def test_of_an_unknown_name_are_an_error(self, db: Db, monque: Monque) -> None:
        with pytest.raises(InvalidJobError, match="name=''"):
            await monque.get_schedules("")
        assert await db.list_collection_names() == []


class TestStats:
    async def test_count_by_status(self, db: Db, monque: Monque) -> None:
        for n, status in enumerate(JobStatus.ALL):
            await put(db, *(a_job(name="ab"[k % 2], status=status) for k in range(2 * n + 2)))
        stats = await monque.get_queue_stats()
        assert (stats.pending, stats.processing, stats.completed) == (2, 4, 6)
        assert (stats.failed, stats.cancelled) == (8, 10)
        # Without a claim, a run counts from its due time.
        assert stats.average_duration == timedelta(0)
        assert stats.total == 30
        assert (await monque.get_queue_stats(name="a")).total == 15
        assert await monque.get_queue_stats("absent") == QueueStats()

    @pytest.mark.parametrize("name", ["", " ", "a b", 5])
    async def test_of_an_unknown_name_are_an_error(self, db: Db, monque: Monque, name: Any) -> None:
        with pytest.raises(InvalidJobError, match="name="):
            await monque.get_queue_stats(name)
        assert await db.list_collection_names() == []

    async def test_tell_how_long_runs_take(self, db: Db, monque: Monque) -> None:
        @monque.worker("a")
        async def handle(job: AnyJob) -> None:
            await asyncio.sleep(0.05)

        await monque.enqueue_many("a", range(3))
        await monque.run_until_idle()
        average = (await monque.get_queue_stats("a")).average_duration
        assert average is not None
        assert timedelta(seconds=0.045) < average < timedelta(seconds=10)

    async def test_are_kept_for_a_while(self, db: Db, logged_db: Db, log: CommandLog) -> None:
        monque = Monque(logged_db, stats_cache_ttl=3600)
        await monque.initialize()
        log.sent.clear()
        before = await monque.get_queue_stats()
        await put(db, a_job())
        assert await monque.get_queue_stats() == before
        assert [view.name for view in await monque.get_queue_view_summaries()] == []
        assert log.count()["aggregate"] == 1
        assert (await monque.get_queue_stats("send-email")).total == 1
        assert log.count()["aggregate"] == 2

    async def test_are_counted_anew_when_that_is_over(self, db: Db) -> None:
        monque = Monque(db, stats_cache_ttl=0.05)
        assert (await monque.get_queue_stats()).total == 0
        await put(db, a_job())
        await asyncio.sleep(0.06)
        assert (await monque.get_queue_stats()).total == 1

    async def test_are_not_kept_if_not_wanted(self, db: Db, logged_db: Db, log: CommandLog) -> None:
        monque = Monque(logged_db, stats_cache_ttl=0)
        await monque.initialize()
        log.sent.clear()
        for count in range(3):
            assert (await monque.get_queue_stats()).total == count
            await put(db, a_job())
        assert log.count() == {"aggregate": 3}

    async def test_that_take_too_long_end_in_a_clear_error_and_are_not_kept(
        self, db: Db, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monque = Monque(db, stats_cache_ttl=3600)
        many = [{"_id": ObjectId(), "name": f"a{n}", "status": "failed"} for n in range(50_000)]
        await jobs_in(db).insert_many(many, ordered=False)
        with monkeypatch.context() as patch:
            patch.setattr(statistics, "_LONGEST_MS", 1)
            for ask in (monque.get_queue_stats, monque.get_queue_view_summaries):
                with pytest.raises(AggregationTimeoutError, match="JobRetention"):
                    await ask()
        assert (await monque.get_queue_stats()).total == 50_000


class TestViews:
    async def test_of_nothing(self, monque: Monque) -> None:
        assert await monque.get_queue_view_summaries() == []

    async def test_join_what_is_stored_with_who_works_here(self, db: Db, monque: Monque) -> None:
        async def handle(job: AnyJob) -> None: ...

        monque.worker("both", handle, concurrency=3, timeout=60)
        monque.worker("idle", handle)
        await put(db, a_job(name="both"), a_job(name="stored", status="failed"))
        minute = timedelta(minutes=1)
        assert await monque.get_queue_view_summaries() == [
            QueueView("both", QueueStats(pending=1), True, QueueWorker(3, 0, minute)),
            QueueView("idle", QueueStats(), False, QueueWorker(5, 0, None)),
            QueueView("stored", QueueStats(failed=1), True, None),
        ]

    async def test_tell_how_many_jobs_run_here(self, db: Db) -> None:
        monque, began, may_end = Monque(db, stats_cache_ttl=0), Tally[int](), asyncio.Event()

        @monque.worker("a", concurrency=2)
        async def handle(job: AnyJob) -> None:
            began.add(job.data)
            await may_end.wait()

        elsewhere = Monque(db, stats_cache_ttl=0)
        async with monque:
            await monque.enqueue_many("a", range(5))
            await began.reach(2)
            (view,) = await monque.get_queue_view_summaries()
            assert view.worker is not None
            assert (view.worker.concurrency, view.worker.running) == (2, 2)
            assert view.stats.total == 5
            (seen,) = await elsewhere.get_queue_view_summaries()
            assert (seen.worker, seen.stats.total) == (None, 5)
            may_end.set()
            await monque.run_until_idle()
            (view,) = await monque.get_queue_view_summaries()
            assert view.worker is not None
            assert (view.worker.running, view.stats.completed) == (0, 5)
        (view,) = await monque.get_queue_view_summaries()
        assert view.worker == QueueWorker(2, 0, None)

    async def test_are_one_aggregation(self, db: Db, logged_db: Db, log: CommandLog) -> None:
        await put(db, *(a_job(name=f"name-{n}") for n in range(50)))
        monque = Monque(logged_db, stats_cache_ttl=0)
        await monque.initialize()
        log.sent.clear()
        assert len(await monque.get_queue_view_summaries()) == 50
        assert log.count() == {"aggregate": 1}

    async def test_show_workers_at_once_though_figures_are_kept(self, db: Db) -> None:
        monque = Monque(db, stats_cache_ttl=3600)
        assert await monque.get_queue_view_summaries() == []

        @monque.worker("late")
        async def handle(job: AnyJob) -> None: ...

        (view,) = await monque.get_queue_view_summaries()
        assert (view.name, view.has_jobs) == ("late", False)


class TestWithoutIndexes:
    async def test_everything_can_be_seen(self, db: Db) -> None:
        """An operator may read a collection that has only another program's indexes."""
        monque = Monque(db, skip_index_creation=True, stats_cache_ttl=0)
        await put(db, *(a_job(data=n, name="ab"[n % 2]) for n in range(10)))
        await put(db, a_schedule(name="c"))
        assert len(await monque.get_jobs(status="pending")) == 11
        pages = await all_pages(monque, limit=3, filter=JobSelector("a", "pending"))
        assert data(*pages) == [8, 6, 4, 2, 0]
        assert len(await monque.get_schedules()) == 1
        assert (await monque.get_queue_stats()).total == 11
        assert len(await monque.get_queue_view_summaries()) == 3
        assert await monque.cancel_jobs(JobSelector("a")) == 5
        indexes = [index["name"] async for index in await jobs_in(db).list_indexes()]
        assert indexes == ["_id_"]
