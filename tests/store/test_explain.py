"""Every hot query on 100,000 documents examines about as much as it returns."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest
from bson import ObjectId
from pymongo import AsyncMongoClient

from monque_core import JobRetention
from monque_core.jobs.job import Job
from monque_core.jobs.outcome import COMPLETED, RELEASED, Advanced, OccurrenceFailed, Retrying
from monque_core.jobs.selector import JobSelector
from monque_core.store.indexes import job_indexes
from monque_core.store.listing import Order
from monque_core.store.outcomes import Settlement
from monque_core.store.queue import JobCandidate
from tests.support.plans import Plans, assert_sorted_by_the_index, assert_tight, crowded
from tests.support.samples import NOW, a_job, a_schedule
from tests.support.stores import claim, open_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence
    from datetime import datetime

    from monque_core.jobs.job import AnyJob
    from monque_core.jobs.outcome import Outcome
    from monque_core.store.store import Store
    from tests.support.commands import CommandLog
    from tests.support.plans import Crowd


DOCUMENTS: Final = 50_000
NAMES: Final = [f"name-{n}" for n in range(40)]
PRIORITIES: Final = [1, 2, 3, 5, 8]
INTERVALS: Final = [30_000, 5_000, 1_000]
RETENTION: Final = JobRetention(completed=60)
SECOND: Final = timedelta(seconds=1)
DAY: Final = timedelta(days=1)
NEWEST_FIRST: Final = Order("created_at", descending=True)


def documents() -> Iterator[dict[str, Any]]:
    """Create a collection as after some weeks: mostly finished, many pending, some running."""
    chance = random.Random(7)
    for n in range(DOCUMENTS):
        status = chance.choices(
            ["completed", "pending", "failed", "processing", "cancelled"], [50, 30, 10, 6, 4]
        )[0]
        later = [chance.uniform(0, 86_400) for _ in range(3)]
        document: dict[str, Any] = {
            "_id": ObjectId(),
            "name": chance.choice(NAMES),
            "data": {"n": n},
            "status": status,
            "nextRunAt": NOW + SECOND * chance.choice([chance.uniform(-600, 0), *later]),
            "failCount": chance.choice([0, 0, 0, 1]),
            "createdAt": NOW - DAY,
            "updatedAt": NOW - DAY * chance.uniform(0, 30),
        }
        if chance.random() < 0.2:
            document["priority"] = chance.choice(PRIORITIES)
        if chance.random() < 0.3:
            document["uniqueKey"] = f"key-{n}"
        if chance.random() < 0.01:
            document |= {"repeatInterval": "0 * * * *", "timezone": "UTC"}
        if status == "processing":
            document |= running(chance)
        yield document


def running(chance: random.Random) -> dict[str, Any]:
    """Return a claim: usually live, seldom stale, and sometimes of an old Node version."""
    interval = chance.choice(INTERVALS)
    is_stale = chance.random() < 0.01
    silence = chance.uniform(4, 9) if is_stale else chance.uniform(-1, 1)
    heartbeat = NOW - silence * timedelta(milliseconds=interval)
    claim: dict[str, Any] = {
        "claimedBy": f"instance-{chance.randrange(20)}",
        "lockedAt": NOW - 7 * DAY if is_stale else heartbeat,
        "claims": 1,
    }
    if chance.random() < 0.01:
        return claim
    return claim | {
        "lastHeartbeat": heartbeat,
        "heartbeatInterval": interval,
        "claimToken": ObjectId(),
    }


@pytest.fixture(scope="module")
def crowd(uri: str) -> Iterator[Crowd]:
    """Return a database full of jobs, which the tests use one after the other."""
    with crowded(uri, documents()) as crowd:
        yield crowd


@pytest.fixture
async def store(crowd: Crowd, uri: str, log: CommandLog, plans: Plans) -> AsyncIterator[Store]:
    """Yield a store whose commands are explained as they are sent."""
    async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
        store = await open_store(client[crowd.db.name], job_retention=RETENTION)
        plans.made.clear()
        yield store


def ranges(names: Sequence[str]) -> int:
    """Count the ranges of the claim index for these names: one per existing priority."""
    return len(names) * (len(PRIORITIES) + 1)


async def a_batch(store: Store, count: int, now: datetime = NOW) -> list[AnyJob]:
    """Claim several jobs in a batch."""
    found = await store.queue.look(NAMES[:3], count, now)
    chosen = [one for one in found if isinstance(one, JobCandidate)]
    claimed = await store.queue.claim_batch(chosen, ObjectId(), now)
    jobs = [job for job in claimed if isinstance(job, Job)]
    assert len(jobs) == count
    return jobs


class TestLook:
    @pytest.mark.parametrize("names", [NAMES[:1], NAMES[:2], NAMES[:10], NAMES])
    async def test_over_names_with_much_to_do(
        self, store: Store, plans: Plans, names: list[str]
    ) -> None:
        assert len(await store.queue.look(names, 50, NOW)) == 50
        assert_tight(plans, seeks=ranges(names), count=1)
        assert_sorted_by_the_index(plans.made)

    @pytest.mark.parametrize("names", [NAMES[:1], NAMES[:10]])
    async def test_over_names_with_nothing_to_do(
        self, store: Store, plans: Plans, names: list[str]
    ) -> None:
        assert await store.queue.look(names, 50, NOW - DAY) == []
        assert_tight(plans, seeks=ranges(names), count=1)

    async def test_at_each_name(self, store: Store, plans: Plans) -> None:
        limits = dict.fromkeys(NAMES[:10], 5)
        assert len(await store.queue.look_at_each(limits, NOW)) == 50
        assert_tight(plans, seeks=ranges(NAMES[:10]), count=1)
        assert_sorted_by_the_index(plans.made)

    async def test_ahead(self, store: Store, plans: Plans) -> None:
        until = NOW + timedelta(minutes=2)
        upcoming = await store.queue.upcoming(NAMES[:10], NOW, until, 1000)
        assert len(upcoming) >= 5
        assert_tight(plans, seeks=ranges(NAMES[:10]), count=1)

    async def test_for_what_is_never_due(self, store: Store, plans: Plans) -> None:
        assert await store.queue.quarantine_undated(NAMES[:10], NOW, 100) == []
        assert_tight(plans, seeks=2 * ranges(NAMES[:10]), count=1)


class TestClaim:
    async def test_of_the_first(self, store: Store, plans: Plans) -> None:
        await claim(store, NAMES[0])
        assert_tight(plans, count=1)
        assert_sorted_by_the_index(plans.made)

    async def test_of_the_first_of_nothing(self, store: Store, plans: Plans) -> None:
        assert await store.queue.claim_first(NAMES[0], ObjectId(), NOW - DAY) is None
        assert_tight(plans, seeks=ranges(NAMES[:1]), count=1)

    async def test_of_one_that_was_seen(self, store: Store, plans: Plans) -> None:
        (candidate,) = await store.queue.look(NAMES[:1], 1, NOW)
        assert isinstance(candidate, JobCandidate)
        plans.made.clear()
        assert await store.queue.claim_one(candidate, ObjectId(), NOW) is not None
        assert_tight(plans, count=1)

    async def test_of_a_batch(self, store: Store, plans: Plans) -> None:
        found = await store.queue.look(NAMES[:3], 100, NOW)
        plans.made.clear()
        chosen = [one for one in found if isinstance(one, JobCandidate)]
        assert len(await store.queue.claim_batch(chosen, ObjectId(), NOW)) == 100
        assert_tight(plans, count=2)

    async def test_whose_reply_was_lost(self, store: Store, plans: Plans) -> None:
        claimed_at = NOW + timedelta(milliseconds=1)
        jobs = await a_batch(store, 20, claimed_at)
        plans.made.clear()
        assert jobs[0].claim_token is not None
        assert len(await store.queue.claimed_with(jobs[0].claim_token, NAMES[:3], claimed_at)) == 20
        assert_tight(plans, count=1)


class TestClaims:
    async def test_that_are_renewed(self, store: Store, plans: Plans) -> None:
        jobs = await a_batch(store, 100)
        plans.made.clear()
        assert await store.outcomes.renew(jobs, NOW) == {}
        assert_tight(plans, count=1)

    async def test_that_are_settled(self, store: Store, plans: Plans) -> None:
        outcomes: list[Outcome] = [COMPLETED, RELEASED, Retrying("boom", NOW)]
        group = [Settlement(job, outcomes[n % 3]) for n, job in enumerate(await a_batch(store, 30))]
        plans.made.clear()
        assert await store.outcomes.settle(group, NOW) == ["written"] * 30
        assert_tight(plans)

    @pytest.mark.parametrize("outcome", [Advanced(NOW + DAY), OccurrenceFailed("boom", NOW + DAY)])
    async def test_of_schedules_that_are_settled(
        self, store: Store, plans: Plans, outcome: Advanced | OccurrenceFailed
    ) -> None:
        await store.schedules.put(a_schedule(name="report"), None)
        job = await claim(store, "report")
        plans.made.clear()
        assert await store.outcomes.settle([Settlement(job, outcome)], NOW) == ["written"]
        assert_tight(plans)

    async def test_that_were_lost_are_read_back(self, store: Store, plans: Plans) -> None:
        jobs = await a_batch(store, 10)
        group = [Settlement(job, COMPLETED) for job in jobs]
        await store.outcomes.settle(group, NOW)
        plans.made.clear()
        await store.outcomes.renew(jobs, NOW)
        await store.outcomes.settle(group, NOW)
        for plan in plans.made:
            assert plan.indexes == {"_id_"}
            assert plan.keys <= 2 * len(jobs) + 2, str(plan)


class TestRecovery:
    async def test_looks_at_little_more_than_what_is_stale(
        self, store: Store, plans: Plans
    ) -> None:
        batch = await store.stale_jobs.find(NOW, 1000)
        assert 20 < len(batch.jobs) < 200
        assert batch.unreadable == []
        anything, intervals, found = plans.made
        assert (anything.keys, anything.docs) == (1, 0), str(anything)
        assert intervals.stages[-1] == "DISTINCT_SCAN"
        assert intervals.keys <= 2 * (len(INTERVALS) + 1), str(intervals)
        assert intervals.docs == 0, str(intervals)
        without_heartbeat = DOCUMENTS * 6 // 100 // 100 * 2
        assert found.keys <= len(batch.jobs) + without_heartbeat + 4 * len(INTERVALS), str(found)
        assert "COLLSCAN" not in found.stages, str(found)

    async def test_takes_back_by_id(self, store: Store, plans: Plans) -> None:
        batch = await store.stale_jobs.find(NOW, 5)
        plans.made.clear()
        assert await store.stale_jobs.revive(batch, batch.jobs, NOW) == 5
        assert_tight(plans, count=1)

    async def test_adopts_by_id(self, store: Store, plans: Plans) -> None:
        batch = await store.stale_jobs.find(NOW, 1)
        plans.made.clear()
        assert await store.stale_jobs.adopt(batch, batch.jobs[0], NOW) is not None
        assert_tight(plans, count=1)


class TestUniqueKey:
    async def test_that_is_free(self, store: Store, plans: Plans) -> None:
        job = a_job(name=NAMES[0], unique_key="free", next_run_at=NOW + DAY)
        assert not (await store.inserts.insert_unique(job, None)).deduplicated
        assert_tight(plans, count=1)

    async def test_that_is_taken(self, store: Store, plans: Plans) -> None:
        job = a_job(name=NAMES[0], unique_key="taken", next_run_at=NOW + DAY)
        await store.inserts.insert_unique(job, None)
        plans.made.clear()
        again = a_job(name=NAMES[0], unique_key="taken")
        assert (await store.inserts.insert_unique(again, None)).deduplicated
        assert_tight(plans, count=1)

    async def test_of_many(self, store: Store, plans: Plans) -> None:
        def jobs() -> list[AnyJob]:
            return [
                a_job(name=NAMES[0], unique_key=f"of-many-{n}", next_run_at=NOW + DAY)
                for n in range(50)
            ]

        await store.inserts.insert_many_unique(jobs(), None)
        plans.made.clear()
        again = await store.inserts.insert_many_unique(jobs(), None)
        assert all(job.deduplicated for job in again)
        assert_tight(plans, count=51)


class TestSchedules:
    async def test_that_are_changed(self, store: Store, plans: Plans) -> None:
        schedule = a_schedule(name=NAMES[0], unique_key="changing", next_run_at=NOW + DAY)
        await store.schedules.put(schedule, None)
        plans.made.clear()
        await store.schedules.put(
            a_schedule(name=NAMES[0], unique_key="changing", data="new", next_run_at=NOW + DAY),
            None,
        )
        assert_tight(plans, count=2)

    @pytest.mark.parametrize("key", [None, "no such key"])
    async def test_that_are_removed(self, store: Store, plans: Plans, key: str | None) -> None:
        removed = await store.schedules.remove(NAMES[-1], key, NOW)
        assert (removed > 0) is (key is None)
        recurring = DOCUMENTS // len(NAMES) // 100
        for plan in plans.made:
            assert plan.indexes <= {"monque_py_recurring", "monque_py_unique"}, str(plan)
            assert plan.keys <= 3 * recurring, str(plan)


class TestRetention:
    @pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
    async def test_finds_the_oldest(self, store: Store, plans: Plans, status: str) -> None:
        assert await store.finished.delete(status, NOW - 10 * DAY, 100) == 100
        assert_tight(plans, count=2)
        assert_sorted_by_the_index(plans.made)

    async def test_of_nothing(self, store: Store, plans: Plans) -> None:
        assert await store.finished.delete("completed", NOW - 99 * DAY, 100) == 0
        assert_tight(plans, count=1)


async def test_no_index_exists_that_no_query_uses(store: Store, plans: Plans) -> None:
    await store.queue.look(NAMES[:1], 1, NOW)
    await store.stale_jobs.find(NOW, 1)
    await store.inserts.insert_unique(
        a_job(name=NAMES[0], unique_key="free", next_run_at=NOW + DAY), None
    )
    await store.listing.schedules(None)
    for chosen in (JobSelector(NAMES[0]), JobSelector(status="failed")):
        await store.listing.find(chosen, NEWEST_FIRST, 1, 0, NOW)
    await store.finished.delete("completed", NOW - 99 * DAY, 1)
    used = {index for plan in plans.made for index in plan.indexes}
    assert used == {index.document["name"] for index in job_indexes(retention=True)}
