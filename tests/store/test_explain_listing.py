"""Listing and managing 100,000 jobs examines about as many documents as it returns or changes."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest
from bson import ObjectId
from pymongo import AsyncMongoClient

from monque_core import JobSelector
from monque_core.jobs.cursor import Cursor, Place
from monque_core.store.listing import Order
from monque_core.store.paging import PageRequest
from tests.support.plans import Plans, assert_sorted_by_the_index, assert_tight, crowded
from tests.support.samples import NOW
from tests.support.stores import open_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from monque_core.store.paging import Direction
    from monque_core.store.store import Store
    from tests.support.commands import CommandLog
    from tests.support.plans import Crowd


DOCUMENTS: Final = 50_000
NAMES: Final = [f"name-{n}" for n in range(40)]
OF_A_NAME: Final = DOCUMENTS // len(NAMES)
SHARES: Final = {"completed": 0.6, "pending": 0.35, "failed": 0.04, "cancelled": 0.0095}
"""The share of jobs in each status; the small remainder is processing."""
NEWEST_FIRST: Final = Order("created_at", descending=True)
OLDEST_FIRST: Final = Order("created_at", descending=False)
DAY: Final = timedelta(days=1)

NARROW: Final = {
    "none": JobSelector(),
    "name": JobSelector(NAMES[0]),
    "failed": JobSelector(status="failed"),
    "cancelled": JobSelector(status="cancelled"),
    "unsuccessful": JobSelector(status=["failed", "cancelled"]),
}
"""What an index yields in order."""
every_narrow = pytest.mark.parametrize("chosen", NARROW.values(), ids=NARROW)
both_ways = pytest.mark.parametrize("order", [NEWEST_FIRST, OLDEST_FIRST], ids=["newest", "oldest"])


def documents() -> Iterator[dict[str, Any]]:
    """Create a collection as it is after some weeks, with all names and statuses mixed."""
    chance = random.Random(11)
    statuses = [*SHARES, "processing"]
    weights = [*SHARES.values(), 1 - sum(SHARES.values())]
    for n in range(DOCUMENTS):
        document = {
            "_id": ObjectId(),
            "name": NAMES[n % len(NAMES)],
            "data": n,
            "status": chance.choices(statuses, weights)[0],
            "nextRunAt": NOW + DAY,
            "failCount": 0,
            "createdAt": NOW - chance.random() * 30 * DAY,
            "updatedAt": NOW - chance.random() * 30 * DAY,
        }
        if document["status"] == "processing":
            beat = {"lockedAt": NOW, "lastHeartbeat": NOW, "heartbeatInterval": 30_000}
            document |= beat | {"claimedBy": "other", "claimToken": ObjectId()}
        if n % 500 == 0:
            document |= {"repeatInterval": "0 * * * *", "timezone": "UTC"}
        yield document


@pytest.fixture(scope="module")
def crowd(uri: str) -> Iterator[Crowd]:
    """Return a database full of jobs, which the tests use one after the other."""
    with crowded(uri, documents()) as crowd:
        yield crowd


@pytest.fixture
async def store(crowd: Crowd, uri: str, log: CommandLog, plans: Plans) -> AsyncIterator[Store]:
    """Yield a store whose commands are explained as they are sent."""
    async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
        store = await open_store(client[crowd.db.name])
        plans.made.clear()
        yield store


def assert_bounded(plans: Plans, most: float) -> None:
    """Assert that all plans together examine at most this much."""
    assert plans.made
    assert sum(max(plan.keys, plan.docs) for plan in plans.made) <= most, str(plans.made)


class TestNewestJobs:
    @every_narrow
    async def test_come_from_an_index_in_order(
        self, store: Store, plans: Plans, chosen: JobSelector
    ) -> None:
        found = await store.listing.find(chosen, NEWEST_FIRST, 100, 0, NOW)
        assert len(found) == 100
        assert_tight(plans, seeks=1, count=1)
        assert_sorted_by_the_index(plans.made)

    @pytest.mark.parametrize("status", ["completed", "pending"])
    async def test_of_a_frequent_status_are_found_along_the_way(
        self, store: Store, plans: Plans, status: Any
    ) -> None:
        chosen = JobSelector(status=status)
        assert len(await store.listing.find(chosen, NEWEST_FIRST, 100, 0, NOW)) == 100
        assert_bounded(plans, 2 * 100 / SHARES[status])

    async def test_that_run_are_few_and_have_an_index(self, store: Store, plans: Plans) -> None:
        chosen = JobSelector(status="processing")
        running = await store.listing.find(chosen, NEWEST_FIRST, 100, 0, NOW)
        assert 20 < len(running) < 100
        assert_tight(plans, count=1)

    @pytest.mark.parametrize("status", ["pending", "completed", "failed", "processing"])
    async def test_of_a_name_and_status_are_among_those_of_the_name(
        self, store: Store, plans: Plans, status: Any
    ) -> None:
        chosen = JobSelector(NAMES[1], status)
        assert await store.listing.find(chosen, NEWEST_FIRST, 100, 0, NOW)
        assert_bounded(plans, OF_A_NAME + 2)

    async def test_of_a_name_that_nothing_has(self, store: Store, plans: Plans) -> None:
        chosen = JobSelector("absent")
        assert await store.listing.find(chosen, NEWEST_FIRST, 100, 0, NOW) == []
        assert_tight(plans, count=1)


def a_page(cursor: str | None, direction: Direction = "forward") -> PageRequest:
    return PageRequest.parse("", 50, cursor, direction)


class TestPages:
    @every_narrow
    @both_ways
    async def test_cost_what_they_hold(
        self, store: Store, plans: Plans, chosen: JobSelector, order: Order
    ) -> None:
        listing = store.listing
        first = await listing.page(chosen, order, a_page(None), NOW)
        second = await listing.page(chosen, order, a_page(first.cursor), NOW)
        third = await listing.page(chosen, order, a_page(second.cursor), NOW)
        assert third.cursor is not None
        again = await listing.page(chosen, order, a_page(third.cursor, "backward"), NOW)
        assert [job.id for job in again.jobs] == [job.id for job in second.jobs]
        assert_tight(plans, seeks=2, count=8)
        assert_sorted_by_the_index(plans.made)

    @both_ways
    async def test_far_within_cost_no_more(self, store: Store, plans: Plans, order: Order) -> None:
        (job,) = await store.listing.find(JobSelector(), order, 1, 20_000, NOW)
        plans.made.clear()
        place = Place(job.id, job.id)
        cursor = Cursor(place, place).encode("")
        after = await store.listing.page(JobSelector(), order, a_page(cursor), NOW)
        assert after.cursor is not None
        await store.listing.page(JobSelector(), order, a_page(after.cursor, "backward"), NOW)
        assert_tight(plans, seeks=1, count=4)
        assert_sorted_by_the_index(plans.made)


class TestOneJob:
    async def test_is_found_and_changed_by_its_id(self, store: Store, plans: Plans) -> None:
        chosen = JobSelector(NAMES[2], "failed")
        (job,) = await store.listing.find(chosen, NEWEST_FIRST, 1, 0, NOW)
        plans.made.clear()
        assert await store.listing.get(job.id) is not None
        assert await store.management.retry(job.id, NOW + DAY) is not None
        assert await store.management.reschedule(job.id, NOW + DAY, NOW) is not None
        assert await store.management.cancel(job.id, NOW) is not None
        assert await store.management.delete(job.id)
        assert_tight(plans, count=8)
        assert {name for plan in plans.made for name in plan.indexes} <= {"_id_"}


class TestInBulk:
    async def test_deleting_a_name_costs_its_jobs(self, store: Store, plans: Plans) -> None:
        batches = store.management.delete_many(JobSelector(NAMES[-1]), NOW)
        assert sum([count async for count in batches]) == OF_A_NAME
        assert_tight(plans, seeks=8)
        assert_sorted_by_the_index(plans.made)

    async def test_deleting_a_rare_status_costs_its_jobs(self, store: Store, plans: Plans) -> None:
        batches = store.management.delete_many(JobSelector(status="cancelled"), NOW)
        assert sum([count async for count in batches]) > 400
        assert_tight(plans, seeks=8)
        assert_sorted_by_the_index(plans.made)

    async def test_retrying_what_failed_costs_those_jobs(self, store: Store, plans: Plans) -> None:
        chosen = JobSelector(status="failed")
        count = await store.management.count_retryable(chosen, NOW)
        batches = store.management.retry_many(chosen, NOW + DAY, timedelta(0))
        assert sum([retried async for retried in batches]) == count > 1500
        assert_tight(plans, seeks=8)

    async def test_cancelling_a_name_costs_no_more_than_its_jobs(
        self, store: Store, plans: Plans
    ) -> None:
        batches = store.management.cancel_many(JobSelector(NAMES[-2]), NOW)
        cancelled = sum([count async for count in batches])
        assert cancelled > OF_A_NAME / 4
        assert_bounded(plans, OF_A_NAME + 3 * cancelled + 20)


class TestFigures:
    async def test_see_each_job_once(self, store: Store, plans: Plans) -> None:
        total = (await store.statistics.count()).total.total
        assert total == DOCUMENTS
        assert_bounded(plans, total)
        assert len(plans.made) == 1

    async def test_of_a_name_see_only_its_jobs(self, store: Store, plans: Plans) -> None:
        total = (await store.statistics.count(NAMES[3])).total.total
        assert total == OF_A_NAME
        assert_bounded(plans, total + 1)
        assert plans.made[0].indexes == {"monque_py_name"}

    async def test_of_schedules_see_only_schedules(self, store: Store, plans: Plans) -> None:
        schedules = await store.listing.schedules(None)
        assert len(schedules) > 20
        assert_bounded(plans, DOCUMENTS / 500 + 2)
        assert plans.made[0].indexes == {"monque_py_recurring"}
