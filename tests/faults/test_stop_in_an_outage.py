"""Stopping during an outage of the database."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from pymongo import AsyncMongoClient, MongoClient

from monque_core import Job, Monque, ShutdownTimeoutError
from tests.support.happenings import Happenings
from tests.support.leftovers import Leftovers

if TYPE_CHECKING:
    from monque_core import LocalMongo
    from monque_core.local.node import Node


@pytest.mark.parametrize("how", ["suspend", "kill"])
async def test_stop_returns_while_the_database_is_away(
    frail_mongo: LocalMongo, node: Node, how: str
) -> None:
    """Clients with default options wait for an answer without a limit."""
    name = f"stop_{uuid4().hex}"
    leftovers = Leftovers()
    with MongoClient[dict[str, Any]](frail_mongo.uri) as blocking:
        async with AsyncMongoClient[dict[str, Any]](frail_mongo.uri) as client:
            instances = [
                Monque(db, heartbeat_interval=0.2, poll_interval=0.2)
                for db in (client[name], blocking[name])
            ]
            seen = [Happenings(instance) for instance in instances]
            for instance, happenings in zip(instances, seen, strict=True):

                @instance.worker("long", concurrency=1)
                async def wait(job: Job[int]) -> None:
                    await asyncio.Event().wait()

                await instance.start()
                await happenings.reach("changestream:connected")
            await instances[0].enqueue_many("long", range(2))
            for happenings in seen:
                await happenings.reach("job:start")
            await asyncio.to_thread(getattr(node, how))
            # `stop` returns although MongoDB answers only later.
            await asyncio.gather(*(instance.stop(timeout=1) for instance in instances))
            left = leftovers.tasks
            await asyncio.to_thread(node.resume if how == "suspend" else node.start)

            assert not left
            for instance, happenings in zip(instances, seen, strict=True):
                assert not instance.is_running
                (started,) = happenings.of("job:start")
                (told,) = [
                    event.error
                    for event in happenings.of("job:error")
                    if isinstance(event.error, ShutdownTimeoutError)
                ]
                assert [job.id for job in told.incomplete_jobs] == [started.job.id]

            # The next instance recovers what could not be handed back.
            successor = Monque(client[name], heartbeat_interval=0.2)
            happenings = Happenings(successor)

            @successor.worker("long")
            async def end(job: Job[int]) -> None: ...

            async with successor:
                await happenings.reach("job:complete", 2)
            assert len(happenings.of("job:complete")) == 2
