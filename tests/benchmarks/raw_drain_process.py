"""Draining a queue with bare calls: `python -m tests.benchmarks.raw_drain_process …`."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pymongo import AsyncMongoClient

from monque_core import process
from tests.benchmarks import raw, start_barrier
from tests.benchmarks.worker_app import CONCURRENCY


async def _main(uri: str, database: str, variant: str, batch_size: int) -> None:
    async with AsyncMongoClient[dict[str, Any]](uri) as client:
        jobs = client[database]["monque_jobs"]
        await jobs.find_one()
        with ThreadPoolExecutor(CONCURRENCY) as pool:
            await start_barrier.wait(client[database])
            match variant:
                case "naive":
                    await raw.drain_one_by_one(jobs)
                case "limit":
                    await raw.drain_in_batches(jobs, batch_size)
                case "limit in threads":
                    await raw.drain_in_batches(jobs, batch_size, raw.run_in(pool))


if __name__ == "__main__":
    # The same event loop as `monque worker`.
    process.run(_main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
