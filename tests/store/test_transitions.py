"""Every status transition of a job, and that there is no other."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from bson import ObjectId

from monque_core.jobs.job import JobStatus
from monque_core.jobs.outcome import (
    COMPLETED,
    RELEASED,
    Advanced,
    Failed,
    OccurrenceFailed,
    Retrying,
)
from monque_core.store.driver import Driver
from monque_core.store.shard_key import identified
from monque_core.store.stale_jobs import stale
from monque_core.store.transitions import (
    Owner,
    Transition,
    adopt,
    cancel,
    claim,
    complete,
    quarantine,
    release,
    renew,
    reschedule,
    retry,
    revive,
    settle,
)
from tests.support.samples import NOW, a_job, a_schedule
from tests.support.stores import document_of, put

if TYPE_CHECKING:
    from collections.abc import Callable

    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core.jobs.job import AnyJob

    Db = AsyncDatabase[dict[str, Any]]

ME = Owner("me", 30_000)
LATER = NOW + timedelta(minutes=5)
TICK = NOW + timedelta(hours=1)
CLAIM_FIELDS = {"claimedBy", "lockedAt", "lastHeartbeat", "heartbeatInterval"}
STALE = stale([30_000], LATER, timedelta(minutes=30))

TRANSITIONS: dict[str, Callable[[AnyJob], Transition]] = {
    "claim": lambda job: claim({"_id": job.id}, ME, ObjectId(), LATER),
    "renew": lambda job: renew([job], ME, LATER),
    "complete": lambda job: complete([job], ME, LATER),
    "release": lambda job: release([job], ME, LATER),
    "completed": lambda job: settle(job, COMPLETED, ME, LATER),
    "released": lambda job: settle(job, RELEASED, ME, LATER),
    "retrying": lambda job: settle(job, Retrying("boom", TICK), ME, LATER),
    "failed": lambda job: settle(job, Failed("boom"), ME, LATER),
    "advanced": lambda job: settle(job, Advanced(TICK), ME, LATER),
    "occurrence failed": lambda job: settle(job, OccurrenceFailed("boom", TICK), ME, LATER),
    "revive": lambda job: revive([job], STALE, LATER),
    "adopt": lambda job: adopt(job, STALE, ME, ObjectId(), LATER),
    "set aside": lambda job: quarantine(job.id, job.name, "no job", LATER),
    "cancel": lambda job: cancel(identified([job]), LATER),
    "cancel many": lambda job: cancel({"_id": {"$in": [job.id]}, "name": job.name}, LATER),
    "retry": lambda job: retry(identified([job]), LATER),
    "reschedule": lambda job: reschedule(identified([job]), TICK, LATER),
}
FENCED = [
    "renew",
    "complete",
    "release",
    "completed",
    "released",
    "retrying",
    "failed",
    "advanced",
    "occurrence failed",
]
ALLOWED: dict[str, dict[str, str]] = {
    "claim": {"pending": "processing"},
    "renew": {"processing": "processing"},
    "complete": {"processing": "completed"},
    "release": {"processing": "pending"},
    "completed": {"processing": "completed"},
    "released": {"processing": "pending"},
    "retrying": {"processing": "pending"},
    "failed": {"processing": "failed"},
    "advanced": {"processing": "pending"},
    "occurrence failed": {"processing": "pending"},
    "revive": {"processing": "pending"},
    "adopt": {"processing": "processing"},
    "set aside": {"pending": "failed", "processing": "failed"},
    "cancel": {"pending": "cancelled"},
    "cancel many": {"pending": "cancelled"},
    "retry": {"failed": "pending", "cancelled": "pending"},
    "reschedule": {"pending": "pending"},
}


ONE_OFF = {"repeat_interval": None, "timezone": None}
WAITING = {"status": "pending", "claimed_by": None}
KIND: dict[str, dict[str, Any]] = {
    "claim": WAITING,
    "complete": ONE_OFF,
    "completed": ONE_OFF,
    "cancel": WAITING,
    "cancel many": WAITING,
    "retry": {"status": "failed"},
    "reschedule": WAITING,
}
"""The state that a transition requires; by default a claimed schedule."""


def a_claimed(**fields: Any) -> AnyJob:
    """Return a recurring job that `me` claimed long enough ago to be stale."""
    claimed = {
        "status": "processing",
        "claimed_by": "me",
        "locked_at": NOW,
        "last_heartbeat": NOW,
        "heartbeat_interval": 30_000,
        "claim_token": ObjectId(),
        "claimed_at": NOW,
        "claims": 2,
        "fail_count": 1,
        "fail_reason": "before",
    }
    return a_schedule(**(claimed | fields))


async def apply(db: Db, step: Transition) -> bool:
    return await Driver(db).collection("monque_jobs").update_one(step.filter, step.update) == 1


@pytest.mark.parametrize("status", JobStatus.ALL)
@pytest.mark.parametrize("name", TRANSITIONS)
async def test_a_transition_starts_from_its_own_statuses_only(
    db: Db, name: str, status: str
) -> None:
    job = a_claimed(**KIND.get(name, {}) | {"status": status})
    await put(db, job)
    before = await document_of(db, job)
    changed = await apply(db, TRANSITIONS[name](job))
    after = await document_of(db, job)
    if status in ALLOWED[name]:
        assert changed
        assert after["status"] == ALLOWED[name][status]
        assert after["updatedAt"] == LATER
    else:
        assert not changed
        assert after == before


@pytest.mark.parametrize("name", FENCED)
@pytest.mark.parametrize(
    "lost",
    [
        {"claim_token": ObjectId()},
        {"claim_token": None},
        {"claimed_by": "other"},
        {"claimed_by": None},
        {"claimed_by": "other", "claim_token": ObjectId()},
    ],
)
async def test_no_outcome_is_written_without_the_claim(
    db: Db, name: str, lost: dict[str, Any]
) -> None:
    job = a_claimed(**KIND.get(name, {}))
    now_stored = replace(job, **lost)
    await put(db, now_stored)
    before = await document_of(db, job)
    assert not await apply(db, TRANSITIONS[name](job))
    assert await document_of(db, job) == before


@pytest.mark.parametrize("name", [name for name in TRANSITIONS if name != "claim"])
async def test_every_other_field_stays(db: Db, name: str) -> None:
    job = a_claimed(
        **KIND.get(name, {}),
        priority=3,
        max_retries=4,
        timeout=timedelta(seconds=5),
        data={"a": None},
    )
    await put(db, job)
    before = await document_of(db, job)
    assert await apply(db, TRANSITIONS[name](job))
    after = await document_of(db, job)
    mutable = CLAIM_FIELDS | {
        "status",
        "updatedAt",
        "claims",
        "failCount",
        "failReason",
        "nextRunAt",
        "claimToken",
    }
    assert {field: value for field, value in before.items() if field not in mutable} == {
        field: value for field, value in after.items() if field not in mutable
    }
    assert None not in after.values()


@pytest.mark.parametrize(
    "name",
    [name for name, ends in ALLOWED.items() if ends.get("processing") not in {None, "processing"}],
)
async def test_no_claim_field_stays_when_ownership_ends(db: Db, name: str) -> None:
    job = a_claimed(**KIND.get(name, {}))
    await put(db, job)
    assert await apply(db, TRANSITIONS[name](job))
    assert not CLAIM_FIELDS & (await document_of(db, job)).keys()


@pytest.mark.parametrize("name", [name for name in FENCED if name != "renew"])
async def test_the_token_of_a_settled_claim_stays(db: Db, name: str) -> None:
    job = a_claimed(**KIND.get(name, {}))
    await put(db, job)
    assert await apply(db, TRANSITIONS[name](job))
    assert (await document_of(db, job))["claimToken"] == job.claim_token


async def test_the_token_of_a_claim_that_was_taken_away_goes(db: Db) -> None:
    job = a_claimed()
    await put(db, job)
    assert await apply(db, revive([job], STALE, LATER))
    assert "claimToken" not in await document_of(db, job)


@pytest.mark.parametrize("name", ["advanced", "occurrence failed", "failed"])
@pytest.mark.parametrize(
    "changed",
    [
        {"repeat_interval": "@daily"},
        {"timezone": "Europe/Berlin"},
        {"repeat_interval": None, "timezone": None},
    ],
)
async def test_an_outcome_computed_by_another_schedule_is_not_written(
    db: Db, name: str, changed: dict[str, Any]
) -> None:
    job = a_claimed()
    await put(db, replace(job, **changed))
    assert not await apply(db, TRANSITIONS[name](job))


@pytest.mark.parametrize("name", ["complete", "completed", "failed"])
async def test_a_completion_is_not_written_over_a_new_schedule(db: Db, name: str) -> None:
    job = a_claimed(**ONE_OFF)
    await put(db, replace(job, repeat_interval="@daily", timezone="UTC"))
    assert not await apply(db, TRANSITIONS[name](job))


@pytest.mark.parametrize("name", ["advanced", "occurrence failed"])
async def test_a_tick_of_a_schedule_without_a_time_zone_is_written(db: Db, name: str) -> None:
    job = a_claimed(timezone=None)
    await put(db, job)
    assert await apply(db, TRANSITIONS[name](job))


@pytest.mark.parametrize("name", ["revive", "adopt"])
async def test_a_renewed_claim_is_not_taken_away(db: Db, name: str) -> None:
    job = a_claimed()
    await put(db, a_claimed(id=job.id, claim_token=job.claim_token, last_heartbeat=LATER))
    assert not await apply(db, TRANSITIONS[name](job))


async def test_a_claim_that_changed_hands_is_not_adopted(db: Db) -> None:
    job = a_claimed()
    await put(db, a_claimed(id=job.id))
    assert not await apply(db, adopt(job, STALE, ME, ObjectId(), LATER))


async def test_a_claim_without_a_token_can_be_adopted(db: Db) -> None:
    job = a_claimed(claim_token=None, claimed_by="node")
    await put(db, job)
    token = ObjectId()
    assert await apply(db, adopt(job, STALE, ME, token, LATER))
    after = await document_of(db, job)
    assert (after["claimedBy"], after["claimToken"], after["claims"]) == ("me", token, 2)


async def test_a_quarantined_job_has_a_reason(db: Db) -> None:
    job = a_job(unique_key="key")
    await put(db, job)
    assert await apply(db, quarantine(job.id, job.name, "no job at all", LATER))
    after = await document_of(db, job)
    assert (after["status"], after["failReason"]) == ("failed", "no job at all")


async def test_a_retried_job_keeps_only_the_time_of_its_last_claim(db: Db) -> None:
    job = a_claimed(status="failed", next_run_at=TICK)
    await put(db, job)
    before = await document_of(db, job)
    assert await apply(db, retry(identified([job]), LATER))
    gone = CLAIM_FIELDS | {"claimToken", "claims", "failReason"}
    left = {field: value for field, value in before.items() if field not in gone}
    assert await document_of(db, job) == left | {
        "status": "pending",
        "nextRunAt": LATER,
        "failCount": 0,
        "updatedAt": LATER,
    }
    assert left["claimedAt"] == NOW


async def test_a_retry_may_be_delayed_a_little(db: Db) -> None:
    jobs = [a_job(status="failed") for _ in range(50)]
    await put(db, *jobs)
    spread = timedelta(seconds=10)
    for job in jobs:
        assert await apply(db, retry(identified([job]), LATER, spread))
    due = [(await document_of(db, job))["nextRunAt"] for job in jobs]
    assert all(LATER <= at <= LATER + spread for at in due)
    assert max(due) - min(due) > spread / 4


@pytest.mark.parametrize("name", ["cancel", "cancel many", "reschedule"])
async def test_a_pending_job_that_somebody_holds_is_not_touched(db: Db, name: str) -> None:
    job = a_claimed(status="pending", claimed_by="node")
    await put(db, job)
    assert not await apply(db, TRANSITIONS[name](job))


@pytest.mark.parametrize("name", ["cancel", "cancel many", "reschedule"])
async def test_management_actions_change_no_other_field(db: Db, name: str) -> None:
    job = a_job(claims=1, fail_count=1, fail_reason="before", claim_token=ObjectId())
    await put(db, job)
    before = await document_of(db, job)
    assert await apply(db, TRANSITIONS[name](job))
    changed = {"nextRunAt": TICK} if name == "reschedule" else {"status": "cancelled"}
    assert await document_of(db, job) == before | changed | {"updatedAt": LATER}
