"""What `stop()` of Node does to the jobs that are still running."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monque_core import Job, JobStatus, Monque
from tests.support.happenings import Happenings
from tests.support.stored import stored
from tests.support.tally import Tally
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from tests.interop.conftest import StartNodeWorker


async def test_a_job_that_ends_within_three_heartbeats_after_the_stop_runs_once(
    start_node_worker: StartNodeWorker, db: AsyncDatabase[dict[str, Any]]
) -> None:
    node_worker = await start_node_worker()
    await node_worker.work("export", "waits")
    monque = Monque(db, heartbeat_interval=0.1)
    happenings = Happenings(monque)
    runs: Tally[Job[None]] = Tally()
    monque.worker("export", runs.add)
    job = await monque.enqueue("export", None)
    await node_worker.hear("started")

    async with monque:
        await node_worker.stop()
        await node_worker.let_runs_end()
        await node_worker.hear("stopped")
        assert (await stored(db, job)).status == JobStatus.COMPLETED

    assert runs == []
    assert happenings.of("stale:recovered") == []


async def test_a_job_that_ends_later_runs_again_and_node_writes_nothing_over_it(
    start_node_worker: StartNodeWorker, db: AsyncDatabase[dict[str, Any]]
) -> None:
    node_worker = await start_node_worker(heartbeatInterval=100)
    await node_worker.work("export", "waits")
    monque = Monque(db, heartbeat_interval=0.1)
    happenings = Happenings(monque)
    runs: Tally[Job[None]] = Tally()
    monque.worker("export", runs.add)
    job = await monque.enqueue("export", None)
    await node_worker.hear("started")
    await node_worker.hear("heartbeat")
    await node_worker.stop()

    async def is_silent() -> bool:
        before = await stored(db, job)
        return before.last_heartbeat == (await stored(db, job)).last_heartbeat

    await eventually(is_silent)
    async with monque:
        (completed,) = await happenings.reach("job:complete")
        await node_worker.let_runs_end()
        (lost,) = await node_worker.hear("lost")
        await node_worker.hear("stopped")

    assert [run.id for run in runs] == [lost["id"]] == [job.id]
    assert await stored(db, job) == completed.job
