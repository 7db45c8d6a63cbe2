"""Source collections: every change, every id, and each document unchanged."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from bson import Binary, Code, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Timestamp
from pymongo import AsyncMongoClient, MongoClient
from pymongo.errors import OperationFailure

from monque_core.errors import MonqueConnectionError
from monque_core.local import LocalMongo
from monque_core.local.binary import find_mongod
from monque_core.store.change_stream import ChangeStreamUnavailableError
from monque_core.store.driver import Driver
from monque_core.store.tasks.source_collections import HistoryLostError, LastId, SourceCollections
from tests.support.commands import CommandLog
from tests.support.plans import Plans, assert_tight
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core.store.tasks.source_collections import SourceStream
    from tests.conftest import AnyDatabase

    Db = AsyncDatabase[dict[str, Any]]

MOMENT = timedelta(milliseconds=100)
IDS: list[Any] = [
    MinKey(),
    None,
    float("nan"),
    -1.5,
    Int64(2**60),
    Decimal128("3.25"),
    7,
    float("inf"),
    "",
    "$a",
    "b",
    {},
    {"a": 1},
    {"a": "$b", "c": {"d": None}},
    DBRef("orders", 1),
    b"x",
    Binary(UUID(int=5).bytes, 4),
    Binary(b"", 128),
    ObjectId("5f0000000000000000000000"),
    ObjectId("6f0000000000000000000000"),
    False,
    True,
    datetime(1960, 1, 1, tzinfo=UTC),
    datetime(2026, 1, 1, tzinfo=UTC),
    Timestamp(3, 1),
    Code("x"),
    Code("x", {"y": 1}),
    MaxKey(),
]


@pytest.fixture
def sources(db: Db) -> SourceCollections:
    return SourceCollections(Driver(db))


@pytest.fixture
async def stream(db: Db, sources: SourceCollections) -> AsyncIterator[SourceStream]:
    """Yield a stream on `orders` and `offers`."""
    stream = await sources.open(db.name, ["orders", "offers"], longest_wait=MOMENT)
    yield stream
    await stream.close()


async def next_change(stream: SourceStream) -> tuple[str, str, Any]:
    async with asyncio.timeout(120):
        while (change := await stream.next()) is None:
            pass
    return change.collection, change.kind, change.id


async def changes_until_quiet(stream: SourceStream) -> list[tuple[str, str, Any]]:
    """Read all changes up to a marker that the test writes."""
    seen = []
    while (change := await next_change(stream)) != ("orders", "changed", "mark"):
        seen.append(change)
    return seen


async def mark(db: Db) -> None:
    await db["orders"].replace_one({"_id": "mark"}, {}, upsert=True)


class TestEveryKindOfDatabase:
    async def test_tells_of_changes_and_goes_on_where_it_was_left(
        self, db: Db, any_db: AnyDatabase
    ) -> None:
        handle = Driver(any_db)
        sources = SourceCollections(handle)
        stream = await sources.open(db.name, ["orders"], longest_wait=MOMENT)
        await db["orders"].insert_one({"_id": 1})
        assert await next_change(stream) == ("orders", "changed", 1)
        token = stream.token
        await stream.close()
        await db["orders"].delete_one({"_id": 1})
        again = await sources.open(db.name, ["orders"], token, longest_wait=MOMENT)
        assert await next_change(again) == ("orders", "deleted", 1)
        assert await again.next() is None
        await again.close()
        await handle.dismiss_threads()

    async def test_releases_a_waiting_reader_almost_at_once(
        self, db: Db, any_db: AnyDatabase
    ) -> None:
        handle = Driver(any_db)
        stream = await SourceCollections(handle).open(db.name, ["orders"])
        reader = asyncio.create_task(next_change(stream))
        await asyncio.sleep(0.1)
        # Nothing else would end the read: there is no further change.
        reader.cancel()
        await asyncio.wait([reader])
        await stream.close()
        await handle.dismiss_threads()
        assert reader.cancelled()

    async def test_returns_the_change_of_a_cancelled_reader_to_the_next_one(
        self, db: Db, any_db: AnyDatabase
    ) -> None:
        handle = Driver(any_db)
        stream = await SourceCollections(handle).open(db.name, ["orders"])
        seen: list[Any] = []

        async def write() -> None:
            for n in range(200):
                await db["orders"].insert_one({"_id": n})

        writer = asyncio.create_task(write())
        async with asyncio.timeout(120):
            while len(seen) < 200:
                try:
                    async with asyncio.timeout(0.002):
                        change = await stream.next()
                except TimeoutError:
                    continue
                seen += [] if change is None else [change.id]
        await writer
        await stream.close()
        await handle.dismiss_threads()
        assert seen == list(range(200))


class TestAStream:
    async def test_tells_of_what_happens_to_documents(self, db: Db, stream: SourceStream) -> None:
        orders, offers = db["orders"], db["offers"]
        await orders.insert_one({"_id": 1, "a": 1})
        await orders.update_one({"_id": 1}, {"$set": {"a": 2}})
        await offers.insert_one({"_id": 1})
        await orders.replace_one({"_id": 1}, {"b": 1})
        await orders.delete_one({"_id": 1})
        await orders.insert_one({"_id": None})
        await mark(db)
        assert await changes_until_quiet(stream) == [
            ("orders", "changed", 1),
            ("orders", "changed", 1),
            ("offers", "changed", 1),
            ("orders", "changed", 1),
            ("orders", "deleted", 1),
            ("orders", "changed", None),
        ]

    async def test_tells_when_it_happened(self, db: Db, stream: SourceStream) -> None:
        await db["orders"].insert_one({"_id": 1})
        change = None
        while change is None:
            change = await stream.next()
        hello = await db.command("hello")
        assert change.at is not None
        assert (
            timedelta(0) <= hello["localTime"].replace(tzinfo=UTC) - change.at < 30 * 100 * MOMENT
        )

    async def test_keeps_ids_of_every_type(self, db: Db, stream: SourceStream) -> None:
        await db["orders"].insert_many([{"_id": each} for each in IDS])
        await mark(db)
        seen = [each for _, _, each in await changes_until_quiet(stream)]
        assert list(map(repr, seen)) == list(map(repr, IDS))

    async def test_knows_nothing_of_other_collections_and_databases(
        self, db: Db, stream: SourceStream
    ) -> None:
        for name in ("orders_tasks", "order", "x.orders", "Orders"):
            await db[name].insert_one({})
            await db[name].drop()
        other = db.client[f"{db.name}_2"]
        await other["orders"].insert_one({})
        await db.client.drop_database(other.name)
        await mark(db)
        assert await changes_until_quiet(stream) == []

    async def test_tells_of_a_transaction(self, db: Db, stream: SourceStream) -> None:
        await db["orders"].insert_one({"_id": 0})
        async with db.client.start_session() as session, await session.start_transaction():
            await db["orders"].insert_one({"_id": 1}, session=session)
            await db["orders"].delete_one({"_id": 0}, session=session)
        await mark(db)
        seen = await changes_until_quiet(stream)
        assert seen == [
            ("orders", "changed", 0),
            ("orders", "changed", 1),
            ("orders", "deleted", 0),
        ]

    async def test_never_contains_documents(self, db: Db, uri: str) -> None:
        received: list[dict[str, Any]] = []

        class Replies(CommandLog):
            def succeeded(self, event: Any) -> None:
                cursor = event.reply.get("cursor", {})
                received.extend(cursor.get("nextBatch", []) + cursor.get("firstBatch", []))

        log = Replies()
        async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
            stream = await SourceCollections(Driver(client[db.name])).open(db.name, ["orders"])
            large = "x" * 15 * 1024 * 1024
            await db["orders"].insert_one({"_id": 1, "text": large})
            await db["orders"].update_one({"_id": 1}, {"$set": {"text": large[:-1]}})
            await db["orders"].replace_one({"_id": 1}, {"text": large})
            await mark(db)
            assert await changes_until_quiet(stream) == [("orders", "changed", 1)] * 3
            await stream.close()
        expected = {"_id", "operationType", "ns", "documentKey", "clusterTime", "wallTime"}
        assert {key for event in received for key in event} == expected


class TestACollectionAsAWhole:
    async def test_is_told_of_when_it_is_dropped(self, db: Db, stream: SourceStream) -> None:
        await db["orders"].insert_one({"_id": 1})
        await db["orders"].drop()
        await mark(db)
        seen = await changes_until_quiet(stream)
        assert seen == [("orders", "changed", 1), ("orders", "replaced", None)]

    async def test_is_told_of_when_it_is_renamed(self, db: Db, stream: SourceStream) -> None:
        await db["offers"].insert_one({"_id": 1})
        await db["offers"].rename("former")
        await mark(db)
        seen = await changes_until_quiet(stream)
        assert seen == [("offers", "changed", 1), ("offers", "replaced", None)]

    async def test_is_told_of_when_another_gets_its_name(
        self, db: Db, stream: SourceStream
    ) -> None:
        await db["draft"].insert_one({"_id": 1})
        await db["offers"].insert_one({"_id": 2})
        await db["draft"].rename("offers", dropTarget=True)
        await mark(db)
        seen = await changes_until_quiet(stream)
        assert seen[0] == ("offers", "changed", 2)
        assert set(seen[1:]) == {("offers", "replaced", None)}

    async def test_is_told_of_when_an_aggregation_fills_it(
        self, db: Db, stream: SourceStream
    ) -> None:
        await db["draft"].insert_one({"_id": 1})
        await (await db["draft"].aggregate([{"$out": "offers"}])).to_list()
        await mark(db)
        assert ("offers", "replaced", None) in await changes_until_quiet(stream)

    async def test_is_told_of_for_both_of_a_rename_and_not_lost_between_them(
        self, db: Db, sources: SourceCollections, stream: SourceStream
    ) -> None:
        await db["orders"].insert_one({"_id": 1})
        await db["orders"].rename("offers")
        await mark(db)
        assert await next_change(stream) == ("orders", "changed", 1)
        before = stream.token
        assert await next_change(stream) == ("orders", "replaced", None)
        assert stream.token == before
        assert await next_change(stream) == ("offers", "replaced", None)
        assert stream.token != before

    async def test_is_told_of_when_the_database_is_dropped_and_made_again(
        self, db: Db, sources: SourceCollections, stream: SourceStream
    ) -> None:
        await db["orders"].insert_one({"_id": 1})
        await db.client.drop_database(db.name)
        seen = [await next_change(stream) for _ in range(4)]
        assert seen[:2] == [("orders", "changed", 1), ("orders", "replaced", None)]
        # Once for the collection's own end, and then together with all the others.
        assert seen[2:] == [("orders", "replaced", None), ("offers", "replaced", None)]
        with pytest.raises(EOFError, match="the server ended the change stream"):
            await next_change(stream)
        await db["orders"].insert_one({"_id": 2})
        await mark(db)
        again = await sources.open(db.name, ["orders"], stream.token, longest_wait=MOMENT)
        assert await changes_until_quiet(again) == [("orders", "changed", 2)]
        await again.close()


class TestResuming:
    async def test_shows_exactly_what_happened_meanwhile(
        self, db: Db, sources: SourceCollections, stream: SourceStream
    ) -> None:
        await db["orders"].insert_many([{"_id": n} for n in range(5)])
        for _ in range(3):
            await next_change(stream)
        token = stream.token
        await stream.close()
        await db["orders"].delete_one({"_id": 0})
        await db["offers"].insert_one({"_id": 9})
        await mark(db)
        again = await sources.open(db.name, ["orders", "offers"], token, longest_wait=MOMENT)
        assert await changes_until_quiet(again) == [
            ("orders", "changed", 3),
            ("orders", "changed", 4),
            ("orders", "deleted", 0),
            ("offers", "changed", 9),
        ]
        await again.close()

    async def test_is_possible_before_anything_happened(
        self, db: Db, sources: SourceCollections, stream: SourceStream
    ) -> None:
        token = stream.token
        assert token is not None
        await db["orders"].insert_one({"_id": 1})
        again = await sources.open(db.name, ["orders"], token, longest_wait=MOMENT)
        assert await next_change(again) == ("orders", "changed", 1)
        await again.close()

    async def test_is_possible_with_other_collections(
        self, db: Db, sources: SourceCollections, stream: SourceStream
    ) -> None:
        await db["orders"].insert_one({"_id": 1})
        await next_change(stream)
        assert await stream.next() is None
        await db["orders"].insert_one({"_id": 2})
        await db["bills"].insert_one({"_id": 3})
        again = await sources.open(db.name, ["bills"], stream.token, longest_wait=MOMENT)
        assert await next_change(again) == ("bills", "changed", 3)
        await again.close()

    @pytest.mark.parametrize(
        "token",
        [
            {},
            {"resume": None},
            {"resume": "82"},
            {"resume": {}},
            {"resume": {"_data": "zz"}},
            {"resume": {"_data": "00"}},
            {"resume": {"_data": ""}},
            {"resume": {"_data": 5}},
            {"resume": {"_data": None}, "collection": 5},
            {"resume": {"_data": "82" + "00" * 20}},
        ],
        ids=str,
    )
    async def test_with_a_token_of_no_use_is_lost_history(
        self, db: Db, sources: SourceCollections, token: dict[str, Any]
    ) -> None:
        with pytest.raises(HistoryLostError, match=db.name):
            await sources.open(db.name, ["orders"], token)


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalMongo]:
    """Yield a server with a tiny oplog whose commands can be made to fail."""
    program = tmp_path_factory.mktemp("forgetful") / "mongod"
    options = "--oplogSize 1 --syncdelay 1 --setParameter enableTestCommands=1"
    program.write_text(f'#!/bin/sh\nexec "{find_mongod()}" "$@" {options}\n')
    program.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MONQUE_MONGOD", str(program))
        with LocalMongo() as mongo:
            yield mongo


class TestLosingHistory:
    @pytest.fixture
    async def shop(self, forgetful: LocalMongo) -> AsyncIterator[Db]:
        async with AsyncMongoClient[dict[str, Any]](forgetful.uri) as client:
            yield client["shop"]

    async def fail(self, db: Db, command: str, code: int) -> None:
        data = {"failCommands": [command], "errorCode": code, "closeConnection": False}
        await db.client.admin.command("configureFailPoint", "failCommand", mode="off")
        await db.client.admin.command(
            "configureFailPoint", "failCommand", mode={"times": 1}, data=data
        )

    async def test_is_told_when_the_oplog_has_moved_on(self, shop: Db) -> None:
        sources = SourceCollections(Driver(shop))
        stream = await sources.open("shop", ["orders"], longest_wait=MOMENT)
        await shop["orders"].insert_one({"_id": 1})
        await next_change(stream)
        token = stream.token
        await stream.close()

        async def is_lost() -> bool:
            await shop["noise"].insert_one({"text": "x" * 1_000_000})
            try:
                again = await sources.open("shop", ["orders"], token)
            except HistoryLostError as error:
                return "no longer be in the oplog" in str(error)
            await again.close()
            return False

        assert await eventually(is_lost)
        fresh = await sources.open("shop", ["orders"], longest_wait=MOMENT)
        await shop["orders"].insert_one({"_id": 2})
        assert await next_change(fresh) == ("orders", "changed", 2)
        await fresh.close()

    @pytest.mark.parametrize("code", [136, 222, 260, 280, 286, 10334])
    async def test_may_be_told_while_reading(self, shop: Db, code: int) -> None:
        stream = await SourceCollections(Driver(shop)).open("shop", ["orders"], longest_wait=MOMENT)
        await self.fail(shop, "getMore", code)
        with pytest.raises(HistoryLostError, match="'shop' cannot be resumed"):
            await next_change(stream)
        await stream.close()

    @pytest.mark.parametrize("code", [50, 133, 262])
    async def test_is_not_what_will_pass(self, shop: Db, code: int) -> None:
        sources = SourceCollections(Driver(shop))
        stream = await sources.open("shop", ["orders"])
        await stream.close()
        await self.fail(shop, "aggregate", code)
        try:
            again = await sources.open("shop", ["orders"], stream.token)
        except (OperationFailure, MonqueConnectionError):
            again = await sources.open("shop", ["orders"], stream.token)
        await again.close()

    async def test_is_not_what_fails_without_a_token_too(self, shop: Db) -> None:
        sources = SourceCollections(Driver(shop))
        stream = await sources.open("shop", ["orders"])
        await stream.close()
        await self.fail(shop, "aggregate", 8)
        data = {"failCommands": ["aggregate"], "errorCode": 8}
        await shop.client.admin.command(
            "configureFailPoint", "failCommand", mode="alwaysOn", data=data
        )
        with pytest.raises(OperationFailure, match="failCommand"):
            await sources.open("shop", ["orders"], stream.token)
        await shop.client.admin.command("configureFailPoint", "failCommand", mode="off")

    async def test_is_not_reported_for_missing_privileges(self, shop: Db) -> None:
        await self.fail(shop, "aggregate", 13)
        with pytest.raises(ChangeStreamUnavailableError):
            await SourceCollections(Driver(shop)).open(
                "shop", ["orders"], {"resume": {"_data": "82"}}
            )


async def test_a_server_without_a_replica_set_says_that_it_has_no_streams() -> None:
    with LocalMongo(standalone=True) as mongo:
        async with AsyncMongoClient[dict[str, Any]](mongo.uri) as client:
            with pytest.raises(ChangeStreamUnavailableError, match="replica set"):
                await SourceCollections(Driver(client["shop"])).open(
                    "shop", ["orders"], {"resume": {"_data": "82"}}
                )


class TestScanning:
    async def scanned(self, sources: SourceCollections, db: Db, size: int) -> list[Any]:
        seen: list[Any] = []
        after = None
        while page := await sources.ids_after(db.name, "orders", after, size):
            assert len(page) <= size
            seen += page
            after = LastId(page[-1])
        return seen

    @pytest.mark.parametrize("size", [1, 3, 100])
    async def test_visits_ids_of_every_type_once(
        self, db: Db, sources: SourceCollections, size: int
    ) -> None:
        await db["orders"].insert_many([{"_id": each} for each in reversed(IDS)])
        seen = await self.scanned(sources, db, size)
        assert sorted(map(repr, seen)) == sorted(map(repr, IDS))

    async def test_goes_on_after_an_id_that_is_gone(
        self, db: Db, sources: SourceCollections
    ) -> None:
        await db["orders"].insert_many([{"_id": each} for each in (1, 3, "a", "c")])
        assert await sources.ids_after(db.name, "orders", LastId(2), 2) == [3, "a"]
        assert await sources.ids_after(db.name, "orders", LastId("b"), 2) == ["c"]
        assert await sources.ids_after(db.name, "orders", LastId(None), 1) == [1]

    async def test_follows_the_collation_of_the_collection(
        self, db: Db, sources: SourceCollections
    ) -> None:
        await db.create_collection("orders", collation={"locale": "en", "strength": 2})
        ids = ["a", "B", "c", "D", "é", 5, None]
        await db["orders"].insert_many([{"_id": each} for each in ids])
        assert sorted(map(repr, await self.scanned(sources, db, 2))) == sorted(map(repr, ids))

    async def test_visits_a_clustered_collection(self, db: Db, sources: SourceCollections) -> None:
        await db.create_collection("orders", clusteredIndex={"key": {"_id": 1}, "unique": True})
        ids = [each for each in IDS if each is not None]
        await db["orders"].insert_many([{"_id": each} for each in ids])
        seen = await self.scanned(sources, db, 3)
        assert sorted(map(repr, seen)) == sorted(map(repr, ids))

    async def test_of_nothing_gives_nothing(self, db: Db, sources: SourceCollections) -> None:
        assert await sources.ids_after(db.name, "unheard-of", None, 5) == []
        assert await sources.ids_after(db.name, "unheard-of", LastId("x"), 5) == []

    async def test_reads_no_more_than_it_gives(self, db: Db, uri: str) -> None:
        documents = [{"_id": n if n % 2 else str(n), "x": "y" * 100} for n in range(20_000)]
        await db["orders"].insert_many(documents, ordered=False)
        log = CommandLog()
        async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
            sources = SourceCollections(Driver(client[db.name]))
            with MongoClient[dict[str, Any]](uri) as explaining:
                plans = Plans(explaining[db.name], "orders")
                log.on_sending = plans.explain
                for after in (None, LastId(9_001), LastId("5000"), LastId(None)):
                    assert len(await sources.ids_after(db.name, "orders", after, 1000)) == 1000
        assert_tight(plans, count=4)


class TestADocument:
    async def test_is_given_if_it_matches(self, db: Db, sources: SourceCollections) -> None:
        await db["orders"].insert_one({"_id": 1, "a": 1, "b": 2, "at": IDS[-5]})
        find = sources.document
        found = await find(db.name, "orders", 1, {"a": {"$gte": 1}})
        assert found == {"_id": 1, "a": 1, "b": 2, "at": IDS[-5]}
        assert await find(db.name, "orders", 1, {}, projection=["b"]) == {"_id": 1, "b": 2}
        assert await find(db.name, "orders", 1, {"$or": [{"a": 2}, {"b": 1}]}) is None
        assert await find(db.name, "orders", 2, {}) is None

    async def test_is_found_by_an_id_of_any_type(self, db: Db, sources: SourceCollections) -> None:
        await db["orders"].insert_many([{"_id": each} for each in IDS])
        for each in IDS:
            found = await sources.document(db.name, "orders", each, {})
            assert found is not None
            assert repr(found["_id"]) == repr(each)

    async def test_is_read_in_the_callers_transaction(
        self, db: Db, sources: SourceCollections
    ) -> None:
        await db.create_collection("orders")
        async with db.client.start_session() as session, await session.start_transaction():
            await db["orders"].insert_one({"_id": 1}, session=session)
            inside = await sources.document(db.name, "orders", 1, {}, session=session)
            outside = await sources.document(db.name, "orders", 1, {})
        assert (inside, outside) == ({"_id": 1}, None)
