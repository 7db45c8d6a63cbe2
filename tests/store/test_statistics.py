"""Counts and durations of jobs."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from bson import Code, ObjectId
from bson.datetime_ms import DatetimeMS
from pymongo import AsyncMongoClient
from pymongo.errors import ExecutionTimeout

from monque_core import AggregationTimeoutError, JobStatus
from monque_core.jobs.views import QueueStats
from monque_core.store import statistics
from tests.support.commands import CommandLog
from tests.support.samples import NOW, a_job
from tests.support.stored import jobs_in
from tests.support.stores import open_store, put

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core.jobs.job import AnyJob
    from monque_core.store.store import Store

    Db = AsyncDatabase[dict[str, Any]]


def completed(seconds: float, **fields: Any) -> AnyJob:
    """Return a job whose last run took this long."""
    ended = NOW + timedelta(seconds=seconds)
    return a_job(status="completed", claimed_at=NOW, updated_at=ended, **fields)


def seconds(stats: QueueStats) -> float | None:
    average = stats.average_duration
    return None if average is None else average.total_seconds()


class TestCounts:
    async def test_of_nothing(self, store: Store) -> None:
        figures = await store.statistics.count()
        assert (figures.by_name, figures.total) == ({}, QueueStats())
        assert figures.total.total == 0

    async def test_are_by_name_and_status(self, db: Db, store: Store) -> None:
        chance = random.Random(3)
        jobs = [
            a_job(name=chance.choice("abc"), status=chance.choice(JobStatus.ALL))
            for _ in range(200)
        ]
        await put(db, *jobs)
        figures = await store.statistics.count()
        expected = Counter((job.name, job.status) for job in jobs)
        assert set(figures.by_name) == {"a", "b", "c"}
        for name, stats in figures.by_name.items():
            for status in JobStatus.ALL:
                assert getattr(stats, status) == expected[name, status]
        for status in JobStatus.ALL:
            assert getattr(figures.total, status) == sum(job.status == status for job in jobs)
        assert figures.total.total == 200

    async def test_of_one_name_hold_no_other(self, db: Db, store: Store) -> None:
        await put(db, a_job(name="a"), a_job(name="a", status="failed"), a_job(name="b"))
        figures = await store.statistics.count("a")
        assert figures.by_name == {"a": QueueStats(pending=1, failed=1)}
        assert figures.total == QueueStats(pending=1, failed=1)

    async def test_of_a_name_that_nothing_has(self, db: Db, store: Store) -> None:
        await put(db, a_job())
        figures = await store.statistics.count("absent")
        assert (figures.by_name, figures.total) == ({}, QueueStats())

    async def test_leave_out_documents_that_are_not_jobs(self, db: Db, store: Store) -> None:
        await put(db, a_job(name="a"))
        garbage: list[dict[str, Any]] = [
            {},
            {"name": "a"},
            {"status": "pending"},
            {"name": None, "status": "pending"},
            {"name": 5, "status": "failed"},
            {"name": ["a"], "status": "pending"},
            {"name": {"a": 1}, "status": {"b": 2}},
            {"name": "a", "status": "lost"},
            {"name": "a", "status": ["pending"]},
            {"name": "a", "status": None},
            {"status": "completed", "claimedAt": NOW, "updatedAt": NOW},
            {"name": None, "status": "completed", "claimedAt": NOW, "updatedAt": NOW},
        ]
        await jobs_in(db).insert_many(garbage)
        figures = await store.statistics.count()
        assert figures.by_name == {"a": QueueStats(pending=1)}
        assert figures.total.pending == 1
        assert (await store.statistics.count("a")).total.pending == 1

    async def test_are_one_aggregation_with_a_time_limit(
        self, db: Db, uri: str, database_name: str
    ) -> None:
        await put(db, *(a_job(name=f"name-{n}") for n in range(300)))
        log = CommandLog()
        async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
            store = await open_store(client[database_name])
            log.sent.clear()
            assert len((await store.statistics.count()).by_name) == 300
            assert log.count() == {"aggregate": 1}
            assert 0 < log.sent[0]["maxTimeMS"] <= 60_000
            await store.statistics.count("name-1")
            assert log.count() == {"aggregate": 2}


class TestAverageDuration:
    async def test_is_from_claim_to_completion(self, db: Db, store: Store) -> None:
        await put(db, completed(1), completed(2), completed(6), a_job(claimed_at=NOW))
        figures = await store.statistics.count()
        assert seconds(figures.total) == 3
        assert seconds(figures.by_name["send-email"]) == 3

    async def test_is_unknown_where_nothing_was_completed(self, db: Db, store: Store) -> None:
        late = NOW + timedelta(seconds=5)
        for status in ("pending", "processing", "failed", "cancelled"):
            await put(db, a_job(status=status, claimed_at=NOW, updated_at=late))
        assert (await store.statistics.count()).total.average_duration is None

    async def test_leaves_out_jobs_that_do_not_tell(self, db: Db, store: Store) -> None:
        """Jobs of Node instances, which do not store when they claimed."""
        await put(db, completed(4), a_job(status="completed"))
        await jobs_in(db).insert_many(
            [
                {
                    "name": "send-email",
                    "status": "completed",
                    "claimedAt": claimed,
                    "updatedAt": end,
                }
                for claimed, end in [(None, NOW), ("then", NOW), (NOW, None), (5, 7)]
            ]
        )
        assert seconds((await store.statistics.count()).total) == 4

    @pytest.mark.parametrize("field", ["claimedAt", "updatedAt"])
    @pytest.mark.parametrize("value", [DatetimeMS(2**62), DatetimeMS(-(2**62)), "today", None])
    async def test_leaves_out_what_is_no_date_of_ours(
        self, db: Db, store: Store, field: str, value: object
    ) -> None:
        odd = completed(9)
        await put(db, completed(3), odd)
        await jobs_in(db).update_one({"_id": odd.id}, {"$set": {field: value}})
        figures = await store.statistics.count()
        assert (figures.total.completed, seconds(figures.total)) == (2, 3)

    async def test_leaves_out_names_that_are_code(self, db: Db, store: Store) -> None:
        await put(db, completed(3))
        await jobs_in(db).insert_one({"name": Code("work"), "status": "completed"})
        assert (await store.statistics.count()).total.completed == 1

    async def test_is_that_of_each_name_and_weighs_them_in_all(self, db: Db, store: Store) -> None:
        await put(
            db, completed(1, name="a"), completed(2, name="a"), completed(3, name="a"), completed(8)
        )
        figures = await store.statistics.count()
        assert seconds(figures.by_name["a"]) == 2
        assert seconds(figures.by_name["send-email"]) == 8
        assert seconds(figures.total) == 3.5

    async def test_weighs_a_name_by_the_runs_that_were_timed(self, db: Db, store: Store) -> None:
        """If Node and Python serve the same name, some of its jobs have no duration."""
        await put(db, completed(8, name="a"), completed(2, name="b"))
        await put(db, *(a_job(name="a", status="completed") for _ in range(8)))
        assert seconds((await store.statistics.count()).total) == 5

    async def test_of_a_name_that_node_alone_completes_counts_from_when_jobs_were_due(
        self, db: Db, store: Store
    ) -> None:
        for wait in (2, 6):
            await put(db, a_job(status="completed", updated_at=NOW + timedelta(seconds=wait)))
        assert seconds((await store.statistics.count()).by_name["send-email"]) == 4

    async def test_does_not_count_from_a_claim_before_the_one_that_completed(
        self, db: Db, store: Store
    ) -> None:
        """The job failed in Python and completed in Node after the backoff."""
        failed_at = NOW - timedelta(hours=1)
        late = NOW + timedelta(seconds=3)
        await put(db, a_job(status="completed", claimed_at=failed_at, updated_at=late))
        assert seconds((await store.statistics.count()).total) == 3
        await put(db, completed(1))
        assert seconds((await store.statistics.count()).total) == 1

    async def test_may_be_less_than_a_millisecond(self, db: Db, store: Store) -> None:
        await put(db, completed(0), completed(0.001))
        average = (await store.statistics.count()).total.average_duration
        assert average == timedelta(microseconds=500)


class TestTimeLimit:
    async def test_ends_the_count_with_a_clear_error(
        self, db: Db, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        document = {"name": "a", "status": "completed", "claimedAt": NOW, "updatedAt": NOW}
        many = [{"_id": ObjectId(), **document} for _ in range(50_000)]
        await jobs_in(db).insert_many(many, ordered=False)
        monkeypatch.setattr(statistics, "_LONGEST_MS", 1)
        with pytest.raises(AggregationTimeoutError, match="count one name, or delete") as caught:
            await store.statistics.count()
        assert isinstance(caught.value.__cause__, ExecutionTimeout)

    async def test_does_not_count_as_an_outage(
        self, db: Db, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        many = [{"_id": ObjectId(), "name": f"a{n}", "status": "failed"} for n in range(50_000)]
        await jobs_in(db).insert_many(many, ordered=False)
        monkeypatch.setattr(statistics, "_LONGEST_MS", 1)
        with pytest.raises(AggregationTimeoutError):
            await store.statistics.count()
        assert not store.connectivity.is_lost
