"""A tour of all commands on the jobs collection: each carries the name, or is documented."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from bson import ObjectId
from pymongo import AsyncMongoClient

from monque_core import Job, JobRetention, JobSelector, Monque
from monque_core.cli.job_checks import JOB_CHECKS
from monque_core.jobs.job import JobStatus
from monque_core.jobs.outcome import (
    COMPLETED,
    RELEASED,
    Advanced,
    Failed,
    OccurrenceFailed,
    Retrying,
)
from monque_core.store import shard_key, transitions
from monque_core.store.indexes import job_indexes
from monque_core.store.outcomes import Settlement
from monque_core.store.queue import JobCandidate
from monque_core.store.shard_key import among, identified, of_names
from tests.support.commands import CommandLog
from tests.support.happenings import Happenings
from tests.support.samples import NOW, a_job, a_schedule
from tests.support.stored import jobs_in
from tests.support.stores import claim, open_store, put, set_fields
from tests.support.targeting import ON_ALL_SHARDS, Access, accesses, purpose_on_all_shards

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core.jobs.job import AnyJob
    from monque_core.jobs.outcome import Outcome
    from monque_core.store.store import Store

    Db = AsyncDatabase[dict[str, Any]]

JOBS = "monque_jobs"
DAY = timedelta(days=1)
MANY: list[dict[str, Any]] = [{"name": "a"}, {"name": "b"}]
DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
async def watched(uri: str, database_name: str, log: CommandLog) -> AsyncIterator[Db]:
    """Yield the database through a client whose commands are logged."""
    async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
        yield client[database_name]


class TestFilters:
    def test_match_one_name_by_equality(self) -> None:
        assert of_names(["a", "a"]) == {"name": "a"}

    def test_match_several_names(self) -> None:
        assert of_names(["a", "b", "a"]) == {"name": {"$in": ["a", "b"]}}

    @pytest.mark.parametrize("name", [None, 1, ["a"], {"a": 1}, "a\N{REPLACEMENT CHARACTER}"])
    def test_match_any_name_if_one_is_not_as_it_is_stored(self, name: object) -> None:
        assert of_names(["a", name]) == {}

    def test_match_jobs_by_id_and_name(self) -> None:
        one, two = a_job(name="a"), a_job(name="a")
        assert identified([one]) == {"_id": one.id, "name": "a"}
        assert identified([one, two]) == {"_id": {"$in": [one.id, two.id]}, "name": "a"}

    def test_match_documents_by_id_and_name(self) -> None:
        assert among([{"_id": 1, "name": "a"}]) == {"_id": {"$in": [1]}, "name": "a"}
        assert among([{"_id": 1, "name": "a"}, {"_id": 2}]) == {"_id": {"$in": [1, 2]}}


def test_every_unique_index_begins_with_the_shard_key() -> None:
    unique = [each.document for each in job_indexes(retention=True) if "unique" in each.document]
    assert unique
    assert {next(iter(each["key"])) for each in unique} == {"name"}


class TestChecker:
    """The checker of the tour finds what a sharded cluster could not send to one shard."""

    @pytest.mark.parametrize(
        "command",
        [
            {"find": JOBS, "filter": {"_id": {"$in": [1]}}},
            {"find": JOBS, "filter": {"name": {"$ne": "a"}}},
            {"find": JOBS, "filter": {"name": {"$gt": "a"}}},
            {"find": JOBS, "filter": {"$or": [{"name": "a"}, {"_id": 1}]}},
            {"aggregate": JOBS, "pipeline": [{"$match": {"_id": 1}}]},
            {"aggregate": JOBS, "pipeline": [{"$sort": {"name": 1}}, {"$match": {"name": "a"}}]},
            {"update": JOBS, "updates": [{"q": {"name": "a"}}, {"q": {"_id": {"$in": [1]}}}]},
            {"delete": JOBS, "deletes": [{"q": {"_id": {"$in": [1]}, "status": "failed"}}]},
            {"findAndModify": JOBS, "query": {"_id": 1, "status": "pending"}},
            {"findAndModify": JOBS, "query": {"name": {"$in": ["a", "b"]}}},
            {"distinct": JOBS, "query": {"claimedBy": "me"}},
            {"count": JOBS, "query": {"status": "pending"}},
        ],
    )
    def test_finds_a_command_without_a_name(self, command: dict[str, Any]) -> None:
        log = CommandLog()
        log.sent.append(command)
        assert len(unexplained(log)) == 1

    def test_finds_a_branch_of_a_union_without_a_name(self) -> None:
        branch = {"coll": JOBS, "pipeline": [{"$match": {"_id": 1}}]}
        pipeline = [{"$match": {"name": "a"}}, {"$unionWith": branch}]
        found = list(accesses({"aggregate": JOBS, "pipeline": pipeline}, JOBS))
        assert [each.is_targeted for each in found] == [True, False]

    @pytest.mark.parametrize(
        "command",
        [
            {"find": JOBS, "filter": {"name": "a"}},
            {"find": JOBS, "filter": {"$and": [{"name": {"$in": ["a", "b"]}}, {"_id": 1}]}},
            {"findAndModify": JOBS, "query": {"_id": 1, "name": "a"}},
            {"update": JOBS, "updates": [{"q": {"_id": 1, "name": {"$in": ["a", "b"]}}}]},
        ],
    )
    def test_accepts_a_name(self, command: dict[str, Any]) -> None:
        assert [each.is_targeted for each in accesses(command, JOBS)] == [True]

    def test_leaves_other_collections_alone(self) -> None:
        assert list(accesses({"find": f"{JOBS}_meta", "filter": {}}, JOBS)) == []


async def test_every_command_carries_the_name_or_asks_all_shards_on_purpose(
    db: Db, watched: Db, log: CommandLog
) -> None:
    for step in STEPS.values():
        await jobs_in(db).delete_many({})
        await step(db, watched)

    assert unexplained(log) == []
    seen = [each for command in log.sent for each in accesses(command, JOBS)]
    broad = [each for each in seen if not each.is_targeted]
    allowed = {shape for shapes in ON_ALL_SHARDS.values() for shape in shapes}
    assert {(each.kind, each.fields) for each in broad} == allowed
    kinds = Counter(each.kind for each in seen if each.is_targeted)
    assert kinds.keys() == {"find", "aggregate", "update", "delete", "findAndModify"}


@pytest.mark.parametrize("action", ["settle", "recover", "quarantine", "manage_many", "maintain"])
async def test_the_tour_finds_writes_by_id_alone(
    db: Db, watched: Db, log: CommandLog, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    for module in (shard_key, transitions):
        monkeypatch.setattr(module, "of_names", lambda _: {})
    await STEPS[action](db, watched)
    assert {each.kind for each in unexplained(log)} & {"update", "delete"}


def unexplained(log: CommandLog) -> list[Access]:
    """Return what has no name, and may not ask all shards."""
    return [
        each
        for command in log.sent
        for each in accesses(command, JOBS)
        if not each.is_targeted and purpose_on_all_shards(each) is None
    ]


def test_the_page_on_scale_lists_every_command_that_asks_all_shards() -> None:
    page = (DOCS / "scale.md").read_text(encoding="utf-8")
    listed = {row.split(" | ")[0].removeprefix("| ") for row in page.splitlines()}
    assert ON_ALL_SHARDS.keys() <= listed


async def enqueue(db: Db, watched: Db) -> None:  # all steps take the same
    monque = Monque(watched)
    for _ in range(2):
        await monque.enqueue("a", 1)
        await monque.enqueue("a", 1, unique_key="key")
        await monque.enqueue_many("a", range(3))
        await monque.enqueue_many("a", range(3), unique_key=str)

    async def store(session: Any) -> None:
        await monque.enqueue("a", 2, session=session)
        await monque.enqueue("b", 2, unique_key="k", session=session)
        await monque.enqueue_many("a", range(9, 12), unique_key=str, session=session)
        await monque.schedule("@daily", "a", None, session=session)

    async with watched.client.start_session() as session:
        await session.with_transaction(store)


async def schedule(db: Db, watched: Db) -> None:
    monque = Monque(watched)
    for data in (1, 2):
        await monque.schedule("@daily", "a", data)
        await monque.schedule("@daily", "a", data, unique_key="other")
    assert await monque.unschedule("a", "other") == 1
    assert await monque.unschedule("a") == 2


async def look_and_claim(db: Db, watched: Db) -> None:
    queue = (await open_store(watched)).queue
    await put(db, *(a_job(name=name) for name in "aabb"), a_schedule(name="a", timezone="Mars"))
    assert len(await queue.look(["a"], 9, NOW)) == 3
    found = await queue.look_at_each({"a": 1, "b": 2}, NOW)
    assert len(found) == 3
    assert await queue.has_due(["a", "b"], NOW)
    assert await queue.upcoming(["a", "b"], NOW - DAY, NOW, 9)
    batch = [one for one in found if isinstance(one, JobCandidate)]
    token = ObjectId()
    claimed = await queue.claim_batch(batch, token, NOW)
    assert len(claimed) == 3
    assert await queue.claimed_with(token, ["a", "b"], NOW) == claimed
    (left,) = [one for one in await queue.look(["a"], 9, NOW) if isinstance(one, JobCandidate)]
    assert await queue.claim_one(left, ObjectId(), NOW) is not None
    assert await queue.claim_first("a", ObjectId(), NOW) is None
    undated = a_job(name="a")
    await put(db, undated)
    await set_fields(db, undated, nextRunAt="soon")
    assert len(await queue.quarantine_undated(["a", "b"], NOW, 9)) == 1


async def claim_what_is_refused(db: Db, watched: Db) -> None:
    store = await open_store(watched)
    refused = [a_job(name="a", data="refused") for _ in range(2)]
    await put(db, *refused, a_job(name="a"))
    allowed = {"$or": [{"status": "pending"}, {"data": {"$ne": "refused"}}]}
    await db.command("collMod", JOBS, validator=allowed)
    try:
        found = await store.queue.look(["a"], 9, NOW)
        batch = [one for one in found if isinstance(one, JobCandidate)]
        assert len(await store.queue.claim_batch(batch, ObjectId(), NOW)) == 3
        fresh = await open_store(watched)
        assert await fresh.queue.claim_first("a", ObjectId(), NOW) is not None
    finally:
        await db.command("collMod", JOBS, validator={})


async def settle(db: Db, watched: Db) -> None:
    store = await open_store(watched)
    tomorrow = NOW + DAY
    outcomes: list[Outcome] = [COMPLETED, COMPLETED, RELEASED, Retrying("x", tomorrow), Failed("x")]
    await put(db, *(a_job(name=name) for name in "ababa"))
    jobs = await _claimed(store, ["a", "b"])
    assert await store.outcomes.renew(jobs, NOW) == {}
    group = [Settlement(job, outcome) for job, outcome in zip(jobs, outcomes, strict=True)]
    assert await store.outcomes.settle(group, NOW) == ["written"] * 5
    for outcome in (Advanced(tomorrow), OccurrenceFailed("x", tomorrow)):
        await put(db, a_schedule(name="a", unique_key=None))
        job = await claim(store, "a")
        assert await store.outcomes.settle([Settlement(job, outcome)], NOW) == ["written"]


async def settle_what_was_lost(db: Db, watched: Db) -> None:
    store = await open_store(watched)
    await put(db, a_job(name="a"), a_job(name="b"))
    jobs = await _claimed(store, ["a", "b"])
    await jobs_in(db).update_many({}, {"$set": {"claimedBy": "other", "claimToken": ObjectId()}})
    assert set((await store.outcomes.renew(jobs, NOW)).values()) == {"lost"}
    group = [Settlement(job, COMPLETED) for job in jobs]
    assert await store.outcomes.settle(group, NOW) == ["lost", "lost"]
    await put(db, a_schedule(name="a"))
    job = await claim(store, "a")
    failure = Settlement(job, OccurrenceFailed("x", NOW + DAY))
    assert await store.outcomes.settle([failure], NOW) == ["written"]
    # A repetition: the copy is there already, and is left or taken back.
    again = {"status": "processing", "claimedBy": "me", "claimToken": job.claim_token}
    await set_fields(db, job, **again, nextRunAt=job.next_run_at)
    assert await store.outcomes.settle([failure], NOW) == ["written"]
    assert await store.outcomes.settle([failure], NOW) == ["written"]
    await set_fields(db, job, claimToken=ObjectId())
    assert await store.outcomes.settle([failure], NOW) == ["lost"]


async def recover(db: Db, watched: Db) -> None:
    store, stale_jobs = await open_store(db, "dead"), (await open_store(watched)).stale_jobs
    await put(db, *(a_job(name=name) for name in "abc"))
    await _claimed(store, ["a", "b", "c"])
    later = NOW + DAY
    batch = await stale_jobs.find(later, 9)
    adopted = await stale_jobs.adopt(batch, batch.jobs[0], later)
    assert adopted is not None
    assert await stale_jobs.revive(batch, batch.jobs[1:], later) == 2
    await _claimed(store, ["a", "b", "c"])
    batch = await stale_jobs.find_of("dead", NOW, 9)
    assert await stale_jobs.revive(batch, batch.jobs, NOW) == 2
    assert await stale_jobs.foreign_claim(NOW) is None


async def quarantine(db: Db, watched: Db) -> None:
    store = await open_store(watched)
    stale = {"status": "processing", "lockedAt": NOW - DAY}
    named, nameless = a_job(name="a"), a_job(name="a")
    await put(db, named, nameless, a_job(name="a"), a_job(name="a"))
    await set_fields(db, named, failCount="three", **stale)
    await set_fields(db, nameless, name=5, **stale)
    assert len((await store.stale_jobs.find(NOW, 9)).unreadable) == 2
    await jobs_in(db).update_many({"status": "pending"}, {"$set": {"failCount": "three"}})
    assert not isinstance(await store.queue.claim_first("a", ObjectId(), NOW), Job)
    (found,) = await store.queue.look(["a"], 9, NOW)
    assert isinstance(found, JobCandidate)
    (rejected,) = await store.queue.claim_batch([found], ObjectId(), NOW)
    assert not isinstance(rejected, Job)


async def manage_one(db: Db, watched: Db) -> None:
    monque = Monque(watched)
    job = a_job(name="a")
    await put(db, job)
    assert await monque.get_job(job.id)
    assert await monque.reschedule_job(job.id, NOW)
    assert await monque.cancel_job(job.id)
    assert await monque.cancel_job(job.id)
    assert await monque.retry_job(job.id)
    assert await monque.delete_job(job.id)


async def manage_many(db: Db, watched: Db) -> None:
    monque = Monque(watched)
    for selector in (JobSelector("a"), JobSelector()):
        await put(db, *(a_job(name=name, unique_key=key) for name in "ab" for key in (None, "k")))
        count = 2 if selector.name else 4
        everything = selector.is_empty
        assert await monque.cancel_jobs(selector, everything=everything) == count
        assert await monque.retry_jobs(selector, everything=everything) == count
        assert await monque.delete_jobs(selector, everything=everything) == count
        await jobs_in(db).delete_many({})


async def read(db: Db, watched: Db) -> None:
    monque = Monque(watched)
    await put(db, *(a_job(name=name) for name in "aaabbb"), a_schedule(name="a"))
    for name in ("a", None):
        await monque.get_schedules(name)
        await monque.get_queue_stats(name)
        for status in (None, JobStatus.PENDING):
            await monque.get_jobs(name=name, status=status)
            chosen = JobSelector(name, status)
            page = await monque.get_jobs_with_cursor(filter=chosen, limit=2)
            page = await monque.get_jobs_with_cursor(filter=chosen, cursor=page.cursor)
            await monque.get_jobs_with_cursor(
                filter=chosen, cursor=page.cursor, direction="backward"
            )
    await monque.get_queue_view_summaries()


async def maintain(db: Db, watched: Db) -> None:
    store = await open_store(watched, job_retention=JobRetention(completed=60))
    await put(db, *(a_job(name=name, status="completed") for name in "abc"))
    assert await store.finished.delete(JobStatus.COMPLETED, NOW + DAY, 2) == 2
    await store.finished.estimate_all()
    assert await store.indexes.restore() == []


async def run(db: Db, watched: Db) -> None:
    monque = Monque(watched, base_retry_interval=0.01, max_retries=2, heartbeat_interval=0.1)
    happenings = Happenings(monque)

    @monque.worker("a", concurrency=5)
    async def succeed(_: Job[int]) -> None: ...

    @monque.worker("b", concurrency=2)
    async def fail(_: Job[int]) -> None:
        raise ValueError("boom")

    await monque.enqueue_many("a", range(20))
    await monque.enqueue_many("b", range(5))
    async with monque:
        await monque.enqueue("a", 1)
        await happenings.reach("job:complete", 21)
        await happenings.reach("job:fail", 10)
        await happenings.reach("changestream:connected", 1)


async def diagnose(db: Db, watched: Db) -> None:
    await put(db, a_job(name="a"), a_schedule(name="b", next_run_at=NOW + 9999 * DAY))
    for check in JOB_CHECKS:
        await check(watched, JOBS)


async def _claimed(store: Store, names: list[str]) -> list[AnyJob]:
    found = await store.queue.look(names, 100, NOW)
    chosen = [one for one in found if isinstance(one, JobCandidate)]
    claimed = await store.queue.claim_batch(chosen, ObjectId(), NOW)
    jobs = [one for one in claimed if isinstance(one, Job)]
    assert jobs
    return jobs


STEPS = {
    step.__name__: step
    for step in (
        enqueue,
        schedule,
        look_and_claim,
        claim_what_is_refused,
        settle,
        settle_what_was_lost,
        recover,
        quarantine,
        manage_one,
        manage_many,
        read,
        maintain,
        run,
        diagnose,
    )
}
