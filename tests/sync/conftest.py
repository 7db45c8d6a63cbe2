"""Fixtures and checks for every test without asyncio."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from pymongo import MongoClient

from monque_core import LocalMongo, SyncMonque
from tests.support.patience import wait_until
from tests.support.quarantine import Quarantine
from tests.support.threads import monque_threads

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pymongo.database import Database


@pytest.fixture(autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    """Assert that a test leaves no threads behind."""
    before = monque_threads()
    yield
    # A thread that was asked to end may need a moment.
    wait_until(lambda: not monque_threads() - before)


@pytest.fixture
def monque(blocking_db: Database[dict[str, Any]]) -> Iterator[SyncMonque]:
    """Yield a SyncMonque on the test's database; it is stopped at the end."""
    monque = SyncMonque(blocking_db)
    yield monque
    Quarantine(lambda: monque.stop(timeout=5)).result()


@pytest.fixture
def absent_db(absent_uri: str) -> Iterator[Database[dict[str, Any]]]:
    """Yield a database on a server that does not exist."""
    with MongoClient[dict[str, Any]](absent_uri) as client:
        yield client["absent"]


@pytest.fixture(scope="session")
def _standalone_uri() -> Iterator[str]:
    with LocalMongo(standalone=True) as mongo:
        yield mongo.uri


@pytest.fixture
def standalone_db(_standalone_uri: str) -> Iterator[Database[dict[str, Any]]]:
    """Yield a fresh database on a server without change streams."""
    with MongoClient[dict[str, Any]](_standalone_uri) as client:
        name = f"test_{uuid4().hex}"
        yield client[name]
        client.drop_database(name)


@pytest.fixture
def python_signals() -> Iterator[None]:
    """Make SIGINT raise KeyboardInterrupt, as in a normal program."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
