"""Renewing claims of records, and writing the outcomes of their runs."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from bson import ObjectId
from pymongo.errors import OperationFailure, WriteError

from monque_core.jobs.retry import Fixed
from monque_core.store.tasks.outcomes import TaskSettlement
from monque_core.tasks.outcome import (
    RELEASED,
    SKIPPED,
    SUCCEEDED,
    Deferred,
    Failed,
    Outcome,
    Retrying,
)
from monque_core.tasks.record import Execution, RunSummary, TaskRecord
from tests.support.task_bench import NOW, VISIBILITY, TaskBench, after

if TYPE_CHECKING:
    from pymongo import AsyncMongoClient

    Client = AsyncMongoClient[dict[str, Any]]

START, END = after(1), after(5)
LATER = after(1000)


async def a_claim(bench: TaskBench, id: Any = 1, **fields: Any) -> TaskRecord:
    """Plan and claim a record that has had one failed run before."""
    await bench.put(id, n=1)
    before: dict[str, Any] = {"attempts": 1, "firstErrorAt": after(-50), "lastError": "before"}
    await bench.edit(id, **before | fields)
    return await bench.claim(now=START)


async def soil(bench: TaskBench, id: Any = 1, now: Any = START) -> None:
    """Change the document while its record is being processed."""
    await bench.put(id, now=now, n=2)
    assert (await bench.record(id))["status"] == "processing_dirty"


# outcome → status, seconds to the next run, attempts, first error kept, last error.
CLEAN: dict[str, tuple[Outcome, tuple[str, float | None, int, float | None, str | None]]] = {
    "succeeded": (SUCCEEDED, ("completed", None, 2, None, None)),
    "skipped": (SKIPPED, ("completed", None, 2, None, None)),
    "failed": (Retrying("$oops", LATER), ("pending", 1000, 2, -50, "$oops")),
    "given up": (Failed("$oops"), ("failed", None, 2, -50, "$oops")),
    "deferred": (Deferred(LATER), ("pending", 1000, 1, -50, "before")),
    "deferred and failed": (Deferred(LATER, "$oops"), ("pending", 1000, 2, -50, "$oops")),
    "released": (RELEASED, ("pending", 5, 1, -50, "before")),
}
# The record was dirtied at 1 s, and the run ended at 5 s: with 1 s of debounce it is due at 6 s.
DIRTY = {
    "succeeded": ("pending", 6, 0, None, None),
    "skipped": ("pending", 6, 0, None, None),
    "failed": ("pending", 6, 0, None, "$oops"),
    "given up": ("pending", 6, 0, None, "$oops"),
    "deferred": ("pending", 6, 0, None, "before"),
    "deferred and failed": ("pending", 6, 0, None, "$oops"),
    "released": ("pending", 6, 0, None, "before"),
}
DIRTY_AND_COUNTED = {
    "succeeded": ("pending", 6, 0, None, None),
    "skipped": ("pending", 6, 0, None, None),
    "failed": ("pending", 1000, 2, -50, "$oops"),
    "given up": ("pending", 6, 2, -50, "$oops"),
    "deferred": ("pending", 6, 1, -50, "before"),
    "deferred and failed": ("pending", 6, 2, -50, "$oops"),
    "released": ("pending", 6, 1, -50, "before"),
}


def summary(stored: dict[str, Any]) -> tuple[str, float | None, int, float | None, str | None]:
    next_run_at, first_error_at = stored["nextRunAt"], stored.get("firstErrorAt")
    return (
        stored["status"],
        None if next_run_at is None else (next_run_at - NOW).total_seconds(),
        stored["attempts"],
        None if first_error_at is None else (first_error_at - NOW).total_seconds(),
        stored.get("lastError"),
    )


class TestOutcome:
    @pytest.mark.parametrize("kind", CLEAN)
    async def test_of_a_clean_run(self, bench: TaskBench, kind: str) -> None:
        outcome, expected = CLEAN[kind]
        record = await a_claim(bench)
        due_at = record.due_at
        verdict = await bench.settle(record, outcome, END)
        stored = await bench.record()
        assert summary(stored) == expected
        assert stored["updatedAt"] == END
        assert stored["dueAt"] == due_at
        assert stored["claimToken"] == record.claim_token
        assert "claimedBy" not in stored
        assert isinstance(verdict, TaskRecord)
        assert (verdict.status, verdict.next_run_at) == (stored["status"], stored["nextRunAt"])
        assert verdict.values == {"n": 1}

    @pytest.mark.parametrize("reset", [True, False])
    @pytest.mark.parametrize("kind", CLEAN)
    async def test_of_a_dirty_run(self, bench: TaskBench, kind: str, reset: bool) -> None:
        bench.define(retry=Fixed(5), reset_on_change=reset)
        record = await a_claim(bench)
        await soil(bench)
        verdict = await bench.settle(record, CLEAN[kind][0], END)
        stored = await bench.record()
        assert summary(stored) == (DIRTY if reset else DIRTY_AND_COUNTED)[kind]
        assert stored["lastObservedValues"] == {"n": 2}
        assert stored["dueAt"] == after(2)
        assert "claimedBy" not in stored
        assert isinstance(verdict, TaskRecord)
        assert verdict.status == "pending"

    async def test_of_a_first_failure_tells_when_it_was(self, bench: TaskBench) -> None:
        record = await a_claim(bench, attempts=0, firstErrorAt=None)
        await bench.settle(record, Retrying("oops", LATER), END)
        assert (await bench.record())["firstErrorAt"] == END

    async def test_of_a_dirty_run_is_within_the_longest_wait(self, bench: TaskBench) -> None:
        bench.define(debounce=3, max_wait=4)
        record = await a_claim(bench, nextRunAt=NOW)
        await soil(bench)
        await bench.settle(record, SUCCEEDED, after(3))
        # Changed at 1 s: due at 4 s, and at 5 s at the latest; not three seconds from now.
        assert (await bench.record())["nextRunAt"] == after(5)
        await bench.put(1, now=after(4.9), n=3)
        assert (await bench.record())["nextRunAt"] == after(5)

    async def test_of_a_long_dirty_run_is_overdue(self, bench: TaskBench) -> None:
        bench.define(debounce=3, max_wait=4)
        record = await a_claim(bench, nextRunAt=NOW)
        await soil(bench)
        await bench.settle(record, SUCCEEDED, after(50))
        assert (await bench.record())["nextRunAt"] == after(5)
        await bench.put(1, now=after(50), n=3)
        assert (await bench.record())["nextRunAt"] == after(5), "it waits no longer for that"
        assert (await bench.claim(now=after(50))).values == {"n": 3}

    async def test_never_has_fewer_attempts_than_none(self, bench: TaskBench) -> None:
        record = await a_claim(bench)
        await bench.edit(attempts=0)
        await bench.settle(record, RELEASED, END)
        assert (await bench.record())["attempts"] == 0


class TestTraces:
    async def test_of_a_success(self, bench: TaskBench) -> None:
        verdict = await bench.settle(await a_claim(bench), SUCCEEDED, END, seconds=1.5)
        assert isinstance(verdict, TaskRecord)
        assert verdict.completed_at == verdict.last_finalized_at == END
        assert verdict.last_success == RunSummary(END, timedelta(seconds=1.5))
        assert verdict.history == (Execution(END, "completed", timedelta(seconds=1.5)),)

    async def test_of_a_skipped_run_are_no_success(self, bench: TaskBench) -> None:
        verdict = await bench.settle(await a_claim(bench), SKIPPED, END)
        assert isinstance(verdict, TaskRecord)
        assert verdict.last_success is None
        assert [entry.status for entry in verdict.history] == ["skipped"]

    @pytest.mark.parametrize(
        ("outcome", "status", "error"),
        [
            (Retrying("$oops", LATER), "failed", "$oops"),
            (Failed("$$ROOT"), "failed", "$$ROOT"),
            (Deferred(LATER), "deferred", None),
            (Deferred(LATER, "oops"), "deferred", "oops"),
        ],
    )
    async def test_of_other_runs(
        self, bench: TaskBench, outcome: Outcome, status: str, error: str | None
    ) -> None:
        verdict = await bench.settle(await a_claim(bench), outcome, END)
        assert isinstance(verdict, TaskRecord)
        (entry,) = verdict.history
        assert (entry.at, entry.status, entry.error) == (END, status, error)
        assert entry.duration == timedelta(seconds=2)

    async def test_of_what_was_handed_back_there_are_none(self, bench: TaskBench) -> None:
        verdict = await bench.settle(await a_claim(bench), RELEASED, END)
        assert isinstance(verdict, TaskRecord)
        assert verdict.history == ()

    @pytest.mark.parametrize("history", [0, 1, 3])
    async def test_are_bounded(self, bench: TaskBench, history: int) -> None:
        bench.define(history=history, debounce=0)
        for n in range(5):
            await bench.put(1, now=after(n), n=n)
            record = await bench.claim(now=after(n))
            await bench.settle(record, SUCCEEDED, after(n + 0.5))
        entries = (await bench.record()).get("executionHistory", [])
        assert [entry["at"] for entry in entries] == [after(n + 0.5) for n in range(5 - history, 5)]

    async def test_of_long_errors_are_cut(self, bench: TaskBench) -> None:
        await bench.settle(await a_claim(bench), Failed("x" * 2000), END)
        stored = await bench.record()
        assert len(stored["lastError"]) == 2000
        assert len(stored["executionHistory"][0]["error"]) == 500


TAKEN: dict[str, dict[str, Any]] = {
    "by another instance": {"claimedBy": "other", "claimToken": ObjectId()},
    "by another run of ours": {"claimToken": ObjectId()},
    "and ended by another": {
        "claimedBy": None,
        "claimToken": ObjectId(),
        "status": "completed",
    },
}


class TestLostClaim:
    @pytest.mark.parametrize("how", TAKEN)
    @pytest.mark.parametrize("kind", CLEAN)
    async def test_changes_nothing(self, bench: TaskBench, kind: str, how: str) -> None:
        record = await a_claim(bench)
        taken = await bench.edit(**TAKEN[how])
        assert await bench.settle(record, CLEAN[kind][0], END) == "lost"
        assert await bench.outcomes().renew([record], END) == {
            (record.id, record.claim_token): "lost"
        }
        assert await bench.record() == taken

    async def test_is_told_apart_within_a_batch(self, bench: TaskBench) -> None:
        records = [await a_claim(bench, n) for n in range(4)]
        await bench.edit(1, claimToken=ObjectId())
        await bench.records.delete_one({"sourceDocId": 2})
        await soil(bench, 3)
        settlements = [TaskSettlement(record, SUCCEEDED) for record in records]
        verdicts = await bench.outcomes().settle(settlements, END)
        states = [one if one == "lost" else one.status for one in verdicts]
        assert states == ["completed", "lost", "lost", "pending"]

    async def test_is_not_what_a_repeated_settlement_has(self, bench: TaskBench) -> None:
        record = await a_claim(bench)
        first = await bench.settle(record, Retrying("oops", LATER), END)
        stored = await bench.record()
        # The reply was lost, so the outcome is written again.
        assert await bench.settle(record, Retrying("oops", LATER), after(9)) == first
        assert await bench.record() == stored

    async def test_is_not_what_a_change_after_a_lost_reply_leaves(self, bench: TaskBench) -> None:
        record = await a_claim(bench)
        await bench.settle(record, SUCCEEDED, END)
        await bench.put(1, now=after(9), n=2)
        verdict = await bench.settle(record, SUCCEEDED, after(10))
        assert isinstance(verdict, TaskRecord)
        assert (await bench.record())["status"] == "pending"

    async def test_of_nothing_is_nothing(self, bench: TaskBench) -> None:
        assert await bench.outcomes().settle([], END) == []
        assert await bench.outcomes().renew([], END) == {}


class TestRenewal:
    async def test_moves_the_lock_and_nothing_else(self, bench: TaskBench) -> None:
        records = [await a_claim(bench, n) for n in range(3)]
        await soil(bench, 1)
        before = [await bench.record(n) for n in range(3)]
        assert await bench.outcomes().renew(records, END) == {}
        locked = {"nextRunAt": END + VISIBILITY}
        assert [await bench.record(n) for n in range(3)] == [one | locked for one in before]

    async def test_also_revives_a_lock_that_nobody_took_over(self, bench: TaskBench) -> None:
        record = await a_claim(bench)
        late = START + 2 * VISIBILITY
        assert await bench.outcomes().renew([record], late) == {}
        assert await bench.queue("other").claim_first("invoice", ObjectId(), late) is None

    async def test_leaves_what_is_settled(self, bench: TaskBench) -> None:
        record = await a_claim(bench)
        await bench.settle(record, SUCCEEDED, END)
        stored = await bench.record()
        assert await bench.outcomes().renew([record], after(9)) == {
            (record.id, record.claim_token): "lost"
        }
        assert await bench.record() == stored

    async def test_tells_two_runs_of_one_record_apart(self, bench: TaskBench) -> None:
        stalled = await a_claim(bench)
        running = await bench.claim(now=START + VISIBILITY)
        assert running.id == stalled.id
        lost = await bench.outcomes().renew([stalled, running], START + VISIBILITY)
        assert lost == {(stalled.id, stalled.claim_token): "lost"}

    async def test_of_one_that_is_rejected_costs_no_other(self, own_bench: TaskBench) -> None:
        records = [await a_claim(own_bench, n) for n in range(3)]
        name = own_bench.records.name
        strict = {"sourceDocId": {"$ne": 0}}
        await own_bench.records.database.command("collMod", name, validator=strict)
        with pytest.raises(WriteError):
            await own_bench.outcomes().renew(records, after(9))
        locks = [(await own_bench.record(n))["nextRunAt"] for n in range(3)]
        assert locks[0] < locks[1] == locks[2] == after(9) + VISIBILITY


class TestCompletionInATransaction:
    async def test_counts_once_it_is_committed(self, client: Client, bench: TaskBench) -> None:
        record = await a_claim(bench)
        async with client.start_session() as session, await session.start_transaction():
            assert await bench.outcomes().complete_in_session(record, END, session)
            assert (await bench.record())["status"] == "processing"
        stored = await bench.record()
        assert stored["status"] == "completed"
        assert stored["lastSuccess"] == {"at": END, "durationMs": 4000}
        verdict = await bench.settle(record, SUCCEEDED, after(6))
        assert isinstance(verdict, TaskRecord)
        assert await bench.record() == stored

    async def test_can_be_repeated_after_an_abort(self, client: Client, bench: TaskBench) -> None:
        record = await a_claim(bench)
        async with client.start_session() as session:
            await session.start_transaction()
            assert await bench.outcomes().complete_in_session(record, END, session)
            await session.abort_transaction()
            assert (await bench.record())["status"] == "processing"
            async with await session.start_transaction():
                assert await bench.outcomes().complete_in_session(record, END, session)
        assert (await bench.record())["status"] == "completed"

    async def test_can_be_said_twice(self, client: Client, bench: TaskBench) -> None:
        record = await a_claim(bench)
        async with client.start_session() as session, await session.start_transaction():
            assert await bench.outcomes().complete_in_session(record, END, session)
            assert await bench.outcomes().complete_in_session(record, END, session)
        assert len((await bench.record())["executionHistory"]) == 1

    async def test_knows_a_lost_claim(self, client: Client, bench: TaskBench) -> None:
        record = await a_claim(bench)
        taken = await bench.edit(claimToken=ObjectId())
        async with client.start_session() as session, await session.start_transaction():
            assert not await bench.outcomes().complete_in_session(record, END, session)
        assert await bench.record() == taken

    async def test_is_repeated_by_the_driver_when_the_document_changes(
        self, client: Client, bench: TaskBench
    ) -> None:
        record = await a_claim(bench)
        attempts = []

        async def body(session: Any) -> None:
            attempts.append(1)
            await bench.source.find_one({}, session=session)
            if len(attempts) == 1:
                await soil(bench)
            await bench.outcomes().complete_in_session(record, END, session)

        async with client.start_session() as session:
            await session.with_transaction(body)
        assert len(attempts) == 2
        stored = await bench.record()
        assert (stored["status"], stored["nextRunAt"]) == ("pending", after(6))

    async def test_hands_the_drivers_own_errors_on(self, client: Client, bench: TaskBench) -> None:
        record = await a_claim(bench)
        async with client.start_session() as session:
            await session.start_transaction()
            await bench.source.find_one({}, session=session)
            await soil(bench)
            with pytest.raises(OperationFailure) as caught:
                await bench.outcomes().complete_in_session(record, END, session)
            assert caught.value.has_error_label("TransientTransactionError")
            await session.abort_transaction()
