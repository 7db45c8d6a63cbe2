"""Fixtures that several directories of tests import into their `conftest.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from pymongo import AsyncMongoClient

from monque_core import LocalMongo
from tests.support.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from pymongo.asynchronous.database import AsyncDatabase

    from tests.conftest import AnyDatabase


@pytest.fixture(params=["async", "blocking"])
def any_db(request: pytest.FixtureRequest) -> AnyDatabase:
    """Return the test's database as an async and as a blocking handle.

    Motor is left out: only `Driver` distinguishes it from the blocking handle that it wraps.
    """
    handle: AnyDatabase = request.getfixturevalue(
        {"async": "db", "blocking": "blocking_db"}[request.param]
    )
    return handle


@pytest.fixture
async def proxy(uri: str) -> AsyncIterator[Proxy]:
    """Yield a proxy in front of MongoDB."""
    async with Proxy(uri) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def standalone_uri() -> Iterator[str]:
    """Yield the connection string of a server without change streams and transactions."""
    with LocalMongo(standalone=True) as mongo:
        yield mongo.uri


@pytest.fixture
async def standalone_db(standalone_uri: str) -> AsyncIterator[AsyncDatabase[dict[str, Any]]]:
    """Yield a fresh database on a server without change streams and transactions."""
    async with AsyncMongoClient[dict[str, Any]](standalone_uri) as client:
        name = f"test_{uuid4().hex}"
        yield client[name]
        await client.drop_database(name)
