"""Preparation of the store by an instance, and the names of its collections."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pymongo import AsyncMongoClient

from monque_core import MonqueConnectionError
from monque_core.store import store as store_module
from tests.support.proxy import Proxy
from tests.support.samples import a_job
from tests.support.stores import open_store

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core.store.store import Store
    from tests.conftest import AnyDatabase

    Db = AsyncDatabase[dict[str, Any]]


async def test_the_server_s_clock_is_read(db: Db, store: Store) -> None:
    before, hello = time.monotonic_ns(), await db.command("hello")
    read = await store.prepare()
    assert before <= read.asked_ns <= read.answered_ns <= time.monotonic_ns()
    elapsed = read.instant - hello["localTime"].replace(tzinfo=UTC)
    assert timedelta(0) <= elapsed < timedelta(seconds=20)


async def test_a_server_that_is_too_old_is_refused(db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "_MONGODB_6_0_WIRE_VERSION", 10**6)
    version = (await db.command("buildInfo"))["version"]
    with pytest.raises(
        MonqueConnectionError,
        match=rf"^MongoDB 6\.0 or newer is needed; this server is {version}$",
    ):
        await open_store(db)


async def test_jobs_and_leases_are_in_collections_of_their_own(any_db: AnyDatabase, db: Db) -> None:
    store = await open_store(any_db, collection_name="errands", skip_index_creation=True)
    await store.inserts.insert_alike([a_job()], None)
    await store.leases.take("retention", "me", timedelta(minutes=1))
    await store.dismiss_threads()
    assert set(await db.list_collection_names()) == {"errands", "errands_meta"}


async def test_a_slow_reading_of_the_clock_is_repeated(uri: str, db: Db) -> None:
    async with Proxy(uri) as proxy, AsyncMongoClient[dict[str, Any]](proxy.uri) as client:
        store = await open_store(client[db.name])
        reading = proxy.strike(
            "hold reply", lambda sent: "hello" in sent and sent["$db"] == db.name
        )
        preparing = asyncio.create_task(store.prepare())
        await reading.strikes()
        await asyncio.sleep(0.2)
        reading.release()
        assert (await preparing).took_ns < 200_000_000
