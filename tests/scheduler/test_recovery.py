"""Recovering the jobs of dead instances."""

from __future__ import annotations

import asyncio
import math
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from bson import ObjectId
from pymongo import AsyncMongoClient

from monque_core import InvalidJobError, Job, Monque
from monque_core.scheduler import recovery
from tests.support.commands import CommandLog
from tests.support.happenings import Happenings
from tests.support.proxy import Proxy
from tests.support.steps import renews
from tests.support.stored import jobs_in, stored, stored_jobs
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pymongo.asynchronous.database import AsyncDatabase

    from tests.conftest import AnyDatabase


def claimed(
    silent_for: float | None, interval: float | None, locked_for: float, **fields: object
) -> dict[str, Any]:
    """Return a claimed job; durations are seconds, and None leaves a field out."""
    now = datetime.now(UTC)
    document = {
        "_id": ObjectId(),
        "name": "work",
        "data": None,
        "status": "processing",
        "nextRunAt": now - timedelta(hours=2),
        "failCount": 1,
        "failReason": "an earlier failure",
        "createdAt": now - timedelta(hours=2),
        "updatedAt": now - timedelta(seconds=locked_for),
        "lockedAt": now - timedelta(seconds=locked_for),
        "claimedBy": "somebody",
        "claimToken": ObjectId(),
        "claims": 2,
    }
    if silent_for is not None:
        document["lastHeartbeat"] = now - timedelta(seconds=silent_for)
    if interval is not None:
        document["heartbeatInterval"] = int(interval * 1000)
    return {**document, **fields}


STALE = {
    "silent for three short intervals": partial(claimed, 20, 5, 20),
    "silent for three long intervals": partial(claimed, 100, 30, 100),
    "interval stored as a float": partial(claimed, 20, 5, 20, heartbeatInterval=5000.0),
    "no interval, locked too long": partial(claimed, 10, None, 2000),
    "no heartbeat, locked too long": partial(claimed, None, 30, 2000),
    "neither, locked too long": partial(claimed, None, None, 2000),
    "null for both, locked too long": partial(
        claimed, None, None, 2000, lastHeartbeat=None, heartbeatInterval=None
    ),
    "an interval that is none, locked too long": partial(
        claimed, 10, None, 2000, heartbeatInterval="x"
    ),
    "an interval of zero, locked too long": partial(claimed, 10, 0, 2000),
    "a heartbeat that is no date, locked too long": partial(
        claimed, None, 30, 2000, lastHeartbeat="now"
    ),
}
ALIVE = {
    "silent for less than three intervals": partial(claimed, 50, 40, 5000),
    # As stored by Node, which never renews the lock.
    "beating, though locked for long": partial(claimed, 10, 30, 100_000),
    "silent, but of a longer interval than ours": partial(claimed, 1000, 600, 5000),
    "no interval, locked lately": partial(claimed, 1000, None, 60),
    "no heartbeat, locked lately": partial(claimed, None, 5, 60),
    "neither, locked lately": partial(claimed, None, None, 60),
    "an interval that is none, locked lately": partial(
        claimed, 1000, None, 60, heartbeatInterval="x"
    ),
    "an interval of true, locked lately": partial(claimed, 10, None, 60, heartbeatInterval=True),
}


@pytest.mark.parametrize("when", ["at initialize", "while running"])
async def test_a_claim_is_stale_by_the_interval_stored_on_it_else_by_its_lock(
    any_db: AnyDatabase, db: AsyncDatabase[dict[str, Any]], when: str
) -> None:
    interval = 30 if when == "at initialize" else 0.2
    monque = Monque(any_db, heartbeat_interval=interval)
    happenings = Happenings(monque)
    if when == "while running":
        await monque.start()
    stale = {what: claim() for what, claim in STALE.items()}
    alive = {what: claim() for what, claim in ALIVE.items()}
    await jobs_in(db).insert_many([*stale.values(), *alive.values()])
    await monque.initialize()
    await happenings.reach("stale:recovered")

    async def count_processing() -> bool:
        return await jobs_in(db).count_documents({"status": "processing"}) <= len(ALIVE)

    await eventually(count_processing)
    await monque.stop()

    assert sum(event.count for event in happenings.of("stale:recovered")) == len(STALE)
    for what, before in alive.items():
        assert await jobs_in(db).find_one({"_id": before["_id"]}) == _stored(before), what
    for what, before in stale.items():
        after = await jobs_in(db).find_one({"_id": before["_id"]})
        assert after is not None
        assert after.pop("updatedAt") > before["updatedAt"], what
        gone = {"lockedAt", "claimedBy", "lastHeartbeat", "heartbeatInterval", "claimToken"}
        kept = {key: value for key, value in _stored(before).items() if key not in gone}
        kept.pop("updatedAt")
        assert after == {**kept, "status": "pending"}, what
    assert not happenings.of("job:error")


