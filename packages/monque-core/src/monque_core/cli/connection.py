"""The MongoDB that a command works on."""

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
from monque_core.texts import has_surrogates

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine
    from datetime import datetime

    from pymongo.asynchronous.collection import AsyncCollection
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core.jobs.selector import JobSelector

_SERVER_SELECTION_MS = 3000
_ONE_COUNT = 0.05
"""Seconds: two views of the same figures cost one count, two looks of `top` never do."""
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Settings:
    """The global options."""

    uri: str | None
    database: str | None
    collection: str

    @classmethod
    def of(cls, context: typer.Context) -> Settings:
        """Give those that the command was called with."""
        settings = context.obj
        assert isinstance(settings, Settings)
        return settings


@dataclass(frozen=True, slots=True)
class Connection:
    """An open connection, and the jobs behind it."""

    db: AsyncDatabase[dict[str, Any]]
    jobs: AsyncCollection[dict[str, Any]]
    monque: Monque
    clock: ServerClock
    """Server time, from the first answer of `monque` on."""

    def now(self) -> datetime:
        """Give server time."""
        return self.clock.now()

    async def count(self, selector: JobSelector) -> int:
        """Count the jobs that a selector chooses."""
        await self.monque.initialize()
        return await self.jobs.count_documents(selected(selector, self.now()))

    async def count_schedules(self, selector: JobSelector) -> int:
        """Count the recurring jobs that a selector chooses."""
        await self.monque.initialize()
        is_recurring = {"repeatInterval": {"$ne": None}}
        return await self.jobs.count_documents(
            {"$and": [selected(selector, self.now()), is_recurring]}
        )


@asynccontextmanager
async def connected(
    settings: Settings, *, creates_indexes: bool = False
) -> AsyncIterator[Connection]:
    """Open a connection; nothing is asked of MongoDB yet.

    Looking at jobs must not change a collection, so only what adds jobs creates indexes.
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
                stats_cache_ttl=_ONE_COUNT,
                clock=clock,
            )
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        yield Connection(db, db[settings.collection], monque, clock)


async def leader_of(db: AsyncDatabase[dict[str, Any]], collection: str) -> str | None:
    """Return the instance that plans reactive tasks at the moment, None if none does."""
    from monque_core.store.tasks.planner_state import LEADER  # noqa: PLC0415  # slow

    lease = await Leases(Driver(db).collection(f"{collection}_meta")).read(LEADER)
    return None if lease is None or lease.is_expired else lease.holder


def run(work: Coroutine[Any, Any, R]) -> R:
    """Do the work of a command."""
    return asyncio.run(work)


def _client(settings: Settings) -> AsyncMongoClient[dict[str, Any]]:
    if not settings.uri:
        raise typer.BadParameter(
            "no MongoDB is named: set MONQUE_URI, for example to mongodb://localhost:27017/shop, "
            "or name it before the command, as monque --uri …; `monque local` runs one of your own"
        )
    limits: dict[str, Any] = {}
    if "serverselectiontimeoutms" not in settings.uri.lower():
        limits["serverSelectionTimeoutMS"] = _SERVER_SELECTION_MS
    try:
        return AsyncMongoClient(settings.uri, appname="monque", tz_aware=True, **limits)
    except (ConfigurationError, ValueError) as error:
        raise typer.BadParameter(f"the URI cannot be used: {error}") from None


def _database(
    client: AsyncMongoClient[dict[str, Any]], settings: Settings
) -> AsyncDatabase[dict[str, Any]]:
    if settings.database:
        if has_surrogates(settings.database):
            raise typer.BadParameter(
                f"the database {brief_repr(settings.database)} cannot exist: UTF-8 cannot hold it"
            )
        return client[settings.database]
    try:
        return client.get_default_database()
    except ConfigurationError:
        raise typer.BadParameter(
            "no database is named: put it into the URI, as in mongodb://localhost:27017/shop, or "
            "give --database or set MONQUE_DATABASE"
        ) from None
