"""A replica set that loses its primary while jobs flow."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from bson import ObjectId
from pymongo import AsyncMongoClient
from pymongo.errors import PyMongoError

from monque_core import Job, LocalMongo, Monque, MonqueConnectionError
from tests.support.stored import stored_jobs
from tests.support.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Iterator

    from monque_core.local.node import Node

COUNT = 200


@pytest.fixture
def replicas() -> Iterator[LocalMongo]:
    with LocalMongo(replicas=3) as mongo:
        yield mongo


async def primary_of(client: AsyncMongoClient[dict[str, Any]], replicas: LocalMongo) -> Node:
    await client.admin.command("ping")
    address = await client.primary
    assert address is not None
    (node,) = [node for node in replicas.nodes if node.port == address[1]]
    return node


async def test_every_job_runs_and_is_settled_though_the_primary_dies_under_them(
    replicas: LocalMongo,
) -> None:
    async with AsyncMongoClient[dict[str, Any]](
        replicas.uri, serverSelectionTimeoutMS=2000
    ) as client:
        db = client.failover
        instances = [Monque(db, worker_concurrency=5, poll_interval=0.1) for _ in range(2)]
        runs = Tally[ObjectId]()

        async def work(job: Job[int]) -> None:
            await asyncio.sleep(0.02)
            runs.add(job.id)

        async def produce() -> None:
            stored = 0
            while stored < COUNT:
                try:
                    await instances[0].enqueue("work", stored)
                    stored += 1
                except (MonqueConnectionError, PyMongoError):
                    await asyncio.sleep(0.1)

        for instance in instances:
            instance.worker("work", work)
        async with instances[0], instances[1]:
            producing = asyncio.create_task(produce())
            await runs.reach(COUNT // 5)
            primary = await primary_of(client, replicas)
            await asyncio.to_thread(primary.kill)
            await producing
            for instance in instances:
                await instance.run_until_idle(timeout=20)

        jobs = await stored_jobs(db)
        assert len(jobs) >= COUNT
        assert {job.status for job in jobs} == {"completed"}
        assert {job.id for job in jobs} == set(runs)
