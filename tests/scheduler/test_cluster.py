"""Several instances with the same workers: who listens, who is on standby, who takes over."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pymongo import AsyncMongoClient

from monque_core import Monque
from monque_core.scheduler import cluster as cluster_module
from monque_core.scheduler import pipeline
from monque_core.scheduler.backup import Backup
from monque_core.scheduler.listener import Listener
from monque_core.store import cluster_signals
from tests.support.commands import CommandLog
from tests.support.happenings import Happenings
from tests.support.polling import NO_POLLS, Polling
from tests.support.tally import Tally
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    import pytest
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Job
    from monque_core.scheduler.cluster import Cluster
    from tests.conftest import AnyDatabase


class Team:
    """Instances that run the same jobs."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self.members: list[Monque] = []
        self.starts = Tally[tuple[Monque, int]]()
        self.may_end = asyncio.Event()
        self.may_end.set()

    async def join(
        self,
        db: Any,
        *,
        names: Iterable[str] = ("work",),
        concurrency: int = 5,
        polling: Polling = NO_POLLS,
    ) -> Monque:
        """Start another instance, and wait until it knows its part."""
        monque = Monque(db, **polling)

        async def work(job: Job[int]) -> None:
            self.starts.add((monque, job.data))
            await self.may_end.wait()

        for name in names:
            monque.worker(name, work, concurrency=concurrency)
        self.members.append(monque)
        happenings = Happenings(monque)
        await self._stack.enter_async_context(monque)
        cluster = cluster_of(monque)
        await eventually(lambda: cluster.is_standby or happenings.follows_changes)
        return monque

    def producer(self, db: Any) -> Monque:
        """Return an instance that only enqueues, from elsewhere."""
        monque = Monque(db)
        self._stack.push_async_callback(monque.stop)
        return monque

    def listeners(self) -> list[Monque]:
        """Return the running instances that have a seat."""
        return [one for one in self.members if one.is_running and cluster_of(one).is_listener]

    def standby(self) -> list[Monque]:
        """Return the running instances that others listen for."""
        return [one for one in self.members if one.is_running and cluster_of(one).is_standby]

    def started_by(self) -> list[Monque]:
        """Return who started each run."""
        return [monque for monque, _ in self.starts]


def cluster_of(monque: Monque) -> Cluster:
    assert monque._engine is not None
    return monque._engine._cluster


@asynccontextmanager
async def team() -> AsyncIterator[Team]:
    async with AsyncExitStack() as stack:
        yield Team(stack)


async def test_two_instances_listen_and_the_others_are_on_standby(any_db: AnyDatabase) -> None:
    async with team() as members:
        for _ in range(5):
            await members.join(any_db)

        assert len(members.listeners()) == 2
        assert len(members.standby()) == 3


async def test_each_pool_has_listeners_of_its_own(any_db: AnyDatabase) -> None:
    async with team() as members:
        for _ in range(3):
            await members.join(any_db)
        other = await members.join(any_db, names=["other"])

        assert cluster_of(other).is_listener
        await members.producer(any_db).enqueue("other", 1)
        await members.starts.reach(1)

        assert members.started_by() == [other]


async def test_a_lone_job_is_claimed_by_one_instance(uri: str, database_name: str) -> None:
    log = CommandLog()
    async with (
        AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client,
        AsyncMongoClient[dict[str, Any]](uri) as elsewhere,
        team() as members,
    ):
        for _ in range(5):
            await members.join(client[database_name])
        producer = Monque(elsewhere[database_name])
        log.sent.clear()
        for number in range(20):
            await producer.enqueue("work", number)
            await members.starts.reach(number + 1)

        claims = [
            command
            for command in log.sent
            if command.get("findAndModify") == "monque_jobs" and "query" in command
        ]
        # Two listeners that both check the same moment may both try: never five.
        assert 20 <= len(claims) <= 30
    assert sorted(number for _, number in members.starts) == list(range(20))


