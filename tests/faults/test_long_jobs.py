"""A job stays with its process as long as the process lives, however long the job runs."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from monque_core import Monque
from tests.support.happenings import Happenings
from tests.support.stored import jobs_in, stored
from tests.support.tally import Tally

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Job

HEARTBEAT = 0.5
LOCK_TIMEOUT = 3 * HEARTBEAT


async def recover_like_node(db: AsyncDatabase[dict[str, Any]]) -> int:
    """Recover claims by `lock_timeout`, like an instance that checks nothing else."""
    result = await jobs_in(db).update_many(
        {
            "status": "processing",
            "lockedAt": {"$lt": datetime.now(UTC) - timedelta(seconds=LOCK_TIMEOUT)},
        },
        {
            "$set": {"status": "pending"},
            "$unset": dict.fromkeys(
                ("lockedAt", "claimedBy", "lastHeartbeat", "heartbeatInterval"), ""
            ),
        },
    )
    return result.modified_count


async def test_a_job_longer_than_the_lock_timeout_is_not_stolen_while_its_process_lives(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    runs = Tally[tuple[str, str]]()
    may_end = threading.Event()
    instances = [
        Monque(db, heartbeat_interval=HEARTBEAT, lock_timeout=LOCK_TIMEOUT, poll_interval=0.1)
        for _ in range(2)
    ]
    happenings = [Happenings(instance) for instance in instances]
    for instance in instances:

        @instance.worker("coroutine")
        async def wait_on_the_loop(job: Job[str]) -> None:
            runs.add(("coroutine", job.data))
            while not may_end.is_set():
                await asyncio.sleep(0.01)

        @instance.worker("function")
        def wait_in_a_thread(job: Job[str]) -> None:
            runs.add(("function", job.data))
            may_end.wait()

    async with instances[0], instances[1]:
        jobs = [await instances[0].enqueue(name, "long") for name in ("coroutine", "function")]
        await runs.reach(2)
        stolen = 0
        for _ in range(int(3 * LOCK_TIMEOUT / 0.1)):
            await asyncio.sleep(0.1)
            stolen += await recover_like_node(db)
        may_end.set()
        for instance in instances:
            await instance.run_until_idle()

    assert stolen == 0
    assert sorted(runs) == [("coroutine", "long"), ("function", "long")]
    for job in jobs:
        now = await stored(db, job)
        assert (now.status, now.claims) == ("completed", 1)
    for happened in happenings:
        assert not happened.of("stale:recovered")
        assert not happened.of("job:error")
