"""The two APIs of a producer: async and blocking."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from pymongo import AsyncMongoClient, MongoClient

from monque_core import Job, Monque, SyncMonque

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

TIMEOUTS: dict[str, Any] = {"serverSelectionTimeoutMS": 3000, "connectTimeoutMS": 3000}


class ProducerClient(Protocol):
    """What a producer makes its calls with."""

    @property
    def emitter(self) -> Monque | SyncMonque:
        """Return the instance that emits events."""
        ...

    @property
    def monque(self) -> Any:
        """Return an object with the methods of `Monque`, each to be awaited."""
        ...

    async def enqueue_in_transaction(self, name: str, data: object) -> Job[Any]:
        """Store a job in a transaction of its own."""
        ...


class AsyncProducerClient:
    """A `Monque` on the producer's own event loop."""

    def __init__(self, client: AsyncMongoClient[Any], database: str) -> None:
        self._client = client
        self.monque = self.emitter = Monque(client[database])

    async def enqueue_in_transaction(self, name: str, data: object) -> Job[Any]:
        """Store a job in a transaction of its own."""

        async def write(session: Any) -> Job[Any]:
            return await self.monque.enqueue(name, data, session=session)

        async with self._client.start_session() as session:
            return await session.with_transaction(write)


class ThreadedMethods:
    """The methods of a `SyncMonque`, each called in a thread, so that calls run concurrently."""

    def __init__(self, monque: SyncMonque) -> None:
        self._monque = monque

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        return partial(asyncio.to_thread, getattr(self._monque, name))


class BlockingProducerClient:
    """A `SyncMonque`, as a program without an event loop uses it."""

    def __init__(self, client: MongoClient[Any], database: str) -> None:
        self._client = client
        self.emitter = SyncMonque(client[database])
        self.monque = ThreadedMethods(self.emitter)

    async def enqueue_in_transaction(self, name: str, data: object) -> Job[Any]:
        """Store a job in a transaction of its own."""

        def write(session: Any) -> Job[Any]:
            return self.emitter.enqueue(name, data, session=session)

        def store() -> Job[Any]:
            with self._client.start_session() as session:
                return session.with_transaction(write)

        return await asyncio.to_thread(store)


@asynccontextmanager
async def open_client(handle: str, uri: str, database: str) -> AsyncIterator[ProducerClient]:
    """Yield a client of this kind; its instance is stopped at the end."""
    if handle == "async":
        async with AsyncMongoClient[Any](uri, **TIMEOUTS) as client:
            producer_client = AsyncProducerClient(client, database)
            yield producer_client
            await producer_client.monque.stop()
    else:
        blocking = MongoClient[Any](uri, **TIMEOUTS)
        try:
            blocking_client = BlockingProducerClient(blocking, database)
            yield blocking_client
            await blocking_client.monque.stop()
        finally:
            await asyncio.to_thread(blocking.close)
