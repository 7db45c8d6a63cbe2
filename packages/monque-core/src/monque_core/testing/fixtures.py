"""The fixtures and options of the pytest plugin."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
import pytest_asyncio
from pymongo import AsyncMongoClient, MongoClient
from pymongo.errors import PyMongoError

from monque_core.local import LocalMongo
from monque_core.monque import Monque
from monque_core.options import MonqueOptions
from monque_core.sync.monque import SyncMonque
from monque_core.testing.clock import MovableClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from pymongo.asynchronous.database import AsyncDatabase
    from pymongo.database import Database

_LONGEST_FIRST_ANSWER_MS = 5000


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the user name a server."""
    parser.getgroup("monque").addoption(
        "--monque-uri",
        metavar="URI",
        help="connection string of the MongoDB to test on (default: $MONGODB_URI, or else a "
        "LocalMongo is started)",
    )


def pytest_report_header(config: pytest.Config) -> str | None:
    """Name the server if it is not one of our own, without the password in its address."""
    uri = _given_uri(config)
    return None if uri is None else f"monque: tests use the MongoDB at {_address(uri)}"


@pytest.fixture(scope="session")
def monque_mongo() -> Iterator[LocalMongo]:
    """Start a `LocalMongo`, one for each process of tests."""
    with LocalMongo() as mongo:
        yield mongo


@pytest.fixture(scope="session")
def monque_uri(request: pytest.FixtureRequest) -> str:
    """Give the connection string of the tests' MongoDB: the one that was named, or our own."""
    uri = _given_uri(request.config)
    if uri is None:
        mongo: LocalMongo = request.getfixturevalue("monque_mongo")
        return mongo.uri
    try:
        with MongoClient[dict[str, Any]](
            uri, serverSelectionTimeoutMS=_LONGEST_FIRST_ANSWER_MS
        ) as client:
            client.admin.command("ping")
    except PyMongoError as error:
        raise pytest.UsageError(
            f"the MongoDB at {_address(uri)}, named by --monque-uri or MONGODB_URI, cannot be "
            f"used: {error}"
        ) from error
    return uri


@pytest.fixture(scope="session")
def _monque_drop(monque_uri: str) -> Iterator[Callable[[str], object]]:
    """Give what drops a database in the background: MongoDB takes a tenth of a second for each."""
    with MongoClient[dict[str, Any]](monque_uri) as client, ThreadPoolExecutor(1) as thread:
        yield lambda name: thread.submit(client.drop_database, name)


@pytest.fixture
def monque_database_name(_monque_drop: Callable[[str], object]) -> Iterator[str]:
    """Give the name of a database for this test alone, dropped afterwards."""
    name = f"monque_test_{uuid4().hex}"
    yield name
    _monque_drop(name)


@pytest_asyncio.fixture
async def monque_db(
    monque_uri: str, monque_database_name: str
) -> AsyncIterator[AsyncDatabase[dict[str, Any]]]:
    """Give the test's database as an async handle."""
    async with AsyncMongoClient[dict[str, Any]](monque_uri) as client:
        yield client[monque_database_name]


@pytest.fixture
def monque_blocking_db(
    monque_uri: str, monque_database_name: str
) -> Iterator[Database[dict[str, Any]]]:
    """Give the test's database as a blocking handle."""
    with MongoClient[dict[str, Any]](monque_uri) as client:
        yield client[monque_database_name]


@pytest.fixture
def clock() -> MovableClock:
    """Give the clock of the test's `Monque`, which stands still until it is moved."""
    return MovableClock()


@pytest.fixture
def monque_options() -> MonqueOptions:
    """Give further options of the test's `Monque`; there to be overridden."""
    return {}


@pytest_asyncio.fixture
async def monque(
    monque_db: AsyncDatabase[dict[str, Any]], clock: MovableClock, monque_options: MonqueOptions
) -> AsyncIterator[Monque]:
    """Give a `Monque` on the test's database and clock; it is not started, and stopped at last."""
    monque = Monque(monque_db, **_options(clock, monque_options))
    yield monque
    await monque.stop()


@pytest.fixture
def sync_monque(
    monque_blocking_db: Database[dict[str, Any]],
    clock: MovableClock,
    monque_options: MonqueOptions,
) -> Iterator[SyncMonque]:
    """Give a `SyncMonque` on the test's database and clock; not started, and stopped at last."""
    monque = SyncMonque(monque_blocking_db, **_options(clock, monque_options))
    yield monque
    monque.stop()


def _options(clock: MovableClock, given: MonqueOptions) -> MonqueOptions:
    """Give options that let a test see a moved clock, a change and an end without a wait."""
    quick = MonqueOptions(
        clock=clock,
        poll_interval=0.05,
        safety_poll_interval=0.05,
        shutdown_timeout=5,
        stats_cache_ttl=0,
    )
    return {**quick, **given}


def _given_uri(config: pytest.Config) -> str | None:
    uri: str | None = config.getoption("monque_uri")
    return uri or os.environ.get("MONGODB_URI") or None


def _address(uri: str) -> str:
    """Give the hosts of a connection string, without the user and password."""
    return uri.partition("://")[2].partition("/")[0].rpartition("@")[2]
