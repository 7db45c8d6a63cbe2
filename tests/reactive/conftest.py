"""What reactive tasks are tested with: a source collection, and a pace that suits tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pymongo import AsyncMongoClient

from monque_core import MonqueOptions, ReactiveOptions
from tests.support.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pymongo.asynchronous.collection import AsyncCollection
    from pymongo.asynchronous.database import AsyncDatabase


@pytest.fixture
def monque_options() -> MonqueOptions:
    """Let changes be planned at once."""
    return {"reactive_options": ReactiveOptions(flush_interval=0.01)}


@pytest.fixture
def orders(db: AsyncDatabase[dict[str, Any]]) -> AsyncCollection[dict[str, Any]]:
    """Give the source collection of most tests."""
    return db["orders"]


@pytest.fixture
async def proxy(uri: str) -> AsyncIterator[Proxy]:
    """Give a proxy in front of the usual MongoDB."""
    async with Proxy(uri) as proxy:
        yield proxy


@pytest.fixture
async def proxied_db(
    proxy: Proxy, db: AsyncDatabase[dict[str, Any]]
) -> AsyncIterator[AsyncDatabase[dict[str, Any]]]:
    """Give the test's database as seen through the proxy."""
    async with AsyncMongoClient[dict[str, Any]](proxy.uri) as client:
        yield client[db.name]
