"""Neither side takes live jobs of the other, and each side recovers stale jobs of the other."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from monque_core import Job, JobStatus, Monque, OwnershipLostError
from tests.support.happenings import Happenings
from tests.support.stored import jobs_in, stored
from tests.support.tally import Tally
from tests.support.waiting import eventually
from tests.support.worker_process import WorkerProcess

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import MonqueOptions
    from monque_core.jobs.job import AnyJob
    from tests.interop.conftest import StartNeighbour

_LONG_AGO = timedelta(days=3)
_CUT_OFF: MonqueOptions = {"heartbeat_interval": 600, "lock_timeout": 1800}
"""Options of an instance that sends no heartbeats and does not notice that it lost a claim."""


async def _lock_long_ago(db: AsyncDatabase[dict[str, Any]], job: AnyJob) -> None:
    """Backdate the claim of a job by days."""
    long_ago = datetime.now(UTC) - _LONG_AGO
    await jobs_in(db).update_one({"_id": job.id}, {"$set": {"lockedAt": long_ago}})


class _Export:
    """A Python handler that ends when the test says so."""

    def __init__(
        self, monque: Monque, error: Exception | None = None, concurrency: int = 1
    ) -> None:
        self.runs: Tally[Job[None]] = Tally()
        self.may_end = asyncio.Event()
        self._error = error
        monque.worker("export", self.handle, concurrency=concurrency)

    async def handle(self, job: Job[None]) -> None:
        self.runs.add(job)
        await self.may_end.wait()
        if self._error:
            raise self._error


async def test_node_takes_no_live_job_of_python_however_long_it_runs(
    start_neighbour: StartNeighbour, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(db, heartbeat_interval=0.1)
    happenings = Happenings(monque)
    export = _Export(monque)

    async with monque:
        job = await monque.enqueue("export", None)
        await export.runs.reach(1)
        await _lock_long_ago(db, job)

        async def is_renewed() -> bool:
            locked_at = (await stored(db, job)).locked_at
            return locked_at is not None and datetime.now(UTC) - locked_at < _LONG_AGO / 2

        await eventually(is_renewed)
        neighbour = await start_neighbour(lockTimeout=30_000)
        assert neighbour.recovered == 0
        export.may_end.set()
        await happenings.reach("job:complete")

    ended = await stored(db, job)
    assert (ended.status, ended.claims) == (JobStatus.COMPLETED, 1)
    assert happenings.of("job:error") == []


async def test_python_takes_no_live_job_of_node_however_long_it_runs(
    start_neighbour: StartNeighbour, db: AsyncDatabase[dict[str, Any]]
) -> None:
    neighbour = await start_neighbour(heartbeatInterval=200)
    await neighbour.work("export", "waits")
    job = await Monque(db).enqueue("export", None)
    await neighbour.hear("started")
    await _lock_long_ago(db, job)

    monque = Monque(db, heartbeat_interval=0.1, lock_timeout=0.3)
    happenings = Happenings(monque)
    export = _Export(monque)
    async with monque:
        beats = len(neighbour.of("heartbeat"))
        await neighbour.hear("heartbeat", beats + 5)
        claimed = await stored(db, job)
        assert (claimed.status, claimed.claimed_by) == (JobStatus.PROCESSING, "node")
        await neighbour.let_runs_end()
        await neighbour.see_end(job)

    assert (await stored(db, job)).status == JobStatus.COMPLETED
    assert happenings.of("stale:recovered") == []
    assert neighbour.of("lost") == []
    assert export.runs == []


async def test_python_recovers_jobs_of_a_killed_node_by_its_heartbeat_interval(
    start_neighbour: StartNeighbour, db: AsyncDatabase[dict[str, Any]]
) -> None:
    neighbour = await start_neighbour(heartbeatInterval=100)
    await neighbour.work("export", "waits")
    monque = Monque(db, heartbeat_interval=0.1)
    happenings = Happenings(monque)
    export = _Export(monque)
    job = await monque.enqueue("export", None)
    await neighbour.hear("started")
    await neighbour.kill()

    export.may_end.set()
    async with monque:
        await happenings.reach("job:complete")

    assert [event.count for event in happenings.of("stale:recovered")] == [1]
    assert [run.id for run in export.runs] == [job.id]
    assert (await stored(db, job)).status == JobStatus.COMPLETED


async def test_node_recovers_jobs_of_a_killed_python_after_the_lock_timeout(
    start_neighbour: StartNeighbour, db: AsyncDatabase[dict[str, Any]], uri: str
) -> None:
    job = await Monque(db).enqueue("on-loop", 1)
    async with WorkerProcess(uri, db.name, "on-loop") as process:
        await process.hear("started")
        process.kill()
        await process.end()
    token = (await stored(db, job)).claim_token
    await _lock_long_ago(db, job)

    neighbour = await start_neighbour()
    assert neighbour.recovered == 1
    recovered = await stored(db, job)
    assert (recovered.status, recovered.claim_token) == (JobStatus.PENDING, token)
    assert token is not None

    await neighbour.work("on-loop")
    await neighbour.see_end(job)
    assert (await stored(db, job)).status == JobStatus.COMPLETED


async def test_a_failure_in_python_of_a_job_that_node_took_and_completed_is_not_written(
    start_neighbour: StartNeighbour, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(db, **_CUT_OFF)
    happenings = Happenings(monque)
    export = _Export(monque, ValueError("too late"))

    async with monque:
        job = await monque.enqueue("export", None)
        await export.runs.reach(1)
        await _lock_long_ago(db, job)
        neighbour = await start_neighbour()
        assert neighbour.recovered == 1
        await neighbour.work("export")
        await neighbour.see_end(job)
        by_node = await stored(db, job)
        export.may_end.set()
        (event,) = await happenings.reach("job:error")

    assert isinstance(event.error, OwnershipLostError)
    assert by_node.status == JobStatus.COMPLETED
    assert await stored(db, job) == by_node
    assert happenings.of("job:fail") == []


async def test_a_success_in_python_of_a_job_that_node_took_leaves_it_to_node(
    start_neighbour: StartNeighbour, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(db, **_CUT_OFF)
    happenings = Happenings(monque)
    export = _Export(monque)

    async with monque:
        job = await monque.enqueue("export", None)
        await export.runs.reach(1)
        await _lock_long_ago(db, job)
        neighbour = await start_neighbour()
        await neighbour.work("export", "waits")
        await neighbour.hear("started")
        export.may_end.set()
        (event,) = await happenings.reach("job:error")
        by_node = await stored(db, job)
        await neighbour.let_runs_end()
        await neighbour.see_end(job)

    assert isinstance(event.error, OwnershipLostError)
    assert (by_node.status, by_node.claimed_by) == (JobStatus.PROCESSING, "node")
    assert by_node.claim_token == export.runs[0].claim_token
    assert (await stored(db, job)).status == JobStatus.COMPLETED


@pytest.mark.parametrize("error", [None, ValueError("too late")], ids=["success", "failure"])
async def test_a_job_that_node_put_back_with_the_token_of_python_runs_again_under_another(
    error: Exception | None, start_neighbour: StartNeighbour, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(db, **_CUT_OFF)
    happenings = Happenings(monque)
    export = _Export(monque, error, concurrency=2)

    async with monque:
        job = await monque.enqueue("export", None)
        await export.runs.reach(1)
        await _lock_long_ago(db, job)
        assert (await start_neighbour()).recovered == 1
        await export.runs.reach(2)
        export.may_end.set()
        (event,) = await happenings.reach("job:error")
        await happenings.reach("job:fail" if error else "job:complete")

    first, second = export.runs
    assert isinstance(event.error, OwnershipLostError)
    assert first.claim_token != second.claim_token
    assert (await stored(db, job)).fail_count == (1 if error else 0)


async def test_a_run_of_a_frozen_node_that_python_took_over_writes_nothing(
    start_neighbour: StartNeighbour, db: AsyncDatabase[dict[str, Any]]
) -> None:
    neighbour = await start_neighbour(heartbeatInterval=100)
    await neighbour.work("export", "waits")
    monque = Monque(db, heartbeat_interval=0.1)
    export = _Export(monque)
    job = await monque.enqueue("export", None)
    await neighbour.hear("started")
    neighbour.freeze()

    async with monque:
        await export.runs.reach(1)
        neighbour.thaw()
        await neighbour.let_runs_end()
        (lost,) = await neighbour.hear("lost")
        running = await stored(db, job)
        export.may_end.set()

    assert lost["id"] == job.id
    assert (running.status, running.claimed_by) == (
        JobStatus.PROCESSING,
        monque.scheduler_instance_id,
    )
    assert (await stored(db, job)).status == JobStatus.COMPLETED
