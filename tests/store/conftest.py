"""The stores of two instances on one collection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.commands import CommandLog
from tests.support.plans import Plans
from tests.support.stored import jobs_in
from tests.support.stores import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pymongo.asynchronous.collection import AsyncCollection
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core.store.store import Store
    from tests.support.plans import Crowd


@pytest.fixture
def jobs(db: AsyncDatabase[dict[str, Any]]) -> AsyncCollection[dict[str, Any]]:
    """Return the jobs collection."""
    return jobs_in(db)


@pytest.fixture
async def store(db: AsyncDatabase[dict[str, Any]]) -> Store:
    """Return the store of the instance `me`."""
    return await open_store(db)


@pytest.fixture
async def other(db: AsyncDatabase[dict[str, Any]], store: Store) -> Store:
    """Return the store of another instance on the same collection."""
    return await open_store(db, "other")


@pytest.fixture
def log() -> CommandLog:
    """Return a log of commands."""
    return CommandLog()


@pytest.fixture
def plans(crowd: Crowd, log: CommandLog) -> Iterator[Plans]:
    """Yield the plans of the commands in the log, on the populated collection of the module."""
    with crowd.lent() as db:
        plans = Plans(db)
        log.on_sending = plans.explain
        yield plans
