"""Management actions on jobs: in every status, in races, and in bulk."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pytest
from bson import Code, Decimal128, MaxKey, MinKey, ObjectId, Timestamp
from pymongo import AsyncMongoClient, MongoClient, WriteConcern
from pymongo.errors import OperationFailure

from monque_core import JobSelector, JobStateError, JobStatus, MonqueError
from monque_core.store.documents import to_document
from monque_core.store.driver import Driver
from monque_core.store.management import ChangedJob, Management
from monque_core.store.queue import JobCandidate
from tests.support.commands import CommandLog
from tests.support.samples import NOW, a_job, a_schedule
from tests.support.stored import jobs_in, stored
from tests.support.stores import claim, document_of, open_store, put, set_fields

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core.jobs.job import AnyJob
    from monque_core.store.store import Store

    Db = AsyncDatabase[dict[str, Any]]
    Action = Callable[[Store, ObjectId], Coroutine[Any, Any, ChangedJob | None]]

LATER: Final = NOW + timedelta(minutes=5)
TICK: Final = NOW + timedelta(hours=1)
NO_SPREAD: Final = timedelta(0)
ACTIONS: Final[dict[str, Action]] = {
    "cancel": lambda store, job_id: store.management.cancel(job_id, LATER),
    "retry": lambda store, job_id: store.management.retry(job_id, LATER),
    "reschedule": lambda store, job_id: store.management.reschedule(job_id, TICK, LATER),
}
ALLOWED: Final = {
    ("cancel", "pending"): "cancelled",
    ("cancel", "cancelled"): "cancelled",
    ("retry", "failed"): "pending",
    ("retry", "cancelled"): "pending",
    ("reschedule", "pending"): "pending",
}
every_action = pytest.mark.parametrize("action", ACTIONS)


def a_past_job(**fields: Any) -> AnyJob:
    """Return a job with every optional field set."""
    past = {"fail_count": 2, "claims": 3, "fail_reason": "boom", "claim_token": ObjectId()}
    return a_job(**past | {"claimed_at": NOW, "priority": 2} | fields)


async def total(batches: AsyncIterator[int]) -> int:
    return sum([count async for count in batches])


class TestEveryCell:
    @every_action
    @pytest.mark.parametrize("status", JobStatus.ALL)
    async def test_of_the_table(self, db: Db, store: Store, action: str, status: Any) -> None:
        job = a_past_job(status=status, claimed_by="other" if status == "processing" else None)
        await put(db, job)
        before = await document_of(db, job)
        if (action, status) in ALLOWED:
            change = await ACTIONS[action](store, job.id)
            assert change is not None
            assert change.job.status == ALLOWED[action, status]
            assert change.previous_status == status
            assert change.job == await stored(db, job)
        else:
            with pytest.raises(
                JobStateError, match=f"cannot {action} job {job.id}: it is {status}"
            ):
                await ACTIONS[action](store, job.id)
        if (action, status) not in ALLOWED or status == "cancelled" == ALLOWED[action, status]:
            assert await document_of(db, job) == before

    @every_action
    async def test_of_an_unknown_id(self, db: Db, store: Store, action: str) -> None:
        await put(db, a_job(), a_job(status="failed"))
        assert await ACTIONS[action](store, ObjectId()) is None

    @pytest.mark.parametrize("status", JobStatus.ALL)
    async def test_of_deletion(self, db: Db, store: Store, status: Any) -> None:
        job, other = a_job(status=status), a_job(status=status)
        await put(db, job, other)
        assert await store.management.delete(job.id)
        assert not await store.management.delete(job.id)
        assert [document["_id"] async for document in jobs_in(db).find()] == [other.id]


class TestWhatIsWritten:
    async def test_by_a_cancellation(self, db: Db, store: Store) -> None:
        job = a_past_job()
        await put(db, job)
        before = await document_of(db, job)
        change = await store.management.cancel(job.id, LATER)
        assert change is not None
        assert change.is_new
        assert await document_of(db, job) == before | {"status": "cancelled", "updatedAt": LATER}

    async def test_by_a_second_one_is_nothing(self, db: Db, store: Store) -> None:
        job = a_past_job()
        await put(db, job)
        await store.management.cancel(job.id, LATER)
        before = await document_of(db, job)
        change = await store.management.cancel(job.id, TICK)
        assert change is not None
        assert not change.is_new
        assert await document_of(db, job) == before

    async def test_by_a_retry(self, db: Db, store: Store) -> None:
        job = a_past_job(status="failed", unique_key="key", data={"a": 1})
        await put(db, job)
        change = await store.management.retry(job.id, LATER)
        assert change is not None
        assert change.previous_status == "failed"
        assert change.job == await stored(db, job)
        assert change.job == a_job(
            id=job.id,
            data={"a": 1},
            unique_key="key",
            priority=2,
            claimed_at=NOW,
            next_run_at=LATER,
            updated_at=LATER,
        )

    async def test_by_a_retry_lets_it_be_claimed_with_all_its_attempts(
        self, db: Db, store: Store
    ) -> None:
        job = a_past_job(status="failed", next_run_at=NOW - timedelta(days=1))
        await put(db, job)
        await store.management.retry(job.id, LATER)
        claimed = await claim(store, now=LATER)
        assert (claimed.id, claimed.claims, claimed.fail_count) == (job.id, 1, 0)

    async def test_by_a_move(self, db: Db, store: Store) -> None:
        job = a_past_job()
        await put(db, job)
        before = await document_of(db, job)
        assert await store.management.reschedule(job.id, TICK, LATER) is not None
        assert await document_of(db, job) == before | {"nextRunAt": TICK, "updatedAt": LATER}

    @every_action
    async def test_takes_a_read_of_the_name_and_one_write(
        self, db: Db, uri: str, database_name: str, action: str
    ) -> None:
        job = a_job(status="failed" if action == "retry" else "pending")
        await put(db, job)
        log = CommandLog()
        async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
            store = await open_store(client[database_name])
            log.sent.clear()
            await ACTIONS[action](store, job.id)
            assert log.count() == {"find": 1, "findAndModify": 1}
            log.sent.clear()
            await ACTIONS[action](store, ObjectId())
            assert log.count() == {"find": 1}

    async def test_of_what_is_cancelled_already_is_read_once(
        self, db: Db, uri: str, database_name: str
    ) -> None:
        job = a_job(status="cancelled")
        await put(db, job)
        log = CommandLog()
        async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
            store = await open_store(client[database_name])
            log.sent.clear()
            change = await store.management.cancel(job.id, LATER)
            assert change is not None
            assert not change.is_new
            assert log.count() == {"find": 1}


class TestUniqueKey:
    async def test_that_is_active_again_forbids_a_retry(self, db: Db, store: Store) -> None:
        job = a_past_job(status="failed", unique_key="key")
        await put(db, job, a_job(unique_key="key"))
        before = await document_of(db, job)
        message = f"cannot retry job {job.id}: it is failed, and its unique key is active again"
        with pytest.raises(JobStateError, match=message) as caught:
            await store.management.retry(job.id, LATER)
        assert (caught.value.job_id, caught.value.current_status) == (job.id, "failed")
        assert caught.value.action == "retry"
        assert await document_of(db, job) == before

    @pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
    async def test_of_a_finished_job_does_not(self, db: Db, store: Store, status: Any) -> None:
        job = a_job(status="failed", unique_key="key")
        await put(db, job, a_job(unique_key="key", status=status))
        assert await store.management.retry(job.id, LATER) is not None

    async def test_is_free_after_a_cancellation(self, db: Db, store: Store) -> None:
        job = a_job(unique_key="key")
        await put(db, job)
        await store.management.cancel(job.id, LATER)
        assert not (await store.inserts.insert_unique(a_job(unique_key="key"), None)).deduplicated

    async def test_is_taken_after_a_retry(self, db: Db, store: Store) -> None:
        job = a_job(unique_key="key", status="cancelled")
        await put(db, job)
        await store.management.retry(job.id, LATER)
        assert (await store.inserts.insert_unique(a_job(unique_key="key"), None)).id == job.id


class TestRaces:
    async def test_of_a_cancellation_and_a_claim_have_one_winner(
        self, db: Db, store: Store, other: Store
    ) -> None:
        jobs = [a_job() for _ in range(40)]
        await put(db, *jobs)

        async def cancel(job: AnyJob) -> bool:
            try:
                return await store.management.cancel(job.id, NOW) is not None
            except JobStateError as error:
                return error.current_status != "processing"

        async def take(job: AnyJob) -> bool:
            candidate = JobCandidate(job.id, job.name)
            return await other.queue.claim_one(candidate, ObjectId(), NOW) is not None

        for job in jobs:
            is_cancelled, is_taken = await asyncio.gather(cancel(job), take(job))
            assert is_cancelled is not is_taken
            status = "cancelled" if is_cancelled else "processing"
            assert (await stored(db, job)).status == status

    async def test_of_two_retries_have_one_winner(self, db: Db, store: Store, other: Store) -> None:
        for _ in range(20):
            job = a_job(status="failed")
            await put(db, job)
            results = await asyncio.gather(
                store.management.retry(job.id, LATER),
                other.management.retry(job.id, LATER),
                return_exceptions=True,
            )
            (error,) = [result for result in results if isinstance(result, JobStateError)]
            assert error.current_status == "pending"
            (change,) = [result for result in results if result is not error]
            assert not isinstance(change, BaseException)

    async def test_of_two_cancellations_are_both_answered_and_only_one_is_new(
        self, db: Db, store: Store, other: Store
    ) -> None:
        for _ in range(20):
            job = a_job()
            await put(db, job)
            changes = await asyncio.gather(
                store.management.cancel(job.id, LATER), other.management.cancel(job.id, LATER)
            )
            assert sorted(change.is_new for change in changes if change) == [False, True]

    @every_action
    async def test_of_an_action_and_what_follows_it_do_not_mix(
        self, db: Db, uri: str, database_name: str, action: str
    ) -> None:
        """The returned job is the result of the action, not of a later change."""
        job = a_job(status="failed" if action == "retry" else "pending")
        await put(db, job)
        log = CommandLog()
        with MongoClient[dict[str, Any]](uri) as meddler:
            jobs = meddler[database_name]["monque_jobs"]

            def meddle(name: str, _: object) -> None:
                if name == "find" and "findAndModify" in log.count():
                    jobs.delete_many({})

            async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
                store = await open_store(client[database_name])
                log.on_sending = meddle
                change = await ACTIONS[action](store, job.id)
        assert change is not None
        assert (change.job.id, change.job.updated_at) == (job.id, LATER)

    @every_action
    async def test_of_an_action_and_a_deletion_find_nothing(
        self, db: Db, uri: str, database_name: str, action: str
    ) -> None:
        job = a_job(status="completed")
        await put(db, job)
        log = CommandLog()
        with MongoClient[dict[str, Any]](uri) as meddler:
            jobs = meddler[database_name]["monque_jobs"]

            def meddle(name: str, _: object) -> None:
                if name == "find":
                    jobs.delete_many({})

            async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
                store = await open_store(client[database_name])
                log.on_sending = meddle
                assert await ACTIONS[action](store, job.id) is None

    async def test_with_the_owner_of_a_pending_job_are_lost(self, db: Db, store: Store) -> None:
        """A claim of another program may be incomplete; its fields are left alone."""
        job = a_job(claimed_by="node")
        await put(db, job)
        for action in ("cancel", "reschedule"):
            with pytest.raises(JobStateError):
                await ACTIONS[action](store, job.id)
        assert (await stored(db, job)) == job


class TestDeletionOfARunningJob:
    async def test_takes_its_claim_away(self, db: Db, store: Store) -> None:
        await put(db, a_job())
        job = await claim(store)
        assert await store.management.delete(job.id)
        assert await store.outcomes.renew([job], LATER) == {(job.id, job.claim_token): "deleted"}
        assert await jobs_in(db).count_documents({}) == 0


class TestRecurringJobs:
    async def test_that_are_cancelled_stop_and_may_be_scheduled_anew(
        self, db: Db, store: Store
    ) -> None:
        schedule = a_schedule()
        await put(db, schedule)
        await store.management.cancel(schedule.id, LATER)
        assert await store.queue.look([schedule.name], 10, TICK) == []
        again = await store.schedules.put(a_schedule(), None)
        assert not again.deduplicated
        with pytest.raises(JobStateError, match="its unique key is active again"):
            await store.management.retry(schedule.id, LATER)

    async def test_that_are_retried_go_on_with_the_run_that_was_due_next(
        self, db: Db, store: Store
    ) -> None:
        schedule = a_schedule(status="cancelled", next_run_at=TICK)
        await put(db, schedule)
        change = await store.management.retry(schedule.id, LATER)
        assert change is not None
        assert (change.job.next_run_at, change.job.is_recurring) == (TICK, True)
        assert (await claim(store, schedule.name, TICK)).id == schedule.id

    async def test_that_are_moved_keep_their_schedule(self, db: Db, store: Store) -> None:
        schedule = a_schedule()
        await put(db, schedule)
        change = await store.management.reschedule(schedule.id, TICK, LATER)
        assert change is not None
        assert (change.job.next_run_at, change.job.repeat_interval) == (TICK, "0 * * * *")


class TestGarbage:
    @every_action
    @pytest.mark.parametrize(
        "garbage", [{}, {"status": None}, {"status": ["pending"]}, {"status": {"a": 1}}]
    )
    async def test_is_refused_with_a_monque_error(
        self, db: Db, store: Store, action: str, garbage: dict[str, Any]
    ) -> None:
        job_id = (await jobs_in(db).insert_one(dict(garbage))).inserted_id
        with pytest.raises(MonqueError):
            await ACTIONS[action](store, job_id)

    async def test_can_be_deleted(self, db: Db, store: Store) -> None:
        job_id = (await jobs_in(db).insert_one({})).inserted_id
        assert await store.management.delete(job_id)


STRANGE_IDS: Final[list[Any]] = [
    "text",
    7,
    1.5,
    Decimal128(Decimal("2.5")),
    {"a": 1},
    b"bytes",
    False,
    None,
    NOW,
    Timestamp(5, 1),
    Code("return 1"),
    MinKey(),
    MaxKey(),
]


class TestInBulk:
    @pytest.mark.parametrize(
        ("action", "statuses"),
        [("cancel", {"pending"}), ("retry", {"failed", "cancelled"}), ("delete", {*JobStatus.ALL})],
    )
    async def test_only_jobs_in_an_allowed_status_are_changed(
        self, db: Db, store: Store, action: str, statuses: set[str]
    ) -> None:
        jobs = [a_past_job(status=status, data=n) for n in range(3) for status in JobStatus.ALL]
        await put(db, *jobs)
        other = a_job(name="other", status=next(iter(statuses)))
        await put(db, other)
        before = {job.id: await document_of(db, job) for job in jobs}
        chosen = JobSelector("send-email")
        batches = {
            "cancel": lambda: store.management.cancel_many(chosen, LATER),
            "retry": lambda: store.management.retry_many(chosen, LATER, NO_SPREAD),
            "delete": lambda: store.management.delete_many(chosen, LATER),
        }[action]
        assert await total(batches()) == 3 * len(statuses)
        assert await total(batches()) == 0
        for job in jobs:
            after = await jobs_in(db).find_one({"_id": job.id})
            if job.status not in statuses:
                assert after == before[job.id]
            elif action == "delete":
                assert after is None
            else:
                assert after is not None
                single = {"cancel": "cancelled", "retry": "pending"}[action]
                assert (after["status"], after["updatedAt"]) == (single, LATER)
        assert (await stored(db, other)).status == other.status

    @pytest.mark.parametrize("action", ["cancel", "retry", "delete"])
    async def test_thousands_go_in_batches(self, db: Db, store: Store, action: str) -> None:
        jobs = [a_job(status="failed" if action == "retry" else "pending") for _ in range(2500)]
        await put(db, *jobs)
        batches = {
            "cancel": lambda: store.management.cancel_many(JobSelector(), LATER),
            "retry": lambda: store.management.retry_many(JobSelector(), LATER, NO_SPREAD),
            "delete": lambda: store.management.delete_many(JobSelector(), LATER),
        }[action]()
        assert [count async for count in batches] == [1000, 1000, 500]
        left = "pending" if action == "retry" else "cancelled"
        count = 0 if action == "delete" else 2500
        assert await jobs_in(db).count_documents({"status": left}) == count

    @pytest.mark.parametrize("action", ["cancel", "retry", "delete"])
    async def test_jobs_of_other_programs_are_reached(
        self, db: Db, store: Store, action: str
    ) -> None:
        status: Any = "failed" if action == "retry" else "pending"
        documents = [
            to_document(a_job(status=status)) | {"_id": strange} for strange in STRANGE_IDS
        ]
        await jobs_in(db).insert_many(documents)
        await put(db, a_job(status=status), a_job(status="completed"))
        chosen = JobSelector(status=status)
        batches = {
            "cancel": lambda: store.management.cancel_many(chosen, LATER),
            "retry": lambda: store.management.retry_many(chosen, LATER, NO_SPREAD),
            "delete": lambda: store.management.delete_many(chosen, LATER),
        }[action]()
        assert await total(batches) == len(STRANGE_IDS) + 1
        assert await jobs_in(db).count_documents({"status": status}) == 0

    async def test_garbage_is_deleted_with_everything(self, db: Db, store: Store) -> None:
        garbage: list[dict[str, Any]] = [
            {},
            {"name": 5},
            {"status": []},
            {"_id": "x", "name": None},
        ]
        await jobs_in(db).insert_many(garbage)
        await put(db, a_job())
        assert await total(store.management.cancel_many(JobSelector(), LATER)) == 1
        assert await total(store.management.retry_many(JobSelector(), LATER, NO_SPREAD)) == 1
        assert await total(store.management.delete_many(JobSelector(), LATER)) == 5
        assert await jobs_in(db).count_documents({}) == 0

    async def test_a_retry_skips_what_a_key_forbids_and_goes_on(self, db: Db, store: Store) -> None:
        taken = [a_past_job(status="failed", unique_key=f"taken-{n}") for n in range(3)]
        twins = [a_past_job(status="failed", unique_key="twins") for _ in range(4)]
        free = [a_past_job(status="cancelled", unique_key=f"free-{n}") for n in range(3)]
        plain = [a_past_job(status="failed") for _ in range(3)]
        await put(db, *(job for group in zip(taken, free, plain, strict=True) for job in group))
        await put(db, *twins, *(a_job(unique_key=job.unique_key) for job in taken))
        assert await total(store.management.retry_many(JobSelector(), LATER, NO_SPREAD)) == 7
        for job in taken:
            assert await stored(db, job) == job
        for job in free + plain:
            assert (await stored(db, job)).status == "pending"
        assert sorted([(await stored(db, job)).status for job in twins]) == [
            *["failed"] * 3,
            "pending",
        ]
        assert await total(store.management.retry_many(JobSelector(), LATER, NO_SPREAD)) == 0

    async def test_retries_are_spread(self, db: Db, store: Store) -> None:
        await put(db, *(a_past_job(status="failed") for _ in range(100)))
        spread = timedelta(seconds=10)
        assert await total(store.management.retry_many(JobSelector(), LATER, spread)) == 100
        due = [document["nextRunAt"] async for document in jobs_in(db).find()]
        assert all(LATER <= at <= LATER + spread for at in due)
        assert max(due) - min(due) > spread / 2
        assert len(set(due)) > 50

    async def test_jobs_that_change_before_their_batch_are_left_alone(
        self, db: Db, uri: str, database_name: str
    ) -> None:
        """An instance may claim between the read and the write; a claim is never overwritten."""
        jobs = [a_job() for _ in range(10)]
        await put(db, *jobs)
        log = CommandLog()
        with MongoClient[dict[str, Any]](uri) as meddler:
            collection = meddler[database_name]["monque_jobs"]
            claimed = {"$set": {"status": "processing", "claimedBy": "other"}}

            def meddle(name: str, _: object) -> None:
                if name in {"update", "delete"}:
                    collection.update_many({"_id": {"$in": [job.id for job in jobs[:4]]}}, claimed)

            async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
                store = await open_store(client[database_name])
                log.on_sending = meddle
                pending = JobSelector(status="pending")
                assert await total(store.management.cancel_many(pending, LATER)) == 6
                log.on_sending = lambda *_: None
                await set_fields(db, jobs[0], status="pending", claimedBy=None)
                log.on_sending = meddle
                assert await total(store.management.delete_many(pending, LATER)) == 0
        assert await jobs_in(db).count_documents({"status": "processing"}) == 4

    async def test_jobs_stored_meanwhile_do_not_prolong_the_action(
        self, db: Db, uri: str, database_name: str
    ) -> None:
        await put(db, *(a_job() for _ in range(1500)))
        log = CommandLog()
        with MongoClient[dict[str, Any]](uri) as meddler:
            collection = meddler[database_name]["monque_jobs"]

            def meddle(name: str, _: object) -> None:
                if name == "update":
                    collection.insert_one(to_document(a_job()))

            async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
                store = await open_store(client[database_name])
                log.on_sending = meddle
                counts = [
                    count async for count in store.management.cancel_many(JobSelector(), LATER)
                ]
        assert 1500 <= sum(counts) < 1600
        assert len(counts) < 10

    async def test_counts_of_what_can_be_retried(self, db: Db, store: Store) -> None:
        await put(db, *(a_job(status=status) for status in JobStatus.ALL for _ in range(3)))
        assert await store.management.count_retryable(JobSelector(), NOW) == 6
        assert await store.management.count_retryable(JobSelector(status="failed"), NOW) == 3
        assert await store.management.count_retryable(JobSelector(status="completed"), NOW) == 0

    @pytest.mark.parametrize("key", [None, "key"])
    async def test_an_unconfirmed_write_is_reported(
        self, db: Db, store: Store, key: str | None
    ) -> None:
        """The write concern asks for two members that do not exist; success would be false."""
        await put(db, a_job(status="failed", unique_key=key))
        unsure = db.client.get_database(db.name, write_concern=WriteConcern(w=2, wtimeout=100))
        control = Management(Driver(unsure).collection("monque_jobs"))
        with pytest.raises(OperationFailure):
            await total(control.retry_many(JobSelector(), LATER, NO_SPREAD))
