"""Listing jobs: one, the newest, and pages while the jobs change."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, get_args

import pytest
from bson import ObjectId
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from pymongo import AsyncMongoClient, WriteConcern

from monque_core import InvalidJobError, JobSelector, JobStatus
from monque_core.store.documents import to_document
from monque_core.store.listing import Order, SortName
from monque_core.store.paging import PageRequest
from tests.support.samples import NOW, a_job, a_schedule
from tests.support.stored import jobs_in
from tests.support.stores import open_store, put

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from datetime import datetime

    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core.jobs.job import AnyJob
    from monque_core.jobs.views import JobPage
    from monque_core.store.listing import JobListing
    from monque_core.store.store import Store

    Db = AsyncDatabase[dict[str, Any]]

SECOND: Final = timedelta(seconds=1)
ORDERS: Final = [
    Order(by, descending=descending) for by in get_args(SortName) for descending in (False, True)
]
NEWEST_FIRST: Final = Order("created_at", descending=True)
every_order = pytest.mark.parametrize(
    "order", ORDERS, ids=lambda order: f"{'-' if order.descending else ''}{order.by}"
)


def some_jobs(count: int) -> list[AnyJob]:
    """Return jobs with many equal times, and a different order for each sort field."""
    return [
        a_job(
            data=n,
            next_run_at=NOW + n * 7 % 5 * SECOND,
            updated_at=NOW - n * 5 % 7 * SECOND,
        )
        for n in range(count)
    ]


def in_order(jobs: list[AnyJob], order: Order) -> list[ObjectId]:
    def rank(job: AnyJob) -> Any:
        return (job.id,) if order.by == "created_at" else (getattr(job, order.by), job.id)

    return [job.id for job in sorted(jobs, key=rank, reverse=order.descending)]


async def page_after(
    listing: JobListing, selector: JobSelector, order: Order, cursor: str | None, limit: int
) -> JobPage:
    request = PageRequest.parse("", limit, cursor, "forward")
    return await listing.page(selector, order, request, NOW)


async def page_before(
    listing: JobListing, selector: JobSelector, order: Order, cursor: str, limit: int
) -> JobPage:
    request = PageRequest.parse("", limit, cursor, "backward")
    return await listing.page(selector, order, request, NOW)


def ids(page: JobPage) -> list[ObjectId]:
    return [job.id for job in page.jobs]


async def forward(listing: JobListing, order: Order, limit: int) -> list[JobPage]:
    """Return all pages; assert that each one knows its neighbors."""
    pages = [await page_after(listing, JobSelector(), order, None, limit)]
    while pages[-1].has_next:
        assert len(pages) < 1000
        pages.append(await page_after(listing, JobSelector(), order, pages[-1].cursor, limit))
    assert [page.has_previous for page in pages] == [False] + [True] * (len(pages) - 1)
    return pages


async def backward(listing: JobListing, order: Order, page: JobPage, limit: int) -> list[JobPage]:
    """Return the previous pages, the nearest one first."""
    pages = [page]
    while pages[-1].has_previous:
        assert len(pages) < 1000
        assert pages[-1].cursor is not None
        pages.append(await page_before(listing, JobSelector(), order, pages[-1].cursor, limit))
    assert all(page.has_next for page in pages[1:])
    return pages[1:]


class TestGet:
    async def test_finds_one_by_its_id(self, db: Db, store: Store) -> None:
        job = a_job(data="this one")
        await put(db, a_job(), job, a_job())
        assert await store.listing.get(job.id) == job

    async def test_finds_none(self, store: Store) -> None:
        assert await store.listing.get(ObjectId()) is None

    async def test_says_what_is_wrong_with_a_document(self, db: Db, store: Store) -> None:
        job_id = (await jobs_in(db).insert_one({"name": "a", "status": "pending"})).inserted_id
        with pytest.raises(InvalidJobError, match="nextRunAt is missing"):
            await store.listing.get(job_id)


class TestFind:
    @every_order
    async def test_is_in_order(self, db: Db, store: Store, order: Order) -> None:
        jobs = some_jobs(30)
        await put(db, *jobs)
        found = await store.listing.find(JobSelector(), order, 100, 0, NOW)
        assert [job.id for job in found] == in_order(jobs, order)

    async def test_holds_so_many_after_so_many(self, db: Db, store: Store) -> None:
        jobs = some_jobs(30)
        await put(db, *jobs)
        found = await store.listing.find(JobSelector(), NEWEST_FIRST, 10, 5, NOW)
        assert found == jobs[-6:-16:-1]
        assert await store.listing.find(JobSelector(), NEWEST_FIRST, 10, 30, NOW) == []

    async def test_leaves_out_documents_that_are_not_jobs_and_reports_them(
        self, db: Db, store: Store, caplog: pytest.LogCaptureFixture
    ) -> None:
        job = a_job()
        await put(db, job)
        garbage = (await jobs_in(db).insert_one({"name": 5})).inserted_id
        with caplog.at_level(logging.WARNING, "monque"):
            assert await store.listing.find(JobSelector(), NEWEST_FIRST, 10, 0, NOW) == [job]
        (record,) = caplog.records
        assert str(garbage) in record.getMessage()

    async def test_takes_the_largest_limit_there_is(self, db: Db, store: Store) -> None:
        await put(db, *some_jobs(3))
        largest = 2**31 - 1
        assert len(await store.listing.find(JobSelector(), NEWEST_FIRST, largest, 0, NOW)) == 3
        page = await page_after(store.listing, JobSelector(), NEWEST_FIRST, None, largest)
        assert (len(page.jobs), page.has_next) == (3, False)


class TestPages:
    @every_order
    @pytest.mark.parametrize("limit", [1, 4, 7, 20, 21])
    async def test_hold_every_job_once_forward_and_backward(
        self, db: Db, store: Store, order: Order, limit: int
    ) -> None:
        jobs = some_jobs(20)
        await put(db, *jobs)
        pages = await forward(store.listing, order, limit)
        assert len(pages) == -(-20 // limit)
        assert [job_id for page in pages for job_id in ids(page)] == in_order(jobs, order)
        before = await backward(store.listing, order, pages[-1], limit)
        assert [ids(page) for page in reversed(before)] == [ids(page) for page in pages[:-1]]
        turned = [*reversed(before), pages[-1]]
        assert [page.has_previous for page in turned] == [False] + [True] * (len(pages) - 1)

    @every_order
    async def test_may_be_paged_forward_and_backward(
        self, db: Db, store: Store, order: Order
    ) -> None:
        await put(db, *some_jobs(20))
        pages = await forward(store.listing, order, 6)
        at = 1
        for step in [1, -1, -1, 1, 1, 1, -1, -1, -1]:
            turn = page_after if step > 0 else page_before
            cursor = pages[at].cursor
            assert cursor is not None
            at += step
            assert await turn(store.listing, JobSelector(), order, cursor, 6) == pages[at]

    @every_order
    async def test_of_nothing(self, store: Store, order: Order) -> None:
        page = await page_after(store.listing, JobSelector(), order, None, 5)
        assert (page.jobs, page.cursor) == ([], None)
        assert not page.has_next
        assert not page.has_previous

    @every_order
    async def test_hold_only_what_is_chosen(self, db: Db, store: Store, order: Order) -> None:
        jobs = some_jobs(20)
        for job in jobs:
            job.status = JobStatus.ALL[job.data % 5]
        await put(db, *jobs)
        chosen = JobSelector("send-email", "failed")
        page = await page_after(store.listing, chosen, order, None, 3)
        assert page.has_next
        rest = await page_after(store.listing, chosen, order, page.cursor, 3)
        assert not rest.has_next
        assert ids(page) + ids(rest) == in_order([job for job in jobs if job.data % 5 == 3], order)

    @every_order
    async def test_know_jobs_without_the_time_that_they_are_sorted_by(
        self, db: Db, store: Store, order: Order
    ) -> None:
        documents = [to_document(job) for job in some_jobs(12)]
        for n, document in enumerate(documents):
            if n % 3 == 0:
                del document["updatedAt"]
            elif n % 3 == 1:
                document["updatedAt"] = None
        await jobs_in(db).insert_many(documents)
        for limit in (1, 5):
            pages = await forward(store.listing, order, limit)
            seen = [job_id for page in pages for job_id in ids(page)]
            assert sorted(seen) == [document["_id"] for document in documents]
            before = await backward(store.listing, order, pages[-1], limit)
            assert [ids(page) for page in reversed(before)] == [ids(page) for page in pages[:-1]]

    @every_order
    async def test_skip_documents_that_are_not_jobs(
        self, db: Db, store: Store, order: Order, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A page may hold fewer jobs than its limit, or none, and still have a next page."""
        documents = [to_document(job) for job in some_jobs(12)]
        for document in documents[3:9]:
            document["name"] = {"no": "name"}
        await jobs_in(db).insert_many(documents)
        pages = await forward(store.listing, order, 2)
        assert len(pages) == 6
        seen = {job_id for page in pages for job_id in ids(page)}
        assert seen == {document["_id"] for document in documents[:3] + documents[9:]}
        assert "left out" in caplog.text

    @every_order
    @pytest.mark.parametrize("limit", [1, 2, 10])
    async def test_are_not_disturbed_by_what_has_no_place_in_the_order(
        self, db: Db, store: Store, order: Order, limit: int
    ) -> None:
        """Ids and times of other types compare with none of ours; other programs store them."""
        jobs = some_jobs(6)
        documents = [to_document(job) for job in some_jobs(8)]
        for document, stranger in zip(documents, ["text", 7, NOW, True, b"bytes"], strict=False):
            document["_id"] = stranger
        for document in documents[5:]:
            document |= {"nextRunAt": "soon", "updatedAt": 5}
        timeless = [document["_id"] for document in documents[5:]]
        await put(db, *jobs)
        await jobs_in(db).insert_many(documents)
        wanted = in_order(jobs, order)
        pages = await forward(store.listing, order, limit)
        seen = [job_id for page in pages for job_id in ids(page)]
        assert [job_id for job_id in seen if job_id not in timeless] == wanted
        before = await backward(store.listing, order, pages[-1], limit)
        assert [ids(page) for page in reversed(before)] == [ids(page) for page in pages[:-1]]


