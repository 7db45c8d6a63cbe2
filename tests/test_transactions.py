"""Storing jobs as part of a transaction."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from pymongo.errors import OperationFailure

from monque_core import Monque
from tests.support.stored import stored_jobs

if TYPE_CHECKING:
    from collections.abc import Callable

    from motor.motor_asyncio import AsyncIOMotorDatabase
    from pymongo import AsyncMongoClient
    from pymongo.asynchronous.database import AsyncDatabase
    from pymongo.database import Database


async def test_jobs_are_stored_in_an_async_transaction(
    client: AsyncMongoClient[dict[str, Any]], db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(db)

    async def store(session: Any) -> None:
        await monque.enqueue("one", 1, session=session)
        await monque.enqueue("keyed", 2, unique_key="k", session=session)
        await monque.enqueue_many("many", range(3), session=session)
        await monque.enqueue_many("keyed-many", range(3), unique_key=str, session=session)
        await monque.schedule("@daily", "recurring", None, session=session)

    async with client.start_session() as session:
        async with await session.start_transaction():
            await store(session)
            assert await stored_jobs(db) == []
            await session.abort_transaction()
        assert await stored_jobs(db) == []

        await session.with_transaction(store)

    assert len(await stored_jobs(db)) == 9


async def test_jobs_are_stored_in_a_blocking_transaction(
    blocking_db: Database[dict[str, Any]], db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(blocking_db)
    with blocking_db.client.start_session() as session:
        for ends in (session.abort_transaction, session.commit_transaction):
            session.start_transaction()
            await monque.enqueue("one", 1, session=session)
            await monque.enqueue("keyed", 2, unique_key="k", session=session)
            await monque.enqueue_many("many", range(3), session=session)
            await monque.enqueue_many("keyed-many", range(3), unique_key=str, session=session)
            await monque.schedule("@daily", "recurring", None, session=session)
            assert await stored_jobs(db) == []
            await asyncio.to_thread(ends)
    await monque.stop()

    assert len(await stored_jobs(db)) == 9


async def test_jobs_are_stored_in_a_motor_transaction(
    motor_db: AsyncIOMotorDatabase[dict[str, Any]], db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(motor_db)
    async with await motor_db.client.start_session() as session:
        for ends in (session.abort_transaction, session.commit_transaction):
            session.start_transaction()
            await monque.enqueue("one", 1, session=session)
            await monque.enqueue("keyed", 2, unique_key="k", session=session)
            await monque.schedule("@daily", "recurring", None, session=session)
            assert await stored_jobs(db) == []
            await ends()
    await monque.stop()

    assert len(await stored_jobs(db)) == 3


STORING_KEYED: dict[str, Callable[[Monque, Any], Any]] = {
    "enqueue": lambda monque, session: monque.enqueue(
        "keyed", "mine", unique_key="k", session=session
    ),
    "enqueue_many": lambda monque, session: monque.enqueue_many(
        "keyed", ["mine"], unique_key="k", session=session
    ),
    "schedule": lambda monque, session: monque.schedule(
        "@daily", "keyed", "mine", unique_key="k", session=session
    ),
}


@pytest.mark.parametrize("store", STORING_KEYED.values(), ids=STORING_KEYED.keys())
async def test_a_conflict_in_a_transaction_is_raised_with_the_driver_s_label(
    client: AsyncMongoClient[dict[str, Any]],
    db: AsyncDatabase[dict[str, Any]],
    store: Callable[[Monque, Any], Any],
) -> None:
    monque = Monque(db)
    await monque.initialize()
    async with client.start_session() as session:
        async with await session.start_transaction():
            # The snapshot of the transaction begins with its first read.
            await db.anything.find_one(session=session)
            theirs = await monque.enqueue("keyed", "theirs", unique_key="k")
            with pytest.raises(OperationFailure) as raised:
                await store(monque, session)
            await session.abort_transaction()
        assert raised.value.has_error_label("TransientTransactionError")

        # The error label lets the driver start the transaction again.
        attempts = []

        async def attempt(session: Any) -> Any:
            attempts.append(session)
            return await store(monque, session)

        again = await session.with_transaction(attempt)

    (found,) = await stored_jobs(db)
    assert found.id == theirs.id
    assert len(attempts) == 1
    assert (again[0] if isinstance(again, list) else again).deduplicated
