"""Storing jobs and schedules."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
from pymongo import AsyncMongoClient, MongoClient

from monque_core import (
    InvalidCronError,
    InvalidJobError,
    LocalMongo,
    Monque,
    MonqueError,
    PayloadTooLargeError,
    SyncMonque,
)
from monque_core.testing import MovableClock
from tests.support.commands import CommandLog
from tests.support.proxy import Proxy
from tests.support.stored import jobs_in, stored, stored_jobs
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pymongo.asynchronous.database import AsyncDatabase
    from pymongo.database import Database

    from monque_core.local.node import Node
    from tests.conftest import AnyDatabase


NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


async def test_a_job_is_stored_as_it_is_returned(
    any_db: AnyDatabase, db: AsyncDatabase[dict[str, Any]]
) -> None:
    clock = MovableClock(NOON)
    monque = Monque(any_db, clock=clock)
    plain = await monque.enqueue("plain", {"to": "ada"})
    full = await monque.enqueue(
        "full", [1, 2], delay=90, unique_key="a key", priority=5, max_retries=2, timeout=1.5
    )
    at_noon_in_berlin = datetime(2026, 3, 3, 12, tzinfo=ZoneInfo("Europe/Berlin"))
    timed = await monque.enqueue("timed", None, run_at=at_noon_in_berlin)
    now = await monque.now("now", "at once")
    await monque.stop()

    for job in (plain, full, timed, now):
        assert await stored(db, job) == job
        assert job.deduplicated is False
        assert (job.status, job.fail_count, job.claims) == ("pending", 0, 0)
        assert job.created_at == job.updated_at == NOON
    assert await jobs_in(db).find_one({"_id": plain.id}) == {
        "_id": plain.id,
        "name": "plain",
        "data": {"to": "ada"},
        "status": "pending",
        "nextRunAt": NOON,
        "failCount": 0,
        "createdAt": NOON,
        "updatedAt": NOON,
    }
    assert await jobs_in(db).find_one({"_id": full.id}) == {
        "_id": full.id,
        "name": "full",
        "data": [1, 2],
        "status": "pending",
        "nextRunAt": NOON + timedelta(seconds=90),
        "failCount": 0,
        "createdAt": NOON,
        "updatedAt": NOON,
        "uniqueKey": "a key",
        "priority": 5,
        "maxRetries": 2,
        "timeoutMs": 1500,
    }
    assert timed.next_run_at == datetime(2026, 3, 3, 11, tzinfo=UTC)
    assert timed.next_run_at.tzinfo is UTC
    assert (now.name, now.data, now.next_run_at) == ("now", "at once", NOON)


async def test_an_active_key_returns_the_job_that_has_it_unchanged(
    any_db: AnyDatabase, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(any_db)
    first = await monque.enqueue("keyed", "first", unique_key="k", priority=3)
    second = await monque.enqueue("keyed", "second", unique_key="k", delay=60)
    other_name = await monque.enqueue("other", "first", unique_key="k")
    other_key = await monque.enqueue("keyed", "first", unique_key="l")
    await monque.stop()

    assert second == first
    assert (first.deduplicated, second.deduplicated) == (False, True)
    assert not other_name.deduplicated
    assert not other_key.deduplicated
    assert len(await stored_jobs(db)) == 3
    assert await stored(db, first) == first


@pytest.mark.parametrize(
    ("status", "blocks"),
    [
        ("pending", True),
        ("processing", True),
        ("completed", False),
        ("failed", False),
        ("cancelled", False),
    ],
)
async def test_only_a_pending_or_processing_job_blocks_its_key(
    db: AsyncDatabase[dict[str, Any]], status: str, blocks: bool
) -> None:
    monque = Monque(db)
    first = await monque.enqueue("keyed", 1, unique_key="k")
    await jobs_in(db).update_one({"_id": first.id}, {"$set": {"status": status}})
    second = await monque.enqueue("keyed", 2, unique_key="k")
    (third,) = await monque.enqueue_many("keyed", [3], unique_key="k")

    assert second.deduplicated is blocks
    assert (second.id == first.id) is blocks
    assert third.id == second.id
    assert third.deduplicated


async def test_ninety_racing_enqueues_of_one_key_make_one_job(
    any_db: AnyDatabase, db: AsyncDatabase[dict[str, Any]]
) -> None:
    instances = [Monque(any_db) for _ in range(3)]
    jobs = await asyncio.gather(
        *(
            instances[number % 3].enqueue("raced", number, unique_key="the one")
            for number in range(90)
        )
    )
    for instance in instances:
        await instance.stop()

    (winner,) = await stored_jobs(db)
    assert {job.id for job in jobs} == {winner.id}
    assert [job.deduplicated for job in jobs].count(False) == 1
    assert all(job.data == winner.data for job in jobs)


async def test_racing_enqueues_of_many_shared_keys_make_one_job_each(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    instances = [Monque(db) for _ in range(3)]
    answers = await asyncio.gather(
        *(
            instance.enqueue_many("raced", range(100), unique_key=str)
            for instance in instances
            for _ in range(3)
        )
    )

    jobs = await stored_jobs(db)
    assert sorted(job.data for job in jobs) == list(range(100))
    ids = {job.data: job.id for job in jobs}
    for answer in answers:
        assert [job.id for job in answer] == [ids[number] for number in range(100)]
    inserted = [job for answer in answers for job in answer if not job.deduplicated]
    assert sorted(job.data for job in inserted) == list(range(100))


async def test_many_jobs_are_stored_in_order_with_one_insert_per_thousand(
    uri: str, database_name: str
) -> None:
    log = CommandLog()
    async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
        db = client[database_name]
        monque = Monque(db)
        await monque.initialize()
        log.sent.clear()
        jobs = await monque.enqueue_many(
            "many", (number for number in range(2500)), delay=60, priority=2, max_retries=3
        )
        assert log.count() == {"insert": 3}

        assert [job.data for job in jobs] == list(range(2500))
        assert [job.data for job in await stored_jobs(db)] == list(range(2500))
        assert len({job.id for job in jobs}) == 2500
        for job in (jobs[0], jobs[1000], jobs[2499]):
            assert await stored(db, job) == job
            assert (job.priority, job.max_retries) == (2, 3)


async def test_many_keyed_jobs_take_few_commands_and_repeated_keys_are_one_job(
    uri: str, database_name: str
) -> None:
    log = CommandLog()
    async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
        db = client[database_name]
        monque = Monque(db)
        existing = await monque.enqueue("many", {"n": 7}, unique_key="key 7")
        log.sent.clear()
        items = [{"n": number % 1500} for number in range(2000)]
        jobs = await monque.enqueue_many("many", items, unique_key=lambda item: f"key {item['n']}")
        sent = sum(log.count().values())
        stored_now = await stored_jobs(db)

    assert sent <= 8
    assert [job.data for job in jobs] == items
    assert [job.unique_key for job in jobs] == [f"key {item['n']}" for item in items]
    assert len(stored_now) == 1500
    assert jobs[7].id == existing.id
    assert jobs[7].deduplicated
    assert [job.id for job in jobs[1500:]] == [job.id for job in jobs[:500]]
    assert [job.deduplicated for job in jobs] == [n == 7 or n >= 1500 for n in range(2000)]


async def test_one_key_for_many_items_makes_one_job(db: AsyncDatabase[dict[str, Any]]) -> None:
    jobs = await Monque(db).enqueue_many("many", ["a", "b", "c"], unique_key="same")

    assert [job.data for job in jobs] == ["a", "a", "a"]
    assert [job.deduplicated for job in jobs] == [False, True, True]
    assert len(await stored_jobs(db)) == 1


@pytest.fixture
def nowhere(absent_uri: str) -> Iterator[Database[dict[str, Any]]]:
    """Yield a database that cannot be reached, which shows only when it is called."""
    with MongoClient[dict[str, Any]](absent_uri, connect=False) as client:
        yield client.nowhere


async def test_no_items_store_no_jobs_and_send_no_command(
    nowhere: Database[dict[str, Any]],
) -> None:
    assert await Monque(nowhere).enqueue_many("many", []) == []


class NoBson:
    """A value that MongoDB cannot store."""


NAIVE = datetime(2026, 3, 2, 12)


TOMORROW = datetime(2026, 3, 3, tzinfo=UTC)


BAD_JOBS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"name": ""}, InvalidJobError, "name"),
    ({"name": "two words"}, InvalidJobError, "name"),
    ({"name": "x" * 256}, InvalidJobError, "name"),
    ({"name": 7}, InvalidJobError, "name"),
    ({"unique_key": " "}, InvalidJobError, "unique_key"),
    ({"unique_key": "x" * 1025}, InvalidJobError, "unique_key"),
    ({"unique_key": "line\nbreak"}, InvalidJobError, "unique_key"),
    ({"data": NoBson()}, InvalidJobError, "data"),
    ({"data": {1: "keys are texts"}}, InvalidJobError, "data"),
    ({"data": "x" * 101}, PayloadTooLargeError, "at most 100"),
    ({"run_at": NAIVE}, InvalidJobError, "this has no time zone"),
    ({"run_at": "tomorrow"}, InvalidJobError, "run_at"),
    ({"run_at": TOMORROW, "delay": 5}, InvalidJobError, "not both"),
    ({"delay": -1}, InvalidJobError, "negative"),
    ({"delay": "5"}, InvalidJobError, "delay"),
    ({"priority": -1}, InvalidJobError, "priority"),
    ({"priority": 1.5}, InvalidJobError, "priority"),
    ({"max_retries": 0}, InvalidJobError, "max_retries"),
    ({"timeout": 0}, InvalidJobError, "timeout"),
]


@pytest.mark.parametrize(("arguments", "error", "message"), BAD_JOBS)
async def test_a_bad_job_is_refused_before_the_database_is_touched(
    nowhere: Database[dict[str, Any]],
    arguments: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    monque = Monque(nowhere, max_payload_size=100)
    given = {"name": "fine", "data": None, **arguments}
    name, data = given.pop("name"), given.pop("data")
    with pytest.raises(error, match=message) as raised:
        await monque.enqueue(name, data, **given)
    assert isinstance(raised.value, ValueError)
    assert isinstance(raised.value, MonqueError)
    with pytest.raises(error, match=message):
        await monque.enqueue_many(name, [data], **given)


async def test_one_bad_item_among_many_keeps_all_from_being_stored(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    with pytest.raises(InvalidJobError):
        await Monque(db).enqueue_many("many", [1, NoBson(), 3])

    assert await stored_jobs(db) == []


BAD_SCHEDULES: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"cron": "nonsense"}, InvalidCronError, "nonsense"),
    ({"cron": "* * * * * * *"}, InvalidCronError, "five fields"),
    ({"cron": "0 0 30 2 *"}, InvalidCronError, "0 0 30 2"),
    ({"timezone": "Mars/Olympus"}, InvalidJobError, "Mars/Olympus"),
    ({"name": "two words"}, InvalidJobError, "name"),
    ({"data": NoBson()}, InvalidJobError, "data"),
    ({"unique_key": ""}, InvalidJobError, "unique_key"),
    ({"priority": -1}, InvalidJobError, "priority"),
]


@pytest.mark.parametrize(("arguments", "error", "message"), BAD_SCHEDULES)
async def test_a_bad_schedule_is_refused_before_the_database_is_touched(
    nowhere: Database[dict[str, Any]],
    arguments: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    given = {"cron": "@daily", "name": "fine", "data": None, **arguments}
    cron, name, data = given.pop("cron"), given.pop("name"), given.pop("data")
    with pytest.raises(error, match=message) as raised:
        await Monque(nowhere).schedule(cron, name, data, **given)
    assert isinstance(raised.value, ValueError)
    assert isinstance(raised.value, MonqueError)


async def test_a_bad_name_or_key_to_unschedule_is_refused_before_the_database_is_touched(
    nowhere: Database[dict[str, Any]],
) -> None:
    with pytest.raises(InvalidJobError, match="name"):
        await Monque(nowhere).unschedule("")
    with pytest.raises(InvalidJobError, match="unique_key"):
        await Monque(nowhere).unschedule("fine", "")


async def test_a_session_of_the_wrong_kind_is_refused_before_the_database_is_touched(
    nowhere: Database[dict[str, Any]],
) -> None:
    with pytest.raises(TypeError, match="session must be a PyMongo or Motor client session"):
        await Monque(nowhere).enqueue("fine", None, session="mine")


async def test_a_schedule_without_a_key_is_one_however_often_it_is_made(
    any_db: AnyDatabase, db: AsyncDatabase[dict[str, Any]]
) -> None:
    replicas = [Monque(any_db) for _ in range(3)]
    schedules = await asyncio.gather(
        *(
            replicas[number % 3].schedule(
                "0 9 * * *", "report", {"a": 1, "b": 2} if number % 2 else {"b": 2, "a": 1}
            )
            for number in range(30)
        )
    )
    different = [
        await replicas[0].schedule("0 9 * * *", "report", {"a": 1, "b": 3}),
        await replicas[0].schedule("0 10 * * *", "report", {"a": 1, "b": 2}),
        await replicas[0].schedule(
            "0 9 * * *", "report", {"a": 1, "b": 2}, timezone="Europe/Berlin"
        ),
        await replicas[0].schedule("0 9 * * *", "other", {"a": 1, "b": 2}),
    ]
    for replica in replicas:
        await replica.stop()

    assert len({job.id for job in schedules}) == 1
    assert [job.deduplicated for job in schedules].count(False) == 1
    assert not any(job.deduplicated for job in different)
    assert len(await stored_jobs(db)) == 5


@pytest.mark.parametrize(("cron", "warnings"), [("0 9 * *", 1), ("0 9 * * *", 0), ("@daily", 0)])
async def test_a_schedule_of_fewer_than_five_fields_causes_a_warning(
    db: AsyncDatabase[dict[str, Any]],
    caplog: pytest.LogCaptureFixture,
    cron: str,
    warnings: int,
) -> None:
    job = await Monque(db).schedule(cron, "report", None)
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    warning = f"the cron expression {cron!r} of report has fewer than five fields "
    assert told == warnings * [f"{warning}and is read as {job.repeat_interval!r}"]


async def test_a_schedule_is_stored_with_its_next_tick(
    any_db: AnyDatabase, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(any_db, clock=MovableClock(NOON))
    berlin = await monque.schedule(
        "30 13 * * *", "report", 1, unique_key="k", timezone="Europe/Berlin", priority=4
    )
    utc = await monque.schedule("0 12 * * *", "report", 2)
    await monque.stop()

    assert await stored(db, berlin) == berlin
    assert await stored(db, utc) == utc
    assert berlin.next_run_at == NOON + timedelta(minutes=30)
    assert (berlin.repeat_interval, berlin.timezone) == ("30 13 * * *", "Europe/Berlin")
    assert (berlin.unique_key, berlin.priority) == ("k", 4)
    # Strictly after now, which is exactly noon.
    assert utc.next_run_at == NOON + timedelta(days=1)
    assert utc.timezone == "UTC"


@pytest.mark.parametrize(
    ("change", "next_run_at"),
    [
        ({"cron": "0 18 * * *"}, NOON + timedelta(hours=6)),
        ({"timezone": "Europe/Berlin"}, NOON + timedelta(hours=2)),
        ({"data": "new"}, NOON + timedelta(hours=3)),
        ({"priority": 3}, NOON + timedelta(hours=3)),
    ],
    ids=["cron", "time zone", "data", "priority"],
)
async def test_a_schedule_with_a_key_is_changed_in_place(
    any_db: AnyDatabase,
    db: AsyncDatabase[dict[str, Any]],
    change: dict[str, Any],
    next_run_at: datetime,
) -> None:
    monque = Monque(any_db, clock=MovableClock(NOON))
    given: dict[str, Any] = {"cron": "0 15 * * *", "data": "old", "timezone": "UTC", "priority": 0}
    first = await monque.schedule(name="report", unique_key="k", **given)
    again = await monque.schedule(name="report", unique_key="k", **given)
    changed = await monque.schedule(name="report", unique_key="k", **given | change)
    await monque.stop()

    assert again == first
    assert again.deduplicated
    assert changed.id == first.id
    assert changed.next_run_at == next_run_at
    expected = given | change
    assert changed.repeat_interval == expected["cron"]
    assert changed.timezone == expected["timezone"]
    assert changed.data == expected["data"]
    assert changed.priority == expected["priority"]
    assert await stored(db, changed) == changed
    assert len(await stored_jobs(db)) == 1


async def test_unschedule_removes_recurring_jobs_and_counts_them(
    any_db: AnyDatabase, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(any_db)
    for number in range(3):
        await monque.schedule("@daily", "report", number)
    await monque.schedule("@daily", "report", "keyed", unique_key="k")
    await monque.schedule("@daily", "other", None)
    ordinary = await monque.enqueue("report", "once", delay=60)

    by_key = await monque.unschedule("report", unique_key="k")
    unknown_key = await monque.unschedule("report", unique_key="k")
    by_name = await monque.unschedule("report")
    again = await monque.unschedule("report")
    await monque.stop()

    assert (by_key, unknown_key, by_name, again) == (1, 0, 3, 0)
    left = await stored_jobs(db)
    assert [(job.name, job.is_recurring) for job in left] == [("other", True), ("report", False)]
    assert left[1].id == ordinary.id


@pytest.mark.parametrize("is_sync", [False, True])
async def test_a_machine_that_has_slept_asks_the_server_for_the_time_again(
    db: AsyncDatabase[dict[str, Any]],
    blocking_db: Database[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    is_sync: bool,
) -> None:
    async def enqueue() -> datetime:
        if is_sync:
            return (await asyncio.to_thread(sync.enqueue, "timed", None, delay=60)).next_run_at
        return (await monque.enqueue("timed", None, delay=60)).next_run_at

    monque, sync = Monque(db), SyncMonque(blocking_db)
    await enqueue()
    awake, asleep = time.monotonic_ns, 3600 * 10**9
    # The monotonic clock stands still while a machine sleeps, and is behind afterwards.
    monkeypatch.setattr(time, "monotonic_ns", lambda: awake() - asleep)
    due_times = await asyncio.gather(*(enqueue() for _ in range(4)))
    await monque.stop()
    await asyncio.to_thread(sync.stop)
    for due_at in due_times:
        assert abs(due_at - datetime.now(UTC) - timedelta(seconds=60)) < timedelta(seconds=30)


async def test_many_callers_at_once_read_the_server_s_clock_once(
    uri: str, database_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = CommandLog()
    async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
        monque = Monque(client[database_name])
        await monque.enqueue("timed", None)
        for clock in (time.monotonic_ns, time.time_ns):
            later = partial(lambda clock: clock() + 120 * 10**9, clock)
            monkeypatch.setattr(time, clock.__name__, later)
        log.sent.clear()
        await asyncio.gather(*(monque.enqueue("timed", None) for _ in range(20)))
        assert log.count()["hello"] == 1
        await monque.stop()


async def test_a_job_is_stored_though_the_server_s_clock_cannot_be_read(
    uri: str, db: AsyncDatabase[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Proxy(uri) as proxy, AsyncMongoClient[dict[str, Any]](proxy.uri) as client:
        monque = Monque(client[db.name])
        await monque.enqueue("timed", 1)
        awake, a_while = time.monotonic_ns, 120 * 10**9
        monkeypatch.setattr(time, "monotonic_ns", lambda: awake() + a_while)
        fault = proxy.strike(
            "lose reply",
            lambda command: "$db" in command and "hello" in command and command["$db"] == db.name,
        )
        await monque.enqueue("timed", 2)
        assert fault.has_struck
        await monque.stop()
    assert sorted([job.data for job in await stored_jobs(db)]) == [1, 2]


class TestPing:
    """The health of a producer: whether MongoDB answers, independent of earlier calls."""

    async def test_is_true_before_anything_else_is_called(
        self, any_db: AnyDatabase, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        monque = Monque(any_db)
        assert not monque.is_connected

        assert await monque.ping() is True
        assert monque.is_connected
        assert await db.list_collection_names() == []
        await monque.stop()

    async def test_is_false_within_its_timeout_without_a_server(
        self, absent_uri: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        patient = absent_uri.replace("TimeoutMS=100", "TimeoutMS=300000")
        async with AsyncMongoClient[dict[str, Any]](patient) as client:
            monque = Monque(client["absent"])
            assert await monque.ping(timeout=0.2) is False
            assert not monque.is_connected
        with MongoClient[dict[str, Any]](patient) as blocking_client:
            monque = Monque(blocking_client["absent"])
            assert await monque.ping(timeout=0.2) is False
            await monque.stop()
        assert "did not answer a ping within 0.2 s" in caplog.text

    @pytest.mark.parametrize("timeout", [-1, "soon", None])
    async def test_refuses_a_bad_timeout(
        self, db: AsyncDatabase[dict[str, Any]], timeout: Any
    ) -> None:
        with pytest.raises(ValueError, match="timeout="):
            await Monque(db).ping(timeout)

    @pytest.mark.parametrize("how", ["killed", "frozen"])
    async def test_follows_a_server_that_starts_stops_and_returns(
        self, frail_mongo: LocalMongo, node: Node, how: str
    ) -> None:
        def leave() -> None:
            node.kill() if how == "killed" else node.suspend()

        def arrive() -> None:
            node.start() if how == "killed" else node.resume()

        await asyncio.to_thread(leave)
        async with AsyncMongoClient[dict[str, Any]](frail_mongo.uri) as client:
            monque = Monque(client["shop"])
            assert not await monque.ping()
            for _ in range(2):
                await asyncio.to_thread(arrive)
                await eventually(monque.ping, seconds=40)
                assert monque.is_connected
                await asyncio.to_thread(leave)
                assert not await monque.ping()
                assert not monque.is_connected


@pytest.mark.parametrize("method", ["enqueue", "enqueue_many"])
async def test_an_option_that_does_not_exist_comes_with_the_one_that_is_meant(
    db: AsyncDatabase[dict[str, Any]], method: str
) -> None:
    monque = Monque(db)
    options: dict[str, Any] = {"prioritty": 3}
    with pytest.raises(TypeError) as caught:
        await getattr(monque, method)("a", [1], **options)
    assert str(caught.value) == (
        f"{method}() got an unexpected keyword argument 'prioritty': did you mean 'priority'?"
    )
    assert await db.list_collection_names() == []


async def test_a_key_function_gives_every_item_a_key(db: AsyncDatabase[dict[str, Any]]) -> None:
    monque = Monque(db)
    key: Any = {1: "one", 2: None}.get
    for items in ([2, 1], [1, 2]):
        with pytest.raises(InvalidJobError, match=r"^unique_key=None .* of type NoneType$"):
            await monque.enqueue_many("a", items, unique_key=key)
    assert await db.list_collection_names() == []
