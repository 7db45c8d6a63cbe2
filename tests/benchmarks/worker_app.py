"""The application that `monque worker` runs: no-op jobs, started at the start barrier."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from pymongo import AsyncMongoClient

from monque_core import Monque
from tests.benchmarks import raw, start_barrier

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from monque_core import Job

CONCURRENCY = 20


@asynccontextmanager
async def coroutines() -> AsyncIterator[Monque]:
    """Yield an instance with a coroutine handler."""

    async def do_nothing(_: Job[object]) -> None: ...

    async with _connect() as monque:
        monque.worker(raw.NAME, do_nothing, concurrency=CONCURRENCY)
        yield monque


@asynccontextmanager
async def threads() -> AsyncIterator[Monque]:
    """Yield an instance whose handler runs in threads."""

    def do_nothing(_: Job[object]) -> None: ...

    async with _connect() as monque:
        monque.worker(raw.NAME, do_nothing, concurrency=CONCURRENCY)
        yield monque


@asynccontextmanager
async def _connect() -> AsyncIterator[Monque]:
    """Connect and initialize before the start barrier, so that only `start` is measured."""
    async with AsyncMongoClient[dict[str, Any]](os.environ["MONQUE_URI"]) as client:
        db = client[os.environ["MONQUE_DATABASE"]]
        monque = Monque(db)
        await monque.initialize()
        await start_barrier.wait(db)
        yield monque
