"""Storing jobs, and unique keys."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from bson import ObjectId
from pymongo.errors import BulkWriteError, DuplicateKeyError, OperationFailure

from monque_core import InvalidJobError, MonqueError
from monque_core.jobs.payload import DEEPEST_PAYLOAD
from monque_core.store.documents import to_document
from monque_core.store.driver import Collection, Driver
from monque_core.store.inserts import Inserts
from tests.support.commands import CommandLog
from tests.support.payloads import ONE_OF_EACH
from tests.support.samples import a_job, a_schedule
from tests.support.stored import jobs_in, stored, stored_jobs
from tests.support.stores import claim, document_of, open_store, put

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pymongo.asynchronous.database import AsyncDatabase
    from pymongo.asynchronous.mongo_client import AsyncMongoClient

    from monque_core.jobs.job import AnyJob
    from monque_core.store.store import Store

    Db = AsyncDatabase[dict[str, Any]]

WAYS_IN: dict[str, Callable[[Store, AnyJob], Awaitable[object]]] = {
    "insert alike": lambda store, job: store.inserts.insert_alike([job], None),
    "insert unique": lambda store, job: store.inserts.insert_unique(job, None),
    "insert several unique": lambda store, job: store.inserts.insert_many_unique([job], None),
    "schedule": lambda store, job: store.schedules.put(job, None),
}


def deep(levels: int) -> object:
    data: object = 1
    for _ in range(levels):
        data = {"a": data}
    return data


class TestWayIn:
    @pytest.mark.parametrize("way", WAYS_IN)
    async def test_stores_the_job_as_it_is(self, db: Db, store: Store, way: str) -> None:
        job = a_schedule(priority=3, max_retries=4)
        await WAYS_IN[way](store, job)
        assert await document_of(db, job) == to_document(job)

    @pytest.mark.parametrize("way", WAYS_IN)
    async def test_takes_data_of_every_type(self, db: Db, store: Store, way: str) -> None:
        for kind, data in ONE_OF_EACH.items():
            job = a_schedule(data=data, unique_key=kind)
            await WAYS_IN[way](store, job)
            assert (await stored(db, job)).data == data, kind

    @pytest.mark.parametrize("way", WAYS_IN)
    async def test_takes_data_as_deep_as_it_may_be(self, db: Db, store: Store, way: str) -> None:
        job = a_schedule(data=deep(DEEPEST_PAYLOAD))
        await WAYS_IN[way](store, job)
        assert (await stored(db, job)).data == job.data
        assert (await claim(store)).data is not None


class TestSeveral:
    @pytest.mark.parametrize(("count", "inserts"), [(2500, 3), (7000, 5)])
    async def test_are_inserted_in_order_a_thousand_or_more_at_a_time(
        self,
        db: Db,
        uri: str,
        client: AsyncMongoClient[dict[str, Any]],
        count: int,
        inserts: int,
    ) -> None:
        log = CommandLog()
        async with type(client)(uri, event_listeners=[log]) as logged:
            store = await open_store(logged[db.name])
            jobs = [a_job(data=n) for n in range(count)]
            log.sent.clear()
            await store.inserts.insert_alike(jobs, None)
            assert log.count() == {"insert": inserts}
        found = [document async for document in jobs_in(db).find().sort("$natural", 1)]
        assert [document["data"] for document in found] == list(range(count))

    async def test_with_keys_are_inserted_where_the_key_is_free(self, db: Db, store: Store) -> None:
        taken = [a_job(unique_key="a"), a_job(unique_key="c", status="processing")]
        await put(db, *taken)
        jobs = [a_job(unique_key=key) for key in "abcd"]
        results = await store.inserts.insert_many_unique(jobs, None)
        assert [job.id for job in results] == [taken[0].id, jobs[1].id, taken[1].id, jobs[3].id]
        assert [job.deduplicated for job in results] == [True, False, True, False]
        assert len(await stored_jobs(db)) == 4

    async def test_with_the_same_key_are_one(self, db: Db, store: Store) -> None:
        jobs = [a_job(unique_key="a") for _ in range(5)]
        results = await store.inserts.insert_many_unique(jobs, None)
        (job,) = await stored_jobs(db)
        assert {result.id for result in results} == {job.id}
        assert [result.deduplicated for result in results].count(False) == 1

    async def test_with_keys_come_in_thousands(self, db: Db, store: Store) -> None:
        jobs = [a_job(unique_key=str(n % 1500)) for n in range(2500)]
        results = await store.inserts.insert_many_unique(jobs, None)
        assert [result.unique_key for result in results] == [job.unique_key for job in jobs]
        assert await jobs_in(db).count_documents({}) == 1500

    async def test_of_nothing_are_nothing(self, store: Store) -> None:
        assert await store.inserts.insert_many_unique([], None) == []


class TestUniqueKey:
    async def test_that_is_free_takes_the_job(self, db: Db, store: Store) -> None:
        job = a_job(unique_key="key")
        assert await store.inserts.insert_unique(job, None) == job
        assert not job.deduplicated
        assert await stored(db, job) == job

    @pytest.mark.parametrize("status", ["pending", "processing"])
    async def test_of_an_active_job_gives_that_job_unchanged(
        self, db: Db, store: Store, status: str
    ) -> None:
        active = a_job(unique_key="key", status=status, data="first")
        await put(db, active)
        found = await store.inserts.insert_unique(a_job(unique_key="key", data="second"), None)
        assert found == active
        assert found.deduplicated
        assert await stored_jobs(db) == [active]

    @pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
    async def test_of_a_finished_job_is_free(self, db: Db, store: Store, status: str) -> None:
        await put(db, *(a_job(unique_key="key", status=status) for _ in range(3)))
        job = a_job(unique_key="key")
        assert not (await store.inserts.insert_unique(job, None)).deduplicated
        (many,) = await store.inserts.insert_many_unique([a_job(unique_key="key")], None)
        assert (many.id, many.deduplicated) == (job.id, True)
        assert len(await stored_jobs(db)) == 4

    async def test_belongs_to_a_name(self, db: Db, store: Store) -> None:
        for name in ("a", "b"):
            job = await store.inserts.insert_unique(a_job(name=name, unique_key="key"), None)
            assert not job.deduplicated
        assert len(await stored_jobs(db)) == 2

    async def test_is_guarded_by_an_index(self, db: Db, store: Store) -> None:
        await put(db, a_job(unique_key="key", status="processing"))
        with pytest.raises(DuplicateKeyError):
            await jobs_in(db).insert_one(to_document(a_job(unique_key="key")))

    async def test_that_is_a_stored_null_collides_with_nothing(self, db: Db, store: Store) -> None:
        documents = [to_document(a_job()) | {"uniqueKey": None} for _ in range(2)]
        await jobs_in(db).insert_many(documents)
        await put(db, a_job(), a_job())
        assert len(await stored_jobs(db)) == 4

    @pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
    async def test_may_be_on_any_number_of_finished_jobs(
        self, db: Db, store: Store, status: str
    ) -> None:
        await put(db, *(a_job(unique_key="key", status=status) for _ in range(3)))
        assert len(await stored_jobs(db)) == 3

    async def test_that_many_want_at_once_is_had_by_one(
        self, db: Db, store: Store, other: Store
    ) -> None:
        third = await open_store(db, "third")
        results = await asyncio.gather(
            *(
                owner.inserts.insert_unique(a_job(unique_key="key"), None)
                for _ in range(30)
                for owner in (store, other, third)
            )
        )
        (job,) = await stored_jobs(db)
        assert {result.id for result in results} == {job.id}
        assert [result.deduplicated for result in results].count(False) == 1

    async def test_that_many_batches_want_at_once_is_had_by_one(
        self, db: Db, store: Store, other: Store
    ) -> None:
        def batch() -> list[AnyJob]:
            return [a_job(unique_key=str(n)) for n in range(20)]

        results = await asyncio.gather(
            *(
                owner.inserts.insert_many_unique(batch(), None)
                for _ in range(10)
                for owner in (store, other)
            )
        )
        by_key = {job.unique_key: job.id for job in await stored_jobs(db)}
        assert len(by_key) == 20
        for group in results:
            assert [job.id for job in group] == [by_key[str(n)] for n in range(20)]

    async def test_that_looks_like_an_operator_is_a_text(self, db: Db, store: Store) -> None:
        for _ in range(2):
            await store.inserts.insert_unique(a_job(unique_key="$gt"), None)
        (job,) = await stored_jobs(db)
        assert job.unique_key == "$gt"


async def test_a_key_that_somebody_stored_in_an_array_is_said_to_be_no_key(
    db: Db, store: Store
) -> None:
    taken = a_job(unique_key="key")
    await put(db, taken)
    await jobs_in(db).update_one({"_id": taken.id}, {"$set": {"uniqueKey": ["key"]}})
    with pytest.raises(InvalidJobError, match=r"uniqueKey is .*list.* in the document"):
        await store.inserts.insert_many_unique([a_job(unique_key="key")], None)


class LosesRaces(Collection):
    """Loses the race for a key, as if another upsert won between the read and the write."""

    losses = 1
    attempts = 0

    async def find_one_and_update(self, *arguments: Any, **options: Any) -> Any:
        self.attempts += 1
        if self.attempts <= self.losses:
            raise DuplicateKeyError("E11000 duplicate key error", 11000)
        return await super().find_one_and_update(*arguments, **options)

    async def bulk_write(self, *arguments: Any, **options: Any) -> Any:
        self.attempts += 1
        if self.attempts <= self.losses:
            errors = [{"index": 0, "code": 11000, "errmsg": "E11000 duplicate key error"}]
            raise BulkWriteError({"writeErrors": errors, "upserted": []})
        return await super().bulk_write(*arguments, **options)


class TestLostRace:
    """The server mostly retries by itself; these are the cases in which it does not."""

    @pytest.fixture
    def racing(self, db: Db, store: Store) -> LosesRaces:
        return LosesRaces(Driver(db), "monque_jobs")

    async def test_is_run_again(self, db: Db, racing: LosesRaces) -> None:
        racing.losses = 3
        job = a_job(unique_key="key")
        assert await Inserts(racing).insert_unique(job, None) == job
        assert racing.attempts == 4
        assert await stored_jobs(db) == [job]

    async def test_gives_the_job_of_whoever_won(self, db: Db, racing: LosesRaces) -> None:
        winner = a_job(unique_key="key")
        await put(db, winner)
        found = await Inserts(racing).insert_unique(a_job(unique_key="key"), None)
        assert (found, found.deduplicated) == (winner, True)

    async def test_of_a_batch_is_run_again_where_it_was_lost(
        self, db: Db, racing: LosesRaces
    ) -> None:
        winner = a_job(unique_key="a")
        await put(db, winner)
        loser, free = a_job(unique_key="a"), a_job(unique_key="b")
        results = await Inserts(racing).insert_many_unique([loser, free], None)
        assert [(job.id, job.deduplicated) for job in results] == [
            (winner.id, True),
            (free.id, False),
        ]

    async def test_that_cannot_be_won_is_given_up_with_advice(
        self, db: Db, racing: LosesRaces
    ) -> None:
        racing.losses = 10_000
        intake = Inserts(racing)
        with pytest.raises(
            MonqueError, match=r"^unique key 'key' of 'send-email' could not be .*; try again$"
        ):
            await intake.insert_unique(a_job(unique_key="key"), None)
        with pytest.raises(MonqueError, match=r"take and free it faster than it can be read"):
            await intake.insert_many_unique([a_job(unique_key="key")], None)
        assert await stored_jobs(db) == []

    async def test_in_a_transaction_is_left_to_its_owner(
        self, db: Db, racing: LosesRaces, client: AsyncMongoClient[dict[str, Any]]
    ) -> None:
        intake = Inserts(racing)
        async with client.start_session() as session:
            with pytest.raises(DuplicateKeyError):
                await intake.insert_unique(a_job(unique_key="key"), session)
            racing.attempts = 0
            with pytest.raises(BulkWriteError):
                await intake.insert_many_unique([a_job(unique_key="key")], session)
        assert await stored_jobs(db) == []

    async def test_is_not_what_any_other_fault_is(self, db: Db, racing: LosesRaces) -> None:
        async def refuse(*_: Any, **__: Any) -> Any:
            raise BulkWriteError({"writeErrors": [{"index": 0, "code": 121}], "upserted": []})

        racing.bulk_write = refuse  # type: ignore[method-assign]  # a server with a validator
        with pytest.raises(BulkWriteError):
            await Inserts(racing).insert_many_unique([a_job(unique_key="key")], None)


class TestTransaction:
    async def test_that_commits_leaves_one_job(
        self, db: Db, store: Store, client: AsyncMongoClient[dict[str, Any]]
    ) -> None:
        async with client.start_session() as session, await session.start_transaction():
            await store.inserts.insert_alike([a_job(name="a")], session)
            await store.inserts.insert_unique(a_job(name="b", unique_key="key"), session)
            await store.inserts.insert_many_unique([a_job(name="c", unique_key="key")], session)
            await store.schedules.put(a_schedule(name="d"), session)
            assert await stored_jobs(db) == []
        assert [job.name for job in await stored_jobs(db)] == ["a", "b", "c", "d"]

    async def test_that_aborts_leaves_none(
        self, db: Db, store: Store, client: AsyncMongoClient[dict[str, Any]]
    ) -> None:
        async with client.start_session() as session:
            await session.start_transaction()
            await store.inserts.insert_alike([a_job(name="a"), a_job(name="a")], session)
            await store.inserts.insert_unique(a_job(name="b", unique_key="key"), session)
            await store.inserts.insert_many_unique([a_job(name="c", unique_key="key")], session)
            await store.schedules.put(a_schedule(name="d"), session)
            await session.abort_transaction()
        assert await stored_jobs(db) == []

    async def test_sees_its_own_keys(
        self, db: Db, store: Store, client: AsyncMongoClient[dict[str, Any]]
    ) -> None:
        first, second = a_job(unique_key="key"), a_job(unique_key="key")
        async with client.start_session() as session, await session.start_transaction():
            await store.inserts.insert_unique(first, session)
            found = await store.inserts.insert_unique(second, session)
            (several,) = await store.inserts.insert_many_unique([second], session)
        assert (found.id, found.deduplicated) == (first.id, True)
        assert (several.id, several.deduplicated) == (first.id, True)

    @pytest.mark.parametrize(
        "enqueue",
        [
            lambda store, job, session: store.inserts.insert_unique(job, session),
            lambda store, job, session: store.inserts.insert_many_unique([job], session),
            lambda store, job, session: store.schedules.put(job, session),
        ],
    )
    async def test_that_conflicts_is_left_to_its_owner(
        self, db: Db, store: Store, client: AsyncMongoClient[dict[str, Any]], enqueue
    ) -> None:
        async with client.start_session() as session, client.start_session() as rival:
            await session.start_transaction()
            await rival.start_transaction()
            await store.inserts.insert_unique(a_job(unique_key="key"), rival)
            with pytest.raises(OperationFailure) as caught:
                await enqueue(store, a_job(unique_key="key"), session)
            await rival.commit_transaction()
            assert caught.value.has_error_label("TransientTransactionError")
        assert len(await stored_jobs(db)) == 1


async def test_a_key_stays_taken_while_its_job_is_tried_again(db: Db, store: Store) -> None:
    await store.inserts.insert_unique(a_job(unique_key="key"), None)
    job = await claim(store)
    assert job.unique_key == "key"
    found = await store.inserts.insert_unique(a_job(id=ObjectId(), unique_key="key"), None)
    assert (found.id, found.status, found.deduplicated) == (job.id, "processing", True)
