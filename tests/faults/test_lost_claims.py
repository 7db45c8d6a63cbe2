"""A run whose claim was taken away writes nothing, and is cancelled."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from bson import ObjectId

from monque_core import Job, Monque, OwnershipLostError
from tests.support.happenings import Happenings
from tests.support.steps import renews, settles
from tests.support.stored import jobs_in, stored, stored_jobs
from tests.support.tally import Tally
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase
    from pymongo.database import Database

    from tests.support.proxy import Proxy

CLAIM_FIELDS = dict.fromkeys(("lockedAt", "claimedBy", "lastHeartbeat", "heartbeatInterval"), "")
LATER = datetime(2100, 1, 1, tzinfo=UTC)

LOSSES: dict[str, dict[str, Any]] = {
    "claimed by another": {"$set": {"claimedBy": "another", "claimToken": ObjectId()}},
    "claimed by a namesake": {"$set": {"claimToken": ObjectId()}},
    "claimed by Node, which knows no tokens": {"$set": {"claimedBy": "node"}},
    "recovered": {
        "$set": {"status": "pending", "nextRunAt": LATER},
        "$unset": {**CLAIM_FIELDS, "claimToken": ""},
    },
    # Node leaves the token and the time; with an owner, the job is not claimed again.
    "recovered by Node": {
        "$set": {"status": "pending", "claimedBy": "nobody"},
        "$unset": dict.fromkeys(("lockedAt", "lastHeartbeat", "heartbeatInterval"), ""),
    },
    "cancelled": {"$set": {"status": "cancelled"}, "$unset": {**CLAIM_FIELDS, "claimToken": ""}},
}
"""Ways to lose a claim after which no instance here may claim the job again."""


def the_loss_of(job: Job[Any], happenings: Happenings, how: str = "") -> None:
    """Check that the loss was reported once, unless the job was deleted, and nothing else."""
    errors = happenings.of("job:error")
    if how == "deleted":
        assert errors == []
    else:
        (told,) = errors
        assert isinstance(told.error, OwnershipLostError)
        assert told.job.id == job.id
        assert str(job.id) in str(told.error)
    assert not happenings.of("job:complete")
    assert not happenings.of("job:fail")


@pytest.mark.parametrize("how", [*LOSSES, "deleted"])
async def test_a_run_that_lost_its_claim_is_cancelled_by_the_heartbeat_and_writes_nothing(
    db: AsyncDatabase[dict[str, Any]], how: str
) -> None:
    monque = Monque(db, heartbeat_interval=0.1, recover_stale_jobs=False)
    happenings = Happenings(monque)
    ends = Tally[str]()

    @monque.worker("long")
    async def wait(job: Job[None]) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ends.add("cancelled")
            raise

    async with monque:
        job = await monque.enqueue("long", None)
        await happenings.reach("job:start")
        await _take_away(db, job, how)
        left = await jobs_in(db).find_one({"_id": job.id})
        await ends.reach(1)
        await monque.run_until_idle()
        the_loss_of(job, happenings, how)

    assert ends == ["cancelled"]
    assert await jobs_in(db).find_one({"_id": job.id}) == left
    the_loss_of(job, happenings, how)


@pytest.mark.parametrize("fails", [False, True], ids=["returns", "raises"])
async def test_a_run_that_suppresses_its_cancellation_writes_nothing(
    db: AsyncDatabase[dict[str, Any]], fails: bool
) -> None:
    monque = Monque(db, heartbeat_interval=0.1, recover_stale_jobs=False)
    happenings = Happenings(monque)

    @monque.worker("stubborn")
    async def wait(job: Job[None]) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            # Long enough for further heartbeats to find it still running.
            await asyncio.sleep(0.3)
            if fails:
                raise RuntimeError("too late to matter") from None

    async with monque:
        job = await monque.enqueue("stubborn", None)
        await happenings.reach("job:start")
        await _take_away(db, job, "claimed by another")
        left = await jobs_in(db).find_one({"_id": job.id})
        await happenings.reach("job:error")
        await monque.run_until_idle()

    assert await jobs_in(db).find_one({"_id": job.id}) == left
    the_loss_of(job, happenings)


async def test_a_claim_lost_during_settling_is_reported_once(
    proxied_db: Any, proxy: Proxy, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(proxied_db, heartbeat_interval=0.1, recover_stale_jobs=False)
    happenings = Happenings(monque)

    @monque.worker("short")
    async def run(job: Job[None]) -> None: ...

    settling = proxy.strike("hold request", settles)
    async with monque:
        job = await monque.enqueue("short", None)
        await settling.strikes()
        await _take_away(db, job, "claimed by another")
        left = await jobs_in(db).find_one({"_id": job.id})
        # Two heartbeats find that the claim is lost while its outcome is being written.
        for _ in range(2):
            beat = proxy.strike("hold reply", renews)
            await beat.strikes()
            beat.release()
        settling.release()
        await happenings.reach("job:error")
        await monque.run_until_idle()

    assert await jobs_in(db).find_one({"_id": job.id}) == left
    the_loss_of(job, happenings)


@pytest.mark.parametrize("fails", [False, True], ids=["returns", "raises"])
@pytest.mark.parametrize("how", [*LOSSES, "deleted"])
async def test_a_run_that_ends_after_losing_its_claim_writes_nothing(
    db: AsyncDatabase[dict[str, Any]], how: str, fails: bool
) -> None:
    monque = Monque(db, recover_stale_jobs=False)
    happenings = Happenings(monque)
    may_end = asyncio.Event()

    @monque.worker("short")
    async def wait(job: Job[None]) -> None:
        await may_end.wait()
        if fails:
            raise RuntimeError("too late to matter")

    async with monque:
        job = await monque.enqueue("short", None)
        await happenings.reach("job:start")
        await _take_away(db, job, how)
        left = await jobs_in(db).find_one({"_id": job.id})
        may_end.set()
        await monque.run_until_idle(timeout=20)

    assert await jobs_in(db).find_one({"_id": job.id}) == left
    the_loss_of(job, happenings, how)


@pytest.mark.parametrize("fails", [False, True], ids=["returns", "raises"])
async def test_a_thread_that_lost_its_claim_keeps_its_slot_and_writes_nothing_when_it_returns(
    db: AsyncDatabase[dict[str, Any]], fails: bool
) -> None:
    monque = Monque(db, heartbeat_interval=0.1, recover_stale_jobs=False, poll_interval=0.1)
    happenings = Happenings(monque)
    starts = Tally[str]()
    may_end = threading.Event()

    @monque.worker("blocking", concurrency=1)
    def wait(job: Job[str]) -> None:
        starts.add(job.data)
        if job.data == "long":
            may_end.wait()
            if fails:
                raise RuntimeError("too late to matter")

    async with monque:
        job = await monque.enqueue("blocking", "long")
        await starts.reach(1)
        await _take_away(db, job, "claimed by another")
        left = await jobs_in(db).find_one({"_id": job.id})
        await happenings.reach("job:error")
        # Two more heartbeats: the loss is reported once, however long the thread takes.
        await monque.enqueue("blocking", "next")
        await asyncio.sleep(0.3)
        assert starts == ["long"], "the thread still has the only slot"
        the_loss_of(job, happenings)
        may_end.set()
        await starts.reach(2)
        await happenings.reach("job:complete")

    assert await jobs_in(db).find_one({"_id": job.id}) == left
    assert [event.job.data for event in happenings.of("job:complete")] == ["next"]
    assert len(happenings.of("job:error")) == 1
    assert not happenings.of("job:fail")


@pytest.mark.parametrize("token", ["kept", "removed"])
@pytest.mark.parametrize("noticed_by", ["heartbeat", "settling"])
async def test_a_claim_lost_to_a_newer_one_of_the_same_instance_is_lost(
    db: AsyncDatabase[dict[str, Any]], noticed_by: str, token: str
) -> None:
    heartbeat = 0.1 if noticed_by == "heartbeat" else 30
    monque = Monque(db, heartbeat_interval=heartbeat, poll_interval=0.05, recover_stale_jobs=False)
    happenings = Happenings(monque)
    runs: list[asyncio.Event] = []
    cancelled: list[int] = []

    @monque.worker("twice", concurrency=2)
    async def wait(job: Job[None]) -> None:
        position = len(runs)
        runs.append(asyncio.Event())
        try:
            await runs[position].wait()
        except asyncio.CancelledError:
            cancelled.append(position)
            raise

    async with monque:
        job = await monque.enqueue("twice", None)
        await happenings.reach("job:start")
        dropped = CLAIM_FIELDS if token == "kept" else {**CLAIM_FIELDS, "claimToken": ""}
        await jobs_in(db).update_one(
            {"_id": job.id}, {"$set": {"status": "pending"}, "$unset": dropped}
        )
        first, second = await happenings.reach("job:start", 2)
        if noticed_by == "settling":
            runs[0].set()
        await happenings.reach("job:error")
        the_loss_of(job, happenings)
        now = await jobs_in(db).find_one({"_id": job.id})
        assert now is not None
        assert (now["status"], now["claimToken"]) == ("processing", second.job.claim_token)
        assert first.job.claim_token != second.job.claim_token
        runs[1].set()
        await happenings.reach("job:complete")

    assert cancelled == ([0] if noticed_by == "heartbeat" else [])
    assert len(happenings.of("job:complete")) == 1
    assert len(happenings.of("job:error")) == 1
    now = await jobs_in(db).find_one({"_id": job.id})
    assert now is not None
    assert (now["status"], now["claims"], now["failCount"]) == ("completed", 2, 0)


async def test_two_runs_of_one_job_that_end_together_settle_only_the_newer_claim(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    monque = Monque(db, poll_interval=0.05, base_retry_interval=3600, recover_stale_jobs=False)
    happenings = Happenings(monque)
    may_end = asyncio.Event()

    @monque.worker("twice", concurrency=2)
    async def wait(job: Job[None]) -> None:
        await may_end.wait()
        if job.claims == 1:
            raise RuntimeError("the older run fails")

    async with monque:
        job = await monque.enqueue("twice", None)
        await happenings.reach("job:start")
        await jobs_in(db).update_one(
            {"_id": job.id},
            {"$set": {"status": "pending"}, "$unset": {**CLAIM_FIELDS, "claimToken": ""}},
        )
        await happenings.reach("job:start", 2)
        may_end.set()
        await happenings.reach("job:error")
        await happenings.reach("job:complete")

    (told,) = happenings.of("job:error")
    assert isinstance(told.error, OwnershipLostError)
    assert told.job.claims == 1
    assert not happenings.of("job:fail")
    now = await jobs_in(db).find_one({"_id": job.id})
    assert now is not None
    assert (now["status"], now["failCount"]) == ("completed", 0)
    assert "failReason" not in now


async def test_a_prefetched_job_whose_claim_was_lost_never_runs(
    db: AsyncDatabase[dict[str, Any]], blocking_db: Database[dict[str, Any]]
) -> None:
    monque = Monque(db, heartbeat_interval=0.1, recover_stale_jobs=False)
    happenings = Happenings(monque)
    newer = ObjectId()
    thieves = Tally[Job[int]]()
    may_go_on = asyncio.Event()
    ran: list[int] = []

    @monque.worker("short", concurrency=1)
    async def note(job: Job[int]) -> None:
        ran.append(job.data)
        if len(ran) < 200 or thieves:
            return
        # The jobs were short until now, so some of the next ones are prefetched. While this one
        # blocks the event loop, none of them is started or handed back.
        stolen = blocking_db["monque_jobs"].update_many(
            {"status": "processing", "data": {"$nin": ran}},
            {"$set": {"claimedBy": "another", "claimToken": newer}},
        )
        if stolen.modified_count:
            thieves.add(job)
            await may_go_on.wait()

    await monque.enqueue_many("short", range(1000))
    async with monque:
        await thieves.reach(1)
        lost = [job.data for job in await stored_jobs(db, claimToken=newer)]
        # The second heartbeat from here is sent and answered after the claim is taken.
        for _ in range(3):
            beaten = partial(_has_beaten_since, db, await stored(db, thieves[0]))
            await eventually(beaten)
        may_go_on.set()
        await monque.run_until_idle()

    assert sorted(ran + lost) == list(range(1000))
    errors = [event.error for event in happenings.of("job:error")]
    assert all(isinstance(error, OwnershipLostError) for error in errors)
    # This instance knows nothing of a claim that was lost before its reply came.
    assert len(errors) <= len(lost)


async def _has_beaten_since(db: AsyncDatabase[dict[str, Any]], before: Job[Any]) -> bool:
    return (await stored(db, before)).last_heartbeat != before.last_heartbeat


async def _take_away(db: AsyncDatabase[dict[str, Any]], job: Job[Any], how: str) -> None:
    if how == "deleted":
        await jobs_in(db).delete_one({"_id": job.id})
        return
    # Backdated like a stale claim, so that any write to it would show.
    update = {key: dict(change) for key, change in LOSSES[how].items()}
    update["$set"]["updatedAt"] = datetime.now(UTC) - timedelta(hours=1)
    await jobs_in(db).update_one({"_id": job.id}, update)