class TestAnEmptyPage:
    """If jobs are deleted between two pages, the second may be empty; its cursors still work."""

    @every_order
    async def test_after_the_last_leads_back_to_it(
        self, db: Db, store: Store, order: Order
    ) -> None:
        jobs = some_jobs(5)
        await put(db, *jobs)
        _, last = await forward(store.listing, order, 3)
        beyond = await page_after(store.listing, JobSelector(), order, last.cursor, 3)
        assert (beyond.jobs, beyond.has_next, beyond.has_previous) == ([], False, True)
        assert beyond.cursor is not None
        back = await page_before(store.listing, JobSelector(), order, beyond.cursor, 3)
        assert ids(back) == in_order(jobs, order)[2:]
        assert (back.has_next, back.has_previous) == (False, True)

    @every_order
    async def test_before_the_first_leads_on_to_it(
        self, db: Db, store: Store, order: Order
    ) -> None:
        jobs = some_jobs(5)
        await put(db, *jobs)
        first, _ = await forward(store.listing, order, 3)
        assert first.cursor is not None
        before = await page_before(store.listing, JobSelector(), order, first.cursor, 3)
        assert (before.jobs, before.has_next, before.has_previous) == ([], True, False)
        assert before.cursor is not None
        on = await page_after(store.listing, JobSelector(), order, before.cursor, 3)
        assert ids(on) == ids(first)

    @every_order
    async def test_leads_nowhere_once_everything_is_gone(
        self, db: Db, store: Store, order: Order
    ) -> None:
        await put(db, *some_jobs(5))
        first = await page_after(store.listing, JobSelector(), order, None, 2)
        assert first.cursor is not None
        await jobs_in(db).delete_many({})
        after = await page_after(store.listing, JobSelector(), order, first.cursor, 2)
        before = await page_before(store.listing, JobSelector(), order, first.cursor, 2)
        for page in (after, before):
            assert (page.jobs, page.has_next, page.has_previous) == ([], False, False)

    @every_order
    async def test_says_whether_a_step_would_find_something(
        self, db: Db, store: Store, order: Order
    ) -> None:
        """Even if all jobs of the page that it came from are deleted."""
        for gone in ([0], [1], [2], [0, 1], [1, 2], [0, 2], [0, 1, 2]):
            await jobs_in(db).delete_many({})
            jobs = some_jobs(3)
            await put(db, *jobs)
            wanted = in_order(jobs, order)
            page = await page_after(store.listing, JobSelector(), order, None, 3)
            assert page.cursor is not None
            await jobs_in(db).delete_many({"_id": {"$in": [wanted[n] for n in gone]}})
            for empty in (
                await page_after(store.listing, JobSelector(), order, page.cursor, 3),
                await page_before(store.listing, JobSelector(), order, page.cursor, 3),
            ):
                assert empty.cursor is not None
                after = await page_after(store.listing, JobSelector(), order, empty.cursor, 3)
                before = await page_before(store.listing, JobSelector(), order, empty.cursor, 3)
                assert (empty.has_next, empty.has_previous) == (bool(after.jobs), bool(before.jobs))


