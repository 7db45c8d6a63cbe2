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

_SERVER_SELECTION_MS = 5000


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--monque-uri`."""
    parser.getgroup("monque").addoption(
        "--monque-uri",
        metavar="URI",
        help="connection string of the MongoDB for tests (default: $MONGODB_URI, or a new "
        "LocalMongo)",
    )


def pytest_report_header(config: pytest.Config) -> str | None:
    """Return the hosts of the server, without credentials; None for a `LocalMongo`."""
    uri = _given_uri(config)
    return None if uri is None else f"monque: tests use the MongoDB at {_address(uri)}"


@pytest.fixture(scope="session")
def monque_mongo() -> Iterator[LocalMongo]:
    """Start one `LocalMongo` per test process."""
    with LocalMongo() as mongo:
        yield mongo


@pytest.fixture(scope="session")
def monque_uri(request: pytest.FixtureRequest) -> str:
    """Return the connection string of the configured MongoDB, or of a `LocalMongo`."""
    uri = _given_uri(request.config)
    if uri is None:
        mongo: LocalMongo = request.getfixturevalue("monque_mongo")
        return mongo.uri
    try:
        with MongoClient[dict[str, Any]](
            uri, serverSelectionTimeoutMS=_SERVER_SELECTION_MS
        ) as client:
            client.admin.command("ping")
    except PyMongoError as error:
        raise pytest.UsageError(
            f"cannot use the MongoDB at {_address(uri)} from --monque-uri or MONGODB_URI: {error}"
        ) from error
    return uri


@pytest.fixture(scope="session")
def _monque_drop(monque_uri: str) -> Iterator[Callable[[str], object]]:
    """Yield a function that drops a database in the background, since that takes 0.1 s."""
    with MongoClient[dict[str, Any]](monque_uri) as client, ThreadPoolExecutor(1) as thread:
        yield lambda name: thread.submit(client.drop_database, name)


@pytest.fixture
def monque_database_name(_monque_drop: Callable[[str], object]) -> Iterator[str]:
    """Yield the name of a database for this test; drop the database afterwards."""
    name = f"monque_test_{uuid4().hex}"
    yield name
    _monque_drop(name)


@pytest_asyncio.fixture
async def monque_db(
    monque_uri: str, monque_database_name: str
) -> AsyncIterator[AsyncDatabase[dict[str, Any]]]:
    """Yield the async handle of the test database."""
    async with AsyncMongoClient[dict[str, Any]](monque_uri) as client:
        yield client[monque_database_name]


@pytest.fixture
def monque_blocking_db(
    monque_uri: str, monque_database_name: str
) -> Iterator[Database[dict[str, Any]]]:
    """Yield the blocking handle of the test database."""
    with MongoClient[dict[str, Any]](monque_uri) as client:
        yield client[monque_database_name]


@pytest.fixture
def clock() -> MovableClock:
    """Return the clock of the `Monque` fixtures, which stands still until it is moved."""
    return MovableClock()


@pytest.fixture
def monque_options() -> MonqueOptions:
    """Return more options for the `Monque` fixtures; override this fixture to set them."""
    return {}


@pytest_asyncio.fixture
async def monque(
    monque_db: AsyncDatabase[dict[str, Any]], clock: MovableClock, monque_options: MonqueOptions
) -> AsyncIterator[Monque]:
    """Yield a `Monque` on the test database and clock; not started; stopped afterwards."""
    monque = Monque(monque_db, **_options(clock, monque_options))
    yield monque
    await monque.stop()


@pytest.fixture
def sync_monque(
    monque_blocking_db: Database[dict[str, Any]],
    clock: MovableClock,
    monque_options: MonqueOptions,
) -> Iterator[SyncMonque]:
    """Yield a `SyncMonque` on the test database and clock; not started; stopped afterwards."""
    monque = SyncMonque(monque_blocking_db, **_options(clock, monque_options))
    yield monque
    monque.stop()


def _options(clock: MovableClock, given: MonqueOptions) -> MonqueOptions:
    """Return options with short intervals, so that tests see changes at once."""
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
    """Return the hosts of a connection string, without credentials."""
    return uri.partition("://")[2].partition("/")[0].rpartition("@")[2]
