"""Processes whose wall clocks are wrong use the server's time."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from monque_core import Job, Monque
from tests.support.happenings import Happenings
from tests.support.stored import stored
from tests.support.worker_process import WorkerProcess

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

NEARLY = timedelta(seconds=10)
HOUR = 3600.0


@pytest.mark.parametrize("ahead", [HOUR, -HOUR], ids=["ahead", "behind"])
async def test_a_wrong_wall_clock_changes_nothing(
    db: AsyncDatabase[dict[str, Any]], uri: str, ahead: float
) -> None:
    right = Monque(db, heartbeat_interval=0.3)
    happenings = Happenings(right)

    @right.worker("in-thread")
    async def run(job: Job[str]) -> None: ...

    due = await right.enqueue("on-loop", "due")
    later = await right.enqueue("quick", "later", delay=600)
    async with (
        right,
        WorkerProcess(
            uri, db.name, "on-loop", "quick", heartbeat_interval=0.3, wall_clock_ahead=ahead
        ) as wrong,
    ):
        (ready,) = await wrong.hear("ready")
        assert abs(ready["now"] - datetime.now(UTC).timestamp()) > HOUR / 2
        # Due by the server's clock, which is the true clock of this machine.
        await wrong.hear("started")
        running = await stored(db, due)
        assert running.locked_at is not None
        assert running.last_heartbeat is not None
        now = datetime.now(UTC)
        for instant in (running.locked_at, running.last_heartbeat, running.updated_at):
            assert abs(instant - now) < NEARLY
        # During several recovery passes on both sides, neither treats the other as dead.
        for number in range(4):
            await right.enqueue("in-thread", number, delay=0.3)
            await happenings.reach("job:complete", number + 1)
        wrong.let_runs_end()
        await wrong.hear("completed")
        assert [line["data"] for line in wrong.of("started")] == ["due"]
        assert [line["data"] for line in wrong.of("ended")] == ["due"]
        assert not wrong.of("error")

    assert not happenings.of("stale:recovered")
    done = await stored(db, due)
    assert (done.status, done.claims) == ("completed", 1)
    assert abs(done.updated_at - datetime.now(UTC)) < NEARLY
    assert (await stored(db, later)).status == "pending"


async def test_a_producer_with_a_wrong_wall_clock_stores_the_server_s_time(
    db: AsyncDatabase[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: right() + int(HOUR * 1e9))
    producer = Monque(db)
    job = await producer.enqueue("work", 1, delay=60)
    monkeypatch.undo()

    now = datetime.now(UTC)
    found = await stored(db, job)
    assert found == job
    assert abs(found.created_at - now) < NEARLY
    assert abs(found.next_run_at - now - timedelta(seconds=60)) < NEARLY
