"""A server that is frozen for a while: live instances are not treated as dead."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pymongo import AsyncMongoClient

from monque_core import Job, Monque
from tests.support.happenings import Happenings
from tests.support.proxy import Proxy
from tests.support.steps import renews

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import LocalMongo
    from monque_core.local.node import Node


async def test_instances_do_not_steal_claims_after_a_frozen_server(
    frail_mongo: LocalMongo, node: Node
) -> None:
    """Without client timeouts, which is the default, no error reports the outage."""
    async with AsyncMongoClient[dict[str, Any]](frail_mongo.uri) as client:
        db = client[f"frozen_{uuid4().hex}"]
        worker = Monque(db, heartbeat_interval=1)
        # This instance searches for stale jobs long before the worker's next heartbeat is due.
        rival = Monque(db, heartbeat_interval=0.1, poll_interval=0.1)
        happenings, elsewhere = Happenings(worker), Happenings(rival)
        may_end = asyncio.Event()

        async def run(job: Job[int]) -> None:
            await may_end.wait()

        for instance in (worker, rival):
            instance.worker("long", run, concurrency=10)
        await worker.enqueue_many("long", range(10))
        async with worker:
            await happenings.reach("job:start", 10)
            async with rival:
                await asyncio.to_thread(node.suspend)
                await asyncio.sleep(4)
                await asyncio.to_thread(node.resume)
                await asyncio.sleep(1.5)
                may_end.set()
                await happenings.reach("job:complete", 10)

        assert not elsewhere.of("job:start")
        for seen in (happenings, elsewhere):
            assert not seen.of("stale:recovered")
            assert not seen.of("job:error")


async def test_after_a_frozen_server_every_owner_has_time_for_a_heartbeat(
    db: AsyncDatabase[dict[str, Any]], uri: str
) -> None:
    """The server freezes, and the rival is the first to be served afterwards."""
    async with (
        Proxy(uri) as to_worker,
        Proxy(uri) as to_rival,
        AsyncMongoClient[dict[str, Any]](to_worker.uri) as worker_client,
        AsyncMongoClient[dict[str, Any]](to_rival.uri) as rival_client,
    ):
        worker = Monque(worker_client[db.name], heartbeat_interval=1)
        rival = Monque(rival_client[db.name], heartbeat_interval=0.1)
        happenings, elsewhere = Happenings(worker), Happenings(rival)
        may_end = asyncio.Event()

        @worker.worker("long")
        async def run(job: Job[int]) -> None:
            await may_end.wait()

        async with worker, rival:
            await worker.enqueue("long", 1)
            await happenings.reach("job:start")
            beat = to_worker.strike("hold request", renews)
            await beat.strikes()
            look = to_rival.strike("hold request", lambda command: "distinct" in command)
            await look.strikes()
            await asyncio.sleep(3.5)
            look.release()
            # Several recovery passes of the rival.
            await asyncio.sleep(0.7)
            beat.release()
            may_end.set()
            await happenings.reach("job:complete")

    assert not elsewhere.of("stale:recovered")
    for seen in (happenings, elsewhere):
        assert not seen.of("job:error")
