"""A proxy in front of the usual MongoDB."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from pymongo import AsyncMongoClient, MongoClient

from tests.support.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pymongo.asynchronous.database import AsyncDatabase

    from tests.conftest import AnyDatabase


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


@pytest.fixture(params=["async", "blocking"])
def any_db(request: pytest.FixtureRequest) -> AnyDatabase:
    """Give the test's database on the event loop and in threads.

    A Motor handle is left out: to all but `Driver` it is the blocking one that Motor wraps.
    """
    handle: AnyDatabase = request.getfixturevalue(
        {"async": "db", "blocking": "blocking_db"}[request.param]
    )
    return handle