class TestSchedules:
    async def test_are_the_recurring_jobs_by_name(self, db: Db, store: Store) -> None:
        schedules = [a_schedule(name=name, unique_key=name) for name in ("c", "a", "b")]
        running = a_schedule(name="aa", status="processing", unique_key="running")
        await put(db, *schedules, running, a_job(name="a"))
        found = await store.listing.schedules(None)
        assert [job.name for job in found] == ["a", "aa", "b", "c"]
        assert await store.listing.schedules("b") == [schedules[2]]
        assert await store.listing.schedules("absent") == []

    async def test_that_were_cancelled_are_none(self, db: Db, store: Store) -> None:
        await put(db, *(a_schedule(status=status) for status in ("cancelled", "failed")))
        assert await store.listing.schedules(None) == []


class Rig:
    """A database, its listing, and the event loop that they run on."""

    def __init__(self, uri: str, database_name: str) -> None:
        self._runner = asyncio.Runner()
        self._client = AsyncMongoClient[dict[str, Any]](uri)
        quick = WriteConcern(w=1, j=False)
        self.jobs = jobs_in(self._client.get_database(database_name, write_concern=quick))
        self.listing = self.run(open_store(self._client[database_name])).listing

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(work)

    def close(self) -> None:
        self.run(self._client.close())
        self._runner.close()


