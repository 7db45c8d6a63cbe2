"""A replica set that loses its primary while jobs are processed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from bson import ObjectId
from pymongo import AsyncMongoClient
from pymongo.errors import PyMongoError
from pymongo.write_concern import WriteConcern

from monque_core import Job, LocalMongo, Monque, MonqueConnectionError
from tests.support.samples import NOW, a_job
from tests.support.stored import stored_jobs
from tests.support.stores import open_store, put
from tests.support.tally import Tally
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from monque_core.local.node import Node

COUNT = 200


@pytest.fixture(scope="module")
def replicas() -> Iterator[LocalMongo]:
    """Yield a replica set; each test leaves all its nodes running."""
    with LocalMongo(replicas=3) as mongo:
        yield mongo


async def primary_of(client: AsyncMongoClient[dict[str, Any]], replicas: LocalMongo) -> Node:
    await client.admin.command("ping")
    address = await client.primary
    assert address is not None
    (node,) = [node for node in replicas.nodes if node.port == address[1]]
    return node


async def test_an_unconfirmed_claim_counts_only_with_a_majority(
    replicas: LocalMongo,
) -> None:
    async with AsyncMongoClient[dict[str, Any]](replicas.uri) as client:
        await put(client.majority, a_job())
        # Without majority acknowledgment: the state in which a lost reply may leave a claim.
        store = await open_store(client.get_database("majority", write_concern=WriteConcern(1)))
        primary = await primary_of(client, replicas)
        others = [node for node in replicas.nodes if node is not primary]
        token = ObjectId()
        for node in others:
            node.suspend()
        try:
            claimed = await store.queue.claim_first("send-email", token, NOW)
            read_back = await store.queue.claimed_with(token, ["send-email"], NOW)
        finally:
            for node in others:
                node.resume()
        assert isinstance(claimed, Job)
        assert read_back == []
        assert await eventually(lambda: store.queue.claimed_with(token, ["send-email"], NOW)) == [
            claimed
        ]


async def test_every_job_runs_and_is_settled_when_the_primary_dies(
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
                await instance.run_until_idle()
        await asyncio.to_thread(primary.start)

        jobs = await stored_jobs(db)
        assert len(jobs) >= COUNT
        assert {job.status for job in jobs} == {"completed"}
        assert {job.id for job in jobs} == set(runs)
