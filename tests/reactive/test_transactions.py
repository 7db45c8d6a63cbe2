"""Runs that complete in the handler's own transaction."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from pymongo.errors import OperationFailure

from monque_core import Monque, OwnershipLostError, ReactiveOptions, ReactiveTask, SyncReactiveTask
from tests.support.happenings import Happenings
from tests.support.reactions import record_of, settle
from tests.support.tally import Tally

if TYPE_CHECKING:
    from pymongo import AsyncMongoClient
    from pymongo.asynchronous.client_session import AsyncClientSession
    from pymongo.asynchronous.collection import AsyncCollection
    from pymongo.asynchronous.database import AsyncDatabase
    from pymongo.database import Database

    Orders = AsyncCollection[dict[str, Any]]
    Client = AsyncMongoClient[dict[str, Any]]
    Db = AsyncDatabase[dict[str, Any]]


@pytest.fixture(autouse=True)
async def invoices(db: Db) -> AsyncCollection[dict[str, Any]]:
    """Return the collection that the transactions write to."""
    return await db.create_collection("invoices")


async def test_the_work_and_its_completion_are_atomic(
    monque: Monque, db: Db, client: Client, orders: Orders
) -> None:
    happenings = Happenings(monque)

    @monque.reactive("orders", name="invoice", debounce=0)
    async def invoice(task: ReactiveTask) -> None:
        async def write(session: AsyncClientSession) -> None:
            order = await task.document(session=session)
            await db.invoices.insert_one({"order": order["_id"]}, session=session)
            await task.complete(session=session)

        async with client.start_session() as session:
            await session.with_transaction(write)

    async with monque:
        await orders.insert_one({"_id": 1})
        await settle(monque)
        record = await record_of(monque)
    assert (record.status, record.attempts) == ("completed", 1)
    assert [entry.status for entry in record.history] == ["completed"]
    assert record.last_success is not None
    assert await db.invoices.count_documents({"order": 1}) == 1
    assert happenings.names.count("task:complete") == 1
    assert not happenings.of("task:error")


async def test_a_transaction_that_the_driver_retries_completes_once(
    monque: Monque, db: Db, client: Client, orders: Orders
) -> None:
    happenings, attempts = Happenings(monque), Tally[None]()

    @monque.reactive("orders", name="invoice", debounce=0)
    async def invoice(task: ReactiveTask) -> None:
        async def write(session: AsyncClientSession) -> None:
            attempts.add(None)
            await task.complete(session=session)
            await db.invoices.insert_one({"order": task.source_id}, session=session)
            if len(attempts) < 3:
                # The error with which a server allows the whole transaction to be retried.
                raise OperationFailure(
                    "try again", 112, {"errorLabels": ["TransientTransactionError"]}
                )

        async with client.start_session() as session:
            await session.with_transaction(write)

    async with monque:
        await orders.insert_one({"_id": 1})
        await settle(monque)
        record = await record_of(monque)
    assert len(attempts) == 3
    assert (record.status, record.attempts) == ("completed", 1)
    assert [entry.status for entry in record.history] == ["completed"]
    assert await db.invoices.count_documents({}) == 1
    assert happenings.names.count("task:complete") == 1
    assert not happenings.of("task:error")


async def test_an_aborted_completion_has_no_effect(
    monque: Monque, db: Db, client: Client, orders: Orders
) -> None:
    happenings = Happenings(monque)

    @monque.reactive("orders", name="invoice", debounce=0)
    async def invoice(task: ReactiveTask) -> None:
        async with client.start_session() as session, await session.start_transaction():
            await db.invoices.insert_one({"order": task.source_id}, session=session)
            await task.complete(session=session)
            raise OSError("no paper")

    async with monque:
        await orders.insert_one({"_id": 1})
        await settle(monque)
        record = await record_of(monque)
    assert (record.status, record.last_error) == ("pending", "OSError: no paper")
    assert [entry.status for entry in record.history] == ["failed"]
    assert await db.invoices.count_documents({}) == 0
    assert [event.will_retry for event in happenings.of("task:fail")] == [True]


async def test_a_committed_completion_survives_a_later_exception(
    monque: Monque, client: Client, orders: Orders
) -> None:
    happenings = Happenings(monque)
    error = OSError("afterwards")

    @monque.reactive("orders", name="invoice", debounce=0)
    async def invoice(task: ReactiveTask) -> None:
        async with client.start_session() as session, await session.start_transaction():
            await task.complete(session=session)
        raise error

    async with monque:
        await orders.insert_one({"_id": 1})
        await settle(monque)
        record = await record_of(monque)
    assert (record.status, record.attempts, record.last_error) == ("completed", 1, None)
    assert [event.task.source_id for event in happenings.of("task:complete")] == [1]
    assert [event.error for event in happenings.of("task:error")] == [error]
    assert not happenings.of("task:fail")


QUICK_LOCKS = ReactiveOptions(flush_interval=0.01, visibility_timeout=2)


async def test_renewals_leave_an_open_transaction_alone_and_keep_the_other_runs(
    db: Db, client: Client, orders: Orders
) -> None:
    monque = Monque(db, reactive_options=QUICK_LOCKS)
    happenings, runs = Happenings(monque), Tally[str]()

    @monque.reactive("orders", name="invoice", debounce=0)
    async def invoice(task: ReactiveTask) -> None:
        runs.add(task.source_id)
        if task.source_id == "waits":
            await _for_seconds(3)
            return
        async with client.start_session() as session, await session.start_transaction():
            await db.invoices.insert_one({"order": task.source_id}, session=session)
            await task.complete(session=session)
            # Three renewals: one that met the transaction would wait for it or abort it.
            await _for_seconds(1.3)

    async with monque:
        await orders.insert_many([{"_id": "commits"}, {"_id": "waits"}])
        await happenings.reach("task:complete", 2)
        await settle(monque)
    assert sorted(runs) == ["commits", "waits"]
    assert await db.invoices.count_documents({}) == 1
    assert not happenings.of("task:error")


@pytest.mark.parametrize("end", ["commits", "aborts"])
async def test_a_handler_that_continues_after_its_transaction_runs_once(
    db: Db, client: Client, orders: Orders, end: str
) -> None:
    monque, other = (Monque(db, reactive_options=QUICK_LOCKS) for _ in range(2))
    happenings, others = Happenings(monque), Happenings(other)
    runs, ends = Tally[str](), Tally[str]()

    async def invoice(task: ReactiveTask) -> None:
        runs.add("runs")
        async with client.start_session() as session:
            await session.start_transaction()
            await task.complete(session=session)
            if end == "commits":
                await session.commit_transaction()
            else:
                await session.abort_transaction()
        await _for_seconds(3)
        ends.add("ended")

    for instance in (monque, other):
        instance.reactive("orders", invoice, name="invoice", debounce=0)
    async with monque, other:
        await orders.insert_one({"_id": 1})
        await ends.reach(1)
        await settle(monque)
        await settle(other)
        record = await record_of(monque)
    assert (runs, ends) == (["runs"], ["ended"])
    assert (record.status, record.attempts) == ("completed", 1)
    assert not happenings.of("task:error")
    assert not others.of("task:error")


async def test_a_change_during_the_transaction_is_not_lost(
    monque: Monque, client: Client, orders: Orders
) -> None:
    seen = Tally[Any]()

    @monque.reactive("orders", name="invoice", debounce=0)
    async def invoice(task: ReactiveTask) -> None:
        seen.add(task.values)
        async with client.start_session() as session, await session.start_transaction():
            await task.document(session=session)
            if len(seen) == 1:
                await orders.update_one({"_id": 1}, {"$set": {"total": 2}})
            await task.complete(session=session)

    async with monque:
        await orders.insert_one({"_id": 1, "total": 1})
        await seen.wait_until(lambda: {"total": 2} in seen)
        await settle(monque)
        assert (await record_of(monque)).status == "completed"
    assert seen == [{"total": 1}, {"total": 2}]


async def test_completing_a_lost_claim_raises_and_aborts(
    monque: Monque, db: Db, client: Client, orders: Orders
) -> None:
    raised = Tally[BaseException]()

    @monque.reactive("orders", name="invoice", debounce=0)
    async def invoice(task: ReactiveTask) -> None:
        # As if the lock had expired and another instance had taken over.
        await db.orders_tasks.update_one({}, {"$set": {"claimedBy": "x", "claimToken": task.id}})
        try:
            async with client.start_session() as session, await session.start_transaction():
                await db.invoices.insert_one({"order": task.source_id}, session=session)
                await task.complete(session=session)
        except OwnershipLostError as error:
            raised.add(error)

    async with monque:
        await orders.insert_one({"_id": 1})
        await raised.reach(1)
        await settle(monque)
        record = await record_of(monque)
    assert (record.status, record.claimed_by) == ("processing", "x")
    assert await db.invoices.count_documents({}) == 0


async def test_completing_without_a_session_is_refused(monque: Monque, orders: Orders) -> None:
    told = Tally[str]()

    @monque.reactive("orders", name="invoice", debounce=0)
    async def invoice(task: ReactiveTask) -> None:
        for nonsense in (None, "session"):
            with pytest.raises(TypeError) as refused:
                await task.complete(session=nonsense)
            told.add(str(refused.value))

    async with monque:
        await orders.insert_one({"_id": 1})
        await settle(monque)
        assert (await record_of(monque)).status == "completed"
    assert all("session" in message for message in told)
    assert len(told) == 2


async def test_a_def_handler_completes_in_a_blocking_transaction(
    blocking_db: Database[dict[str, Any]], orders: Orders
) -> None:
    monque = Monque(blocking_db)
    happenings = Happenings(monque)

    @monque.reactive("orders", name="invoice", debounce=0)
    def invoice(task: SyncReactiveTask) -> None:
        with blocking_db.client.start_session() as session, session.start_transaction():
            task.document(session=session)
            blocking_db.invoices.insert_one({"order": task.source_id}, session=session)
            task.complete(session=session)

    async with monque:
        await orders.insert_one({"_id": 1})
        await happenings.reach("task:complete")
        assert (await record_of(monque)).status == "completed"
    assert blocking_db.invoices.count_documents({"order": 1}) == 1
    assert not happenings.of("task:error")


async def _for_seconds(seconds: float) -> None:
    await asyncio.sleep(seconds)
