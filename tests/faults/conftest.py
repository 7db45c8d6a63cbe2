"""Fixtures: a proxy in front of MongoDB, and databases behind it."""

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
    """Yield a proxy in front of MongoDB."""
    async with Proxy(uri) as proxy:
        yield proxy


@pytest.fixture(params=["async", "blocking"])
async def proxied_db(
    request: pytest.FixtureRequest, proxy: Proxy, db: AsyncDatabase[dict[str, Any]]
) -> AsyncIterator[Any]:
    """Yield the test's database behind the proxy, without retryable writes in the driver."""
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
    """Return the test's database as an async and as a blocking handle.

    Motor is left out: only `Driver` distinguishes it from the blocking handle that it wraps.
    """
    handle: AnyDatabase = request.getfixturevalue(
        {"async": "db", "blocking": "blocking_db"}[request.param]
    )
    return handle
