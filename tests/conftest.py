"""The MongoDB and the databases of the tests; the plugin offers them to users as well."""

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

# The same examples in every run, however slow the machine is.
settings.register_profile(
    "suite", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("suite")

_MEMORY = Path("/dev/shm")
_ROOM_FOR_SERVERS = 8 << 30


def pytest_configure() -> None:
    """Allow programs to be interrupted, and keep temporary data in memory.

    MongoDB waits for the disk at every write. Programs that a shell starts in the background ignore
    Ctrl-C, and so would every program that a test starts and interrupts.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free >= _ROOM_FOR_SERVERS:
        os.environ.setdefault("TMPDIR", str(_MEMORY))


def pytest_collection_finish() -> None:
    """Exempt the tests themselves from garbage collection; they stay until the end."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def mongo(monque_mongo: LocalMongo) -> LocalMongo:
    """Yield the replica set of this test process."""
    return monque_mongo


@pytest.fixture(scope="session")
def uri(monque_uri: str) -> str:
    """Return the connection string of the tests' MongoDB."""
    return monque_uri


@pytest.fixture(scope="session")
def _frail_mongo() -> Iterator[LocalMongo]:
    with LocalMongo() as mongo:
        yield mongo


@pytest.fixture
def frail_mongo(_frail_mongo: LocalMongo) -> Iterator[LocalMongo]:
    """Yield a one-node replica set that tests may kill and freeze; it is repaired for each test."""
    with MongoClient[dict[str, Any]](_frail_mongo.uri) as client:
        # An open port is not enough for clients with short timeouts: there must be a primary.
        client.admin.command("ping")
    yield _frail_mongo
    (node,) = _frail_mongo.nodes
    if node.running:
        node.resume()
    else:
        node.start()


@pytest.fixture
def node(frail_mongo: LocalMongo) -> Node:
    """Return its only node."""
    return frail_mongo.nodes[0]


@pytest.fixture
def absent_uri() -> Iterator[str]:
    """Yield the connection string of a server that does not exist."""
    with socket.socket() as taken:
        # Bound and not listening: nobody answers, and no other process can take the port.
        taken.bind(("127.0.0.1", 0))
        host, port = taken.getsockname()
        yield f"mongodb://{host}:{port}/?serverSelectionTimeoutMS=100"


@pytest.fixture
def database_name(monque_database_name: str) -> str:
    """Yield the name of a database for this test alone, dropped afterwards."""
    return monque_database_name


@pytest.fixture
def db(monque_db: AsyncDatabase[dict[str, Any]]) -> AsyncDatabase[dict[str, Any]]:
    """Return the test's database as an async handle."""
    return monque_db


@pytest.fixture
def client(db: AsyncDatabase[dict[str, Any]]) -> AsyncMongoClient[dict[str, Any]]:
    """Yield the async client of that handle."""
    return db.client


@pytest.fixture
def blocking_db(monque_blocking_db: Database[dict[str, Any]]) -> Database[dict[str, Any]]:
    """Yield the test's database as a blocking handle."""
    return monque_blocking_db


@pytest.fixture
async def motor_db(
    uri: str, database_name: str
) -> AsyncIterator[AsyncIOMotorDatabase[dict[str, Any]]]:
    """Yield the test's database as a Motor handle."""
    client = AsyncIOMotorClient[dict[str, Any]](uri, io_loop=asyncio.get_running_loop())
    yield client[database_name]
    client.close()


@pytest.fixture(params=["async", "blocking", "motor"])
def any_db(request: pytest.FixtureRequest) -> AnyDatabase:
    """Return the test's database as each kind of handle that Monque accepts."""
    fixture = {"async": "db", "blocking": "blocking_db", "motor": "motor_db"}[request.param]
    handle: AnyDatabase = request.getfixturevalue(fixture)
    return handle
