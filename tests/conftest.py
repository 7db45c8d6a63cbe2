"""The tests' MongoDB and databases, which the plugin gives to users too, under shorter names."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from motor.motor_asyncio import AsyncIOMotorClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from motor.motor_asyncio import AsyncIOMotorDatabase
    from pymongo import AsyncMongoClient
    from pymongo.asynchronous.database import AsyncDatabase
    from pymongo.database import Database

    from monque_core import LocalMongo

    AnyDatabase = (
        AsyncDatabase[dict[str, Any]]
        | Database[dict[str, Any]]
        | AsyncIOMotorDatabase[dict[str, Any]]
    )

pytest_plugins = ["monque_core.testing"]


@pytest.fixture(scope="session")
def mongo(monque_mongo: LocalMongo) -> LocalMongo:
    """Give the replica set of this test process."""
    return monque_mongo


@pytest.fixture(scope="session")
def uri(monque_uri: str) -> str:
    """Give the connection string of the tests' MongoDB."""
    return monque_uri


@pytest.fixture
def database_name(monque_database_name: str) -> str:
    """Give the name of a database for this test alone, dropped afterwards."""
    return monque_database_name


@pytest.fixture
def db(monque_db: AsyncDatabase[dict[str, Any]]) -> AsyncDatabase[dict[str, Any]]:
    """Give the test's database as an async handle."""
    return monque_db


@pytest.fixture
def client(db: AsyncDatabase[dict[str, Any]]) -> AsyncMongoClient[dict[str, Any]]:
    """Give the async client of that handle."""
    return db.client


@pytest.fixture
def blocking_db(monque_blocking_db: Database[dict[str, Any]]) -> Database[dict[str, Any]]:
    """Give the test's database as a blocking handle."""
    return monque_blocking_db


@pytest.fixture
async def motor_db(
    uri: str, database_name: str
) -> AsyncIterator[AsyncIOMotorDatabase[dict[str, Any]]]:
    """Give the test's database as a Motor handle."""
    client = AsyncIOMotorClient[dict[str, Any]](uri, io_loop=asyncio.get_running_loop())
    yield client[database_name]
    client.close()


@pytest.fixture(params=["async", "blocking", "motor"])
def any_db(request: pytest.FixtureRequest) -> AnyDatabase:
    """Give the test's database as each kind of handle that Monque accepts."""
    fixture = {"async": "db", "blocking": "blocking_db", "motor": "motor_db"}[request.param]
    handle: AnyDatabase = request.getfixturevalue(fixture)
    return handle
