"""Transitions of records by an operator, and by a new version of a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import pytest

from monque_core.store.tasks.transitions import rerun, retry
from monque_core.tasks.outcome import SUCCEEDED
from tests.support.task_bench import after

if TYPE_CHECKING:
    from tests.support.task_bench import TaskBench

STATES: dict[str, dict[str, Any]] = {
    "pending": {"nextRunAt": after(500)},
    "processing": {"nextRunAt": after(60)},
    "processing_dirty": {"nextRunAt": after(60)},
    "completed": {"nextRunAt": None},
    "failed": {"nextRunAt": None},
}


async def a_record(bench: TaskBench, status: str, id: int = 1) -> dict[str, Any]:
    await bench.put(id, n=1)
    before: dict[str, Any] = {"attempts": 3, "firstErrorAt": after(-9), "lastError": "oops"}
    return await bench.edit(id, status=status, **before | STATES[status])


class TestRetry:
    @pytest.mark.parametrize("status", ["pending", "completed", "failed"])
    async def test_runs_what_waits_and_what_is_over(self, bench: TaskBench, status: str) -> None:
        before = await a_record(bench, status)
        assert await bench.apply(retry({"_id": before["_id"]}, after(9))) == 1
        stored = await bench.record()
        assert (stored["status"], stored["nextRunAt"], stored["attempts"]) == (
            "pending",
            after(9),
            0,
        )
        assert stored["dueAt"] == (after(1) if status == "pending" else after(9))
        assert not {"firstErrorAt", "lastError"} & set(stored)
        assert (await bench.claim(now=after(9))).attempts == 1

    @pytest.mark.parametrize("status", ["processing", "processing_dirty"])
    async def test_makes_dirty_what_runs(self, bench: TaskBench, status: str) -> None:
        before = await a_record(bench, status)
        assert await bench.apply(retry({"_id": before["_id"]}, after(9))) == 1
        changes = {"status": "processing_dirty", "updatedAt": after(9)}
        if status == "processing":
            changes["dueAt"] = after(9)
        assert await bench.record() == before | changes

    async def test_runs_again_what_was_running(self, bench: TaskBench) -> None:
        await bench.put(1, n=1)
        running = await bench.claim(now=after(1))
        await bench.apply(retry({}, after(2)))
        await bench.settle(running, SUCCEEDED, after(3))
        assert (await bench.claim(now=after(4))).id == running.id

    async def test_leaves_what_is_not_chosen(self, bench: TaskBench) -> None:
        await a_record(bench, "failed", 1)
        others = [await a_record(bench, "failed", 2), await a_record(bench, "completed", 3)]
        chosen = {"status": "failed", "sourceDocId": 1}
        assert await bench.apply(retry(chosen, after(9))) == 1
        assert [await bench.record(id) for id in (2, 3)] == others


class TestRerun:
    @pytest.mark.parametrize(("which", "count"), [("failed", 1), ("all", 5)])
    async def test_of_a_new_version(
        self, bench: TaskBench, which: Literal["failed", "all"], count: int
    ) -> None:
        bench.define("ship")
        for id, status in enumerate(STATES):
            await a_record(bench, status, id)
            await bench.plan(id, task="ship")
            await bench.edit(id, "ship", status="failed", nextRunAt=None)
        assert await bench.apply(rerun("invoice", which, after(9))) == count
        states = [(await bench.record(id))["status"] for id in range(5)]
        if which == "all":
            dirty = "processing_dirty"
            assert states == ["pending", dirty, dirty, "pending", "pending"]
        else:
            assert states == [*list(STATES)[:4], "pending"]
        assert await bench.records.count_documents({"task": "ship", "status": "failed"}) == 5

    async def test_leaves_what_no_longer_matches(self, bench: TaskBench) -> None:
        await a_record(bench, "failed")
        await bench.source.delete_one({"_id": 1})
        await bench.plan(1, deleted=(1,))
        assert await bench.apply(rerun("invoice", "all", after(9))) == 0
