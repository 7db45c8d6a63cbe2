"""Claiming jobs that recovery made pending again."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pymongo import AsyncMongoClient

from monque_core import Monque
from monque_core.testing import MovableClock
from tests.support.commands import CommandLog
from tests.support.polling import NO_POLLS
from tests.support.stored import jobs_in
from tests.support.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Job
    from tests.conftest import AnyDatabase


async def interrupt(db: AsyncDatabase[dict[str, Any]], data: object, times: int = 1) -> None:
    """Make jobs look as recovery leaves them: claimed before, without an outcome."""
    await jobs_in(db).update_many({"data": data}, {"$set": {"claims": times}})


async def test_a_recovered_job_shares_its_claim_with_no_other(
    any_db: AnyDatabase, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(any_db, **NO_POLLS)
    runs = Tally[tuple[str, Any]]()

    async def note(job: Job[str]) -> None:
        runs.add((job.data, job.claim_token))

    for name in ("a", "b"):
        monque.worker(name, note, concurrency=20)
        for _ in range(10):
            await monque.enqueue_many(name, ["innocent", "innocent", "recovered"])
    await interrupt(db, "recovered")
    async with monque:
        await runs.reach(60)

    sharing = Counter(token for _, token in runs)
    assert len(runs) == 60
    assert all(sharing[token] == 1 for data, token in runs if data == "recovered")
    # Otherwise the test would prove nothing: the other jobs do share their tokens.
    assert max(sharing.values()) > 1


async def test_a_recovered_job_is_never_claimed_ahead_of_a_free_slot(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    monque = Monque(db, **NO_POLLS)
    runs, long_ones = Tally[str](), Tally[str]()
    may_end = asyncio.Event()

    @monque.worker("sudden", concurrency=2)
    async def handle(job: Job[str]) -> None:
        runs.add(job.data)
        if job.data == "long":
            long_ones.add(job.data)
            await may_end.wait()

    begin = datetime.now(UTC) - timedelta(hours=1)
    for position, data in enumerate(["short"] * 20 + ["long"] + ["recovered"]):
        run_at = begin + timedelta(seconds=position)
        await monque.enqueue_many("sudden", [data] * (2 if data == "long" else 20), run_at=run_at)
    await interrupt(db, "recovered")
    async with monque:
        await long_ones.reach(2)
        waiting = await jobs_in(db).find({"data": "recovered"}).to_list()
        may_end.set()
        await runs.reach(422)

    assert len(waiting) == 20
    for document in waiting:
        assert document["status"] == "pending"
        assert document["claims"] == 1
        assert "claimToken" not in document
    assert runs[-20:] == ["recovered"] * 20


async def test_recovered_jobs_do_not_stop_the_others(
    any_db: AnyDatabase, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(any_db, **NO_POLLS)
    runs = Tally[str]()

    @monque.worker("mixed", concurrency=3)
    async def note(job: Job[str]) -> None:
        runs.add(job.data)

    await monque.enqueue_many("mixed", ["recovered once"] * 5)
    await monque.enqueue_many("mixed", ["recovered twice"] * 5)
    await monque.enqueue_many("mixed", ["innocent"] * 100)
    await interrupt(db, "recovered once", 1)
    await interrupt(db, "recovered twice", 2)
    async with monque:
        await runs.reach(110)

    assert Counter(runs) == {"recovered once": 5, "recovered twice": 5, "innocent": 100}


async def test_each_claim_is_stamped_with_the_time_at_which_it_is_made(
    db: AsyncDatabase[dict[str, Any]], uri: str
) -> None:
    clock, log = MovableClock(), CommandLog()
    stamps = Tally[datetime]()

    def take_a_minute(name: str, command: Mapping[str, Any]) -> None:
        if name == "find" and command["filter"].get("status") == "pending":
            clock.advance(60)

    async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
        monque = Monque(client[db.name], clock=clock, **NO_POLLS)

        @monque.worker("work", concurrency=100)
        async def note(job: Job[str]) -> None:
            assert job.locked_at is not None
            stamps.add(job.locked_at)

        await monque.enqueue_many("work", ["innocent", "innocent", *["recovered"] * 60])
        await interrupt(db, "recovered")
        log.on_sending = take_a_minute
        began = clock.now()
        async with monque:
            await stamps.reach(62)

    # However long the look takes, no claim has a time from before the look.
    assert min(stamps) >= began + timedelta(minutes=1)
    # And no time stands on more claims than one look found.
    assert len(set(stamps)) >= 3
