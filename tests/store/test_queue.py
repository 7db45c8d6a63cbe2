"""Finding due jobs, and claiming them."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from bson import Decimal128, ObjectId

from monque_core.jobs.job import Job
from monque_core.store.documents import to_document
from monque_core.store.quarantine import SKIPPED_SECONDS, Rejected
from monque_core.store.queue import JobCandidate
from tests.support.payloads import ONE_OF_EACH
from tests.support.samples import NOW, a_job, a_schedule
from tests.support.stored import jobs_in, stored, stored_jobs
from tests.support.stores import claim, document_of, open_store, put, set_fields

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core.jobs.job import AnyJob
    from monque_core.store.store import Store

    Db = AsyncDatabase[dict[str, Any]]

SECOND = timedelta(seconds=1)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def candidates(jobs: Sequence[AnyJob]) -> list[JobCandidate]:
    return [JobCandidate(job.id, job.name) for job in jobs]


def ids(found: Sequence[AnyJob | JobCandidate | Rejected]) -> list[object]:
    return [one.id for one in found]


NOT_TO_BE_HAD: dict[str, dict[str, Any]] = {
    "not due": {"nextRunAt": NOW + timedelta(milliseconds=1)},
    "processing": {"status": "processing"},
    "completed": {"status": "completed"},
    "failed": {"status": "failed"},
    "cancelled": {"status": "cancelled"},
    "someone's": {"claimedBy": "other"},
    "another name": {"name": "send-fax"},
    "without a time": {"nextRunAt": None},
}


class TestLook:
    async def test_sees_what_is_due(self, db: Db, store: Store) -> None:
        now_due, long_due = a_job(next_run_at=NOW), a_job(next_run_at=ago(86_400))
        await put(db, now_due, long_due)
        assert ids(await store.queue.look(["send-email"], 10, NOW)) == [long_due.id, now_due.id]

    @pytest.mark.parametrize("reason", NOT_TO_BE_HAD)
    async def test_sees_nothing_else(self, db: Db, store: Store, reason: str) -> None:
        await jobs_in(db).insert_one(to_document(a_job()) | NOT_TO_BE_HAD[reason])
        assert await store.queue.look(["send-email"], 10, NOW) == []
        assert await store.queue.look_at_each({"send-email": 10}, NOW) == []
        assert not await store.queue.has_due(["send-email"], NOW)

    async def test_takes_a_stored_null_for_unclaimed(self, db: Db, store: Store) -> None:
        nulls = dict.fromkeys(["claimedBy", "lockedAt", "lastHeartbeat", "priority", "claims"])
        await jobs_in(db).insert_one(to_document(a_job()) | nulls)
        assert len(await store.queue.look(["send-email"], 10, NOW)) == 1

    async def test_sees_all_names_together_in_the_order_of_the_queue(
        self, db: Db, store: Store
    ) -> None:
        jobs = [
            a_job(name="a", next_run_at=ago(1)),
            a_job(name="b", next_run_at=ago(3)),
            a_job(name="a", next_run_at=ago(2)),
            a_job(name="b", next_run_at=ago(0), priority=1),
            a_job(name="c", next_run_at=ago(9)),
        ]
        await put(db, *jobs)
        found = await store.queue.look(["a", "b"], 10, NOW)
        assert ids(found) == [jobs[3].id, jobs[1].id, jobs[2].id, jobs[0].id]
        assert [one.name for one in found if isinstance(one, JobCandidate)] == ["b", "b", "a", "a"]

    async def test_sees_no_more_than_asked_for(self, db: Db, store: Store) -> None:
        jobs = [a_job(next_run_at=ago(n)) for n in range(5)]
        await put(db, *jobs)
        assert ids(await store.queue.look(["send-email"], 2, NOW)) == [jobs[4].id, jobs[3].id]

    @pytest.mark.parametrize(
        ("claims", "fail_count", "interrupted"),
        [(0, 0, False), (1, 1, False), (1, 0, True), (3, 2, True), (0, 1, False)],
    )
    async def test_tells_which_were_interrupted(
        self, db: Db, store: Store, claims: int, fail_count: int, interrupted: bool
    ) -> None:
        await put(db, a_job(claims=claims, fail_count=fail_count))
        (candidate,) = await store.queue.look(["send-email"], 10, NOW)
        assert isinstance(candidate, JobCandidate)
        assert candidate.interrupted is interrupted

    async def test_at_each_name_lets_none_hide_another(self, db: Db, store: Store) -> None:
        crowd = [a_job(name="crowd", next_run_at=ago(100 - n), priority=5) for n in range(20)]
        lonely = a_job(name="lonely")
        await put(db, *crowd, lonely)
        found = await store.queue.look_at_each({"crowd": 2, "lonely": 5, "absent": 3}, NOW)
        assert ids(found) == [crowd[0].id, crowd[1].id, lonely.id]

    async def test_tells_whether_anything_is_due(self, db: Db, store: Store) -> None:
        assert not await store.queue.has_due(["send-email"], NOW)
        await put(db, a_job())
        assert await store.queue.has_due(["send-fax", "send-email"], NOW)


class TestUpcoming:
    async def test_is_what_becomes_due_after_one_time_and_until_another(
        self, db: Db, store: Store
    ) -> None:
        jobs = [a_job(next_run_at=NOW + n * SECOND) for n in range(5)]
        await put(db, *jobs)
        found = await store.queue.upcoming(["send-email"], NOW + SECOND, NOW + 3 * SECOND, 10)
        assert found == [("send-email", NOW + 2 * SECOND), ("send-email", NOW + 3 * SECOND)]

    async def test_comes_soonest_first_over_all_names_and_priorities(
        self, db: Db, store: Store
    ) -> None:
        await put(
            db,
            a_job(name="a", next_run_at=NOW + 3 * SECOND, priority=9),
            a_job(name="b", next_run_at=NOW + 1 * SECOND),
            a_job(name="a", next_run_at=NOW + 2 * SECOND, priority=1),
            a_job(name="c", next_run_at=NOW + 1 * SECOND),
        )
        found = await store.queue.upcoming(["a", "b"], NOW, NOW + timedelta(hours=1), 10)
        assert found == [
            ("b", NOW + 1 * SECOND),
            ("a", NOW + 2 * SECOND),
            ("a", NOW + 3 * SECOND),
        ]
        assert await store.queue.upcoming(["a", "b"], NOW, NOW + timedelta(hours=1), 2) == found[:2]

    async def test_holds_only_pending_jobs(self, db: Db, store: Store) -> None:
        for status in ("processing", "completed", "failed", "cancelled"):
            await put(db, a_job(status=status, next_run_at=NOW + SECOND))
        assert await store.queue.upcoming(["send-email"], NOW, NOW + timedelta(hours=1), 10) == []


class TestClaim:
    async def test_stamps_the_job(self, db: Db, store: Store) -> None:
        job = a_job(next_run_at=ago(5), created_at=ago(9), updated_at=ago(9))
        await put(db, job)
        before, token = await document_of(db, job), ObjectId()
        claimed = await store.queue.claim_first("send-email", token, NOW)
        assert await document_of(db, job) == before | {
            "status": "processing",
            "claimedBy": "me",
            "lockedAt": NOW,
            "lastHeartbeat": NOW,
            "heartbeatInterval": 30_000,
            "updatedAt": NOW,
            "claimToken": token,
            "claimedAt": NOW,
            "claims": 1,
        }
        assert claimed == await stored(db, job)

    async def test_is_the_same_whether_it_is_made_alone_or_in_a_batch(
        self, db: Db, store: Store
    ) -> None:
        jobs = [a_job(name=name, claims=1, fail_count=1) for name in ("first", "one", "batch")]
        await put(db, *jobs)
        token = ObjectId()
        await store.queue.claim_first("first", token, NOW)
        await store.queue.claim_one(candidates(jobs)[1], token, NOW)
        await store.queue.claim_batch(candidates(jobs)[2:], token, NOW)
        documents = [await document_of(db, job) for job in jobs]
        for document in documents:
            del document["_id"], document["name"]
        assert documents[0] == documents[1] == documents[2]
        assert documents[0]["claims"] == 2

    @pytest.mark.parametrize("reason", NOT_TO_BE_HAD)
    async def test_takes_only_what_is_due_and_free(self, db: Db, store: Store, reason: str) -> None:
        job = a_job()
        await jobs_in(db).insert_one(to_document(job) | NOT_TO_BE_HAD[reason])
        before = await document_of(db, job)
        (candidate,) = candidates([job])
        assert await store.queue.claim_first("send-email", ObjectId(), NOW) is None
        if reason != "another name":
            assert await store.queue.claim_one(candidate, ObjectId(), NOW) is None
            assert await store.queue.claim_batch([candidate], ObjectId(), NOW) == []
        assert await document_of(db, job) == before

    async def test_takes_higher_priorities_before_and_then_the_earliest(
        self, db: Db, store: Store
    ) -> None:
        jobs = [
            a_job(next_run_at=ago(1)),
            a_job(next_run_at=ago(2)),
            a_job(next_run_at=ago(1), priority=2),
            a_job(next_run_at=ago(0), priority=10),
            a_job(next_run_at=ago(5), priority=2),
        ]
        await put(db, *jobs)
        order = [(await claim(store)).id for _ in jobs]
        assert order == [jobs[n].id for n in (3, 4, 2, 1, 0)]

    async def test_gives_a_batch_in_the_order_of_the_queue(self, db: Db, store: Store) -> None:
        jobs = [a_job(next_run_at=ago(n % 7), priority=n % 3) for n in range(20)]
        await put(db, *jobs)
        claimed = await store.queue.claim_batch(candidates(jobs), ObjectId(), NOW)
        assert len(claimed) == 20
        ranks = [(-job.priority, job.next_run_at) for job in claimed if isinstance(job, Job)]
        assert all(one <= other for one, other in pairwise(ranks))

    async def test_gives_what_is_left_of_a_batch(self, db: Db, store: Store, other: Store) -> None:
        jobs = [a_job() for _ in range(4)]
        await put(db, *jobs)
        await other.queue.claim_batch(candidates(jobs[:2]), ObjectId(), NOW)
        mine = await store.queue.claim_batch(candidates(jobs), ObjectId(), NOW)
        assert set(ids(mine)) == {jobs[2].id, jobs[3].id}
        assert all(isinstance(job, Job) and job.claimed_by == "me" for job in mine)

    async def test_of_a_job_that_was_claimed_before_counts_on(self, db: Db, store: Store) -> None:
        await put(db, a_job(claims=4, fail_count=4, claim_token=ObjectId()))
        claimed = await claim(store)
        assert (claimed.claims, claimed.fail_count) == (5, 4)

    async def test_of_one_job_succeeds_once(self, db: Db, store: Store, other: Store) -> None:
        jobs = [a_job(next_run_at=ago(n)) for n in range(10)]
        await put(db, *jobs)
        one_by_one = [
            owner.queue.claim_first("send-email", ObjectId(), NOW)
            for _ in range(10)
            for owner in (store, other)
        ]
        batches = [
            owner.queue.claim_batch(candidates(jobs), ObjectId(), NOW) for owner in (store, other)
        ]
        singles = await asyncio.gather(*one_by_one)
        groups = await asyncio.gather(*batches)
        claimed = [job for job in singles if job is not None] + [
            job for group in groups for job in group
        ]
        assert sorted(map(str, ids(claimed))) == sorted(str(job.id) for job in jobs)
        assert all(job.claims == 1 for job in await stored_jobs(db))

    async def test_of_overlapping_batches_at_the_same_time_splits_them(
        self, db: Db, store: Store, other: Store
    ) -> None:
        jobs = [a_job() for _ in range(200)]
        await put(db, *jobs)
        groups = await asyncio.gather(
            *(
                owner.queue.claim_batch(candidates(jobs), ObjectId(), NOW)
                for _ in range(3)
                for owner in (store, other)
            )
        )
        claimed = [job for group in groups for job in group]
        assert len(claimed) == len(set(ids(claimed))) == 200
        by_id = {job.id: job for job in await stored_jobs(db)}
        assert all(isinstance(job, Job) and job == by_id[job.id] for job in claimed)

    async def test_leaves_the_data_alone(self, db: Db, store: Store) -> None:
        for kind, data in ONE_OF_EACH.items():
            await put(db, a_job(data=data))
            claimed = await claim(store)
            assert claimed.data == data, kind
            assert type(claimed.data) is type(data), kind

    async def test_may_be_made_by_an_instance_whose_id_looks_like_a_field(self, db: Db) -> None:
        await put(db, a_job())
        store = await open_store(db, "$name")
        assert (await claim(store)).claimed_by == "$name"


class TestClaimsThatAreCounted:
    """Node does not know `claims`, and leaves the count unchanged."""

    OUTDATED: ClassVar[dict[str, dict[str, Any]]] = {
        "retried after this side had given it up": {"claims": 10, "failCount": 0},
        "retried after two interruptions": {"claims": 12, "failCount": 0},
        "moved to its next tick": {"claims": 2, "failCount": 0, "heartbeatInterval": 30_000},
        "failed by Node": {"claims": 5, "failCount": 2, "heartbeatInterval": 30_000},
    }
    HOLDING: ClassVar[dict[str, dict[str, Any]]] = {
        "interrupted and recovered": {"claims": 2, "failCount": 1, "nextRunAt": ago(20)},
        "interrupted and recovered by Node": {
            "claims": 1,
            "failCount": 0,
            "nextRunAt": ago(20),
            "heartbeatInterval": 30_000,
        },
        "interrupted, claimed again and handed back": {
            "claims": 1,
            "failCount": 0,
            "nextRunAt": ago(20),
            "claimToken": ObjectId(),
        },
        "interrupted, then failed here": {"claims": 3, "failCount": 1},
        "stored by a version that noted no time": {
            "claims": 1,
            "failCount": 0,
            "claimedAt": None,
        },
    }

    @pytest.mark.parametrize("story", OUTDATED)
    async def test_are_not_those_that_node_left_behind(
        self, db: Db, store: Store, story: str
    ) -> None:
        job = a_job(claimed_at=ago(10), next_run_at=ago(5))
        await put(db, job)
        await set_fields(db, job, **self.OUTDATED[story])
        failures = self.OUTDATED[story]["failCount"]

        (candidate,) = await store.queue.look(["send-email"], 10, NOW)
        assert isinstance(candidate, JobCandidate)
        assert not candidate.interrupted
        assert (await claim(store)).claims == failures + 1

    @pytest.mark.parametrize("story", HOLDING)
    async def test_are_those_of_this_side(self, db: Db, store: Store, story: str) -> None:
        job = a_job(claimed_at=ago(10), next_run_at=ago(5))
        await put(db, job)
        await set_fields(db, job, **self.HOLDING[story])
        claims = self.HOLDING[story]["claims"]

        (candidate,) = await store.queue.look(["send-email"], 10, NOW)
        assert isinstance(candidate, JobCandidate)
        assert candidate.interrupted
        assert candidate.claims == claims
        assert (await claim(store)).claims == claims + 1

    async def test_include_the_runs_that_failed_elsewhere(self, db: Db, store: Store) -> None:
        await put(db, a_job(fail_count=3, heartbeat_interval=30_000))
        assert (await claim(store)).claims == 4


class TestReadBack:
    async def test_finds_a_claim_whose_reply_was_lost(self, db: Db, store: Store) -> None:
        jobs = [a_job(next_run_at=ago(n), priority=n % 2) for n in range(4)]
        await put(db, *jobs)
        token = ObjectId()
        claimed = await store.queue.claim_batch(candidates(jobs), token, NOW)
        assert await store.queue.claimed_with(token, ["send-email"], NOW) == claimed
        assert len(claimed) == 4

    async def test_finds_nothing_if_there_was_no_claim(self, db: Db, store: Store) -> None:
        await put(db, a_job())
        await claim(store)
        assert await store.queue.claimed_with(ObjectId(), ["send-email"], NOW) == []

    async def test_finds_nothing_that_someone_else_has_by_now(
        self, db: Db, store: Store, other: Store
    ) -> None:
        await put(db, a_job())
        job = await claim(store)
        assert job.claim_token is not None
        assert await other.queue.claimed_with(job.claim_token, ["send-email"], NOW) == []
        await set_fields(db, job, status="completed")
        assert await store.queue.claimed_with(job.claim_token, ["send-email"], NOW) == []


class TestForeignDocuments:
    @pytest.mark.parametrize("claims", [None, "many", [], {"n": 1}, True])
    async def test_whose_claims_were_never_counted_are_claimed_for_the_first_time(
        self, db: Db, store: Store, claims: object
    ) -> None:
        jobs = [a_job(next_run_at=ago(9)), a_job(next_run_at=ago(8)), a_job()]
        await put(db, *jobs)
        await set_fields(db, jobs[0], claims=claims)
        await set_fields(db, jobs[1], claims=claims)
        assert (await claim(store)).claims == 1
        batch = await store.queue.claim_batch(candidates(jobs[1:]), ObjectId(), NOW)
        assert [job.claims for job in batch if isinstance(job, Job)] == [1, 1]

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("failCount", "three"),
            ("claims", Decimal128("1")),
            ("createdAt", "yesterday"),
            ("maxRetries", -1),
            ("timeoutMs", "1s"),
            ("repeatInterval", 5),
        ],
    )
    async def test_that_are_no_jobs_are_failed_and_hold_up_nobody(
        self, db: Db, store: Store, field: str, value: object
    ) -> None:
        first, second, sound = a_job(next_run_at=ago(9)), a_job(next_run_at=ago(8)), a_job()
        await put(db, first, second, sound)
        for job in (first, second):
            await set_fields(db, job, **{field: value})

        met = await store.queue.claim_first("send-email", ObjectId(), NOW)
        assert isinstance(met, Rejected)
        assert met.id == first.id

        batch = await store.queue.claim_batch(candidates([second, sound]), ObjectId(), NOW)
        assert ids(batch) == [second.id, sound.id]
        assert isinstance(batch[0], Rejected)
        assert isinstance(batch[1], Job)

        for job, error in ((first, met.error), (second, batch[0].error)):
            document = await document_of(db, job)
            assert document["status"] == "failed"
            assert document["failReason"] == str(error)
            assert str(job.id) in str(error)
            assert document[field] == value or field == "claims"
            assert "claimedBy" not in document

    async def test_are_left_to_the_next_look_by_whoever_only_asks(
        self, db: Db, store: Store
    ) -> None:
        job = a_job(next_run_at=ago(9))
        await put(db, job)
        await set_fields(db, job, name=["send-email"])
        assert await store.queue.has_due(["send-email"], NOW)
        assert (await document_of(db, job))["status"] == "pending"

    async def test_that_a_look_finds_are_failed(self, db: Db, store: Store) -> None:
        job, sound = a_job(next_run_at=ago(9)), a_job()
        await put(db, job, sound)
        await set_fields(db, job, name=["send-email", "send-fax"])
        found = await store.queue.look(["send-email"], 10, NOW)
        assert isinstance(found[0], Rejected)
        assert ids(found) == [job.id, sound.id]
        assert (await document_of(db, job))["status"] == "failed"


class TestSchedulesOfOthers:
    """Schedules whose next run cannot be computed here: they are neither run nor ended."""

    @pytest.fixture(params=[{"repeatInterval": "H H * * *"}, {"timezone": "Mars/Olympus"}])
    async def schedule(self, db: Db, request: pytest.FixtureRequest) -> AnyJob:
        schedule = a_schedule(next_run_at=ago(9))
        await put(db, schedule)
        await set_fields(db, schedule, **request.param)
        return schedule

    async def test_are_seen_by_a_look_and_not_touched(
        self, db: Db, store: Store, other: Store, schedule: AnyJob
    ) -> None:
        before = await document_of(db, schedule)
        (at_once,) = await store.queue.look([schedule.name], 10, NOW)
        (by_name,) = await other.queue.look_at_each({schedule.name: 10}, NOW)
        assert isinstance(at_once, Rejected)
        assert isinstance(by_name, Rejected)
        assert await document_of(db, schedule) == before

    async def test_are_handed_back_by_a_claim_as_they_were(
        self, db: Db, store: Store, other: Store, schedule: AnyJob
    ) -> None:
        before = await document_of(db, schedule)
        single = await store.queue.claim_first(schedule.name, ObjectId(), NOW)
        (of_batch,) = await other.queue.claim_batch(candidates([schedule]), ObjectId(), NOW)
        for met in (single, of_batch):
            assert isinstance(met, Rejected)
            assert "cannot be read here and is left to workers that can" in str(met.error)

        after = await document_of(db, schedule)
        traces = {"updatedAt", "claims", "claimToken", "claimedAt"}
        assert after["claims"] == 0
        assert {field: value for field, value in after.items() if field not in traces} == {
            field: value for field, value in before.items() if field not in traces
        }

    async def test_are_reported_once_and_skipped(
        self, db: Db, store: Store, schedule: AnyJob
    ) -> None:
        job = a_job()
        await put(db, job)
        first = await store.queue.look([schedule.name], 1, NOW)
        assert isinstance(first[0], Rejected)
        assert ids(await store.queue.look([schedule.name], 1, NOW)) == [job.id]
        await claim(store)
        assert not await store.queue.has_due([schedule.name], NOW)

    async def test_are_retried_later_without_another_report(
        self, store: Store, schedule: AnyJob, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await store.queue.look([schedule.name], 1, NOW)
        later = time.monotonic() + SKIPPED_SECONDS + 1
        monkeypatch.setattr("monque_core.store.quarantine.time.monotonic", lambda: later)
        (again,) = await store.queue.look([schedule.name], 1, NOW)
        assert isinstance(again, Rejected)
        assert again.error is None
