"""The connection of the examples to MongoDB."""

import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

from pymongo import AsyncMongoClient
from pymongo.asynchronous.database import AsyncDatabase

from monque_core import LocalMongo


def mongodb_uri() -> Iterator[str]:
    """Yield MONGODB_URI or, if it is not set, the URI of a temporary server."""
    if "MONGODB_URI" in os.environ:
        yield os.environ["MONGODB_URI"]
    else:
        with LocalMongo() as mongo:
            yield mongo.uri


async def connect(uri: str) -> AsyncIterator[AsyncDatabase[dict[str, Any]]]:
    """Yield the database that the URI names, or "shop"."""
    async with AsyncMongoClient[dict[str, Any]](uri) as client:
        yield client.get_default_database("shop")