async def test_both_listeners_take_jobs(any_db: AnyDatabase) -> None:
    async with team() as members:
        for _ in range(4):
            await members.join(any_db)
        producer = members.producer(any_db)
        for number in range(30):
            await producer.enqueue("work", number)
            await members.starts.reach(number + 1)

        assert len(set(members.started_by())) >= 2


def deafen(monkeypatch: pytest.MonkeyPatch, deaf: Monque) -> None:
    """Let an instance pass over every event of its change stream."""
    take, cluster = Listener._take, cluster_of(deaf)

    def unless_deaf(self: Listener, change: Any) -> None:
        if self._cluster is not cluster:
            take(self, change)

    monkeypatch.setattr(Listener, "_take", unless_deaf)


async def test_a_job_that_its_first_listener_misses_is_started_by_the_other(
    any_db: AnyDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "_MISSES_TO_EVICT", 1_000_000)
    async with team() as members:
        for _ in range(3):
            await members.join(any_db)
        deaf, other = members.listeners()
        deafen(monkeypatch, deaf)
        producer = members.producer(any_db)
        for number in range(12):
            await producer.enqueue("work", number)
            await members.starts.reach(number + 1)

        assert set(members.started_by()) == {other}


async def test_a_listener_that_misses_jobs_in_a_row_loses_its_seat(
    any_db: AnyDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with team() as members:
        for _ in range(3):
            await members.join(any_db)
        deaf, _ = members.listeners()
        deafen(monkeypatch, deaf)
        producer = members.producer(any_db)
        number = 0
        while deaf in members.listeners():
            await producer.enqueue("work", number)
            number += 1
            await members.starts.reach(number)

        await eventually(lambda: len(members.listeners()) == 2)


async def test_a_job_in_the_future_is_started_though_its_first_listener_misses_it(
    any_db: AnyDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "_MISSES_TO_EVICT", 1_000_000)
    async with team() as members:
        for _ in range(3):
            await members.join(any_db)
        deaf, other = members.listeners()
        assert deaf._engine is not None

        def ignored(name: str, at: datetime) -> None:
            """Let nobody claim it here."""

        monkeypatch.setattr(deaf._engine._jobs.wakeups, "rank", ignored)
        producer = members.producer(any_db)
        for number in range(6):
            await producer.enqueue("work", number, delay=0.1)
        await members.starts.reach(6)

        assert set(members.started_by()) == {other}


async def test_when_a_listener_stops_another_takes_its_seat(any_db: AnyDatabase) -> None:
    async with team() as members:
        for _ in range(4):
            await members.join(any_db)
        for leaving in members.listeners():
            await leaving.stop()

        await eventually(lambda: len(members.listeners()) == 2)
        await members.producer(any_db).enqueue("work", 1)
        await members.starts.reach(1)


async def test_jobs_that_find_the_listeners_full_wake_those_on_standby(
    any_db: AnyDatabase,
) -> None:
    async with team() as members:
        members.may_end.clear()
        for _ in range(5):
            await members.join(any_db, concurrency=1)
        await members.producer(any_db).enqueue_many("work", list(range(5)))

        await members.starts.reach(5)
        assert len(set(members.started_by())) == 5
        members.may_end.set()


async def test_a_listener_with_much_to_do_hands_its_seat_over(any_db: AnyDatabase) -> None:
    async with team() as members:
        members.may_end.clear()
        for _ in range(4):
            await members.join(any_db, concurrency=2)
        before = members.listeners()
        await members.producer(any_db).enqueue_many("work", list(range(4)))
        await members.starts.reach(4)

        await eventually(lambda: not set(before) & set(members.listeners()))
        members.may_end.set()


async def test_whoever_gains_a_worker_moves_to_another_pool(any_db: AnyDatabase) -> None:
    async with team() as members:
        for _ in range(3):
            await members.join(any_db)
        (moving,) = members.standby()

        async def other(job: Job[int]) -> None:
            members.starts.add((moving, job.data))

        moving.worker("other", other)
        await eventually(lambda: cluster_of(moving).is_listener)
        await members.producer(any_db).enqueue("other", 7)
        await members.starts.reach(1)


async def test_an_instance_on_standby_sends_hardly_any_command(
    uri: str, database_name: str
) -> None:
    log = CommandLog()
    async with (
        AsyncMongoClient[dict[str, Any]](uri) as client,
        AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as watched,
        team() as members,
    ):
        for _ in range(2):
            await members.join(client[database_name])
        idle = await members.join(watched[database_name])
        assert cluster_of(idle).is_standby
        await eventually(lambda: log.count()["getMore"] > 0)
        log.sent.clear()
        producer = Monque(client[database_name])
        for number in range(20):
            await producer.enqueue("work", number)
            await members.starts.reach(number + 1)

        assert log.sent == []


async def test_without_the_signals_every_instance_listens(
    any_db: AnyDatabase, db: AsyncDatabase[dict[str, Any]]
) -> None:
    # The collection exists and is not capped, so that nobody can tail it.
    await db["monque_jobs_signals"].insert_one({"some": "document"})
    async with team() as members:
        happenings = []
        for _ in range(3):
            monque = Monque(any_db, **NO_POLLS)

            @monque.worker("work")
            async def work(job: Job[int], monque: Monque = monque) -> None:
                members.starts.add((monque, job.data))

            happenings.append(Happenings(monque))
            await members._stack.enter_async_context(monque)
        for one in happenings:
            await one.reach("changestream:connected")

        await members.producer(any_db).enqueue("work", 1)
        await members.starts.reach(1)


async def test_a_check_of_what_another_was_to_claim_is_made_once_for_many(
    any_db: AnyDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = Tally[None]()
    check = Backup._check

    async def counted(self: Backup, now: float) -> None:
        checked.add(None)
        await check(self, now)

    monkeypatch.setattr(Backup, "_check", counted)
    async with team() as members:
        for _ in range(2):
            await members.join(any_db)
        await members.producer(any_db).enqueue_many("work", list(range(500)))
        await members.starts.reach(500)

        assert len(checked) < 100


async def test_a_listener_offers_the_seat_of_one_that_died(
    any_db: AnyDatabase, db: AsyncDatabase[dict[str, Any]]
) -> None:
    async with team() as members:
        for _ in range(3):
            await members.join(any_db)
        dead, survivor = members.listeners()
        (third,) = members.standby()
        await db["monque_jobs_meta"].update_one(
            {"_id": f"instance:{dead.scheduler_instance_id}"},
            {"$set": {"expiresAt": datetime.now(UTC) - timedelta(minutes=1)}},
        )
        await cluster_of(survivor).check()

        await eventually(lambda: cluster_of(third).is_listener)
        # Its lease has expired, but it is alive after all, and is told.
        await eventually(lambda: not cluster_of(dead).is_listener)


async def test_an_instance_on_standby_replaces_listeners_that_leave_work(
    any_db: AnyDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "_OVERDUE", timedelta(0))

    def deaf(self: Listener, change: object) -> None:
        """Pass over an event."""

    async with team() as members:
        listeners = [await members.join(any_db) for _ in range(2)]
        others = [
            await members.join(any_db, polling={"poll_interval": 3600, "safety_poll_interval": 0.2})
            for _ in range(2)
        ]
        with monkeypatch.context() as patch:
            patch.setattr(Listener, "_take", deaf)
            await members.producer(any_db).enqueue("work", 1)
            await members.starts.reach(1)

        (finder,) = members.started_by()
        assert finder in others
        await eventually(lambda: finder in members.listeners())
        await eventually(lambda: set(members.listeners()) != {*listeners, finder})


async def test_a_full_name_wakes_those_on_standby_while_other_names_have_slots(
    any_db: AnyDatabase,
) -> None:
    async with team() as members:
        members.may_end.clear()
        for _ in range(4):
            await members.join(any_db, names=["full", "free"], concurrency=1)
        producer = members.producer(any_db)
        for number in range(4):
            await producer.enqueue("full", number)
            await members.starts.reach(number + 1)

        assert set(members.started_by()) == set(members.members)
        members.may_end.set()


async def test_a_vacancy_is_remembered_by_an_instance_that_is_busy(
    any_db: AnyDatabase,
) -> None:
    async with team() as members:
        for _ in range(3):
            await members.join(any_db)
        (busy,) = members.standby()
        cluster_of(busy)._load = lambda: 1.0
        await members.listeners()[0].stop()

        await eventually(lambda: cluster_of(busy).is_listener)


async def test_a_stop_gives_back_a_seat_whose_grant_it_cut_off(any_db: AnyDatabase) -> None:
    async with team() as members:
        for _ in range(3):
            await members.join(any_db)
        leaving = members.listeners()[0]
        cluster_of(leaving)._listeners = []
        await leaving.stop()

        await eventually(lambda: len(members.listeners()) == 2)


async def test_an_instance_that_stops_is_woken_no_more(any_db: AnyDatabase) -> None:
    async with team() as members:
        members.may_end.clear()
        for _ in range(3):
            await members.join(any_db)
        (leaving,) = members.standby()
        seats = cluster_of(members.listeners()[0])._seats
        pool = cluster_of(leaving)._pool
        assert await seats.standby(pool, 3) == [leaving.scheduler_instance_id]
        await leaving.enqueue("work", 1)
        await members.starts.reach(1)
        stopping = asyncio.create_task(leaving.stop())

        async def is_gone() -> bool:
            return not await seats.standby(pool, 3)

        await eventually(is_gone)
        assert not stopping.done()
        members.may_end.set()
        await stopping


async def test_an_instance_whose_lease_was_deleted_enters_its_pool_again(
    any_db: AnyDatabase, db: AsyncDatabase[dict[str, Any]]
) -> None:
    async with team() as members:
        for _ in range(3):
            await members.join(any_db)
        (standby,) = members.standby()
        key = {"_id": f"instance:{standby.scheduler_instance_id}"}
        # As the next heartbeat leaves it.
        await db["monque_jobs_meta"].update_one(key, {"$unset": {"pool": ""}})
        cluster_of(standby)._chance.set()

        async def is_back() -> bool:
            lease = await db["monque_jobs_meta"].find_one(key)
            return lease is not None and "pool" in lease

        await eventually(is_back)


async def test_a_listener_that_gains_a_worker_leaves_its_seat_to_another(
    any_db: AnyDatabase,
) -> None:
    async with team() as members:
        for _ in range(3):
            await members.join(any_db)
        moving, staying = members.listeners()
        (third,) = members.standby()

        async def other(job: Job[int]) -> None:
            members.starts.add((moving, job.data))

        moving.worker("other", other)
        await eventually(lambda: cluster_of(third).is_listener)
        await eventually(lambda: cluster_of(moving).is_listener)
        assert cluster_of(staying).is_listener
        assert cluster_of(moving)._pool != cluster_of(third)._pool


async def test_signals_that_are_dropped_are_created_again(
    any_db: AnyDatabase, db: AsyncDatabase[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A tail notices the drop when its wait ends.
    monkeypatch.setattr(cluster_signals, "_TAIL_SECONDS", 1.0)
    async with team() as members:
        for _ in range(3):
            await members.join(any_db, concurrency=1)
        members.may_end.clear()
        await db.drop_collection("monque_jobs_signals")
        signals = db["monque_jobs_signals"]

        async def have_all_opened_it() -> bool:
            return await signals.count_documents({"kind": "open"}) == 3

        await eventually(have_all_opened_it)
        await eventually(lambda: len(members.standby()) == 1 and len(members.listeners()) == 2)
        assert (await signals.options())["capped"]
        await members.producer(any_db).enqueue_many("work", list(range(3)))
        await members.starts.reach(3)
        assert len(set(members.started_by())) == 3
        members.may_end.set()
