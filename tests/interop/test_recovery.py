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
    from tests.interop.conftest import StartNodeWorker

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
    start_node_worker: StartNodeWorker, db: AsyncDatabase[dict[str, Any]]
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
        node_worker = await start_node_worker(lockTimeout=30_000)
        assert node_worker.recovered == 0
        export.may_end.set()
        await happenings.reach("job:complete")

    ended = await stored(db, job)
    assert (ended.status, ended.claims) == (JobStatus.COMPLETED, 1)
    assert happenings.of("job:error") == []


async def test_python_takes_no_live_job_of_node_however_long_it_runs(
    start_node_worker: StartNodeWorker, db: AsyncDatabase[dict[str, Any]]
) -> None:
    node_worker = await start_node_worker(heartbeatInterval=200)
    await node_worker.work("export", "waits")
    job = await Monque(db).enqueue("export", None)
    await node_worker.hear("started")
    await _lock_long_ago(db, job)

    monque = Monque(db, heartbeat_interval=0.1, lock_timeout=0.3)
    happenings = Happenings(monque)
    export = _Export(monque)
    async with monque:
        beats = len(node_worker.of("heartbeat"))
        await node_worker.hear("heartbeat", beats + 5)
        claimed = await stored(db, job)
        assert (claimed.status, claimed.claimed_by) == (JobStatus.PROCESSING, "node")
        await node_worker.let_runs_end()
        await node_worker.see_end(job)

    assert (await stored(db, job)).status == JobStatus.COMPLETED
    assert happenings.of("stale:recovered") == []
    assert node_worker.of("lost") == []
    assert export.runs == []


async def test_python_recovers_jobs_of_a_killed_node_by_its_heartbeat_interval(
    start_node_worker: StartNodeWorker, db: AsyncDatabase[dict[str, Any]]
) -> None:
    node_worker = await start_node_worker(heartbeatInterval=100)
    await node_worker.work("export", "waits")
    monque = Monque(db, heartbeat_interval=0.1)
    happenings = Happenings(monque)
    export = _Export(monque)
    job = await monque.enqueue("export", None)
    await node_worker.hear("started")
    await node_worker.kill()

    export.may_end.set()
    async with monque:
        await happenings.reach("job:complete")

    assert [event.count for event in happenings.of("stale:recovered")] == [1]
    assert [run.id for run in export.runs] == [job.id]
    assert (await stored(db, job)).status == JobStatus.COMPLETED


async def test_node_recovers_jobs_of_a_killed_python_after_the_lock_timeout(
    start_node_worker: StartNodeWorker, db: AsyncDatabase[dict[str, Any]], uri: str
) -> None:
    job = await Monque(db).enqueue("on-loop", 1)
    async with WorkerProcess(uri, db.name, "on-loop") as process:
        await process.hear("started")
        process.kill()
        await process.end()
    token = (await stored(db, job)).claim_token
    await _lock_long_ago(db, job)

    node_worker = await start_node_worker()
    assert node_worker.recovered == 1
    recovered = await stored(db, job)
    assert (recovered.status, recovered.claim_token) == (JobStatus.PENDING, token)
    assert token is not None

    await node_worker.work("on-loop")
    await node_worker.see_end(job)
    assert (await stored(db, job)).status == JobStatus.COMPLETED


async def test_a_failure_in_python_of_a_job_that_node_took_and_completed_is_not_written(
    start_node_worker: StartNodeWorker, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(db, **_CUT_OFF)
    happenings = Happenings(monque)
    export = _Export(monque, ValueError("too late"))

    async with monque:
        job = await monque.enqueue("export", None)
        await export.runs.reach(1)
        await _lock_long_ago(db, job)
        node_worker = await start_node_worker()
        assert node_worker.recovered == 1
        await node_worker.work("export")
        await node_worker.see_end(job)
        by_node = await stored(db, job)
        export.may_end.set()
        (event,) = await happenings.reach("job:error")

    assert isinstance(event.error, OwnershipLostError)
    assert by_node.status == JobStatus.COMPLETED
    assert await stored(db, job) == by_node
    assert happenings.of("job:fail") == []


async def test_a_success_in_python_of_a_job_that_node_took_leaves_it_to_node(
    start_node_worker: StartNodeWorker, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(db, **_CUT_OFF)
    happenings = Happenings(monque)
    export = _Export(monque)

    async with monque:
        job = await monque.enqueue("export", None)
        await export.runs.reach(1)
        await _lock_long_ago(db, job)
        node_worker = await start_node_worker()
        await node_worker.work("export", "waits")
        await node_worker.hear("started")
        export.may_end.set()
        (event,) = await happenings.reach("job:error")
        by_node = await stored(db, job)
        await node_worker.let_runs_end()
        await node_worker.see_end(job)

    assert isinstance(event.error, OwnershipLostError)
    assert (by_node.status, by_node.claimed_by) == (JobStatus.PROCESSING, "node")
    assert by_node.claim_token == export.runs[0].claim_token
    assert (await stored(db, job)).status == JobStatus.COMPLETED


@pytest.mark.parametrize("error", [None, ValueError("too late")], ids=["success", "failure"])
async def test_a_job_that_node_put_back_with_the_token_of_python_runs_again_under_another(
    error: Exception | None, start_node_worker: StartNodeWorker, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(db, **_CUT_OFF)
    happenings = Happenings(monque)
    export = _Export(monque, error, concurrency=2)

    async with monque:
        job = await monque.enqueue("export", None)
        await export.runs.reach(1)
        await _lock_long_ago(db, job)
        assert (await start_node_worker()).recovered == 1
        await export.runs.reach(2)
        export.may_end.set()
        (event,) = await happenings.reach("job:error")
        await happenings.reach("job:fail" if error else "job:complete")

    first, second = export.runs
    assert isinstance(event.error, OwnershipLostError)
    assert first.claim_token != second.claim_token
    assert (await stored(db, job)).fail_count == (1 if error else 0)


async def test_a_run_of_a_frozen_node_that_python_took_over_writes_nothing(
    start_node_worker: StartNodeWorker, db: AsyncDatabase[dict[str, Any]]
) -> None:
    node_worker = await start_node_worker(heartbeatInterval=100)
    await node_worker.work("export", "waits")
    monque = Monque(db, heartbeat_interval=0.1)
    export = _Export(monque)
    job = await monque.enqueue("export", None)
    await node_worker.hear("started")
    node_worker.freeze()

    async with monque:
        await export.runs.reach(1)
        node_worker.thaw()
        await node_worker.let_runs_end()
        (lost,) = await node_worker.hear("lost")
        running = await stored(db, job)
        export.may_end.set()

    assert lost["id"] == job.id
    assert (running.status, running.claimed_by) == (
        JobStatus.PROCESSING,
        monque.scheduler_instance_id,
    )
    assert (await stored(db, job)).status == JobStatus.COMPLETED
