"""From the current documents to records that are due."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from bson import Binary, Code, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp

from monque_core.errors import MonqueConnectionError
from monque_core.jobs.retry import Fixed
from monque_core.store.tasks.plan_updates import ChangedDocuments
from monque_core.store.tasks.plan_writer import LARGEST_SNAPSHOT_BYTES, PlanResult, TaskBrokenError
from monque_core.store.tasks.queue import TaskCandidate
from tests.support.payloads import ONE_OF_EACH
from tests.support.task_bench import LATEST, NOW, TaskBench, after

if TYPE_CHECKING:
    from pymongo import AsyncMongoClient
    from pymongo.asynchronous.database import AsyncDatabase

    Db = AsyncDatabase[dict[str, Any]]

AN_ID = ObjectId()
IDS: dict[str, Any] = {
    "int": 7,
    "int64": Int64(2**40),
    "float": 1.5,
    "infinity": float("inf"),
    "nan": float("nan"),
    "decimal": Decimal128(Decimal("12.34")),
    "string": "order-1",
    "field-like string": "$status",
    "variable-like string": "$$ROOT",
    "empty string": "",
    "document": {"country": "de", "number": 1},
    "document with operators": {"a": "$status", "b": {"c": None}},
    "empty document": {},
    "object id": AN_ID,
    "true": True,
    "false": False,
    "date": datetime(2026, 5, 5, 12, 0, 0, 123_000, tzinfo=UTC),
    "binary": b"\x00\xff",
    "binary of a subtype": Binary(b"\x01", 128),
    "timestamp": Timestamp(1_700_000_000, 3),
    "code": Code("return 1"),
    "min key": MinKey(),
    "max key": MaxKey(),
}


async def written(client: AsyncMongoClient[dict[str, Any]], bench: TaskBench) -> int:
    """Count all writes to the records."""
    namespace = f"{bench.database}.{bench.records.name}"
    return await client["local"]["oplog.rs"].count_documents({"ns": namespace})


def parked_ids(planned: PlanResult) -> list[Any]:
    return [source_id for source_id, _ in planned.parked]


class TestNewRecord:
    async def test_is_due_after_the_debounce(self, bench: TaskBench) -> None:
        bench.define(debounce=3)
        planned = await bench.put(1, status="paid", term=4)
        assert (planned.matched, planned.parked) == (1, [])
        record = await bench.record()
        del record["_id"]
        assert record.pop("lastObservedAt") <= await bench.cluster_time()
        assert record == {
            "task": "invoice",
            "sourceDocId": 1,
            "status": "pending",
            "attempts": 0,
            "nextRunAt": after(3),
            "dueAt": after(3),
            "createdAt": NOW,
            "updatedAt": NOW,
            "lastObservedValues": {"status": "paid"},
            "plannedTerm": 4,
        }

    async def test_of_nothing_there_is_none(self, bench: TaskBench) -> None:
        assert (await bench.plan()).matched == 0
        assert (await bench.plan(1, 2, deleted=(2, 3))).matched == 0
        assert await bench.records.count_documents({}) == 0

    @pytest.mark.parametrize("kind", IDS)
    async def test_has_an_id_of_any_type(self, bench: TaskBench, kind: str) -> None:
        id = IDS[kind]
        await bench.source.insert_one({"_id": id, "n": 1})
        planned = await bench.plan(id)
        assert (planned.matched, planned.parked) == (1, [])
        (record,) = await bench.records.find().to_list()
        assert repr(record["sourceDocId"]) == repr(id)
        await bench.source.update_one({}, {"$set": {"n": 2}})
        await bench.plan(id)
        (record,) = await bench.records.find().to_list()
        assert record["lastObservedValues"] == {"n": 2}
        await bench.source.delete_one({})
        await bench.plan(id, deleted=(id,))
        (record,) = await bench.records.find().to_list()
        assert "lastObservedValues" not in record

    async def test_of_ids_that_python_takes_for_equal(self, bench: TaskBench) -> None:
        await bench.source.insert_many([{"_id": 1, "n": 1}, {"_id": True, "n": 2}])
        assert (await bench.plan(1, True)).matched == 2
        await bench.source.delete_one({"_id": True})
        await bench.plan(1, True, deleted=(True,))
        assert "lastObservedValues" in await bench.record(1)
        assert "lastObservedValues" not in await bench.record(True)

    async def test_of_an_id_that_came_back_as_another_kind_of_number(
        self, bench: TaskBench
    ) -> None:
        await bench.source.insert_one({"_id": 1, "n": 1})
        await bench.plan(1)
        await bench.edit(status="completed", nextRunAt=None)
        # MongoDB treats these as one id, so a stream may report both.
        assert (await bench.plan(1, 1.0)).matched == 1
        assert (await bench.record())["status"] == "completed"
        assert await bench.records.count_documents({}) == 1

    async def test_of_equal_ids_in_two_collections(self, db: Db, bench: TaskBench) -> None:
        other = TaskBench(db, "refunds")
        await other.prepare()
        other.define()
        await bench.put(1, total=1)
        await other.put(1, total=2)
        await other.put(1, total=3)
        assert (await bench.record())["lastObservedValues"] == {"total": 1}
        assert (await other.record())["lastObservedValues"] == {"total": 3}

    async def test_of_a_collection_in_another_database(
        self, db: Db, client: AsyncMongoClient[dict[str, Any]], bench: TaskBench
    ) -> None:
        abroad = TaskBench(client[f"{db.name}_2"])
        try:
            await abroad.prepare()
            abroad.define()
            await abroad.source.insert_one({"_id": 1, "n": 1})
            declaration = abroad.definitions["invoice"].declaration
            planned = await bench.plan_writer.plan(declaration, ChangedDocuments([1]), NOW, 1)
            assert planned.matched == 1
            assert (await abroad.record())["lastObservedValues"] == {"n": 1}
            assert await bench.records.count_documents({}) == 0
        finally:
            await client.drop_database(abroad.database)

    async def test_of_two_tasks_on_one_document(self, bench: TaskBench) -> None:
        bench.define("invoice", watch=["total"])
        bench.define("ship", watch=["status"], debounce=0)
        await bench.put(1, total=1, status="new")
        await bench.plan(1, task="ship")
        assert (await bench.record(1, "invoice"))["lastObservedValues"] == {"total": 1}
        assert (await bench.record(1, "ship"))["lastObservedValues"] == {"status": "new"}
        assert (await bench.record(1, "ship"))["nextRunAt"] == NOW


class TestSnapshot:
    async def test_keeps_every_bson_type(self, bench: TaskBench) -> None:
        await bench.put(1, **ONE_OF_EACH)
        assert (await bench.record())["lastObservedValues"] == ONE_OF_EACH
        await bench.put(1, changed=True, **ONE_OF_EACH)
        assert (await bench.record())["lastObservedValues"] == {"changed": True, **ONE_OF_EACH}

    @pytest.mark.parametrize("text", ["$status", "$$ROOT", "$$new", "$", "$$REMOVE", "$$NOW"])
    async def test_keeps_texts_that_look_like_expressions(
        self, bench: TaskBench, text: str
    ) -> None:
        bench.define(watch=["a", "b"])
        await bench.put(1, a="before", b=["before"])
        await bench.put(1, a=text, b=[text, {"c": text}])
        values = (await bench.record())["lastObservedValues"]
        assert values == {"a": text, "b": [text, {"c": text}]}

    async def test_keeps_names_that_look_like_operators_and_paths(self, bench: TaskBench) -> None:
        odd = {"$set": 1, "a.b": 2, "": 3, "_news": 4, "plannedTerm": 99, "$$ROOT": {"$x": "$y"}}
        await bench.source.insert_one({"_id": 1, **odd})
        await bench.plan(1)
        assert (await bench.record())["lastObservedValues"] == odd
        await bench.source.update_one({"_id": 1}, {"$set": {"more": 5}})
        await bench.plan(1)
        assert (await bench.record())["lastObservedValues"] == {**odd, "more": 5}

    async def test_has_the_watched_fields_only(self, bench: TaskBench) -> None:
        bench.define(watch=["total", "customer.name", "items.price", "absent"])
        await bench.put(
            1,
            total=1,
            customer={"name": "Ada", "age": 36},
            items=[{"price": 1, "n": 2}, {"n": 3}, "x"],
        )
        assert (await bench.record())["lastObservedValues"] == {
            "total": 1,
            "customer": {"name": "Ada"},
            "items": [{"price": 1}, {}],
        }

    async def test_has_computed_fields(self, bench: TaskBench) -> None:
        bench.define(watch={"total": {"$sum": "$items.price"}, "label": "$name", "status": 1})
        await bench.put(1, items=[{"price": 1}, {"price": 2}], name="$name", status="new")
        values = (await bench.record())["lastObservedValues"]
        assert values == {"total": 3, "label": "$name", "status": "new"}

    async def test_keeps_the_ids_of_parts(self, bench: TaskBench) -> None:
        await bench.put(1, items=[{"_id": 5}], customer={"_id": 6})
        values = (await bench.record())["lastObservedValues"]
        assert values == {"items": [{"_id": 5}], "customer": {"_id": 6}}


SAME: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "what is not watched": ({"a": 1, "z": 1}, {"a": 1, "z": 2}),
    "the order of fields": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "the type of a number": ({"a": 1}, {"a": 1.0}),
    "not a number": ({"a": float("nan")}, {"a": float("nan")}),
    "nothing at all": ({}, {"z": 1}),
}
CHANGED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a value": ({"a": 1}, {"a": 2}),
    "missing to null": ({}, {"a": None}),
    "null to missing": ({"a": None}, {}),
    "a field more": ({"a": 1}, {"a": 1, "b": None}),
    "null to nothing in it": ({"a": None}, {"a": {}}),
    "zero to false": ({"a": 0}, {"a": False}),
    "empty to missing": ({"a": []}, {}),
    "the order of a list": ({"a": [1, 2]}, {"a": [2, 1]}),
    "the case of a text": ({"a": "paid"}, {"a": "PAID"}),
    "the expression that a text looks like": ({"a": "$b", "b": 1}, {"a": 1, "b": 1}),
    "a text that looks like removal": ({"a": "$$REMOVE"}, {}),
}


class TestComparison:
    @pytest.mark.parametrize("what", SAME)
    async def test_takes_as_unchanged(
        self, client: AsyncMongoClient[dict[str, Any]], bench: TaskBench, what: str
    ) -> None:
        bench.define(watch=["a", "b"])
        before, now = SAME[what]
        await bench.put(1, **before)
        await bench.edit(status="completed", nextRunAt=None)
        kept, writes = await bench.record(), await written(client, bench)
        await bench.put(1, **now)
        assert repr(await bench.record()) == repr(kept)
        assert await written(client, bench) == writes, "an unchanged record is not written"

    @pytest.mark.parametrize("what", CHANGED)
    async def test_takes_as_changed(self, bench: TaskBench, what: str) -> None:
        bench.define(watch=["a", "b"])
        before, now = CHANGED[what]
        await bench.put(1, **before)
        await bench.edit(status="completed", nextRunAt=None)
        await bench.put(1, **now)
        record = await bench.record()
        assert record["status"] == "pending"
        assert repr(record["lastObservedValues"]) == repr(now)

    async def test_follows_a_computed_field(self, bench: TaskBench) -> None:
        bench.define(watch={"is_large": {"$gte": ["$total", 100]}})
        await bench.put(1, total=1)
        await bench.edit(status="completed", nextRunAt=None)
        await bench.put(1, total=99)
        assert (await bench.record())["status"] == "completed"
        await bench.put(1, total=100)
        assert (await bench.record())["status"] == "pending"

    @pytest.mark.parametrize("ids", [["a", "b"], [ObjectId(), ObjectId()]])
    async def test_is_exact_whatever_the_collation(self, db: Db, ids: list[Any]) -> None:
        collation = {"locale": "en", "strength": 2}
        await db.create_collection("loose", collation=collation)
        bench = TaskBench(db, "loose")
        await bench.prepare()
        bench.define(watch=["status"], filter={"status": {"$in": ["paid", "PAID"]}})
        await bench.source.insert_many([{"_id": id, "status": "paid"} for id in ids])
        assert (await bench.plan(*ids)).matched == 2
        await bench.source.update_one({"_id": ids[0]}, {"$set": {"status": "PAID"}})
        await bench.plan(*ids, now=after(1))
        assert (await bench.record(ids[0]))["lastObservedValues"] == {"status": "PAID"}
        assert (await bench.record(ids[1]))["updatedAt"] == NOW


DAY = datetime(2026, 5, 5, tzinfo=UTC)
FILTERS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "equality": ({"a": 1}, {"a": 1}, {"a": 2}),
    "null or missing": ({"a": None}, {}, {"a": 1}),
    "exists": ({"a": {"$exists": True}}, {"a": None}, {}),
    "a date": ({"a": {"$gte": DAY}}, {"a": DAY}, {"a": DAY - timedelta(milliseconds=1)}),
    "an object id": ({"a": AN_ID}, {"a": AN_ID}, {"a": str(AN_ID)}),
    "a regex object": ({"a": re.compile("^x", re.IGNORECASE)}, {"a": "Xy"}, {"a": "yx"}),
    "a BSON regex": ({"a": Regex("^x", "i")}, {"a": "Xy"}, {"a": "yx"}),
    "$regex": ({"a": {"$regex": "^x", "$options": "i"}}, {"a": "Xy"}, {"a": "yx"}),
    "$elemMatch": (
        {"a": {"$elemMatch": {"b": 1, "c": 2}}},
        {"a": [{"b": 1, "c": 2}]},
        {"a": [{"b": 1}, {"c": 2}]},
    ),
    "$expr": ({"$expr": {"$gt": ["$a", "$b"]}}, {"a": 2, "b": 1}, {"a": 1, "b": 1}),
    "$nor": ({"$nor": [{"a": 1}, {"b": 1}]}, {"a": 2}, {"b": 1}),
    "$or": ({"$or": [{"a": 1}, {"b": 1}]}, {"b": 1}, {"c": 1}),
    "a text like a field": ({"a": "$b"}, {"a": "$b", "b": 1}, {"a": 1, "b": 1}),
    "an own condition on the id": ({"_id": {"$lt": 5}}, {}, {}),
    "an element": ({"a": 1}, {"a": [0, 1]}, {"a": [0]}),
    "$jsonSchema": ({"$jsonSchema": {"required": ["a"]}}, {"a": 1}, {}),
    "$not": ({"a": {"$not": {"$gt": 1}}}, {"a": 1}, {"a": 2}),
}


class TestFilter:
    @pytest.mark.parametrize("kind", FILTERS)
    async def test_has_the_meaning_it_has_in_a_query(self, bench: TaskBench, kind: str) -> None:
        filter, matching, other = FILTERS[kind]
        bench.define(filter=filter)
        await bench.source.insert_many([{"_id": 1, **matching}, {"_id": 9, **other}])
        assert (await bench.plan(1, 9)).matched == 1
        (record,) = await bench.records.find().to_list()
        assert record["sourceDocId"] == 1


class TestLeaving:
    async def test_rearms_so_that_equal_values_are_news(self, bench: TaskBench) -> None:
        bench.define(watch=["total"], filter={"status": "paid"})
        await bench.put(1, status="paid", total=1)
        done = await bench.edit(status="completed", nextRunAt=None, attempts=1)
        assert (await bench.put(1, now=after(1), status="open", total=1)).matched == 0
        left = await bench.record()
        assert left == {key: done[key] for key in done if key != "lastObservedValues"} | {
            "unmatchedAt": after(1),
            "updatedAt": after(1),
        }
        await bench.put(1, now=after(2), status="paid", total=1)
        back = await bench.record()
        assert back["status"] == "pending"
        assert back["lastObservedValues"] == {"total": 1}
        assert back["attempts"] == 0
        assert "unmatchedAt" not in back

    async def test_is_told_from_when_on_only_once(
        self, client: AsyncMongoClient[dict[str, Any]], bench: TaskBench
    ) -> None:
        await bench.put(1, n=1)
        await bench.source.delete_one({"_id": 1})
        await bench.plan(1, deleted=(1,), now=after(1))
        left, writes = await bench.record(), await written(client, bench)
        await bench.plan(1, deleted=(1,), now=after(2))
        await bench.plan(1, now=after(3))
        assert await bench.record() == left
        assert await written(client, bench) == writes
        await bench.plan(1, now=after(4), term=2)
        assert await bench.record() == left | {"plannedTerm": 2}

    async def test_by_deletion_and_return_within_one_batch(self, bench: TaskBench) -> None:
        await bench.source.insert_many([{"_id": n, "n": 1} for n in (1, 2)])
        await bench.plan(1, 2)
        for id in (1, 2):
            await bench.edit(id, status="completed", nextRunAt=None)
        planned = await bench.plan(1, 2, deleted=(1,), now=after(1))
        assert planned.matched == 2
        assert (await bench.record(1))["status"] == "pending"
        assert (await bench.record(1))["nextRunAt"] == after(2)
        assert "unmatchedAt" not in await bench.record(1)
        assert (await bench.record(2))["status"] == "completed"

    @pytest.mark.parametrize("status", ["pending", "processing", "processing_dirty", "failed"])
    async def test_changes_no_status(self, bench: TaskBench, status: str) -> None:
        await bench.put(1, n=1)
        await bench.edit(status=status, nextRunAt=after(60), attempts=1)
        await bench.source.delete_one({"_id": 1})
        await bench.plan(1, now=after(5))
        left = await bench.record()
        assert (left["status"], left["nextRunAt"], left["attempts"]) == (status, after(60), 1)

    async def test_and_returning_while_it_runs_makes_it_dirty(self, bench: TaskBench) -> None:
        bench.define(filter={"on": True}, watch=["n"])
        await bench.put(1, on=True, n=1)
        await bench.claim(now=after(2))
        await bench.put(1, on=False, n=1)
        assert (await bench.record())["status"] == "processing"
        await bench.put(1, on=True, n=1)
        assert (await bench.record())["status"] == "processing_dirty"

    async def test_of_a_whole_collection(self, bench: TaskBench) -> None:
        bench.define("ship")
        await bench.put(1, n=1)
        await bench.put(2, n=1, term=3)
        await bench.plan(1, task="ship")
        declaration = bench.definitions["invoice"].declaration
        await bench.plan_writer.rearm_all(declaration, LATEST, after(1), 2)
        assert "lastObservedValues" not in await bench.record(1)
        assert (await bench.record(1))["unmatchedAt"] == after(1)
        assert "lastObservedValues" in await bench.record(2), "a newer leader has seen it"
        assert "lastObservedValues" in await bench.record(1, "ship")


class TestReplay:
    """A change stream is read again from its last saved resume token."""

    @pytest.mark.parametrize("term", [1, 2])
    async def test_of_a_delete_undoes_nothing_that_was_planned_after_it(
        self, bench: TaskBench, term: int
    ) -> None:
        await bench.put(1, n=1)
        await bench.source.delete_one({"_id": 1})
        deleted_at = await bench.cluster_time()
        await bench.source.insert_one({"_id": 1, "n": 1})
        await bench.plan(1, deleted=(1,), deleted_at=deleted_at)
        await bench.edit(status="completed", nextRunAt=None)
        planned = await bench.record()
        await bench.plan(1, deleted=(1,), deleted_at=deleted_at, now=after(5), term=term)
        assert await bench.record() == planned | {"plannedTerm": term}

    async def test_of_a_delete_that_a_reconciliation_was_ahead_of_undoes_nothing(
        self, bench: TaskBench
    ) -> None:
        await bench.put(1, n=1)
        await bench.source.delete_one({"_id": 1})
        deleted_at = await bench.cluster_time()
        await bench.put(1, n=2)
        await bench.edit(status="completed", nextRunAt=None)
        planned = await bench.record()
        await bench.plan(1, deleted=(1,), deleted_at=deleted_at)
        assert await bench.record() == planned

    async def test_of_what_a_reconciliation_found_unchanged_counts(self, bench: TaskBench) -> None:
        await bench.put(1, n=1)
        await bench.edit(status="completed", nextRunAt=None)
        await bench.source.delete_one({"_id": 1})
        deleted_at = await bench.cluster_time()
        await bench.put(1, n=1)
        assert (await bench.record())["status"] == "completed"
        await bench.plan(1, deleted=(1,), deleted_at=deleted_at)
        assert (await bench.record())["status"] == "pending"

    async def test_of_a_delete_counts_where_the_document_is_gone(self, bench: TaskBench) -> None:
        await bench.put(1, n=1)
        await bench.put(2, n=1)
        earlier = Timestamp(1, 1)
        await bench.source.delete_one({"_id": 1})
        await bench.plan(1, 2, deleted=(1,), deleted_at=earlier)
        assert "lastObservedValues" not in await bench.record(1)

    async def test_with_a_later_delete_rearms(self, bench: TaskBench) -> None:
        await bench.put(1, n=1)
        await bench.edit(status="completed", nextRunAt=None)
        await bench.source.delete_one({"_id": 1})
        deleted_at = await bench.cluster_time()
        await bench.source.insert_one({"_id": 1, "n": 1})
        await bench.plan(1, deleted=(1,), deleted_at=deleted_at)
        assert (await bench.record())["status"] == "pending"

    async def test_of_an_id_that_came_back_as_another_kind_of_number_rearms(
        self, bench: TaskBench
    ) -> None:
        await bench.put(1, n=1)
        await bench.edit(status="completed", nextRunAt=None)
        await bench.source.delete_one({"_id": 1})
        await bench.source.insert_one({"_id": 1.0, "n": 1})
        await bench.plan(1, 1.0, deleted=(1,))
        assert (await bench.record())["status"] == "pending"

    async def test_of_a_dropped_collection_undoes_nothing_that_was_planned_after_it(
        self, bench: TaskBench
    ) -> None:
        await bench.put(1, n=1)
        dropped_at = await bench.cluster_time()
        await bench.put(2, n=1)
        # Records that were planned before this version have no time.
        await bench.edit(1, lastObservedAt=None)
        planned = await bench.record(2)
        declaration = bench.definitions["invoice"].declaration
        await bench.plan_writer.rearm_all(declaration, dropped_at, after(1), 1)
        assert "lastObservedValues" not in await bench.record(1)
        assert await bench.record(2) == planned

    @pytest.mark.parametrize("garbage", ["x", {}, 5, NOW, [Timestamp(1, 1)]])
    async def test_of_a_delete_counts_where_no_cluster_time_is_stored(
        self, bench: TaskBench, garbage: Any
    ) -> None:
        await bench.put(1, n=1)
        await bench.edit(status="completed", nextRunAt=None, lastObservedAt=garbage)
        await bench.plan(1, deleted=(1,), deleted_at=await bench.cluster_time())
        assert (await bench.record())["status"] == "pending"


class TestTerms:
    async def test_refuse_what_a_former_leader_still_writes(self, bench: TaskBench) -> None:
        await bench.put(1, term=2, n=2)
        stored = await bench.record()
        await bench.put(1, term=1, now=after(9), n=1)
        assert await bench.record() == stored
        await bench.source.delete_one({"_id": 1})
        await bench.plan(1, deleted=(1,), term=1, now=after(9))
        assert await bench.record() == stored

    async def test_count_also_where_the_new_leader_found_nothing_new(
        self, bench: TaskBench
    ) -> None:
        await bench.put(1, term=1, n=1)
        await bench.put(1, term=2, now=after(1), n=1)
        stored = await bench.record()
        assert (stored["plannedTerm"], stored["updatedAt"]) == (2, NOW)
        # The former leader's flush read this before; if it counted, it would hide the next change.
        await bench.put(1, term=1, now=after(2), n=0)
        assert await bench.record() == stored

    async def test_count_also_where_the_new_leader_found_it_gone(self, bench: TaskBench) -> None:
        await bench.put(1, term=1, n=1)
        await bench.source.delete_one({"_id": 1})
        await bench.plan(1, term=2, now=after(1))
        left = await bench.record()
        await bench.put(1, term=1, now=after(2), n=1)
        assert await bench.record() == left

    async def test_of_a_newer_leader_take_over(self, bench: TaskBench) -> None:
        await bench.put(1, term=1, n=1)
        await bench.put(1, term=2, n=2)
        record = await bench.record()
        assert (record["plannedTerm"], record["lastObservedValues"]) == (2, {"n": 2})

    @pytest.mark.parametrize("garbage", ["x", {}, [], float("nan"), True])
    async def test_that_are_none_refuse_nothing(self, bench: TaskBench, garbage: Any) -> None:
        await bench.put(1, n=1)
        await bench.edit(plannedTerm=garbage)
        await bench.put(1, n=2)
        record = await bench.record()
        assert (record["plannedTerm"], record["lastObservedValues"]) == (1, {"n": 2})


class TestDebounce:
    async def test_waits_for_quiet_but_not_for_ever(self, bench: TaskBench) -> None:
        bench.define(debounce=1, max_wait=3)
        runs = []
        for step in range(9):
            await bench.put(1, now=after(step * 0.5), n=step)
            record = await bench.record()
            assert record["dueAt"] == after(1)
            runs.append((record["nextRunAt"] - NOW).total_seconds())
        assert runs == [1, 1.5, 2, 2.5, 3, 3, 3, 3, 3]

    async def test_of_zero_means_now(self, bench: TaskBench) -> None:
        bench.define(debounce=0)
        await bench.put(1, n=1)
        await bench.put(1, now=after(5), n=2)
        assert (await bench.record())["nextRunAt"] == NOW

    async def test_has_ten_times_its_length_by_default(self, bench: TaskBench) -> None:
        bench.define(debounce=2)
        await bench.put(1, n=1)
        for step in range(1, 20):
            await bench.put(1, now=after(step * 1.9), n=step + 1)
        assert (await bench.record())["nextRunAt"] == after(20)

    async def test_starts_anew_for_what_was_deferred(self, bench: TaskBench) -> None:
        bench.define(debounce=1, max_wait=3)
        await bench.put(1, n=1)
        await bench.edit(nextRunAt=after(3600))
        await bench.put(1, now=after(10), n=2)
        record = await bench.record()
        assert (record["nextRunAt"], record["dueAt"]) == (after(11), after(11))

    async def test_does_not_postpone_what_is_overdue(self, bench: TaskBench) -> None:
        bench.define(debounce=1, max_wait=3)
        await bench.put(1, n=1)
        await bench.put(1, now=after(3600), n=2)
        record = await bench.record()
        assert (record["nextRunAt"], record["dueAt"]) == (after(3), after(1))

    @pytest.mark.parametrize("garbage", [None, "x", 5, [], {}])
    async def test_survives_garbage(self, bench: TaskBench, garbage: Any) -> None:
        await bench.put(1, n=1)
        for fields in (
            {"dueAt": garbage},
            {"nextRunAt": garbage},
            {"dueAt": garbage, "nextRunAt": garbage, "attempts": None},
        ):
            await bench.edit(**fields)
            planned = await bench.put(1, now=after(20), n=str(fields))
            assert planned.parked == []
            assert isinstance((await bench.record())["nextRunAt"], datetime)


# status, attempts, reset_on_change → status, attempts, seconds to the next run, due, first error.
LOCK, RETRY_AT = 60, 40
CHANGES: list[tuple[str, int, bool, tuple[str, int, int, int, bool]]] = [
    ("pending", 0, True, ("pending", 0, 10, 1, False)),
    ("pending", 0, False, ("pending", 0, 10, 1, False)),
    ("pending", 2, True, ("pending", 0, 21, 21, False)),
    ("pending", 2, False, ("pending", 2, RETRY_AT, 1, True)),
    ("processing", 2, True, ("processing_dirty", 2, LOCK, 21, True)),
    ("processing", 2, False, ("processing_dirty", 2, LOCK, 21, True)),
    ("processing_dirty", 2, True, ("processing_dirty", 2, LOCK, 1, True)),
    ("processing_dirty", 2, False, ("processing_dirty", 2, LOCK, 1, True)),
    ("completed", 2, True, ("pending", 0, 21, 21, False)),
    ("completed", 2, False, ("pending", 0, 21, 21, False)),
    ("failed", 2, True, ("pending", 0, 21, 21, False)),
    ("failed", 2, False, ("pending", 2, 21, 21, True)),
    ("nonsense", 2, True, ("pending", 0, 21, 21, False)),
    ("nonsense", 2, False, ("pending", 0, 21, 21, False)),
]


class TestEachStatus:
    async def a_record(
        self, bench: TaskBench, status: str, attempts: int, reset: bool
    ) -> dict[str, Any]:
        bench.define(retry=Fixed(5), reset_on_change=reset)
        await bench.put(1, n=1)
        is_over = status in ("completed", "failed", "nonsense")
        next_run_at = after(LOCK if status.startswith("processing") else RETRY_AT)
        await bench.edit(
            status=status,
            attempts=attempts,
            nextRunAt=None if is_over else next_run_at if attempts else after(1),
            firstErrorAt=after(-5) if attempts else None,
            claimToken=AN_ID,
        )
        return await bench.record()

    @pytest.mark.parametrize(("status", "attempts", "reset", "expected"), CHANGES)
    async def test_when_values_change(
        self,
        bench: TaskBench,
        status: str,
        attempts: int,
        reset: bool,
        expected: tuple[str, int, int, int, bool],
    ) -> None:
        before = await self.a_record(bench, status, attempts, reset)
        await bench.put(1, now=after(20), n=2)
        record = await bench.record()
        assert (
            record["status"],
            record["attempts"],
            (record["nextRunAt"] - NOW).total_seconds(),
            (record["dueAt"] - NOW).total_seconds(),
            "firstErrorAt" in record,
        ) == expected
        assert record["lastObservedValues"] == {"n": 2}
        assert record["updatedAt"] == after(20)
        for field in ("createdAt", "claimToken", "_id"):
            assert record[field] == before[field]

    @pytest.mark.parametrize(("status", "attempts", "reset", "expected"), CHANGES)
    async def test_when_they_do_not(
        self, bench: TaskBench, status: str, attempts: int, reset: bool, expected: object
    ) -> None:
        before = await self.a_record(bench, status, attempts, reset)
        await bench.put(1, now=after(20), n=1)
        assert await bench.record() == before

    async def test_when_a_lock_is_missing(self, bench: TaskBench) -> None:
        await bench.put(1, n=1)
        await bench.edit(status="processing", nextRunAt=None)
        await bench.put(1, now=after(20), n=2)
        record = await bench.record()
        assert (record["status"], record["nextRunAt"]) == ("pending", after(21))


class TestBadDocuments:
    async def test_are_parked_one_by_one(self, bench: TaskBench) -> None:
        bench.define(watch={"number": {"$toInt": "$text"}})
        bad = {3, 4, 99, 500}
        await bench.source.insert_many(
            [{"_id": n, "text": "x" if n in bad else str(n)} for n in range(501)]
        )
        planned = await bench.plan(*range(501))
        assert set(parked_ids(planned)) == bad
        assert all("Failed to parse number 'x'" in str(error) for _, error in planned.parked)
        assert await bench.records.count_documents({}) == 501 - len(bad)
        assert planned.matched == 501 - len(bad)

    async def test_may_fail_in_the_filter(self, bench: TaskBench) -> None:
        bench.define(filter={"$expr": {"$gt": [{"$toInt": "$text"}, 0]}})
        await bench.source.insert_many([{"_id": n, "text": t} for n, t in enumerate("1x20")])
        planned = await bench.plan(*range(4))
        assert parked_ids(planned) == [1]
        assert planned.matched == 2

    async def test_may_have_no_id(self, bench: TaskBench) -> None:
        await bench.source.insert_many([{"_id": 1}, {"_id": None}, {"_id": 2}])
        planned = await bench.plan(1, None, 2)
        assert parked_ids(planned) == [None]
        assert await bench.records.count_documents({}) == 2

    async def test_may_be_too_large(self, bench: TaskBench) -> None:
        fits = "x" * (LARGEST_SNAPSHOT_BYTES - 100)
        await bench.source.insert_many(
            [{"_id": 1, "n": 1}, {"_id": 2, "n": fits}, {"_id": 3, "n": fits + "x" * 2**19}]
        )
        planned = await bench.plan(1, 2, 3)
        assert parked_ids(planned) == [3]
        assert f"at most {LARGEST_SNAPSHOT_BYTES} fit" in str(planned.parked[0][1])
        # A record that fits must still fit with a claim and its outcome.
        await bench.source.update_one({"_id": 2}, {"$set": {"z": 1}})
        assert (await bench.plan(2, now=after(1))).parked == []
        claimed = await bench.queue().claim_batch(
            [TaskCandidate(one["_id"], "invoice") for one in await bench.records.find().to_list()],
            ObjectId(),
            after(9),
        )
        assert len(claimed) == 2

    async def test_do_not_affect_deletions_of_others(self, bench: TaskBench) -> None:
        bench.define(watch={"number": {"$toInt": "$text"}})
        await bench.source.insert_many([{"_id": n, "text": "1"} for n in range(4)])
        await bench.plan(*range(4))
        for n in range(4):
            await bench.edit(n, status="completed", nextRunAt=None)
        await bench.source.update_one({"_id": 2}, {"$set": {"text": "x"}})
        await bench.source.delete_one({"_id": 0})
        planned = await bench.plan(*range(4), deleted=(0, 1))
        assert parked_ids(planned) == [2]
        states = [(await bench.record(n))["status"] for n in range(4)]
        assert states == ["completed", "pending", "completed", "completed"]
        assert "unmatchedAt" in await bench.record(0)

    async def test_are_planned_once_they_are_mended(self, bench: TaskBench) -> None:
        bench.define(watch={"number": {"$toInt": "$text"}})
        assert parked_ids(await bench.put(1, text="x")) == [1]
        assert (await bench.put(1, text="5")).parked == []
        assert (await bench.record())["lastObservedValues"] == {"number": 5}


class TestBrokenTask:
    @pytest.mark.parametrize(
        "options",
        [
            {"filter": {"$nonsense": 1}},
            {"filter": {"a": {"$in": 5}}},
            {"filter": {"$expr": {"$divide": [1, 0]}}},
            {"watch": {"a": {"$nonsense": 1}}},
            {"watch": {"a": {"$divide": [1, 0]}}},
        ],
    )
    async def test_parks_nothing(self, bench: TaskBench, options: dict[str, Any]) -> None:
        bench.define(**options)
        await bench.source.insert_many([{"_id": n} for n in range(8)])
        with pytest.raises(TaskBrokenError, match="'invoice' cannot be planned at all") as caught:
            await bench.plan(*range(8))
        assert caught.value.task == "invoice"
        assert caught.value.__cause__ is not None

    async def test_is_one_whose_records_have_no_index(self, own_bench: TaskBench) -> None:
        await own_bench.source.insert_one({"_id": 1})
        await own_bench.records.drop_indexes()
        with pytest.raises(TaskBrokenError, match="join fields will be unique"):
            await own_bench.plan(1)

    async def test_is_one_whose_records_are_refused(self, db: Db, own_bench: TaskBench) -> None:
        await own_bench.source.insert_many([{"_id": 1}, {"_id": 2}])
        await db.command("collMod", own_bench.records.name, validator={"never": True})
        with pytest.raises(TaskBrokenError, match="validation"):
            await own_bench.plan(1, 2)

    async def test_is_not_every_task(self, bench: TaskBench) -> None:
        bench.define(watch={"number": {"$toInt": "$text"}})
        planned = await bench.put(1, text="x")
        assert (parked_ids(planned), planned.matched) == ([1], 0)

    async def test_is_not_one_whose_planning_was_interrupted(
        self, client: AsyncMongoClient[dict[str, Any]], bench: TaskBench
    ) -> None:
        endless = {"body": "function() { while (true) {} }", "args": ["$a"], "lang": "js"}
        bench.define(watch={"a": {"$function": endless}})
        await bench.source.insert_one({"_id": 1})
        planning = asyncio.create_task(bench.plan(1))
        namespace = f"{bench.database}.{bench.collection}"
        while not (
            found := await (
                await client.admin.aggregate(
                    [{"$currentOp": {}}, {"$match": {"ns": namespace, "op": "command"}}]
                )
            ).to_list()
        ):
            await asyncio.sleep(0.01)
        await client.admin.command("killOp", op=found[0]["opid"])
        with pytest.raises(MonqueConnectionError, match="at the moment"):
            await planning

    async def test_is_not_one_that_met_another_leader(self, bench: TaskBench) -> None:
        await bench.source.insert_many([{"_id": n, "n": n} for n in range(300)])
        plans = await asyncio.gather(
            *(bench.plan(*range(300), term=term) for term in (1, 2, 1, 2)),
        )
        assert [planned.parked for planned in plans] == [[]] * 4
        assert await bench.records.count_documents({"plannedTerm": 2}) == 300
