"""Fixtures: a proxy in front of MongoDB, and databases behind it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from pymongo import AsyncMongoClient, MongoClient

from tests.support.fixtures import any_db, proxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pymongo.asynchronous.database import AsyncDatabase

    from tests.support.proxy import Proxy

__all__ = ["any_db", "proxy"]


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
