"""Following the change stream, and working without it."""

from __future__ import annotations

import asyncio
import shlex
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from pymongo import AsyncMongoClient
from pymongo.errors import OperationFailure

from monque_core import LocalMongo, Monque
from monque_core.events import ChangeStreamChanged
from monque_core.local.binary import VARIABLE, find_mongod
from monque_core.scheduler import listener
from monque_core.scheduler.wakeups import MANY, Wakeups
from tests.support.commands import CommandLog, opens_stream
from tests.support.happenings import Happenings
from tests.support.polling import NO_POLLS
from tests.support.proxy import Proxy
from tests.support.steps import claims
from tests.support.stored import jobs_in
from tests.support.tally import Tally
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Job
    from monque_core.local.node import Node
    from tests.conftest import AnyDatabase


async def test_a_job_stored_elsewhere_is_picked_up_through_the_stream(any_db: AnyDatabase) -> None:
    monque, elsewhere = Monque(any_db, **NO_POLLS), Monque(any_db)
    runs = Tally[str]()

    @monque.worker("far")
    async def note(job: Job[str]) -> None:
        runs.add(job.data)

    happenings = Happenings(monque)
    async with monque:
        await happenings.reach("changestream:connected")
        await elsewhere.enqueue("far", "at once")
        await runs.reach(1)
        await elsewhere.enqueue("far", "a little later", delay=0.3)
        await runs.reach(2)
        await elsewhere.enqueue_many("far", ["two", "together"])
        await runs.reach(4)
    await elsewhere.stop()

    assert runs[:2] == ["at once", "a little later"]
    assert sorted(runs[2:]) == ["together", "two"]
    assert happenings.of("changestream:connected") == [ChangeStreamChanged(None, None)]
    assert happenings.of("changestream:closed") == [ChangeStreamChanged(None, None)]


