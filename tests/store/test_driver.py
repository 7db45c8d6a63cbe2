"""One async interface to every kind of database handle."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from bson import DatetimeMS, Decimal128
from bson.codec_options import CodecOptions, TypeCodec, TypeRegistry
from bson.son import SON
from pymongo import (
    AsyncMongoClient,
    DeleteOne,
    MongoClient,
    ReadPreference,
    UpdateMany,
    UpdateOne,
    WriteConcern,
)
from pymongo.errors import (
    AutoReconnect,
    BulkWriteError,
    DuplicateKeyError,
    OperationFailure,
    WriteConcernError,
)
from pymongo.read_concern import ReadConcern

from monque_core import MonqueConnectionError
from monque_core.store.driver import Driver
from monque_core.store.handles import native_session
from tests.support.commands import CommandLog
from tests.support.samples import NOW

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from motor.motor_asyncio import AsyncIOMotorDatabase
    from pymongo.asynchronous.database import AsyncDatabase
    from pymongo.database import Database

    from tests.conftest import AnyDatabase

    Db = AsyncDatabase[dict[str, Any]]


@pytest.fixture
async def handle(any_db: AnyDatabase) -> AsyncIterator[Driver]:
    """Return a handle of each kind of database."""
    handle = Driver(any_db)
    yield handle
    await handle.dismiss_threads()


class TestDatabase:
    async def test_may_be_of_any_kind(self, handle: Driver) -> None:
        assert (await handle.command("ping"))["ok"] == 1

    async def test_is_blocking_unless_it_is_async(
        self,
        db: Db,
        blocking_db: Database[dict[str, Any]],
        motor_db: AsyncIOMotorDatabase[dict[str, Any]],
    ) -> None:
        assert not Driver(db).is_blocking
        assert Driver(blocking_db).is_blocking
        assert Driver(motor_db).is_blocking

    async def test_of_motor_is_unwrapped(
        self, motor_db: AsyncIOMotorDatabase[dict[str, Any]]
    ) -> None:
        assert Driver(motor_db).native is motor_db.delegate

    @pytest.mark.parametrize("stranger", [None, "mongodb://localhost", 5, {"db": 1}, object()])
    def test_that_is_none_is_refused_with_what_is_accepted_and_what_came(
        self, stranger: object
    ) -> None:
        with pytest.raises(TypeError) as caught:
            Driver(stranger)
        kind = type(stranger)
        assert str(caught.value) == (
            "db must be a PyMongo AsyncDatabase, a PyMongo Database or a Motor database, "
            f"not {kind.__module__}.{kind.__qualname__}"
        )

    async def test_that_is_a_client_is_refused_with_what_to_do(
        self, client: AsyncMongoClient[dict[str, Any]], uri: str
    ) -> None:
        with MongoClient[dict[str, Any]](uri) as blocking:
            for stranger in (client, blocking):
                with pytest.raises(
                    TypeError, match=r"MongoClient; call client\['name'\] or .* for a database$"
                ):
                    Driver(stranger)

    async def test_that_is_a_collection_is_refused(
        self, db: Db, motor_db: AsyncIOMotorDatabase[dict[str, Any]]
    ) -> None:
        for stranger in (db["monque_jobs"], motor_db["monque_jobs"], motor_db.client):
            with pytest.raises(TypeError, match=r"^db must be a PyMongo AsyncDatabase"):
                Driver(stranger)

    async def test_that_confirms_nothing_is_refused(self, db: Db) -> None:
        deaf = db.with_options(write_concern=WriteConcern(w=0))
        with pytest.raises(ValueError, match=r"has write concern \{'w': 0\}: .* cannot be used"):
            Driver(deaf)


class TestOptions:
    async def test_of_writing_are_those_of_the_database(self, db: Db) -> None:
        concern = WriteConcern(w=1, j=True)
        collection = Driver(db.with_options(write_concern=concern)).collection("monque_jobs")
        assert collection.native.write_concern == concern
        assert Driver(db).collection("monque_jobs").native.write_concern == db.write_concern

    async def test_of_reading_are_our_own(self, db: Db) -> None:
        lax = db.with_options(
            read_preference=ReadPreference.SECONDARY_PREFERRED,
            read_concern=ReadConcern("available"),
        )
        native = Driver(lax).collection("monque_jobs").native
        assert native.read_preference == ReadPreference.PRIMARY
        assert native.read_concern == ReadConcern("local")

    async def test_make_every_time_aware(self, handle: Driver) -> None:
        collection = handle.collection("things")
        await collection.insert_one({"_id": 1, "at": NOW})
        (document,) = await collection.find({"_id": 1})
        assert document["at"] == NOW
        assert document["at"].tzinfo is UTC

    async def test_make_plain_dicts(self, db: Db) -> None:
        odd = db.with_options(codec_options=CodecOptions(document_class=SON))
        collection = Driver(odd).collection("things")
        await collection.insert_one({"_id": 1, "inner": {"a": 1}})
        (document,) = await collection.find({"_id": 1})
        assert (type(document), type(document["inner"])) == (dict, dict)

    async def test_keep_the_types_of_the_user(self, db: Db) -> None:
        class DecimalCodec(TypeCodec):
            python_type = Decimal
            bson_type = Decimal128

            def transform_python(self, value: Any) -> Any:
                return Decimal128(value)

            def transform_bson(self, value: Any) -> Any:
                return value.to_decimal()

        registry = TypeRegistry([DecimalCodec()])
        rich: Db = db.with_options(codec_options=CodecOptions(type_registry=registry))
        collection = Driver(rich).collection("things")
        await collection.insert_one({"_id": 1, "price": Decimal("9.99")})
        assert await collection.find({"_id": 1}) == [{"_id": 1, "price": Decimal("9.99")}]

    async def test_survive_a_time_that_python_does_not_have(self, handle: Driver) -> None:
        collection = handle.collection("things")
        await collection.insert_one({"_id": 1, "at": DatetimeMS(2**61)})
        (document,) = await collection.find({"_id": 1})
        assert document == {"_id": 1, "at": DatetimeMS(2**61)}


class TestThreads:
    async def test_are_where_a_blocking_database_is_driven(
        self, uri: str, database_name: str
    ) -> None:
        log, threads = CommandLog(), set[threading.Thread]()
        log.on_sending = lambda *_: threads.add(threading.current_thread())
        with MongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
            handle = Driver(client[database_name])
            collection = handle.collection("things")
            await collection.insert_many([{"_id": n} for n in range(3)])
            assert len(await collection.find({})) == 3
            assert len(await collection.aggregate([{"$match": {}}])) == 3
            stream = await collection.watch([], 100)
            await collection.next_change(stream)
            await collection.close(stream)
            await handle.dismiss_threads()
            assert {"insert", "find", "aggregate", "getMore"} <= log.count().keys()
            assert {thread.name for thread in threads} == {"monque-mongo-1"}

    async def test_are_none_for_an_async_database(self, db: Db) -> None:
        handle = Driver(db)
        await asyncio.gather(*(handle.command("ping") for _ in range(10)))
        names = [thread.name for thread in threading.enumerate()]
        assert not [name for name in names if name.startswith("monque-mongo")]

    async def test_are_gone_when_dismissed(self, blocking_db: Database[dict[str, Any]]) -> None:
        handle = Driver(blocking_db)
        await asyncio.gather(*(handle.command("ping") for _ in range(10)))
        await handle.dismiss_threads()
        names = [thread.name for thread in threading.enumerate()]
        assert not [name for name in names if name.startswith("monque-mongo")]
        assert (await handle.command("ping"))["ok"] == 1
        await handle.dismiss_threads()


class TestCollection:
    """The same behavior for every kind of database."""

    async def test_inserts_and_finds(self, handle: Driver) -> None:
        collection = handle.collection("things")
        await collection.insert_one({"_id": 1, "a": 1})
        await collection.insert_many([{"_id": 2, "a": 2}, {"_id": 3, "a": 2}])
        assert await collection.find({"a": 2}, sort=[("_id", -1)], limit=1) == [{"_id": 3, "a": 2}]
        assert await collection.find({"_id": 9}) == []
        assert await collection.find_one({"_id": 1}) == {"_id": 1, "a": 1}
        assert await collection.find_one({"_id": 9}) is None
        assert await collection.distinct("a", {}) == [1, 2]
        assert await collection.aggregate([{"$match": {"a": 1}}]) == [{"_id": 1, "a": 1}]

    async def test_does_something_while_the_server_is_at_work(self, handle: Driver) -> None:
        collection = handle.collection("things")
        insertion = collection.insert_one({"_id": 1})
        assert await collection.meanwhile(insertion, lambda: "done") == "done"
        assert await collection.find({}) == [{"_id": 1}]

    async def test_raises_what_was_refused_meanwhile(self, handle: Driver) -> None:
        collection = handle.collection("things")
        await collection.insert_one({"_id": 1})
        done: list[bool] = []
        with pytest.raises(DuplicateKeyError):
            await collection.meanwhile(collection.insert_one({"_id": 1}), lambda: done.append(True))
        assert done == [True]

    @pytest.mark.parametrize("turns", [0, 1, 2])
    async def test_leaves_nothing_running_when_it_is_cancelled(
        self, handle: Driver, turns: int
    ) -> None:
        collection = handle.collection("things")

        async def reply() -> None:
            await asyncio.Event().wait()

        before = asyncio.all_tasks()
        call = asyncio.create_task(collection.meanwhile(reply(), lambda: None))
        for _ in range(turns + 1):
            await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert asyncio.all_tasks() == before

    async def test_finds_more_than_a_reply_holds(self, handle: Driver) -> None:
        collection = handle.collection("things")
        await collection.insert_many([{"_id": n} for n in range(6000)])
        assert len(await collection.find({})) == 6000
        assert len(await collection.aggregate([{"$match": {}}])) == 6000

    async def test_updates_and_tells_how_many_matched(self, handle: Driver) -> None:
        collection = handle.collection("things")
        await collection.insert_many([{"_id": n, "a": 0} for n in range(3)])
        assert await collection.update_one({"a": 0}, {"$set": {"a": 1}}) == 1
        assert await collection.update_many({"a": 0}, {"$set": {"a": 0}}) == 2
        assert await collection.update_one({"_id": 9}, {"$set": {"a": 1}}) == 0
        assert await collection.find_one_and_update({"_id": 2}, {"$set": {"a": 5}}) == {
            "_id": 2,
            "a": 5,
        }
        assert await collection.find_one_and_update({"_id": 9}, {"$set": {"a": 5}}) is None

    async def test_deletes_and_tells_how_many(self, handle: Driver) -> None:
        collection = handle.collection("things")
        await collection.insert_many([{"_id": n} for n in range(5)])
        assert await collection.delete_one({"_id": 0}) == 1
        assert await collection.delete_many({}) == 4

    async def test_writes_in_bulk_past_what_fails(self, handle: Driver) -> None:
        collection = handle.collection("things")
        await collection.insert_many([{"_id": n} for n in range(3)])
        matched, upserted = await collection.bulk_write(
            [
                UpdateMany({}, {"$set": {"a": 1}}),
                UpdateOne({"_id": 7}, {"$set": {"a": 1}}, upsert=True),
                DeleteOne({"_id": 99}),
            ]
        )
        assert (matched, upserted) in [(3, {1: 7}), (4, {1: 7})]

    async def test_raises_what_the_driver_raises(self, handle: Driver) -> None:
        collection = handle.collection("things")
        await collection.insert_one({"_id": 1})
        with pytest.raises(DuplicateKeyError):
            await collection.insert_one({"_id": 1})


class TestConnection:
    """Errors of a driver that cannot reach MongoDB, simulated; tests/faults has real ones."""

    @pytest.fixture
    def broken_off(self, handle: Driver) -> Callable[..., Any]:
        """Return a driver method that finds no server."""

        def fail(**_: object) -> None:
            raise AutoReconnect("connection refused")

        async def fail_later(**_: object) -> None:
            fail()

        return fail if handle.is_blocking else fail_later

    async def test_that_is_lost_is_noted_and_told_with_its_cause(
        self, handle: Driver, broken_off: Callable[..., Any]
    ) -> None:
        with pytest.raises(
            MonqueConnectionError, match=r"^MongoDB cannot be reached: connection refused$"
        ) as caught:
            await handle.call(broken_off)
        assert isinstance(caught.value.__cause__, AutoReconnect)
        assert (handle.connectivity.is_lost, handle.connectivity.outages) == (True, 1)
        await handle.command("ping")
        assert not handle.connectivity.is_lost

    async def test_that_is_lost_in_a_transaction_is_the_drivers_own_error(
        self,
        handle: Driver,
        broken_off: Callable[..., Any],
        client: AsyncMongoClient[dict[str, Any]],
    ) -> None:
        async with client.start_session() as session:
            with pytest.raises(AutoReconnect, match=r"^connection refused$"):
                await handle.call(broken_off, session=session)
        assert handle.connectivity.is_lost

    @pytest.mark.parametrize(
        "error",
        [
            OperationFailure("shutting down", 91, {"code": 91}),
            OperationFailure("stepping down", 11602, {"code": 11602}),
            WriteConcernError("not confirmed", 64, {"writeConcernError": {"code": 91}}),
            BulkWriteError({"writeErrors": [], "writeConcernErrors": [{"code": 11602}]}),
            RuntimeError("Lock is not acquired"),
        ],
    )
    async def test_to_a_server_that_is_going_away_counts_as_lost(
        self, db: Db, error: Exception
    ) -> None:
        async def go_away() -> None:
            raise error

        handle = Driver(db)
        with pytest.raises(MonqueConnectionError, match="MongoDB cannot be reached") as caught:
            await handle.call(go_away)
        assert caught.value.__cause__ is error
        assert handle.connectivity.is_lost

    @pytest.mark.parametrize(
        "error",
        [
            OperationFailure("unauthorized", 13),
            DuplicateKeyError("twice", 11000, {"code": 11000}),
            WriteConcernError("not confirmed in time", 64, {"writeConcernError": {"code": 64}}),
            ValueError("nonsense"),
            RuntimeError("generator raised StopIteration"),
        ],
    )
    async def test_is_not_lost_for_any_other_error(self, db: Db, error: Exception) -> None:
        async def refuse() -> None:
            raise error

        handle = Driver(db)
        with pytest.raises(type(error)) as caught:
            await handle.call(refuse)
        assert caught.value is error
        assert not handle.connectivity.is_lost

    async def test_that_holds_is_noted(self, handle: Driver) -> None:
        await handle.command("ping")
        assert handle.connectivity.age < 5
        assert not handle.connectivity.is_lost

    @pytest.mark.parametrize(
        ("options", "limit"),
        [({}, None), ({"socketTimeoutMS": 5000}, 5), ({"timeoutMS": 2000}, 2)],
    )
    async def test_knows_the_limit_on_a_reply(
        self, uri: str, options: dict[str, Any], limit: float | None
    ) -> None:
        async with AsyncMongoClient[dict[str, Any]](uri, **options) as client:
            assert Driver(client["things"]).socket_timeout == limit


class TestSession:
    async def test_of_any_kind_is_accepted(
        self,
        client: AsyncMongoClient[dict[str, Any]],
        blocking_db: Database[dict[str, Any]],
        motor_db: AsyncIOMotorDatabase[dict[str, Any]],
    ) -> None:
        assert native_session(None) is None
        async with client.start_session() as session:
            assert native_session(session) is session
        with blocking_db.client.start_session() as blocking:
            assert native_session(blocking) is blocking
        async with await motor_db.client.start_session() as motors:
            assert native_session(motors) is motors.delegate

    def test_that_is_none_is_refused(self) -> None:
        with pytest.raises(
            TypeError, match=r"^session must be a PyMongo or Motor client session, not str$"
        ):
            native_session("session")
