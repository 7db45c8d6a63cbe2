"""Finding due records, and claiming them."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from bson import Decimal128, ObjectId

from monque_core.jobs.retry import Fixed
from monque_core.store.quarantine import Rejected
from monque_core.store.tasks.queue import ExhaustedRecord, TaskCandidate
from monque_core.tasks.outcome import SUCCEEDED
from monque_core.tasks.record import TaskRecord
from tests.support.task_bench import NOW, VISIBILITY, TaskBench, after

if TYPE_CHECKING:
    from collections.abc import Sequence

TOKEN = ObjectId()


async def put(bench: TaskBench, id: Any = 1, task: Any = "invoice", **fields: Any) -> ObjectId:
    """Store a due record as it is; None leaves a field out."""
    document: dict[str, Any] = {
        "_id": ObjectId(),
        "task": task,
        "sourceDocId": id,
        "status": "pending",
        "attempts": 0,
        "nextRunAt": NOW,
        "dueAt": NOW,
        "createdAt": NOW,
        "updatedAt": NOW,
        "lastObservedValues": {"n": 1},
        "plannedTerm": 1,
    } | fields
    document = {field: value for field, value in document.items() if value is not None}
    await bench.records.insert_one(document)
    record_id: ObjectId = document["_id"]
    return record_id


async def put_running(bench: TaskBench, id: Any = 1, **fields: Any) -> ObjectId:
    """Store a record whose process died, and whose lock has expired."""
    running: dict[str, Any] = {
        "status": "processing",
        "attempts": 1,
        "nextRunAt": after(-1),
        "startedAt": after(-61),
        "claimedBy": "dead",
        "claimToken": ObjectId(),
    }
    return await put(bench, id, **running | fields)


def candidates(found: Sequence[TaskCandidate | Rejected]) -> list[TaskCandidate]:
    assert all(isinstance(one, TaskCandidate) for one in found)
    return [one for one in found if isinstance(one, TaskCandidate)]


NOT_TO_BE_HAD: dict[str, dict[str, Any]] = {
    "not due": {"nextRunAt": after(0.001)},
    "running": {"status": "processing", "nextRunAt": after(1)},
    "running and dirty": {"status": "processing_dirty", "nextRunAt": after(1)},
    "completed": {"status": "completed", "nextRunAt": None},
    "failed": {"status": "failed", "nextRunAt": None},
    "completed, with a time": {"status": "completed"},
    "another task's": {"task": "ship"},
    "without a time": {"nextRunAt": None},
    "with a text for a time": {"nextRunAt": "2020"},
    "of an unknown status": {"status": "sleeping"},
}


class TestLook:
    async def test_sees_what_is_due_in_order(self, bench: TaskBench) -> None:
        bench.define("ship")
        ids = [
            await put(bench, 1, nextRunAt=after(-1)),
            await put(bench, 2, "ship", nextRunAt=after(-3), attempts=2),
            await put_running(bench, 3, nextRunAt=after(-2)),
            await put_running(bench, 4, status="processing_dirty", nextRunAt=after(-4)),
        ]
        found = candidates(await bench.queue().look(["invoice", "ship"], 10, NOW))
        assert [one.id for one in found] == [ids[3], ids[1], ids[2], ids[0]]
        assert [one.name for one in found] == ["invoice", "ship", "invoice", "invoice"]
        assert [one.interrupted for one in found] == [True, False, True, False]
        assert [one.attempts for one in found] == [1, 2, 1, 0]
        first = candidates(await bench.queue().look(["invoice", "ship"], 2, NOW))
        assert [one.id for one in first] == [ids[3], ids[1]]

    @pytest.mark.parametrize("reason", NOT_TO_BE_HAD)
    async def test_sees_nothing_else(self, bench: TaskBench, reason: str) -> None:
        await put(bench, **NOT_TO_BE_HAD[reason])
        queue = bench.queue()
        assert await queue.look(["invoice"], 10, NOW) == []
        assert await queue.look_at_each({"invoice": 10}, NOW) == []
        assert not await queue.has_due(["invoice"], NOW)
        assert await queue.claim_first("invoice", TOKEN, NOW) is None

    async def test_at_each_task_lets_none_hide_another(self, bench: TaskBench) -> None:
        for n in range(9):
            await put(bench, n, "crowd", nextRunAt=after(-n))
        await put(bench, 1, "lonely")
        found = await bench.queue().look_at_each({"crowd": 2, "lonely": 5, "absent": 3}, NOW)
        assert [one.name for one in candidates(found)] == ["crowd", "crowd", "lonely"]

    async def test_ahead_tells_when_what_is_due(self, bench: TaskBench) -> None:
        await put(bench, 1, nextRunAt=after(5))
        await put(bench, 2, nextRunAt=after(3))
        await put(bench, 3, nextRunAt=after(11))
        await put(bench, 4, nextRunAt=NOW)
        await put(bench, 5, "ship", nextRunAt=after(4))
        await put_running(bench, 6, nextRunAt=after(2))
        await put(bench, 7, ["invoice"], nextRunAt=after(4))
        upcoming = await bench.queue().upcoming(["invoice"], NOW, after(10), 10)
        assert upcoming == [("invoice", after(3)), ("invoice", after(5))]

    async def test_leaves_locks_alone_that_could_not_be_renewed(self, bench: TaskBench) -> None:
        await put_running(bench, 1)
        await put(bench, 2)
        # MongoDB took 20 seconds to answer, and a lock of 60 seconds is renewed every 12.
        bench.handle.connectivity.made(time.monotonic() - 20)
        queue = bench.queue()
        assert len(await queue.look(["invoice"], 10, NOW)) == 1
        assert len(await queue.look_at_each({"invoice": 10}, NOW)) == 1
        first = await queue.claim_first("invoice", TOKEN, NOW)
        assert isinstance(first, TaskRecord)
        assert first.source_id == 2
        assert await queue.claim_first("invoice", TOKEN, NOW) is None


class TestClaim:
    async def test_takes_the_first_due_record(self, bench: TaskBench) -> None:
        await put(bench, 1, nextRunAt=after(-1))
        first = await put(bench, 2, nextRunAt=after(-2), dueAt=after(-5), attempts=1)
        record = await bench.queue().claim_first("invoice", TOKEN, NOW)
        assert record == TaskRecord(
            id=first,
            task="invoice",
            source_id=2,
            status="processing",
            created_at=NOW,
            updated_at=NOW,
            attempts=2,
            next_run_at=NOW + VISIBILITY,
            due_at=after(-5),
            started_at=NOW,
            values={"n": 1},
            claimed_by="me",
            claim_token=TOKEN,
            planned_term=1,
        )
        assert set(await bench.record(2)) & {"_claim", "executionHistory", "firstErrorAt"} == set()

    async def test_together_takes_what_is_still_to_be_had(self, bench: TaskBench) -> None:
        bench.define("ship")
        for n in range(6):
            await put(bench, n, ["invoice", "ship"][n % 2], dueAt=after(-n))
        mine, other = bench.queue(), bench.queue("other")
        found = candidates(await mine.look(["invoice", "ship"], 10, NOW))
        taken = await other.claim_one(found[0], ObjectId(), NOW)
        assert isinstance(taken, TaskRecord)
        records = await mine.claim_batch(found, TOKEN, NOW)
        assert [one.source_id for one in records if isinstance(one, TaskRecord)] == [5, 4, 3, 2, 1]
        assert {one.claimed_by for one in records if isinstance(one, TaskRecord)} == {"me"}
        assert await mine.claim_batch(found, ObjectId(), NOW) == []

    async def test_gives_each_record_to_one(self, bench: TaskBench) -> None:
        for n in range(20):
            await put(bench, n)
        queues = [bench.queue(f"instance-{n}") for n in range(5)]
        found = candidates(await queues[0].look(["invoice"], 20, NOW))
        claims = await asyncio.gather(
            *(queue.claim_batch(found, ObjectId(), NOW) for queue in queues),
            *(queue.claim_first("invoice", ObjectId(), NOW) for queue in queues),
        )
        ids = [
            record.id
            for claim in claims
            for record in (claim if isinstance(claim, list) else [claim])
            if record is not None
        ]
        assert sorted(ids, key=str) == sorted((one.id for one in found), key=str)

    async def test_is_found_again_by_its_token(self, bench: TaskBench) -> None:
        bench.define("ship")
        await put(bench, 1)
        await put(bench, 2, "ship")
        found = candidates(await bench.queue().look(["invoice", "ship"], 10, NOW))
        claimed = await bench.queue().claim_batch(found, TOKEN, NOW)
        assert await bench.queue().claimed_with(TOKEN, ["invoice", "ship"], NOW) == claimed
        await bench.edit(2, "ship", status="processing_dirty")
        assert len(await bench.queue().claimed_with(TOKEN, ["invoice", "ship"], NOW)) == 2
        assert await bench.queue().claimed_with(ObjectId(), ["invoice", "ship"], NOW) == []
        assert await bench.queue().claimed_with(TOKEN, ["invoice", "ship"], after(1)) == []

    @pytest.mark.parametrize("name", ["$task", "$$ROOT", "$"])
    async def test_takes_names_for_what_they_are(self, bench: TaskBench, name: str) -> None:
        bench.define("ship", retry=Fixed(1, max_attempts=1))
        await put_running(bench, name, claimedBy=name)
        record = await bench.queue(name).claim_first("invoice", TOKEN, NOW)
        assert isinstance(record, TaskRecord)
        assert (record.claimed_by, record.source_id) == (name, name)


class TestTakeover:
    async def test_counts_the_run_that_never_ended(self, bench: TaskBench) -> None:
        await put_running(bench, attempts=2, claimToken=TOKEN)
        record = await bench.claim()
        assert (record.attempts, record.first_error_at) == (3, NOW)
        assert record.claim_token != TOKEN
        (entry,) = record.history
        assert (entry.at, entry.status) == (NOW, "interrupted")
        assert "died or stalled" in str(entry.error)

    async def test_keeps_the_time_of_the_first_error(self, bench: TaskBench) -> None:
        await put_running(bench, firstErrorAt=after(-99))
        assert (await bench.claim()).first_error_at == after(-99)

    async def test_is_no_fault_of_a_record_that_only_waited(self, bench: TaskBench) -> None:
        await put(bench, attempts=2)
        record = await bench.claim()
        assert (record.attempts, record.first_error_at, record.history) == (3, None, ())

    @pytest.mark.parametrize(
        ("retry", "fields"),
        [
            (Fixed(1, max_attempts=3), {"attempts": 3}),
            (Fixed(1, max_attempts=3), {"attempts": 8}),
            (Fixed(1, max_duration=60, max_attempts=None), {"firstErrorAt": after(-60)}),
            (Fixed(1, max_duration=60), {"firstErrorAt": after(-99)}),
        ],
    )
    async def test_gives_up_what_is_spent(
        self, bench: TaskBench, retry: Fixed, fields: dict[str, Any]
    ) -> None:
        bench.define(retry=retry)
        before = await put_running(bench, **fields)
        spent = await bench.queue().claim_first("invoice", TOKEN, NOW)
        assert isinstance(spent, ExhaustedRecord)
        assert spent.id == spent.record.id == before
        assert "died or stalled" in str(spent.error)
        stored = await bench.record()
        assert stored["status"] == "failed"
        assert stored["nextRunAt"] is None
        assert "died or stalled" in stored["lastError"]
        assert stored["attempts"] == fields.get("attempts", 1)
        assert stored["lastFinalizedAt"] == NOW
        assert stored["startedAt"] == after(-61)
        assert [entry["status"] for entry in stored["executionHistory"]] == ["interrupted"]
        assert "claimedBy" not in stored
        assert await bench.queue().claim_first("invoice", TOKEN, NOW) is None

    @pytest.mark.parametrize(
        ("retry", "fields"),
        [
            (Fixed(1, max_attempts=3), {"attempts": 2}),
            (Fixed(1, max_attempts=None), {"attempts": 10**6}),
            (Fixed(1, max_duration=60), {"firstErrorAt": after(-59.999)}),
            (Fixed(1, max_duration=60), {}),
            (Fixed(1, max_attempts=3), {"attempts": 3, "status": "pending"}),
        ],
    )
    async def test_goes_on_with_what_is_not(
        self, bench: TaskBench, retry: Fixed, fields: dict[str, Any]
    ) -> None:
        bench.define(retry=retry)
        await put_running(bench, **fields)
        assert (await bench.claim()).attempts == fields.get("attempts", 1) + 1

    @pytest.mark.parametrize("reset", [True, False])
    async def test_of_a_dirty_one_is_for_the_new_state(self, bench: TaskBench, reset: bool) -> None:
        bench.define(retry=Fixed(1, max_attempts=3), reset_on_change=reset)
        await put_running(bench, status="processing_dirty", attempts=3, firstErrorAt=after(-9))
        record = await bench.claim()
        assert record.status == "processing"
        assert record.attempts == (1 if reset else 4)
        assert record.first_error_at == (None if reset else after(-9))
        assert [entry.status for entry in record.history] == ["interrupted"]

    async def test_judges_each_task_by_its_own_rules(self, bench: TaskBench) -> None:
        bench.define("a", retry=Fixed(1, max_attempts=2), history=1)
        bench.define("b", retry=Fixed(1, max_attempts=9), history=0)
        bench.define("c", retry=Fixed(1, max_duration=1), history=2)
        old = [{"at": after(-n), "status": "failed"} for n in (9, 8, 7)]
        for task in "abc":
            await put_running(bench, 1, task=task, attempts=2, executionHistory=old)
            await put_running(
                bench, 2, task=task, attempts=2, status="processing_dirty", executionHistory=old
            )
        found = candidates(await bench.queue().look(["a", "b", "c"], 10, NOW))
        claimed = await bench.queue().claim_batch(found, TOKEN, NOW)
        assert [one.record.task for one in claimed if isinstance(one, ExhaustedRecord)] == ["a"]
        assert len([one for one in claimed if isinstance(one, TaskRecord)]) == 5
        kept = {task: (await bench.record(1, task)).get("executionHistory") for task in "abc"}
        assert kept["b"] is None
        assert [len(kept[task] or ()) for task in "ac"] == [1, 2]

    async def test_ends_a_crash_loop(self, bench: TaskBench) -> None:
        bench.define(retry=Fixed(1, max_attempts=3))
        await put(bench)
        at = NOW
        found: object = None
        for _ in range(9):
            found = await bench.queue().claim_first("invoice", ObjectId(), at)
            if not isinstance(found, TaskRecord):
                break
            at += VISIBILITY
        assert isinstance(found, ExhaustedRecord)
        assert found.record.attempts == 3
        assert len(found.record.history) == 3

    async def test_leaves_a_stalled_worker_nothing_to_write(self, bench: TaskBench) -> None:
        await put(bench)
        stalled = await bench.claim()
        awake = after(VISIBILITY.total_seconds())
        assert (await bench.claim(now=awake, instance_id="other")).attempts == 2
        taken = await bench.record()
        assert await bench.settle(stalled, SUCCEEDED, awake) == "lost"
        lost = await bench.outcomes().renew([stalled], awake)
        assert lost == {(stalled.id, stalled.claim_token): "lost"}
        assert await bench.record() == taken


GARBAGE: dict[str, dict[str, Any]] = {
    "no source": {"sourceDocId": None},
    "attempts that are no number": {"attempts": float("nan")},
    "negative attempts": {"attempts": -5},
    "half an attempt": {"attempts": 1.5},
    "attempts beyond counting": {"attempts": 1e300},
    "decimal attempts": {"attempts": Decimal128("1")},
}
MENDED: dict[str, dict[str, Any]] = {
    "no attempts": {"attempts": None},
    "attempts of text": {"attempts": "x"},
    "whole floats": {"attempts": 1.0},
    "no dates": {"createdAt": None, "updatedAt": None, "dueAt": None},
    "dates of text": {"createdAt": "x", "firstErrorAt": "x", "dueAt": [], "startedAt": {}},
    "a history of text": {"executionHistory": "x", "status": "processing"},
    "a history of all sorts": {"executionHistory": [1, None, {}, {"at": 1}, {"at": NOW}]},
    "odd successes": {"lastSuccess": {"at": "x"}, "lastError": 5, "claimToken": "x"},
    "no values": {"lastObservedValues": None, "plannedTerm": "x"},
    "a date out of reach": {"dueAt": Decimal128("1"), "status": "processing_dirty"},
    "a list of times": {"nextRunAt": [after(-1), after(99)]},
}


class TestGarbage:
    @pytest.mark.parametrize("kind", GARBAGE)
    async def test_is_set_aside_once(self, bench: TaskBench, kind: str) -> None:
        record_id = await put(bench, **GARBAGE[kind])
        sound = await put(bench, 2, nextRunAt=after(-1))
        found = candidates(await bench.queue().look(["invoice"], 9, NOW))
        claimed = await bench.queue().claim_batch(found, TOKEN, NOW)
        rejected = [one for one in claimed if isinstance(one, Rejected)]
        assert [one.id for one in rejected] == [record_id]
        assert "cannot be read" in str(rejected[0].error)
        assert sound in [one.id for one in claimed]
        stored = await bench.records.find_one({"_id": record_id})
        assert stored is not None
        assert (stored["status"], stored["nextRunAt"]) == ("failed", None)
        assert "cannot be read" in stored["lastError"]
        assert "claimedBy" not in stored
        assert await bench.queue().look(["invoice"], 9, NOW) == []

    async def test_is_set_aside_when_a_task_is_several(self, bench: TaskBench) -> None:
        record_id = await put(bench, task=["invoice", "ship"])
        (found,) = await bench.queue().look(["invoice"], 9, NOW)
        assert isinstance(found, Rejected)
        assert found.id == record_id
        assert await bench.queue().look(["invoice"], 9, NOW) == []

    async def test_is_set_aside_when_its_own_id_is_odd(self, bench: TaskBench) -> None:
        await put(bench, _id="odd")
        assert isinstance(await bench.queue().claim_first("invoice", TOKEN, NOW), Rejected)

    @pytest.mark.parametrize("kind", MENDED)
    async def test_that_does_not_matter_is_overlooked(self, bench: TaskBench, kind: str) -> None:
        await put(bench, **MENDED[kind])
        record = await bench.claim()
        assert record.attempts in (1, 2)
        assert isinstance(record.created_at, datetime)
        settled = await bench.settle(record, SUCCEEDED, after(1))
        assert isinstance(settled, TaskRecord)
        assert settled.status == "completed"
        assert settled.last_success is not None
        assert settled.last_success.duration == timedelta(seconds=2)
