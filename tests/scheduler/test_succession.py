"""Recovering the jobs of an instance whose process has ended."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from bson import ObjectId

from monque_core import Monque
from monque_core.scheduler.succession import Instance
from tests.support.happenings import Happenings
from tests.support.stored import jobs_in, stored_jobs

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core.testing import MovableClock

    Db = AsyncDatabase[dict[str, Any]]

DEAD = Instance("dead", "holder-1")


@pytest.fixture
def successor(db: Db, clock: MovableClock) -> Monque:
    return Monque(db, clock=clock, max_retries=3)


async def leave_claims(
    db: Db, monque: Monque, holder: str | None, lease: timedelta = timedelta(hours=1)
) -> None:
    """Store what the instance `dead` held when its process ended a moment ago."""
    now = monque._options.clock.now()
    await monque.enqueue_many("work", ["one left", "spent", "of another"])
    claim = {
        "status": "processing",
        "claimedBy": "dead",
        "claimToken": ObjectId(),
        "lockedAt": now,
        "lastHeartbeat": now,
        "heartbeatInterval": 30_000,
        "claims": 1,
    }
    await jobs_in(db).update_many({}, {"$set": claim})
    await jobs_in(db).update_one({"data": "spent"}, {"$set": {"claims": 3}})
    await jobs_in(db).update_one({"data": "of another"}, {"$set": {"claimedBy": "another"}})
    if holder is not None:
        await monque._store.leases.take("instance:dead", holder, lease)


async def statuses(db: Db) -> dict[str, str]:
    return {job.data: job.status for job in await stored_jobs(db)}


async def test_its_jobs_are_recovered_at_once_and_those_of_others_are_not(
    db: Db, successor: Monque
) -> None:
    await leave_claims(db, successor, DEAD.holder)
    happenings = Happenings(successor)
    await successor._take_over([DEAD])
    assert await statuses(db) == {
        "one left": "pending",
        "spent": "failed",
        "of another": "processing",
    }
    assert [event.count for event in happenings.of("stale:recovered")] == [1]


async def test_its_id_is_free_at_once(db: Db, successor: Monque) -> None:
    await leave_claims(db, successor, DEAD.holder)
    await successor._take_over([DEAD])
    namesake = Monque(db, scheduler_instance_id="dead")
    async with namesake:
        assert namesake.is_running


@pytest.mark.parametrize(
    ("holder", "lease"),
    [
        (None, timedelta(hours=1)),
        ("holder-2", timedelta(hours=1)),
        (DEAD.holder, timedelta(milliseconds=1)),
    ],
    ids=["gave its lease back", "has a living namesake", "was silent until its lease ended"],
)
async def test_nothing_is_touched_unless_it_still_has_its_lease(
    db: Db, successor: Monque, holder: str | None, lease: timedelta
) -> None:
    await leave_claims(db, successor, holder, lease)
    await successor._take_over([DEAD])
    assert set((await statuses(db)).values()) == {"processing"}


async def test_nothing_is_touched_by_an_instance_that_recovers_nothing(db: Db) -> None:
    successor = Monque(db, recover_stale_jobs=False)
    await leave_claims(db, successor, DEAD.holder)
    await successor._take_over([DEAD])
    assert set((await statuses(db)).values()) == {"processing"}
