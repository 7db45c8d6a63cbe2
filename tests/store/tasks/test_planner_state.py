"""The stored progress of the planner, and what a former leader may not write."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from bson import Int64, ObjectId, Regex

from monque_core.errors import LeadershipLostError
from monque_core.store.driver import Driver
from monque_core.store.tasks.planner_state import ParkedDocument, PlannerState
from monque_core.store.tasks.source_collections import LastId
from monque_core.tasks.definition import Cleanup
from tests.support.declarations import a_declaration
from tests.support.samples import NOW

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core.store.tasks.declarations import DeclaredTask, ReconcileRequest

    Db = AsyncDatabase[dict[str, Any]]

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
META = "monque_jobs_meta"


@pytest.fixture
def state(db: Db) -> PlannerState:
    return PlannerState(Driver(db).collection(META))


async def the_task(state: PlannerState, name: str = "invoice") -> DeclaredTask:
    (task,) = [each for each in await state.all_declarations() if each.declaration.name == name]
    return task


async def asked(state: PlannerState) -> ReconcileRequest:
    reconciliation = (await the_task(state)).reconciliation
    assert reconciliation is not None
    return reconciliation


async def reconciled(state: PlannerState, term: int = 1) -> None:
    """Complete a reconciliation that was requested."""
    assert await state.mark_reconciled("invoice", (await asked(state)).ticket, NOW, term)


class TestDeclaring:
    async def test_stores_all_that_another_process_needs(self, state: PlannerState) -> None:
        declaration = a_declaration(
            watch={"total": 1, "vat": {"$multiply": ["$total", "$rate"]}},
            filter={
                "status": {"$in": ["paid", "$late"]},
                "at": {"$gt": NOW},
                "by": ObjectId(),
                "n": Int64(2**40),
                "note": {"$regex": "^a", "$options": "i"},
                "code": Regex("x", "m"),
                "$or": [{"a.b": None}, {"$expr": {"$gt": ["$a", "$b"]}}],
            },
            debounce=0.25,
            max_wait=7,
            cleanup=Cleanup("unmatched", 90),
            version=3,
            on_version_change="failed",
            reconcile_on_change=False,
        )
        await state.declare(declaration, NOW)
        task = await the_task(state)
        assert task.declaration == declaration
        assert task.declaration.fingerprint == declaration.fingerprint
        assert (task.seen_at, task.applied_version, task.error) == (NOW, 3, None)

    async def test_a_new_task_asks_for_its_reconciliation(self, state: PlannerState) -> None:
        await state.declare(a_declaration(), NOW)
        reconciliation = await asked(state)
        assert (reconciliation.phase, reconciliation.after) == ("scan", None)
        assert (reconciliation.asked_at, reconciliation.reason) == (NOW, "the task is new")
        assert (await the_task(state)).reconciled_at is None

    async def test_again_and_again_asks_once(self, state: PlannerState) -> None:
        await state.declare(a_declaration(), NOW)
        first = await asked(state)
        await asyncio.gather(*(state.declare(a_declaration(), NOW) for _ in range(20)))
        assert await asked(state) == first
        await reconciled(state)
        await state.declare(a_declaration(), NOW + HOUR)
        task = await the_task(state)
        assert (task.reconciliation, task.reconciled_at) == (None, NOW)

    async def test_by_many_instances_at_once_is_one_task(self, state: PlannerState) -> None:
        await asyncio.gather(*(state.declare(a_declaration(), NOW) for _ in range(20)))
        assert len(await state.all_declarations()) == 1

    @pytest.mark.parametrize(
        "changed", [{"filter": {"a": 1}}, {"watch": ["a"]}], ids=["filter", "watch"]
    )
    async def test_what_it_looks_at_otherwise_asks_again(
        self, state: PlannerState, changed: dict[str, Any]
    ) -> None:
        await state.declare(a_declaration(), NOW)
        await reconciled(state)
        await state.declare(a_declaration(**changed), NOW)
        assert "filter or watch" in (await asked(state)).reason

    async def test_a_change_that_does_not_matter_asks_for_nothing(
        self, state: PlannerState
    ) -> None:
        await state.declare(a_declaration(), NOW)
        await reconciled(state)
        await state.declare(a_declaration(debounce=9), NOW)
        await state.declare(a_declaration(filter={"a": 1}, reconcile_on_change=False), NOW)
        task = await the_task(state)
        assert task.reconciliation is None
        assert task.declaration.filter == {"a": 1}

    @pytest.mark.parametrize("elsewhere", [("shop", "offers"), ("market", "orders")])
    async def test_another_collection_asks_always(
        self, state: PlannerState, elsewhere: tuple[str, str]
    ) -> None:
        await state.declare(a_declaration(), NOW)
        await reconciled(state)
        await state.declare(a_declaration(*elsewhere, reconcile_on_change=False), NOW)
        assert "collection" in (await asked(state)).reason

    async def test_what_was_away_for_a_day_asks_again(self, state: PlannerState) -> None:
        await state.declare(a_declaration(), NOW)
        await reconciled(state)
        await state.declare(a_declaration(), NOW + 22 * HOUR)
        assert (await the_task(state)).reconciliation is None
        await state.declare(a_declaration(), NOW + 22 * HOUR + DAY)
        assert "no instance" in (await asked(state)).reason

    async def test_restarts_a_reconciliation_under_way_if_it_looks_at_other_things(
        self, state: PlannerState
    ) -> None:
        await state.declare(a_declaration(), NOW)
        old = await asked(state)
        assert await state.checkpoint("invoice", old.ticket, "orphans", LastId(7), 1)
        await state.declare(a_declaration(filter={"a": 1}), NOW)
        new = await asked(state)
        assert (new.phase, new.after) == ("scan", None)
        assert new.ticket != old.ticket

    async def test_leaves_another_version_for_the_leader_to_see(self, state: PlannerState) -> None:
        await state.declare(a_declaration(version=1), NOW)
        await state.declare(a_declaration(version=4), NOW)
        task = await the_task(state)
        assert (task.applied_version, task.declaration.version) == (1, 4)
        assert await state.mark_version("invoice", 4, 1)
        await state.declare(a_declaration(version=4), NOW)
        assert (await the_task(state)).applied_version == 4

    async def test_names_and_places_may_look_like_fields(self, state: PlannerState) -> None:
        for _ in range(2):
            await state.declare(a_declaration(collection="orders", name="$task"), NOW)
        assert [each.declaration.name for each in await state.declarations(NOW)] == ["$task"]

    async def test_what_cannot_be_read_is_left_out_and_said(
        self, db: Db, state: PlannerState, caplog: pytest.LogCaptureFixture
    ) -> None:
        await state.declare(a_declaration(name="invoice"), NOW)
        await state.declare(a_declaration(name="remind"), NOW)
        await db[META].update_one({"_id": "reactive:task:remind"}, {"$set": {"filter": "{"}})
        await db[META].insert_one({"_id": "reactive:task:future", "seenAt": NOW})
        tasks = await state.declarations(NOW)
        assert [task.declaration.name for task in tasks] == ["invoice"]
        assert "reactive:task:remind is left out" in caplog.text


class TestBeingSeen:
    async def test_is_renewed_for_what_is_declared(self, state: PlannerState) -> None:
        await state.declare(a_declaration(), NOW)
        assert await state.refresh(["invoice", "unknown"], NOW + HOUR) == 1
        assert (await the_task(state)).seen_at == NOW + HOUR
        assert len(await state.all_declarations()) == 1

    async def test_never_goes_back(self, state: PlannerState) -> None:
        await state.declare(a_declaration(), NOW)
        await state.refresh(["invoice"], NOW - HOUR)
        await state.declare(a_declaration(), NOW - HOUR)
        assert (await the_task(state)).seen_at == NOW

    async def test_ends_a_day_after_the_last_time(self, state: PlannerState) -> None:
        await state.declare(a_declaration(name="old"), NOW - DAY)
        await state.declare(a_declaration(name="new"), NOW - DAY + HOUR)
        seen = await state.declarations(NOW)
        assert [task.declaration.name for task in seen] == ["new"]
        everything = await state.all_declarations()
        assert [task.is_forgotten(NOW) for task in everything] == [False, True]


class TestReconciliation:
    @pytest.mark.parametrize(
        "last",
        [None, 7, "x", {"a": {"$b": 1}}, ObjectId(), NOW, True],
        ids=lambda last: type(last).__name__,
    )
    async def test_goes_on_after_any_id(self, state: PlannerState, last: object) -> None:
        await state.declare(a_declaration(), NOW)
        ticket = (await asked(state)).ticket
        assert await state.checkpoint("invoice", ticket, "scan", LastId(last), 1)
        assert (await asked(state)).after == LastId(last)
        assert await state.checkpoint("invoice", ticket, "orphans", None, 1)
        reconciliation = await asked(state)
        assert (reconciliation.phase, reconciliation.after) == ("orphans", None)

    async def test_can_be_asked_for_at_any_time(self, state: PlannerState) -> None:
        await state.declare(a_declaration(), NOW)
        await reconciled(state)
        assert await state.ask_reconcile("invoice", "history was lost", NOW + HOUR)
        reconciliation = await asked(state)
        assert (reconciliation.reason, reconciliation.asked_at) == ("history was lost", NOW + HOUR)
        assert not await state.ask_reconcile("unknown", "history was lost", NOW)

    async def test_asked_for_anew_is_neither_moved_on_nor_completed_by_the_former(
        self, state: PlannerState
    ) -> None:
        await state.declare(a_declaration(), NOW)
        former = (await asked(state)).ticket
        await state.ask_reconcile("invoice", "by hand", NOW)
        assert not await state.checkpoint("invoice", former, "orphans", LastId(1), 1)
        assert not await state.mark_reconciled("invoice", former, NOW, 1)
        task = await the_task(state)
        assert task.reconciled_at is None
        assert task.reconciliation is not None
        assert task.reconciliation.phase == "scan"

    async def test_of_a_task_that_is_gone_is_no_loss_of_leadership(
        self, state: PlannerState
    ) -> None:
        assert not await state.checkpoint("invoice", ObjectId(), "scan", None, 1)
        assert not await state.set_error("invoice", "bad", 1)


class TestErrors:
    async def test_are_kept_until_they_are_over(self, state: PlannerState) -> None:
        await state.declare(a_declaration(), NOW)
        assert await state.set_error("invoice", "$bad expression", 1)
        assert (await the_task(state)).error == "$bad expression"
        assert await state.set_error("invoice", None, 1)
        assert (await the_task(state)).error is None


class TestTokens:
    async def test_are_kept_for_each_database(self, state: PlannerState) -> None:
        assert await state.load_token("shop") is None
        await state.save_token("shop", {"_data": "$1"}, NOW, 1)
        await state.save_token("market", {"_data": "2"}, NOW + HOUR, 1)
        await state.save_token("shop", {"_data": "3", "_typeBits": b"x"}, NOW + HOUR, 1)
        assert await state.load_token("shop") == {"_data": "3", "_typeBits": b"x"}
        assert await state.load_token("market") == {"_data": "2"}
        places = {place.database: place.up_to for place in await state.streams()}
        assert places == {"shop": NOW + HOUR, "market": NOW + HOUR}


def a_parked(source_id: object, task: str = "invoice", **changes: Any) -> ParkedDocument:
    fields: dict[str, Any] = {
        "database": "shop",
        "collection": "orders",
        "error": "$bad",
        "at": NOW,
    } | changes
    return ParkedDocument(task=task, source_id=source_id, **fields)


class TestParking:
    async def test_keeps_one_entry_for_each_document_and_task(self, state: PlannerState) -> None:
        entries = [
            a_parked(None),
            a_parked("1"),
            a_parked(1),
            a_parked({"a": "$b"}),
            a_parked(1, task="remind"),
            a_parked(1, collection="offers"),
        ]
        for entry in entries * 2:
            await state.park(entry, 1)
        found = await state.parked()
        assert sorted(map(repr, found)) == sorted(map(repr, entries))
        assert await state.count_parked() == {"invoice": 5, "remind": 1}
        assert len(await state.parked("remind")) == 1
        assert len(await state.parked(limit=2)) == 2

    async def test_ends_for_what_could_be_planned(self, state: PlannerState) -> None:
        for source_id in (None, 1, 2):
            await state.park(a_parked(source_id), 1)
        assert await state.unpark(a_declaration(), [None, 2, 3]) == 2
        assert [each.source_id for each in await state.parked()] == [1]

    async def test_ends_for_what_a_reconciliation_did_not_meet_again(
        self, state: PlannerState
    ) -> None:
        await state.park(a_parked(1), 1)
        await state.park(a_parked(2), 1)
        await state.park(a_parked(1, task="remind"), 1)
        await state.park(a_parked(2, at=NOW + HOUR), 1)
        assert await state.unpark_before("invoice", NOW + HOUR) == 1
        left = [(each.task, each.source_id) for each in await state.parked()]
        assert sorted(left) == [("invoice", 2), ("remind", 1)]


STATE_WRITES: dict[str, Callable[[PlannerState, ObjectId, int], Awaitable[object]]] = {
    "checkpoint": lambda one, ticket, term: one.checkpoint(
        "invoice", ticket, "orphans", LastId(9), term
    ),
    "mark_reconciled": lambda one, ticket, term: one.mark_reconciled("invoice", ticket, NOW, term),
    "mark_version": lambda one, _, term: one.mark_version("invoice", 9, term),
    "set_error": lambda one, _, term: one.set_error("invoice", "of a former leader", term),
    "save_token": lambda one, _, term: one.save_token("shop", {"_data": "9"}, NOW + HOUR, term),
}


@pytest.mark.parametrize("write", STATE_WRITES.values(), ids=STATE_WRITES)
class TestAFormerLeader:
    async def prepared(self, state: PlannerState) -> ObjectId:
        await state.declare(a_declaration(), NOW)
        await state.save_token("shop", {"_data": "1"}, NOW, 1)
        return (await asked(state)).ticket

    async def test_is_refused_once_a_later_one_has_taken_over(
        self, db: Db, state: PlannerState, write: Any
    ) -> None:
        ticket = await self.prepared(state)
        await state.take_over(2)
        before = await db[META].find().to_list()
        with pytest.raises(LeadershipLostError, match="the term 1 is over"):
            await write(state, ticket, 1)
        assert await db[META].find().to_list() == before

    async def test_is_refused_once_a_later_one_has_written(
        self, db: Db, state: PlannerState, write: Any
    ) -> None:
        ticket = await self.prepared(state)
        await write(state, ticket, 5)
        before = await db[META].find().to_list()
        with pytest.raises(LeadershipLostError):
            await write(state, ticket, 4)
        assert await db[META].find().to_list() == before

    async def test_may_write_as_long_as_it_is_the_last(
        self, db: Db, state: PlannerState, write: Any
    ) -> None:
        ticket = await self.prepared(state)
        before = await db[META].find().to_list()
        await state.take_over(2**45)
        await write(state, ticket, 2**45)
        assert await db[META].find().to_list() != before


async def test_a_former_leader_parks_nothing_that_a_later_one_has(
    state: PlannerState,
) -> None:
    await state.park(a_parked(1, error="new"), 2)
    with pytest.raises(LeadershipLostError):
        await state.park(a_parked(1, error="old"), 1)
    assert [each.error for each in await state.parked()] == ["new"]


async def test_taking_over_leaves_a_later_leader_alone(db: Db, state: PlannerState) -> None:
    await state.declare(a_declaration(), NOW)
    await state.take_over(7)
    await state.take_over(6)
    stored = await db[META].find_one({"_id": "reactive:task:invoice"})
    assert stored is not None
    assert stored["term"] == 7


async def test_leases_and_progress_leave_each_other_alone(db: Db, state: PlannerState) -> None:
    await db[META].insert_one({"_id": "reactive:leader", "holder": "me", "expiresAt": NOW})
    await state.declare(a_declaration(), NOW)
    await state.take_over(3)
    await state.unpark_before("invoice", NOW + DAY)
    lease = await db[META].find_one({"_id": "reactive:leader"})
    assert lease is not None
    assert "term" not in lease
    assert len(await state.all_declarations()) == 1
    # The server would delete a document with this field a day later.
    assert await db[META].count_documents({"expiresAt": {"$exists": True}}) == 1
