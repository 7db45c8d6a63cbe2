"""The connection of a command to MongoDB."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import typer
from pymongo import AsyncMongoClient
from pymongo.errors import ConfigurationError

from monque_core.clock import ServerClock
from monque_core.display import brief_repr
from monque_core.monque import Monque
from monque_core.store.driver import Driver
from monque_core.store.leases import Leases
from monque_core.store.listing import selected
from monque_core.validation import has_surrogates

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine
    from datetime import datetime

    from pymongo.asynchronous.collection import AsyncCollection
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core.jobs.selector import JobSelector

_SERVER_SELECTION_MS = 3000
_STATS_CACHE_SECONDS = 0.05
"""Long enough for one snapshot to count once, short enough for the next to count again."""
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class GlobalOptions:
    """The options before the command."""

    uri: str | None
    database: str | None
    collection: str

    @classmethod
    def of(cls, context: typer.Context) -> GlobalOptions:
        """Return the global options of a command."""
        settings = context.obj
        assert isinstance(settings, GlobalOptions)
        return settings


@dataclass(frozen=True, slots=True)
class Connection:
    """An open connection to a collection of jobs."""

    db: AsyncDatabase[dict[str, Any]]
    jobs: AsyncCollection[dict[str, Any]]
    monque: Monque
    clock: ServerClock
    """Server time, after the first reply to `monque`."""

    def now(self) -> datetime:
        """Return the server time."""
        return self.clock.now()

    async def count(self, selector: JobSelector) -> int:
        """Count the jobs that a selector matches."""
        await self.monque.initialize()
        return await self.jobs.count_documents(selected(selector, self.now()))

    async def count_schedules(self, selector: JobSelector) -> int:
        """Count the recurring jobs that a selector matches."""
        await self.monque.initialize()
        is_recurring = {"repeatInterval": {"$ne": None}}
        return await self.jobs.count_documents(
            {"$and": [selected(selector, self.now()), is_recurring]}
        )


@asynccontextmanager
async def connected(
    settings: GlobalOptions, *, creates_indexes: bool = False
) -> AsyncIterator[Connection]:
    """Open a connection, without sending anything to MongoDB yet.

    Only commands that add jobs create indexes, so that reading never changes a collection.
    """
    async with _client(settings) as client:
        db = _database(client, settings)
        clock = ServerClock()
        try:
            monque = Monque(
                db,
                collection_name=settings.collection,
                recover_stale_jobs=False,
                skip_index_creation=not creates_indexes,
                stats_cache_ttl=_STATS_CACHE_SECONDS,
                clock=clock,
            )
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        yield Connection(db, db[settings.collection], monque, clock)


async def leader_of(db: AsyncDatabase[dict[str, Any]], collection: str) -> str | None:
    """Return the instance that currently plans reactive tasks; None without a leader."""
    from monque_core.store.tasks.planner_state import LEADER  # noqa: PLC0415  # slow

    lease = await Leases(Driver(db).collection(f"{collection}_meta")).read(LEADER)
    return None if lease is None or lease.is_expired else lease.holder


def run(work: Coroutine[Any, Any, R]) -> R:
    """Run the coroutine of a command."""
    return asyncio.run(work)


def _client(settings: GlobalOptions) -> AsyncMongoClient[dict[str, Any]]:
    if not settings.uri:
        raise typer.BadParameter(
            "no MongoDB is configured: set MONQUE_URI, for example to "
            "mongodb://localhost:27017/shop, "
            "or give --uri before the command; `monque local` starts a MongoDB for development"
        )
    limits: dict[str, Any] = {}
    if "serverselectiontimeoutms" not in settings.uri.lower():
        limits["serverSelectionTimeoutMS"] = _SERVER_SELECTION_MS
    try:
        return AsyncMongoClient(settings.uri, appname="monque", tz_aware=True, **limits)
    except (ConfigurationError, ValueError) as error:
        raise typer.BadParameter(f"the URI cannot be used: {error}") from None


def _database(
    client: AsyncMongoClient[dict[str, Any]], settings: GlobalOptions
) -> AsyncDatabase[dict[str, Any]]:
    if settings.database:
        if has_surrogates(settings.database):
            raise typer.BadParameter(
                f"the database name {brief_repr(settings.database)} is not valid: UTF-8 cannot "
                "encode it"
            )
        return client[settings.database]
    try:
        return client.get_default_database()
    except ConfigurationError:
        raise typer.BadParameter(
            "no database is configured: name it in the URI, as in mongodb://localhost:27017/shop, "
            "give --database, or set MONQUE_DATABASE"
        ) from None
