"""A process that drains a queue with bare calls: `python -m tests.benchmarks.drainer …`."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pymongo import AsyncMongoClient

from monque_core import event_loop
from tests.benchmarks import gate, raw
from tests.benchmarks.workshop import CONCURRENCY


async def _main(uri: str, database: str, way: str, batch_size: int) -> None:
    async with AsyncMongoClient[dict[str, Any]](uri) as client:
        jobs = client[database]["monque_jobs"]
        await jobs.find_one()
        with ThreadPoolExecutor(CONCURRENCY) as pool:
            await gate.pass_through(client[database])
            match way:
                case "naive":
                    await raw.drain_one_by_one(jobs)
                case "limit":
                    await raw.drain_in_batches(jobs, batch_size)
                case "limit in threads":
                    await raw.drain_in_batches(jobs, batch_size, raw.run_in(pool))


if __name__ == "__main__":
    # The same event loop as `monque worker`.
    event_loop.run(_main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
