"""A MongoDB that tests may kill and freeze, and a proxy in front of the one they may not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from pymongo import AsyncMongoClient, MongoClient

from monque_core import LocalMongo
from tests.support.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core.local.node import Node


@pytest.fixture(scope="session")
def _frail_mongo() -> Iterator[LocalMongo]:
    with LocalMongo() as mongo:
        yield mongo


@pytest.fixture
def frail_mongo(_frail_mongo: LocalMongo) -> Iterator[LocalMongo]:
    """Give a replica set of one to mistreat; it is whole again for the next test."""
    yield _frail_mongo
    (node,) = _frail_mongo.nodes
    if node.running:
        node.resume()
    else:
        node.start()


@pytest.fixture
def node(frail_mongo: LocalMongo) -> Node:
    """Give its only node."""
    return frail_mongo.nodes[0]


@pytest.fixture
async def proxy(uri: str) -> AsyncIterator[Proxy]:
    """Give a proxy in front of the usual MongoDB."""
    async with Proxy(uri) as proxy:
        yield proxy


@pytest.fixture(params=["async", "blocking"])
async def proxied_db(
    request: pytest.FixtureRequest, proxy: Proxy, db: AsyncDatabase[dict[str, Any]]
) -> AsyncIterator[Any]:
    """Give the test's database as seen through the proxy; the driver repeats no write by itself."""
    if request.param == "async":
        async with AsyncMongoClient[dict[str, Any]](proxy.uri, retryWrites=False) as client:
            yield client[db.name]
    else:
        blocking = MongoClient[dict[str, Any]](proxy.uri, retryWrites=False)
        yield blocking[db.name]
        # The proxy needs the event loop to answer.
        await asyncio.to_thread(blocking.close)
