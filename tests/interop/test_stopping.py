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

    from tests.interop.conftest import StartNeighbour


async def test_a_job_that_ends_within_three_heartbeats_after_the_stop_runs_once(
    start_neighbour: StartNeighbour, db: AsyncDatabase[dict[str, Any]]
) -> None:
    neighbour = await start_neighbour()
    await neighbour.work("export", "waits")
    monque = Monque(db, heartbeat_interval=0.1)
    happenings = Happenings(monque)
    runs: Tally[Job[None]] = Tally()
    monque.worker("export", runs.add)
    job = await monque.enqueue("export", None)
    await neighbour.hear("started")

    async with monque:
        await neighbour.stop()
        await neighbour.let_runs_end()
        await neighbour.hear("stopped")
        assert (await stored(db, job)).status == JobStatus.COMPLETED

    assert runs == []
    assert happenings.of("stale:recovered") == []


async def test_a_job_that_ends_later_runs_again_and_node_writes_nothing_over_it(
    start_neighbour: StartNeighbour, db: AsyncDatabase[dict[str, Any]]
) -> None:
    neighbour = await start_neighbour(heartbeatInterval=100)
    await neighbour.work("export", "waits")
    monque = Monque(db, heartbeat_interval=0.1)
    happenings = Happenings(monque)
    runs: Tally[Job[None]] = Tally()
    monque.worker("export", runs.add)
    job = await monque.enqueue("export", None)
    await neighbour.hear("started")
    await neighbour.hear("heartbeat")
    await neighbour.stop()

    async def is_silent() -> bool:
        before = await stored(db, job)
        return before.last_heartbeat == (await stored(db, job)).last_heartbeat

    await eventually(is_silent)
    async with monque:
        (completed,) = await happenings.reach("job:complete")
        await neighbour.let_runs_end()
        (lost,) = await neighbour.hear("lost")
        await neighbour.hear("stopped")

    assert [run.id for run in runs] == [lost["id"]] == [job.id]
    assert await stored(db, job) == completed.job
