"""Stopping in the middle of an operation, and while MongoDB does not answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from monque_core import Job, Monque, ShutdownTimeoutError
from tests.support.commands import opens_stream
from tests.support.happenings import Happenings
from tests.support.leftovers import Leftovers
from tests.support.steps import claims, settles
from tests.support.stored import stored_jobs
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from tests.support.proxy import Proxy


async def do_nothing(job: Job[Any]) -> None: ...


@pytest.mark.parametrize("count", [1, 10])
async def test_stop_waits_for_a_pending_claim_and_hands_it_back(
    proxied_db: Any, proxy: Proxy, db: AsyncDatabase[dict[str, Any]], count: int
) -> None:
    monque = Monque(proxied_db)
    happenings = Happenings(monque)
    monque.worker("work", do_nothing, concurrency=10)
    await monque.enqueue_many("work", range(count))
    fault = proxy.strike("hold reply", claims)
    await monque.start()
    await fault.strikes()
    stopping = asyncio.create_task(monque.stop())
    await asyncio.sleep(0.1)
    assert not stopping.done()
    fault.release()
    await stopping

    assert "job:start" not in happenings.names
    assert "job:error" not in happenings.names
    jobs = await stored_jobs(db)
    assert [(job.status, job.claims, job.claimed_by) for job in jobs] == [
        ("pending", 0, None)
    ] * count


async def test_a_stop_with_timeout_zero_leaves_no_orphaned_claim(
    proxied_db: Any, proxy: Proxy, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(proxied_db)
    monque.worker("work", do_nothing, concurrency=10)
    await monque.enqueue_many("work", range(10))
    fault = proxy.strike("hold reply", claims)
    await monque.start()
    await fault.strikes()
    stopping = asyncio.create_task(monque.stop(timeout=0))
    await asyncio.sleep(0.1)
    fault.release()
    await stopping

    jobs = await stored_jobs(db)
    assert [(job.status, job.claims) for job in jobs] == [("pending", 0)] * 10


async def test_stop_waits_for_pending_outcomes(
    proxied_db: Any, proxy: Proxy, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(proxied_db)
    happenings = Happenings(monque)
    monque.worker("work", do_nothing)
    fault = proxy.strike("hold request", settles)
    async with monque:
        await monque.enqueue("work", 1)
        await fault.strikes()
        stopping = asyncio.create_task(monque.stop())
        await asyncio.sleep(0.1)
        assert not stopping.done()
        fault.release()
        await stopping

    assert [job.status for job in await stored_jobs(db)] == ["completed"]
    assert len(happenings.of("job:complete")) == 1
    assert not happenings.of("job:error")


@pytest.mark.parametrize("proxied_db", ["async"], indirect=True)
async def test_stop_gives_up_on_an_outcome_that_is_never_confirmed(
    proxied_db: Any, proxy: Proxy, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(proxied_db)
    happenings = Happenings(monque)
    monque.worker("work", do_nothing)
    fault = proxy.strike("hold reply", settles)
    async with monque:
        job = await monque.enqueue("work", 1)
        await fault.strikes()
        # `stop` returns although the reply comes only later.
        await monque.stop(timeout=0.2)
        fault.release()

    (told,) = happenings.of("job:error")
    assert isinstance(told.error, ShutdownTimeoutError)
    assert [one.id for one in told.error.incomplete_jobs] == [job.id]
    assert [job.status for job in await stored_jobs(db)] == ["completed"]


async def test_stop_does_not_wait_for_a_stream_that_is_still_connecting(
    proxied_db: Any, proxy: Proxy
) -> None:
    leftovers = Leftovers()
    monque = Monque(proxied_db)
    happenings = Happenings(monque)
    monque.worker("work", do_nothing)
    fault = proxy.strike("hold reply", opens_stream)
    await monque.start()
    await fault.strikes()
    # `stop` returns although the reply comes only later.
    await monque.stop()
    fault.release()

    assert not leftovers.tasks
    assert "changestream:connected" not in happenings.names
    assert not happenings.of("job:error")
    # A thread that waits for MongoDB can end only after MongoDB answers.
    await eventually(lambda: not leftovers.threads)
