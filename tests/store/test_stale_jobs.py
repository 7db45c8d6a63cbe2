"""Finding the jobs of dead instances, and leaving those of live ones alone."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from bson import Decimal128, ObjectId
from pymongo import AsyncMongoClient

from monque_core import InvalidJobError
from monque_core.jobs.job import JobStatus
from monque_core.store.documents import to_document
from monque_core.store.stale_jobs import is_interval
from tests.support.commands import CommandLog
from tests.support.samples import NOW, a_job, a_schedule
from tests.support.stored import jobs_in, stored, stored_jobs
from tests.support.stores import claim, document_of, open_store, put, set_fields

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core.jobs.job import AnyJob
    from monque_core.store.store import Store

    Db = AsyncDatabase[dict[str, Any]]

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
MILLISECOND = timedelta(milliseconds=1)
GONE = object()
"""Marks a field that is absent."""


def a_running(heartbeat: timedelta, interval: int = 30_000, **fields: Any) -> AnyJob:
    """Return a processing job whose owner sent its last heartbeat this long ago."""
    claimed = {
        "status": "processing",
        "claimed_by": "other",
        "locked_at": NOW - heartbeat,
        "last_heartbeat": NOW - heartbeat,
        "heartbeat_interval": interval,
        "claim_token": ObjectId(),
        "claims": 1,
    }
    return a_job(**(claimed | fields))


async def put_document(db: Db, job: AnyJob, **fields: object) -> None:
    document = {
        field: value for field, value in (to_document(job) | fields).items() if value is not GONE
    }
    await jobs_in(db).insert_one(document)


async def stale_ids(store: Store, limit: int = 100) -> set[ObjectId]:
    return {job.id for job in (await store.stale_jobs.find(NOW, limit)).jobs}


def ids(jobs: Iterable[AnyJob]) -> set[ObjectId]:
    return {job.id for job in jobs}


class TestStaleness:
    @pytest.mark.parametrize("interval", [100, 1_000, 30_000, 600_000])
    async def test_is_silence_of_three_of_the_heartbeats_stored_on_the_job(
        self, db: Db, store: Store, interval: int
    ) -> None:
        three = 3 * timedelta(milliseconds=interval)
        alive = a_running(three, interval)
        dead = a_running(three + MILLISECOND, interval)
        await put(db, alive, dead)
        assert await stale_ids(store) == {dead.id}

    async def test_is_measured_by_the_job_not_by_the_instance_that_looks(
        self, db: Db, store: Store
    ) -> None:
        alive = [
            a_running(10 * MINUTE, 600_000),
            a_running(80 * SECOND, 30_000),
            a_running(2 * SECOND, 1_000),
        ]
        dead = [
            a_running(31 * MINUTE, 600_000),
            a_running(91 * SECOND, 30_000),
            a_running(4 * SECOND, 1_000),
        ]
        await put(db, *alive, *dead)
        assert await stale_ids(store) == ids(dead)

    async def test_requires_the_status_processing(self, db: Db, store: Store) -> None:
        for status in JobStatus.ALL:
            await put(db, a_running(timedelta(days=1), status=status))
        batch = await store.stale_jobs.find(NOW, 100)
        assert [job.status for job in batch.jobs] == ["processing"]

    async def test_does_not_apply_to_a_live_job_of_any_length(self, db: Db, store: Store) -> None:
        """Node instances send heartbeats but never renew `lockedAt`."""
        await put(db, a_running(10 * SECOND, locked_at=NOW - timedelta(days=7), claim_token=None))
        assert await stale_ids(store) == set()

    @pytest.mark.parametrize("absent", [GONE, None])
    @pytest.mark.parametrize("field", ["lastHeartbeat", "heartbeatInterval"])
    async def test_is_decided_by_the_lock_where_no_heartbeat_is_known(
        self, db: Db, store: Store, field: str, absent: object
    ) -> None:
        heard_of = timedelta(days=1) if field == "heartbeatInterval" else timedelta(0)
        fresh = a_running(heard_of, locked_at=NOW - 30 * MINUTE)
        expired = a_running(heard_of, locked_at=NOW - 30 * MINUTE - MILLISECOND)
        for job in (fresh, expired):
            await put_document(db, job, **{field: absent})
        assert await stale_ids(store) == {expired.id}

    @pytest.mark.parametrize("absent", [GONE, None])
    async def test_is_decided_by_the_lock_where_some_have_heartbeats_and_some_not(
        self, db: Db, store: Store, absent: object
    ) -> None:
        with_heartbeat = a_running(10 * SECOND, locked_at=NOW - timedelta(days=7))
        fresh = a_running(timedelta(0), locked_at=NOW - 29 * MINUTE)
        expired = a_running(timedelta(0), locked_at=NOW - 31 * MINUTE)
        await put(db, with_heartbeat)
        for job in (fresh, expired):
            await put_document(db, job, lastHeartbeat=absent)
        assert await stale_ids(store) == {expired.id}

    async def test_is_decided_by_the_lock_timeout_of_the_instance_that_looks(self, db: Db) -> None:
        store = await open_store(db, lock_timeout=120)
        fresh = a_running(timedelta(0), locked_at=NOW - 119 * SECOND)
        expired = a_running(timedelta(0), locked_at=NOW - 121 * SECOND)
        for job in (fresh, expired):
            await put_document(db, job, heartbeatInterval=GONE, lastHeartbeat=GONE)
        assert await stale_ids(store) == {expired.id}

    @pytest.mark.parametrize(
        "interval",
        [
            0,
            -30_000,
            math.nan,
            math.inf,
            -math.inf,
            10**15,
            True,
            False,
            "30000",
            {"ms": 30_000},
            Decimal128("NaN"),
            b"30000",
            NOW,
        ],
    )
    async def test_is_decided_by_the_lock_where_the_interval_is_garbage(
        self, db: Db, store: Store, interval: object
    ) -> None:
        sound_and_alive = a_running(80 * SECOND, 30_000)
        sound_and_dead = a_running(91 * SECOND, 30_000)
        fresh = a_running(MINUTE, locked_at=NOW - 29 * MINUTE)
        expired = a_running(MINUTE, locked_at=NOW - 31 * MINUTE)
        await put(db, sound_and_alive, sound_and_dead)
        for job in (fresh, expired):
            await put_document(db, job, heartbeatInterval=interval)
        assert await stale_ids(store) == {expired.id, sound_and_dead.id}

    @pytest.mark.parametrize("heartbeat", ["yesterday", 0, True, {}])
    async def test_is_decided_by_the_lock_where_the_heartbeat_is_garbage(
        self, db: Db, store: Store, heartbeat: object
    ) -> None:
        fresh = a_running(timedelta(0), locked_at=NOW - 29 * MINUTE)
        expired = a_running(timedelta(0), locked_at=NOW - 31 * MINUTE)
        for job in (fresh, expired):
            await put_document(db, job, lastHeartbeat=heartbeat)
        assert await stale_ids(store) == {expired.id}

    @pytest.mark.parametrize("lock", [GONE, None, "yesterday"])
    async def test_applies_to_a_claim_without_any_time(
        self, db: Db, store: Store, lock: object
    ) -> None:
        job = a_running(timedelta(0))
        await put_document(db, job, lastHeartbeat=GONE, heartbeatInterval=GONE, lockedAt=lock)
        assert await stale_ids(store) == {job.id}

    async def test_accepts_a_float_as_interval(self, db: Db, store: Store) -> None:
        alive, dead = a_running(2 * SECOND), a_running(4 * SECOND)
        for job in (alive, dead):
            await put_document(db, job, heartbeatInterval=1000.0)
        assert await stale_ids(store) == {dead.id}

    async def test_ends_with_a_heartbeat(self, db: Db, store: Store) -> None:
        await put(db, a_job(next_run_at=NOW - 2 * MINUTE))
        job = await claim(store, now=NOW - 91 * SECOND)
        assert await stale_ids(store) == {job.id}
        await store.outcomes.renew([job], NOW)
        assert await stale_ids(store) == set()

    async def test_is_seen_a_bounded_number_at_a_time(self, db: Db, store: Store) -> None:
        await put(db, *(a_running(timedelta(days=1)) for _ in range(5)))
        assert len((await store.stale_jobs.find(NOW, 3)).jobs) == 3


class TestRevival:
    async def test_gives_a_job_back_to_the_queue(self, db: Db, store: Store) -> None:
        job = a_running(timedelta(days=1), fail_count=1, claims=2, fail_reason="before")
        await put(db, job)
        before = await document_of(db, job)
        batch = await store.stale_jobs.find(NOW, 10)
        assert await store.stale_jobs.revive(batch, batch.jobs, NOW) == 1
        for field in (
            "claimedBy",
            "lockedAt",
            "lastHeartbeat",
            "heartbeatInterval",
            "claimToken",
        ):
            del before[field]
        assert await document_of(db, job) == before | {"status": "pending", "updatedAt": NOW}

    async def test_leaves_the_claim_counted(self, db: Db, store: Store) -> None:
        job = a_running(timedelta(days=1), claims=1)
        await put(db, job)
        batch = await store.stale_jobs.find(NOW, 10)
        await store.stale_jobs.revive(batch, batch.jobs, NOW)
        again = await claim(store)
        assert (again.id, again.claims, again.fail_count) == (job.id, 2, 0)

    async def test_happens_once_however_many_look(self, db: Db, store: Store, other: Store) -> None:
        await put(db, *(a_running(timedelta(days=1)) for _ in range(20)))
        batches = [await owner.stale_jobs.find(NOW, 100) for owner in (store, other)]
        counts = [
            await owner.stale_jobs.revive(batch, batch.jobs, NOW)
            for owner, batch in zip((store, other), batches, strict=True)
        ]
        assert counts == [20, 0]

    async def test_spares_a_job_with_a_heartbeat_after_the_look(self, db: Db, store: Store) -> None:
        job, silent = a_running(timedelta(days=1)), a_running(timedelta(days=1))
        await put(db, job, silent)
        batch = await store.stale_jobs.find(NOW, 10)
        await set_fields(db, job, lastHeartbeat=NOW)
        assert await store.stale_jobs.revive(batch, batch.jobs, NOW) == 1
        assert (await stored(db, job)).status == "processing"

    async def test_spares_a_job_that_was_claimed_anew_after_the_look(
        self, db: Db, store: Store, other: Store
    ) -> None:
        await put(db, a_running(timedelta(days=1)))
        mine, theirs = (
            await store.stale_jobs.find(NOW, 10),
            await other.stale_jobs.find(NOW, 10),
        )
        await other.stale_jobs.revive(theirs, theirs.jobs, NOW)
        newer = await claim(other)
        assert await store.stale_jobs.revive(mine, mine.jobs, NOW) == 0
        assert await stored(db, newer) == newer

    async def test_is_only_for_those_it_is_asked_for(self, db: Db, store: Store) -> None:
        chosen, spared = a_running(timedelta(days=1)), a_running(timedelta(days=1))
        await put(db, chosen, spared)
        batch = await store.stale_jobs.find(NOW, 10)
        assert await store.stale_jobs.revive(batch, [chosen], NOW) == 1
        assert (await stored(db, spared)).status == "processing"


class TestAdoption:
    async def test_takes_over_the_claim_uncounted(self, db: Db, store: Store) -> None:
        job = a_running(timedelta(days=1), claims=3)
        await put(db, job)
        batch = await store.stale_jobs.find(NOW, 10)
        adopted = await store.stale_jobs.adopt(batch, batch.jobs[0], NOW)
        assert adopted is not None
        assert adopted == await stored(db, job)
        assert (adopted.status, adopted.claimed_by, adopted.claims) == ("processing", "me", 3)
        assert adopted.claim_token not in {None, job.claim_token}
        assert adopted.locked_at == adopted.last_heartbeat == NOW
        assert adopted.heartbeat_interval == 30_000

    async def test_is_for_one_only(self, db: Db, store: Store, other: Store) -> None:
        await put(db, a_running(timedelta(days=1)))
        mine, theirs = (
            await store.stale_jobs.find(NOW, 10),
            await other.stale_jobs.find(NOW, 10),
        )
        assert await other.stale_jobs.adopt(theirs, theirs.jobs[0], NOW) is not None
        assert await store.stale_jobs.adopt(mine, mine.jobs[0], NOW) is None

    async def test_is_refused_after_a_heartbeat_of_the_owner(self, db: Db, store: Store) -> None:
        job = a_running(timedelta(days=1))
        await put(db, job)
        batch = await store.stale_jobs.find(NOW, 10)
        await set_fields(db, job, lastHeartbeat=NOW)
        assert await store.stale_jobs.adopt(batch, job, NOW) is None
        assert (await stored(db, job)).claimed_by == "other"

    async def test_keeps_others_from_reviving_it(self, db: Db, store: Store, other: Store) -> None:
        await put(db, a_running(timedelta(days=1)))
        mine, theirs = (
            await store.stale_jobs.find(NOW, 10),
            await other.stale_jobs.find(NOW, 10),
        )
        assert await store.stale_jobs.adopt(mine, mine.jobs[0], NOW) is not None
        assert await other.stale_jobs.revive(theirs, theirs.jobs, NOW) == 0


@pytest.mark.parametrize("value", [math.nan, math.inf, True, -1, 0, 2**60, "30000", None, [1]])
def test_an_invalid_interval_is_ignored(value: object) -> None:
    assert is_interval(30_000)
    assert is_interval(0.5)
    assert not is_interval(value)


class TestForeignDocuments:
    async def test_that_are_not_jobs_are_failed_and_reported(self, db: Db, store: Store) -> None:
        broken, sound = a_running(timedelta(days=1)), a_running(timedelta(days=1))
        await put(db, broken, sound)
        await set_fields(db, broken, failCount="three")
        batch = await store.stale_jobs.find(NOW, 10)
        assert ids(batch.jobs) == {sound.id}
        (error,) = batch.unreadable
        assert isinstance(error, InvalidJobError)
        assert error.field == "failCount"
        document = await document_of(db, broken)
        assert (document["status"], document["failReason"]) == ("failed", str(error))
        assert "claimedBy" not in document

    async def test_of_node_instances_are_revived(self, db: Db, store: Store) -> None:
        schedule = a_schedule(status="processing", claimed_by="node", locked_at=NOW - 91 * SECOND)
        await put_document(
            db,
            schedule,
            lastHeartbeat=NOW - 91 * SECOND,
            heartbeatInterval=30_000,
            failReason=None,
            timezone=GONE,
        )
        batch = await store.stale_jobs.find(NOW, 10)
        assert await store.stale_jobs.revive(batch, batch.jobs, NOW) == 1
        (job,) = await stored_jobs(db)
        assert (job.status, job.claims) == ("pending", 0)


async def test_an_idle_queue_takes_one_query(uri: str, db: Db) -> None:
    log = CommandLog()
    async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
        store = await open_store(client[db.name])
        await put(db, a_job(), a_job(status=JobStatus.COMPLETED))
        log.sent.clear()
        assert await stale_ids(store) == set()
        assert log.count() == {"find": 1}