class Reading(RuleBasedStateMachine):
    """An operator pages through jobs that come, change and go: every page is correct."""

    rig: Rig

    @initialize(order=st.sampled_from(ORDERS), limit=st.integers(1, 4), by_status=st.booleans())
    def begin(self, order: Order, limit: int, by_status: bool) -> None:
        self.rig.run(self.rig.jobs.delete_many({}))
        self.order, self.limit = order, limit
        self.chosen = JobSelector(status="pending" if by_status else None)
        self.jobs: dict[ObjectId, AnyJob] = {}
        self.page: JobPage | None = None
        self.first: Any = None
        self.last: Any = None
        self.insert([0, 1, 1, 2, 3, 3, 3, 4])

    @rule(seconds=st.lists(st.integers(0, 4), min_size=1, max_size=4))
    def insert(self, seconds: list[int]) -> None:
        for second in seconds:
            at = NOW + second * SECOND
            job = a_job(next_run_at=at, updated_at=at)
            self.jobs[job.id] = job
            self.rig.run(self.rig.jobs.insert_one(to_document(job)))

    @precondition(lambda self: self.jobs)
    @rule(pick=st.integers(0, 100), second=st.integers(0, 4), status=st.sampled_from(JobStatus.ALL))
    def change(self, pick: int, second: int, status: Any) -> None:
        job, at = self._pick(pick), NOW + second * SECOND
        job.next_run_at, job.updated_at, job.status = at, at, status
        changes = {"nextRunAt": at, "updatedAt": at, "status": status}
        self.rig.run(self.rig.jobs.update_one({"_id": job.id}, {"$set": changes}))

    @precondition(lambda self: self.jobs)
    @rule(pick=st.integers(0, 100))
    def delete(self, pick: int) -> None:
        job = self.jobs.pop(self._pick(pick).id)
        self.rig.run(self.rig.jobs.delete_one({"_id": job.id}))

    @rule(steps=st.lists(st.sampled_from([1, 1, -1]), min_size=1, max_size=4))
    def turn(self, steps: list[int]) -> None:
        for step in steps:
            self._turn(step)

    def _turn(self, step: int) -> None:
        listing, places = self.rig.listing, self._places()
        if self.page is None:
            expected = places[: self.limit]
            page = self.rig.run(page_after(listing, self.chosen, self.order, None, self.limit))
        elif step > 0:
            expected = [place for place in places if self._is_beyond(place, self.last)]
            expected = expected[: self.limit]
            work = page_after(listing, self.chosen, self.order, self.page.cursor, self.limit)
            page = self.rig.run(work)
        else:
            assert self.page.cursor is not None
            expected = [place for place in places if self._is_beyond(self.first, place)]
            expected = expected[-self.limit :]
            work = page_before(listing, self.chosen, self.order, self.page.cursor, self.limit)
            page = self.rig.run(work)
        assert ids(page) == [place[-1] for place in expected]
        if not expected:
            self.page = None
            return
        self.page, self.first, self.last = page, expected[0], expected[-1]
        assert page.has_next is any(self._is_beyond(place, self.last) for place in places)
        assert page.has_previous is any(self._is_beyond(self.first, place) for place in places)

    def _places(self) -> list[Any]:
        chosen = [
            job for job in self.jobs.values() if self.chosen.is_empty or job.status == "pending"
        ]
        return sorted(map(self._place, chosen), reverse=self.order.descending)

    def _place(self, job: AnyJob) -> tuple[datetime, ObjectId] | tuple[ObjectId]:
        if self.order.by == "created_at":
            return (job.id,)
        return (getattr(job, self.order.by), job.id)

    def _is_beyond(self, place: Any, other: Any) -> bool:
        return bool(place < other if self.order.descending else place > other)

    def _pick(self, pick: int) -> AnyJob:
        return self.jobs[sorted(self.jobs)[pick % len(self.jobs)]]


@pytest.mark.timeout(600)  # Shrinking a failure takes minutes.
def test_pages_are_stable_whatever_happens_between_them(uri: str, database_name: str) -> None:
    Reading.rig = Rig(uri, database_name)
    try:
        run_state_machine_as_test(
            Reading,
            settings=settings(max_examples=20, stateful_step_count=30),
        )
    finally:
        Reading.rig.close()
