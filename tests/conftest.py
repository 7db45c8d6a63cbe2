"""The tests' MongoDB and databases, which the plugin gives to users too, under shorter names."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from motor.motor_asyncio import AsyncIOMotorClient
from pymongo import MongoClient

from monque_core import LocalMongo

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from motor.motor_asyncio import AsyncIOMotorDatabase
    from pymongo import AsyncMongoClient
    from pymongo.asynchronous.database import AsyncDatabase
    from pymongo.database import Database

    from monque_core.local.node import Node

    AnyDatabase = (
        AsyncDatabase[dict[str, Any]]
        | Database[dict[str, Any]]
        | AsyncIOMotorDatabase[dict[str, Any]]
    )

pytest_plugins = ["monque_core.testing"]

# The same examples in every run, however long a slow machine takes to draw and try them.
settings.register_profile(
    "suite", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("suite")

_MEMORY = Path("/dev/shm")
_ROOM_FOR_SERVERS = 8 << 30


def pytest_configure() -> None:
    """Let programs be interrupted, and keep temporary data in memory.

    MongoDB waits for the disk at every write. What a shell starts in the background ignores
    Ctrl-C, and so would every program that a test starts and interrupts.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free >= _ROOM_FOR_SERVERS:
        os.environ.setdefault("TMPDIR", str(_MEMORY))


def pytest_collection_finish() -> None:
    """Spare the garbage collector the tests themselves, which stay until the end."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def mongo(monque_mongo: LocalMongo) -> LocalMongo:
    """Give the replica set of this test process."""
    return monque_mongo


@pytest.fixture(scope="session")
def uri(monque_uri: str) -> str:
    """Give the connection string of the tests' MongoDB."""
    return monque_uri


@pytest.fixture(scope="session")
def _frail_mongo() -> Iterator[LocalMongo]:
    with LocalMongo() as mongo:
        yield mongo


@pytest.fixture
def frail_mongo(_frail_mongo: LocalMongo) -> Iterator[LocalMongo]:
    """Give a replica set of one that tests may kill and freeze; it is whole for each of them."""
    with MongoClient[dict[str, Any]](_frail_mongo.uri) as client:
        # Listening is not enough for clients of little patience: there must be a primary.
        client.admin.command("ping")
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
def absent_uri() -> Iterator[str]:
    """Give the connection string of a server that is not there."""
    with socket.socket() as taken:
        # Bound and not listening: nobody answers, and nobody else can take the port.
        taken.bind(("127.0.0.1", 0))
        host, port = taken.getsockname()
        yield f"mongodb://{host}:{port}/?serverSelectionTimeoutMS=100"


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