async def test_recovery_can_be_disabled(db: AsyncDatabase[dict[str, Any]]) -> None:
    await jobs_in(db).insert_many([claim() for claim in STALE.values()])
    monque = Monque(db, heartbeat_interval=0.1, recover_stale_jobs=False, poll_interval=0.05)
    happenings = Happenings(monque)

    @monque.worker("work")
    async def run(job: Job[None]) -> None: ...

    async with monque:
        await asyncio.sleep(0.5)

    assert await jobs_in(db).count_documents({"status": "processing"}) == len(STALE)
    assert not happenings.of("stale:recovered")
    assert not happenings.of("job:start")


async def test_instances_that_recover_at_once_count_each_job_once(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    await jobs_in(db).insert_many([claimed(100, 30, 100) for _ in range(50)])
    instances = [Monque(db) for _ in range(4)]
    happenings = [Happenings(instance) for instance in instances]
    await asyncio.gather(*(instance.initialize() for instance in instances))

    told = [event.count for seen in happenings for event in seen.of("stale:recovered")]
    assert sum(told) == 50
    assert await jobs_in(db).count_documents({"status": "pending", "claims": 2}) == 50


async def test_initialize_recovers_any_number_and_emits_one_event(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    await jobs_in(db).insert_many([claimed(100, 30, 100) for _ in range(2500)])
    monque = Monque(db)
    happenings = Happenings(monque)
    await monque.initialize()

    assert [event.count for event in happenings.of("stale:recovered")] == [2500]
    assert await jobs_in(db).count_documents({"status": "pending"}) == 2500


async def test_jobs_interrupted_too_often_are_failed_one_by_one(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    await jobs_in(db).insert_many(
        [
            claimed(100, 30, 100, data="spent", claims=3),
            claimed(100, 30, 100, data="by its own limit", claims=1, failCount=0, maxRetries=1),
            claimed(100, 30, 100, data="one left", claims=2),
            claimed(100, 30, 100, data="many left", claims=3, maxRetries=9),
            claimed(100, 30, 100, data="foreign, never counted", claims=None),
        ]
    )
    monque = Monque(db, max_retries=3)
    happenings = Happenings(monque)
    await monque.initialize()

    statuses = {job.data: job.status for job in await stored_jobs(db)}
    assert statuses == {
        "spent": "failed",
        "by its own limit": "failed",
        "one left": "pending",
        "many left": "pending",
        "foreign, never counted": "pending",
    }
    assert [event.count for event in happenings.of("stale:recovered")] == [3]
    failures = {event.job.data: event for event in happenings.of("job:fail")}
    assert set(failures) == {"spent", "by its own limit"}
    died = "the process running this job died or stalled"
    reasons = {
        "spent": f"{died} 2 time(s) and 1 run(s) failed; it may run 3 time(s) in all",
        "by its own limit": f"{died} 1 time(s); it may run 1 time(s) in all",
    }
    for data, reason in reasons.items():
        failure = failures[data]
        assert not failure.will_retry
        assert str(failure.error) == reason
        assert failure.job.fail_reason is not None
        assert str(failure.error) in failure.job.fail_reason
        assert failure.job.fail_count == (2 if data == "spent" else 1)


async def test_stale_claim_counts_are_ignored_for_jobs_that_node_claimed(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    lately = datetime.now(UTC) - timedelta(minutes=5)
    before = lately - timedelta(minutes=5)
    await jobs_in(db).insert_many(
        [
            claimed(100, 30, 100, data="of Node", claims=3, claimedAt=before, nextRunAt=lately),
            claimed(100, 30, 100, data="of Python", claims=3, claimedAt=lately, nextRunAt=before),
        ]
    )
    await Monque(db, max_retries=3).initialize()

    statuses = {job.data: job.status for job in await stored_jobs(db)}
    assert statuses == {"of Node": "pending", "of Python": "failed"}


GARBAGE: dict[str, dict[str, Any]] = {
    "claims is text": {"claims": "x"},
    "claims is not a number": {"claims": math.nan},
    "nextRunAt is missing": {"nextRunAt": None},
    "nextRunAt is text": {"nextRunAt": "2020-01-01T00:00:00Z"},
    "createdAt is text": {"createdAt": "2020-01-01T00:00:00Z"},
    "updatedAt is text": {"updatedAt": "2020-01-01T00:00:00Z"},
    "maxRetries is text": {"maxRetries": "y"},
    "timeoutMs is text": {"timeoutMs": "x"},
    "failCount is text": {"failCount": "x"},
    "name is missing": {"name": None},
    "name is a number": {"name": 7},
}


async def test_stale_garbage_is_quarantined_once_and_the_rest_recovered(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    garbage = [claimed(100, 30, 5000, **fields) for fields in GARBAGE.values()]
    await jobs_in(db).insert_many([*garbage, claimed(100, 30, 100, data="innocent")])
    monque = Monque(db, heartbeat_interval=0.1, poll_interval=0.05)
    happenings = Happenings(monque)

    @monque.worker("work")
    async def run(job: Job[Any]) -> None: ...

    async with monque:
        await happenings.reach("job:complete")
        await asyncio.sleep(0.5)

    assert [event.job.data for event in happenings.of("job:complete")] == ["innocent"]
    assert [event.count for event in happenings.of("stale:recovered")] == [1]
    by_id = {document["_id"]: document async for document in jobs_in(db).find()}
    for what, document in zip(GARBAGE, garbage, strict=True):
        found = by_id[document["_id"]]
        assert found["status"] == "failed", what
        assert what.split()[0].lower() in found["failReason"].replace("_", "").lower(), what
    errors = [event.error for event in happenings.of("job:error")]
    assert len(errors) == len(garbage)
    assert all(isinstance(error, InvalidJobError) for error in errors)


@pytest.mark.parametrize("lock", ["2020-01-01T00:00:00Z", None, []])
async def test_a_claim_with_an_unreadable_lock_is_recovered(
    db: AsyncDatabase[dict[str, Any]], lock: object
) -> None:
    job = claimed(None, None, 0, lockedAt=lock)
    await jobs_in(db).insert_one(job)
    monque = Monque(db, heartbeat_interval=0.1, poll_interval=0.05)
    happenings = Happenings(monque)

    @monque.worker("work")
    async def run(job: Job[None]) -> None: ...

    async def is_over() -> bool:
        return bool(await jobs_in(db).count_documents({"status": {"$in": ["completed", "failed"]}}))

    async with monque:
        await eventually(is_over)
        await asyncio.sleep(0.3)

    assert len(happenings.of("job:complete")) + len(happenings.of("job:error")) == 1


async def test_a_slow_answer_does_not_postpone_recovery(
    db: AsyncDatabase[dict[str, Any]], uri: str
) -> None:
    async with Proxy(uri) as proxy, AsyncMongoClient[dict[str, Any]](proxy.uri) as client:
        monque = Monque(client[db.name], heartbeat_interval=0.2)
        happenings = Happenings(monque)
        async with monque:
            slow = proxy.strike("hold request", lambda command: "insert" in command)
            enqueueing = asyncio.create_task(monque.enqueue("work", 1))
            await slow.strikes()
            await asyncio.sleep(1.5)
            slow.release()
            await enqueueing
            hours = 3600.0
            await jobs_in(db).insert_one(claimed(5 * hours, 1 * hours, 5 * hours))
            # One or two recovery passes, not three heartbeats of an hour.
            await happenings.reach("stale:recovered")


async def test_an_instance_with_a_late_heartbeat_does_not_recover_its_own_jobs(
    db: AsyncDatabase[dict[str, Any]], uri: str
) -> None:
    async with Proxy(uri) as proxy, AsyncMongoClient[dict[str, Any]](proxy.uri) as client:
        monque = Monque(client[db.name], heartbeat_interval=0.2, poll_interval=0.05)
        happenings = Happenings(monque)
        may_end = asyncio.Event()

        @monque.worker("work")
        async def wait(job: Job[int]) -> None:
            await may_end.wait()

        async with monque:
            job = await monque.enqueue("work", 1)
            await happenings.reach("job:start")
            late = proxy.strike("hold request", renews)
            await late.strikes()
            await eventually(partial(_is_silent, db, job, timedelta(seconds=1.5)))
            late.release()
            may_end.set()
            await happenings.reach("job:complete")

    assert len(happenings.of("job:start")) == 1
    assert not happenings.of("stale:recovered")
    assert not happenings.of("job:error")


async def _is_silent(db: AsyncDatabase[dict[str, Any]], job: Job[Any], silence: timedelta) -> bool:
    heartbeat = (await stored(db, job)).last_heartbeat
    return heartbeat is None or datetime.now(UTC) - heartbeat > silence


async def test_recovered_jobs_run_at_once_on_the_instance_that_recovered_them(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    monque = Monque(db, heartbeat_interval=0.2, poll_interval=600, safety_poll_interval=600)
    happenings = Happenings(monque)

    @monque.worker("work")
    async def run(job: Job[None]) -> None: ...

    async with monque:
        await happenings.reach("changestream:connected")
        await jobs_in(db).insert_many([claimed(100, 30, 100) for _ in range(5)])
        await happenings.reach("job:complete", 5)
    jobs = await stored_jobs(db)
    assert [(job.status, job.claims) for job in jobs] == [("completed", 3)] * 5
    assert len({job.claim_token for job in jobs}) == 5


def _stored(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document as it is read back: with times in milliseconds."""
    return {key: _to_milliseconds(value) for key, value in document.items()}


def _to_milliseconds(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.replace(microsecond=value.microsecond // 1000 * 1000)
    return value


@pytest.mark.parametrize("token", [{"a": 1}, [1], "text"], ids=str)
async def test_an_invalid_claim_token_does_not_block_recovery_of_others(
    db: AsyncDatabase[dict[str, Any]], token: object
) -> None:
    garbage, innocent = claimed(100, 30, 100, claimToken=token), claimed(100, 30, 100)
    await jobs_in(db).insert_many([garbage, innocent])
    await Monque(db).initialize()
    statuses = {job["_id"]: job["status"] async for job in jobs_in(db).find()}
    assert statuses == {garbage["_id"]: "failed", innocent["_id"]: "pending"}


async def test_a_refused_write_does_not_block_recovery_of_others(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    spent = claimed(100, 30, 100, claims=10)
    innocents = [claimed(100, 30, 100) for _ in range(3)]
    await jobs_in(db).insert_many([spent, *innocents])
    await db.command("collMod", "monque_jobs", validator={"status": {"$ne": "failed"}})
    monque = Monque(db)
    happenings = Happenings(monque)

    await monque.initialize()

    assert [event.job.id for event in happenings.of("job:error")] == [spent["_id"]]
    assert await jobs_in(db).count_documents({"status": "pending"}) == len(innocents)


async def test_exhausted_jobs_beyond_one_batch_are_all_failed_at_once(
    db: AsyncDatabase[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "_BATCH_SIZE", 20)
    await jobs_in(db).insert_many([claimed(100, 30, 100, claims=10) for _ in range(50)])
    await Monque(db).initialize()
    assert await jobs_in(db).count_documents({"status": "failed"}) == 50


@pytest.mark.parametrize("is_alive", [False, True], ids=["dead", "alive"])
async def test_a_new_instance_lets_owners_renew_their_claims(
    uri: str, db: AsyncDatabase[dict[str, Any]], is_alive: bool
) -> None:
    # As after an outage of MongoDB, which a new instance did not see.
    job = claimed(200, 30, 200)
    await jobs_in(db).insert_one(job)
    log = CommandLog()
    async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
        monque = Monque(client[db.name])
        birth = asyncio.create_task(monque.initialize())
        await eventually(lambda: any(looks_for_stale(command) for command in log.sent))
        if is_alive:
            renewed = {"$set": {"lastHeartbeat": datetime.now(UTC)}}
            await jobs_in(db).update_one({"_id": job["_id"]}, renewed)
        await birth
    found = await jobs_in(db).find_one({"_id": job["_id"]})
    assert found is not None
    assert found["status"] == ("processing" if is_alive else "pending")


def looks_for_stale(command: Mapping[str, Any]) -> bool:
    return "find" in command and "$or" in command["filter"]