async def test_a_job_stored_in_a_transaction_is_picked_up_after_the_commit(
    client: AsyncMongoClient[dict[str, Any]], db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(db, **NO_POLLS)
    runs = Tally[str]()

    @monque.worker("transacted")
    async def note(job: Job[str]) -> None:
        runs.add(job.data)

    happenings = Happenings(monque)
    async with monque:
        await happenings.reach("changestream:connected")
        async with client.start_session() as session, await session.start_transaction():
            await monque.enqueue("transacted", "hidden", session=session)
            await monque.enqueue("transacted", "open")
            await runs.reach(1)
        await runs.reach(2)

    assert runs == ["open", "hidden"]


async def test_a_job_made_pending_or_moved_by_others_is_picked_up(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    monque, elsewhere = Monque(db, **NO_POLLS), Monque(db)
    runs = Tally[str]()

    @monque.worker("moved")
    async def note(job: Job[str]) -> None:
        runs.add(job.data)

    later = await elsewhere.enqueue("moved", "later", delay=3600)
    failed = await elsewhere.enqueue("moved", "failed")
    await jobs_in(db).update_one({"_id": failed.id}, {"$set": {"status": "failed"}})
    happenings = Happenings(monque)
    async with monque:
        await happenings.reach("changestream:connected")
        await jobs_in(db).update_one({"_id": failed.id}, {"$set": {"status": "pending"}})
        await runs.reach(1)
        await jobs_in(db).update_one(
            {"_id": later.id}, {"$set": {"nextRunAt": later.next_run_at - timedelta(hours=1)}}
        )
        await runs.reach(2)
    await elsewhere.stop()

    assert runs == ["failed", "later"]


async def test_a_job_stored_here_and_moved_by_others_is_picked_up(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    monque = Monque(db, **NO_POLLS)
    runs = Tally[str]()

    @monque.worker("moved")
    async def note(job: Job[str]) -> None:
        runs.add(job.data)

    happenings = Happenings(monque)
    async with monque:
        before_the_stream = await monque.enqueue("moved", "stored before the stream", delay=3600)
        await happenings.reach("changestream:connected")
        during_the_stream = await monque.enqueue("moved", "stored during the stream", delay=3600)
        for job in (before_the_stream, during_the_stream):
            await jobs_in(db).update_one(
                {"_id": job.id}, {"$set": {"nextRunAt": job.next_run_at - timedelta(hours=1)}}
            )
        await runs.reach(2)

    assert sorted(runs) == ["stored before the stream", "stored during the stream"]


async def test_the_stream_follows_a_worker_added_while_it_is_connected(any_db: AnyDatabase) -> None:
    monque, elsewhere = Monque(any_db, **NO_POLLS), Monque(any_db)
    runs = Tally[str]()

    async def note(job: Job[str]) -> None:
        runs.add(job.data)

    monque.worker("early", note)
    happenings = Happenings(monque)
    async with monque:
        await happenings.reach("changestream:connected")
        await elsewhere.enqueue("late", "waiting for a worker")
        monque.worker("late", note)
        await runs.reach(1)
        await elsewhere.enqueue("early", "old name")
        await elsewhere.enqueue("late", "new name")
        await runs.reach(3)
    await elsewhere.stop()

    assert runs[0] == "waiting for a worker"
    assert sorted(runs[1:]) == ["new name", "old name"]


async def test_the_stream_follows_a_worker_added_at_the_moment_it_opens(
    uri: str, database_name: str
) -> None:
    log = CommandLog()
    async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
        monque, elsewhere = Monque(client[database_name], **NO_POLLS), Monque(client[database_name])
        runs = Tally[str]()

        async def note(job: Job[str]) -> None:
            runs.add(job.data)

        def add_worker(name: str, command: Any) -> None:
            if opens_stream(command):
                log.on_sending = lambda *_: None
                monque.worker("late", note)

        monque.worker("early", note)
        log.on_sending = add_worker
        happenings = Happenings(monque)
        async with monque:
            await happenings.reach("changestream:connected")
            for count in range(1, 4):
                await elsewhere.enqueue("late", "heard")
                await runs.reach(count)
        await elsewhere.stop()

    assert runs == ["heard"] * 3


async def test_an_instance_without_workers_serves_its_first_worker(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    monque, elsewhere = Monque(db, **NO_POLLS), Monque(db)
    runs = Tally[str]()

    async def note(job: Job[str]) -> None:
        runs.add(job.data)

    async with monque:
        monque.worker("first", note)
        await elsewhere.enqueue("first", "a")
        await runs.reach(1)
        await elsewhere.enqueue("first", "b")
        await runs.reach(2)
    await elsewhere.stop()

    assert runs == ["a", "b"]


async def test_without_a_replica_set_there_is_one_fallback_event_and_polling(
    standalone_db: AsyncDatabase[dict[str, Any]],
) -> None:
    monque = Monque(standalone_db, poll_interval=0.05, safety_poll_interval=3600)
    elsewhere = Monque(standalone_db)
    runs = Tally[int]()

    @monque.worker("polled")
    async def note(job: Job[int]) -> None:
        runs.add(job.data)

    happenings = Happenings(monque)
    async with monque:
        await happenings.reach("changestream:fallback")
        for number in range(5):
            await elsewhere.enqueue("polled", number)
            await runs.reach(number + 1)
    await elsewhere.stop()

    (fallback,) = happenings.of("changestream:fallback")
    assert fallback.error is None
    assert "replica set" in fallback.reason
    assert runs == [0, 1, 2, 3, 4]
    assert set(happenings.names) == {"changestream:fallback", "job:start", "job:complete"}


async def test_a_stream_ended_by_the_server_is_replaced_and_nothing_is_missed(
    any_db: AnyDatabase, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque, elsewhere = Monque(any_db, **NO_POLLS), Monque(any_db)
    runs = Tally[str]()

    @monque.worker("survivor")
    async def note(job: Job[str]) -> None:
        runs.add(job.data)

    happenings = Happenings(monque)
    async with monque:
        await happenings.reach("changestream:connected")
        await jobs_in(db).drop()
        await elsewhere.enqueue("survivor", "meanwhile")
        await runs.reach(1)
        await happenings.reach("changestream:connected", 2)
        await elsewhere.enqueue("survivor", "afterwards")
        await runs.reach(2)
    await elsewhere.stop()

    assert runs == ["meanwhile", "afterwards"]
    assert [name for name in happenings.names if name.startswith("changestream")] == [
        "changestream:connected",
        "changestream:error",
        "changestream:closed",
        "changestream:connected",
        "changestream:closed",
    ]
    (failure,) = happenings.of("changestream:error")
    assert isinstance(failure.error, Exception)
    assert failure.reason is None


async def test_streams_lost_one_after_another_are_each_replaced_soon(
    db: AsyncDatabase[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "_LONGEST_PAUSE", 3600)
    monque = Monque(db, **NO_POLLS)

    @monque.worker("unlucky")
    async def unused(job: Job[None]) -> None:
        raise AssertionError("there is no job")

    happenings = Happenings(monque)
    async with monque:
        # A pause that was never reset would have grown to minutes by the last of these.
        for losses in range(1, 13):
            await happenings.reach("changestream:connected", losses)
            await jobs_in(db).insert_one({"_id": losses})
            await jobs_in(db).drop()
            await happenings.reach("changestream:closed", losses)

    assert len(happenings.of("changestream:error")) == 12


@pytest.fixture
async def failing_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[AsyncMongoClient[dict[str, Any]]]:
    """Yield a client of a server whose commands can be made to fail."""
    mongod = tmp_path / "mongod"
    mongod.write_text(
        f'#!/bin/sh\nexec {shlex.quote(str(find_mongod()))} "$@" '
        "--setParameter=enableTestCommands=1\n"
    )
    mongod.chmod(0o755)
    monkeypatch.setenv(VARIABLE, str(mongod))
    async with LocalMongo() as mongo, AsyncMongoClient[dict[str, Any]](mongo.uri) as client:
        yield client


async def fail_streams(client: AsyncMongoClient[dict[str, Any]], mode: object) -> None:
    """Make the server reject opening and reading change streams."""
    await client.admin.command(
        "configureFailPoint",
        "failCommand",
        mode=mode,
        data={"failCommands": ["getMore", "aggregate"], "errorCode": 280},
    )


async def test_while_the_server_refuses_streams_jobs_are_polled_for(
    failing_client: AsyncMongoClient[dict[str, Any]],
) -> None:
    db = failing_client.streams
    monque, elsewhere = Monque(db, poll_interval=0.05, safety_poll_interval=3600), Monque(db)
    runs = Tally[int]()

    @monque.worker("polled")
    async def note(job: Job[int]) -> None:
        runs.add(job.data)

    happenings = Happenings(monque)
    await elsewhere.initialize()
    async with monque:
        await happenings.reach("changestream:connected")
        await fail_streams(failing_client, "alwaysOn")
        # The pending read returns this insert, and the next one fails.
        await elsewhere.enqueue("polled", 0)
        await happenings.reach("changestream:closed")
        for number in range(1, 6):
            await elsewhere.enqueue("polled", number)
            await runs.reach(number + 1)
        await happenings.reach("changestream:error", 2)
        await fail_streams(failing_client, "off")
        await happenings.reach("changestream:connected", 2)
        await elsewhere.enqueue("polled", 6)
        await runs.reach(7)
    await elsewhere.stop()

    assert runs == list(range(7))
    for failure in happenings.of("changestream:error"):
        assert isinstance(failure.error, OperationFailure)
    assert len(happenings.of("changestream:closed")) == 2
    assert not happenings.of("changestream:fallback")


async def test_the_stream_comes_back_when_the_server_does(
    frail_mongo: LocalMongo, node: Node
) -> None:
    async with AsyncMongoClient[dict[str, Any]](
        frail_mongo.uri, serverSelectionTimeoutMS=1000
    ) as client:
        db = client[f"restart_{uuid4().hex}"]
        monque, elsewhere = Monque(db, **NO_POLLS), Monque(db)
        runs = Tally[str]()

        @monque.worker("restarted")
        async def note(job: Job[str]) -> None:
            runs.add(job.data)

        happenings = Happenings(monque)
        async with monque:
            await happenings.reach("changestream:connected")
            await asyncio.to_thread(node.kill)
            await happenings.reach("changestream:closed")
            await asyncio.to_thread(node.start)
            await happenings.reach("changestream:connected", 2)
            await elsewhere.enqueue("restarted", "afterwards")
            await runs.reach(1)
        await elsewhere.stop()

    assert runs == ["afterwards"]


async def test_the_stream_is_closed_while_no_slot_is_free_and_opened_again_afterwards(
    uri: str, database_name: str
) -> None:
    log = CommandLog()
    async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
        monque, elsewhere = Monque(client[database_name], **NO_POLLS), Monque(client[database_name])
        starts = Tally[int]()
        may_end = asyncio.Event()

        @monque.worker("busy", concurrency=1)
        async def wait(job: Job[int]) -> None:
            starts.add(job.data)
            await may_end.wait()

        happenings = Happenings(monque)
        async with monque:
            await happenings.reach("changestream:connected")
            await elsewhere.enqueue("busy", 0)
            await starts.reach(1)
            await eventually(lambda: "killCursors" in log.count())
            opened = sum(map(opens_stream, log.sent))
            log.sent.clear()
            await elsewhere.enqueue_many("busy", [1, 2, 3, 4])
            # Nothing is read while every slot is taken, whatever is stored.
            assert "getMore" not in log.count()
            assert not any(map(opens_stream, log.sent))
            may_end.set()
            await starts.reach(5)
            await eventually(lambda: any(map(opens_stream, log.sent)))
            for number in range(5, 8):
                await elsewhere.enqueue("busy", number)
                await starts.reach(number + 1)
        await elsewhere.stop()

    assert opened == 1
    assert starts == list(range(8))
    # A stream that is paused to save its cost is not reported as lost.
    assert happenings.names.count("changestream:connected") == 1
    assert happenings.names.count("changestream:closed") == 1


async def test_no_stream_is_opened_while_there_is_work_for_every_slot(
    uri: str, database_name: str
) -> None:
    log = CommandLog()
    async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
        monque = Monque(client[database_name], **NO_POLLS)
        runs = Tally[int]()
        opened_meanwhile = 0

        @monque.worker("plenty", concurrency=5)
        async def note(job: Job[int]) -> None:
            nonlocal opened_meanwhile
            runs.add(job.data)
            if len(runs) == 800:
                opened_meanwhile = sum(map(opens_stream, log.sent))

        await monque.enqueue_many("plenty", range(1000))
        async with monque:
            await runs.reach(1000)
            await eventually(lambda: any(map(opens_stream, log.sent)))

    assert opened_meanwhile == 0


async def test_a_burst_from_elsewhere_is_claimed_together(
    uri: str, db: AsyncDatabase[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = CommandLog()
    async with (
        Proxy(uri) as proxy,
        AsyncMongoClient[dict[str, Any]](proxy.uri, event_listeners=[log]) as client,
    ):
        monque, elsewhere = Monque(client[db.name], **NO_POLLS), Monque(db)
        runs, may_end = Tally[int](), asyncio.Event()
        heard = Tally[str]()
        hint = Wakeups.hint

        def note_hint(wakeups: Wakeups, name: str, count: int = MANY) -> None:
            heard.add(name)
            hint(wakeups, name, count)

        monkeypatch.setattr(Wakeups, "hint", note_hint)

        @monque.worker("burst", concurrency=500)
        async def note(job: Job[int]) -> None:
            runs.add(job.data)
            await may_end.wait()

        happenings = Happenings(monque)
        async with monque:
            await happenings.reach("changestream:connected")
            log.sent.clear()
            # The stream reports all of them while the first one is being claimed.
            fault = proxy.strike("hold reply", claims)
            await elsewhere.enqueue_many("burst", range(500))
            await fault.strikes()
            await heard.reach(500)
            fault.release()
            await runs.reach(500)
            alone = log.count()["findAndModify"]
            may_end.set()
        await elsewhere.stop()
    # The first job, perhaps the last remaining one, and the renewal of the lease.
    assert alone <= 3
