"""Python and Node work on one queue, and every job runs once."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

from monque_core import Job, Monque
from tests.support.happenings import Happenings
from tests.support.stored import count_by_status
from tests.support.tally import Tally

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from tests.interop.node_worker import NodeWorker

_JOBS = 2000
_SHARE_OF_NODE = 200


async def test_two_thousand_jobs_run_once_each_on_one_side_or_the_other(
    node_worker: NodeWorker, db: AsyncDatabase[dict[str, Any]]
) -> None:
    in_python: Tally[int] = Tally()
    monque = Monque(db)
    happenings = Happenings(monque)

    @monque.worker("count", concurrency=10)
    async def count(job: Job[int]) -> None:
        in_python.add(job.data)
        # Python claims in batches: if its jobs took no time, none would be left for Node.
        await node_worker.hear("started", _SHARE_OF_NODE)

    async with monque:
        await node_worker.work("count", concurrency=10)
        await monque.enqueue_many("count", range(_JOBS - 100))
        await asyncio.gather(
            *(node_worker.enqueue("count", number) for number in range(_JOBS - 100, _JOBS))
        )
        async with asyncio.timeout(120):
            while (await count_by_status(db)).get("completed", 0) < _JOBS:
                await asyncio.sleep(0.02)

    in_node = [run["data"] for run in node_worker.of("started")]
    assert len(in_node) >= _SHARE_OF_NODE
    assert len(in_python) >= 10
    assert Counter([*in_node, *in_python]) == Counter(range(_JOBS))
    assert await count_by_status(db) == {"completed": _JOBS}
    assert node_worker.of("lost") == []
    assert happenings.of("job:error") == []
    assert happenings.of("stale:recovered") == []
