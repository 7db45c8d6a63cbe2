"""Which changes the change stream reports, and which ones the server filters out."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pymongo import AsyncMongoClient, MongoClient

from monque_core.jobs.outcome import COMPLETED, RELEASED
from monque_core.local import LocalMongo
from monque_core.store.change_stream import ChangeStreamUnavailableError
from monque_core.store.documents import to_document
from monque_core.store.job_stream import JobChange
from monque_core.store.outcomes import Settlement
from tests.support.commands import CommandLog, opens_stream
from tests.support.samples import NOW, a_job
from tests.support.stored import jobs_in
from tests.support.stores import claim, open_store, put, set_fields

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core.store.job_stream import JobStream
    from monque_core.store.store import Store
    from tests.conftest import AnyDatabase

    Db = AsyncDatabase[dict[str, Any]]

LATER = NOW + timedelta(minutes=5)


async def next_change(stream: JobStream) -> JobChange:
    async with asyncio.timeout(120):
        while (change := await stream.next()) is None:
            pass
    return change


@pytest.fixture
async def watching(any_db: AnyDatabase) -> AsyncIterator[Store]:
    """Yield a store on each kind of database."""
    store = await open_store(any_db)
    yield store
    await store.dismiss_threads()


@pytest.fixture
async def stream(db: Db, store: Store) -> AsyncIterator[JobStream]:
    """Yield a stream on the jobs named `send-email`."""
    stream = await store.changes.open(["send-email"])
    yield stream
    await stream.close()


class TestEveryKindOfDatabase:
    async def test_reports_jobs_from_the_opening_of_the_stream(
        self, db: Db, watching: Store
    ) -> None:
        await put(db, a_job())
        stream = await watching.changes.open(["send-email", "send-fax"])
        email, fax = a_job(next_run_at=NOW), a_job(name="send-fax", next_run_at=LATER)
        await put(db, email)
        await put(db, fax)
        assert await next_change(stream) == JobChange(
            str(email.id), "send-email", NOW, is_insert=True
        )
        assert await next_change(stream) == JobChange(
            str(fax.id), "send-fax", LATER, is_insert=True
        )
        await stream.close()

    async def test_releases_a_waiting_reader_almost_at_once(self, db: Db, watching: Store) -> None:
        stream = await watching.changes.open(["send-email"])
        reader = asyncio.create_task(next_change(stream))
        await asyncio.sleep(0.1)
        # Nothing else would end the read: there is no further change.
        reader.cancel()
        await asyncio.wait([reader])
        await stream.close()
        assert reader.cancelled()

    async def test_ends_with_the_collection(self, db: Db, watching: Store) -> None:
        stream = await watching.changes.open(["send-email"])
        await put(db, a_job())
        await next_change(stream)
        await db.drop_collection("monque_jobs")
        with pytest.raises(EOFError, match="the server ended the change stream"):
            await next_change(stream)
        await stream.close()


class TestWorthTelling:
    async def test_is_a_job_that_became_pending_again(
        self, db: Db, store: Store, stream: JobStream
    ) -> None:
        job = a_job()
        await put(db, job)
        assert (await next_change(stream)).is_insert
        claimed = await claim(store)
        await store.outcomes.settle([Settlement(claimed, RELEASED)], NOW)
        assert await next_change(stream) == JobChange(
            str(job.id), "send-email", NOW, is_insert=False
        )

    async def test_is_a_job_that_recovery_brought_back(
        self, db: Db, store: Store, stream: JobStream
    ) -> None:
        await put(db, a_job())
        await next_change(stream)
        job = await claim(store)
        batch = await store.stale_jobs.find(LATER, 10)
        await store.stale_jobs.revive(batch, batch.jobs, LATER)
        assert await next_change(stream) == JobChange(
            str(job.id), "send-email", NOW, is_insert=False
        )

    async def test_is_a_job_that_was_moved_in_time(self, db: Db, stream: JobStream) -> None:
        job = a_job()
        await put(db, job)
        await next_change(stream)
        await set_fields(db, job, nextRunAt=LATER)
        assert await next_change(stream) == JobChange(
            str(job.id), "send-email", LATER, is_insert=False
        )

    async def test_is_a_job_that_was_replaced(self, db: Db, stream: JobStream) -> None:
        job = a_job()
        await put(db, job)
        await next_change(stream)
        await jobs_in(db).replace_one({"_id": job.id}, to_document(job) | {"nextRunAt": LATER})
        assert (await next_change(stream)).due_at == LATER


class TestNotWorthTelling:
    async def test_is_everything_else(self, db: Db, store: Store, stream: JobStream) -> None:
        """Only the last of these is reported: a change stream keeps the order of the writes."""
        foreign, finished = a_job(name="send-fax"), a_job(status="completed")
        await put(db, foreign, finished)
        await set_fields(db, foreign, nextRunAt=LATER)
        await set_fields(db, finished, nextRunAt=LATER)
        running = a_job(status="processing", claimed_by="other")
        await put(db, running)
        await set_fields(db, running, lastHeartbeat=LATER, lockedAt=LATER, updatedAt=LATER)
        await set_fields(db, running, status="completed")
        await jobs_in(db).delete_many({})
        awaited = a_job(next_run_at=LATER)
        await put(db, awaited)
        assert (await next_change(stream)).job_id == str(awaited.id)

    async def test_is_not_the_further_lifecycle_of_a_due_job(
        self, db: Db, store: Store, stream: JobStream
    ) -> None:
        await put(db, a_job())
        await next_change(stream)
        job = await claim(store)
        await store.outcomes.renew([job], LATER)
        await store.outcomes.settle([Settlement(job, COMPLETED)], LATER)
        awaited = a_job()
        await put(db, awaited)
        assert (await next_change(stream)).job_id == str(awaited.id)

    async def test_is_kept_on_the_server(self, db: Db, uri: str) -> None:
        received: list[dict[str, Any]] = []

        class Replies(CommandLog):
            def succeeded(self, event: Any) -> None:
                cursor = event.reply.get("cursor", {})
                received.extend(cursor.get("nextBatch", []) + cursor.get("firstBatch", []))

        log = Replies()
        async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
            store = await open_store(client[db.name])
            stream = await store.changes.open(["send-email"])
            await put(db, *(a_job(name="send-fax", data="x" * 1000) for _ in range(50)))
            awaited = a_job(data="x" * 1000)
            await put(db, awaited)
            await next_change(stream)
            await stream.close()
        (event,) = [event for event in received if "documentKey" in event]
        assert event["documentKey"] == {"_id": awaited.id}
        assert "fullDocument" not in event

    async def test_is_a_job_whose_time_cannot_be_read(self, db: Db, stream: JobStream) -> None:
        await jobs_in(db).insert_one(to_document(a_job()) | {"nextRunAt": "soon"})
        awaited = a_job()
        await put(db, awaited)
        assert (await next_change(stream)).job_id == str(awaited.id)


class TestAwaitTime:
    async def opened_with(self, uri: str, **options: Any) -> dict[str, Any]:
        log = CommandLog()
        async with AsyncMongoClient[dict[str, Any]](
            uri, event_listeners=[log], **options
        ) as client:
            store = await open_store(client["await-time"], skip_index_creation=True)
            stream = await store.changes.open(["send-email"])
            reader = asyncio.create_task(stream.next())
            while "getMore" not in log.count():
                await asyncio.sleep(0.01)
            reader.cancel()
            await asyncio.wait([reader])
            await stream.close()
        assert any(opens_stream(command) for command in log.sent)
        (more,) = [command for command in log.sent if "getMore" in command]
        return dict(more)

    async def test_is_long_on_the_async_api(self, uri: str) -> None:
        assert (await self.opened_with(uri))["maxTimeMS"] >= 15_000

    async def test_is_shorter_than_the_client_s_timeout(self, uri: str) -> None:
        assert (await self.opened_with(uri, socketTimeoutMS=4000))["maxTimeMS"] == 2000

    async def test_is_short_where_a_thread_waits(self, uri: str, database_name: str) -> None:
        log = CommandLog()
        with MongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
            store = await open_store(client[database_name])
            stream = await store.changes.open(["send-email"])
            assert await stream.next() is None
            await stream.close()
            await store.dismiss_threads()
        (more,) = [command for command in log.sent if "getMore" in command]
        assert more["maxTimeMS"] <= 1000


async def test_a_server_without_a_replica_set_says_that_it_has_no_streams() -> None:
    with LocalMongo(standalone=True) as mongo:
        async with AsyncMongoClient[dict[str, Any]](mongo.uri) as client:
            store = await open_store(client["jobs"])
            with pytest.raises(ChangeStreamUnavailableError, match="replica set"):
                await store.changes.open(["send-email"])
