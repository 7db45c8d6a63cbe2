"""The two ways in for a producer: on an event loop, and blocking."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from pymongo import AsyncMongoClient, MongoClient

from monque_core import Job, Monque, SyncMonque

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

PATIENCE: dict[str, Any] = {"serverSelectionTimeoutMS": 3000, "connectTimeoutMS": 3000}


class Door(Protocol):
    """What a producer goes through."""

    @property
    def listening(self) -> Monque | SyncMonque:
        """Give what has listeners."""
        ...

    @property
    def monque(self) -> Any:
        """Give what has the methods of a `Monque`, each to be awaited."""
        ...

    async def enqueue_in_transaction(self, name: str, data: object) -> Job[Any]:
        """Store a job in a transaction of its own."""
        ...


class LoopDoor:
    """A `Monque` on the producer's own event loop."""

    def __init__(self, client: AsyncMongoClient[Any], database: str) -> None:
        self._client = client
        self.monque = self.listening = Monque(client[database])

    async def enqueue_in_transaction(self, name: str, data: object) -> Job[Any]:
        """Store a job in a transaction of its own."""

        async def write(session: Any) -> Job[Any]:
            return await self.monque.enqueue(name, data, session=session)

        async with self._client.start_session() as session:
            return await session.with_transaction(write)


class InThreads:
    """The methods of a `SyncMonque`, each called in a thread, so that several are under way."""

    def __init__(self, monque: SyncMonque) -> None:
        self._monque = monque

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        return partial(asyncio.to_thread, getattr(self._monque, name))


class BlockingDoor:
    """A `SyncMonque`, as a program without an event loop has it."""

    def __init__(self, client: MongoClient[Any], database: str) -> None:
        self._client = client
        self.listening = SyncMonque(client[database])
        self.monque = InThreads(self.listening)

    async def enqueue_in_transaction(self, name: str, data: object) -> Job[Any]:
        """Store a job in a transaction of its own."""

        def write(session: Any) -> Job[Any]:
            return self.listening.enqueue(name, data, session=session)

        def store() -> Job[Any]:
            with self._client.start_session() as session:
                return session.with_transaction(write)

        return await asyncio.to_thread(store)


@asynccontextmanager
async def opened(handle: str, uri: str, database: str) -> AsyncIterator[Door]:
    """Open the door of that kind; what goes through it is stopped when it closes."""
    if handle == "async":
        async with AsyncMongoClient[Any](uri, **PATIENCE) as client:
            door = LoopDoor(client, database)
            yield door
            await door.monque.stop()
    else:
        blocking = MongoClient[Any](uri, **PATIENCE)
        try:
            blocking_door = BlockingDoor(blocking, database)
            yield blocking_door
            await blocking_door.monque.stop()
        finally:
            await asyncio.to_thread(blocking.close)
