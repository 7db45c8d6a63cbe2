"""A MongoDB for the tests, one per test process, and a fresh database for each test."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from motor.motor_asyncio import AsyncIOMotorClient
from pymongo import AsyncMongoClient, MongoClient

from monque_core.local import LocalMongo

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from motor.motor_asyncio import AsyncIOMotorDatabase
    from pymongo.asynchronous.database import AsyncDatabase
    from pymongo.database import Database

    AnyDatabase = (
        AsyncDatabase[dict[str, Any]]
        | Database[dict[str, Any]]
        | AsyncIOMotorDatabase[dict[str, Any]]
    )


@pytest.fixture(scope="session")
def mongo() -> Iterator[LocalMongo]:
    """Give the replica set of this test process."""
    with LocalMongo() as mongo:
        yield mongo


@pytest.fixture(scope="session")
def uri(mongo: LocalMongo) -> str:
    """Give its connection string."""
    return mongo.uri


@pytest.fixture(scope="session")
def _cleaner(uri: str) -> Iterator[MongoClient[dict[str, Any]]]:
    with MongoClient[dict[str, Any]](uri) as client:
        yield client


@pytest.fixture
def database_name(_cleaner: MongoClient[dict[str, Any]]) -> Iterator[str]:
    """Give the name of a database for this test alone, dropped afterwards."""
    name = f"test_{uuid4().hex}"
    yield name
    _cleaner.drop_database(name)


@pytest.fixture
async def client(uri: str) -> AsyncIterator[AsyncMongoClient[dict[str, Any]]]:
    """Give an async client."""
    async with AsyncMongoClient[dict[str, Any]](uri) as client:
        yield client


@pytest.fixture
def db(
    client: AsyncMongoClient[dict[str, Any]], database_name: str
) -> AsyncDatabase[dict[str, Any]]:
    """Give the test's database as an async handle."""
    return client[database_name]


@pytest.fixture
def blocking_db(uri: str, database_name: str) -> Iterator[Database[dict[str, Any]]]:
    """Give the test's database as a blocking handle."""
    with MongoClient[dict[str, Any]](uri) as client:
        yield client[database_name]


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
