"""Fixtures for reactive tasks: source collections, and intervals that suit tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from pymongo import AsyncMongoClient

from monque_core import LocalMongo, MonqueOptions, ReactiveOptions
from monque_core.local import node
from tests.support.fixtures import proxy, standalone_db, standalone_uri

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from pymongo.asynchronous.collection import AsyncCollection
    from pymongo.asynchronous.database import AsyncDatabase

    from tests.support.proxy import Proxy

__all__ = ["proxy", "standalone_db", "standalone_uri"]


@pytest.fixture
def monque_options() -> MonqueOptions:
    """Plan changes without a delay."""
    return {"reactive_options": ReactiveOptions(flush_interval=0.01)}


@pytest.fixture
def orders(db: AsyncDatabase[dict[str, Any]]) -> AsyncCollection[dict[str, Any]]:
    """Return the source collection of most tests."""
    return db["orders"]


@pytest.fixture
async def proxied_db(
    proxy: Proxy, db: AsyncDatabase[dict[str, Any]]
) -> AsyncIterator[AsyncDatabase[dict[str, Any]]]:
    """Yield the test's database behind the proxy."""
    async with AsyncMongoClient[dict[str, Any]](proxy.uri) as client:
        yield client[db.name]


@pytest.fixture(scope="session")
def forgetful_uri() -> Iterator[str]:
    """Yield a replica set with the smallest possible oplog."""
    with pytest.MonkeyPatch.context() as patch:
        # The server keeps what is not in a checkpoint yet, so there is one every second.
        patch.setattr(node, "_OPTIONS", (*node._OPTIONS, "--oplogSize=1", "--syncdelay=1"))
        with LocalMongo() as mongo:
            yield mongo.uri


@pytest.fixture
async def forgetful_db(forgetful_uri: str) -> AsyncIterator[AsyncDatabase[dict[str, Any]]]:
    """Yield a fresh database on it."""
    async with AsyncMongoClient[dict[str, Any]](forgetful_uri) as client:
        name = f"test_{uuid4().hex}"
        yield client[name]
        await client.drop_database(name)
