"""`monque reactive`: looking at reactive tasks, running and examining them again."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from bson import ObjectId

from monque_core import Fixed, ReactiveTask
from monque_core.store.driver import Driver
from monque_core.store.leases import Leases
from monque_core.store.tasks.planner_state import LEADER
from tests.support.task_records import META, declare, put_record

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Monque
    from tests.support.command_line import CommandLine

    Db = AsyncDatabase[dict[str, Any]]

BAD = ObjectId("66f2a1c5e4b0a1b2c3d4e5f6")


@pytest.fixture
async def records(db: Db) -> None:
    """Store records of two tasks, the oldest first."""
    await declare(db)
    await declare(db, "index", "products")
    await put_record(db, 17)
    await put_record(db, "A-17", status="pending", nextRunAt=datetime(2035, 1, 1, tzinfo=UTC))
    error = "ValueError: a negative total\nand more"
    await put_record(db, BAD, status="failed", attempts=5, lastError=error)
    await put_record(db, 17, "index", "products")


async def statuses(queue: Monque) -> dict[tuple[str, Any], str]:
    """Return the status of every record, by task and document."""
    page = await queue.get_reactive_tasks()
    return {(task.name, task.source_id): task.status for task in page.tasks}


@pytest.mark.usefixtures("records")
class TestList:
    async def test_shows_the_newest_first_in_columns(self, monque: CommandLine) -> None:
        result = await monque("reactive", "list")

        heading, *rows = result.out.splitlines()
        assert heading.split("  ")[0] == "TASK"
        assert heading.endswith("  ATTEMPTS  ERROR")
        assert [row.split()[:2] for row in rows] == [
            ["index", "products"],
            *[["invoice", "orders"]] * 3,
        ]
        failed, pending, completed = rows[1:]
        assert f'{{"$oid": "{BAD}"}}  failed' in failed
        assert failed.endswith("5  ValueError: a negative total")
        assert '"A-17"  ' in pending
        assert "pending    2035-01-01T00:00:00Z" in pending
        assert " 17  " in completed

    async def test_json_has_everything_of_a_record_and_extended_json_for_its_values(
        self, db: Db, monque: CommandLine
    ) -> None:
        at = datetime(2035, 1, 1, 12, 30, tzinfo=UTC)
        await put_record(
            db,
            {"shop": 1, "id": BAD},
            lastObservedValues={"at": at},
            lastSuccess={"at": at, "durationMs": 1500},
            executionHistory=[{"at": at, "status": "failed", "durationMs": 250, "error": "no"}],
        )

        page = (
            await monque("reactive", "list", "--limit", "1", "--name", "invoice", "--json")
        ).json

        assert page["has_next"] is True
        (record,) = page["tasks"]
        assert record["source_id"] == {"shop": 1, "id": {"$oid": str(BAD)}}
        assert record["values"] == {"at": {"$date": "2035-01-01T12:30:00Z"}}
        noon = "2035-01-01T12:30:00.000Z"
        assert record["last_success"] == {"at": noon, "duration": 1.5}
        assert record["history"] == [
            {"at": noon, "status": "failed", "duration": 0.25, "error": "no"}
        ]
        assert (record["task"], record["collection"]) == ("invoice", "orders")
        assert "next_run_at" not in record

    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            (["--name", "index"], ["index 17"]),
            (["--collection", "orders", "--source-id", "17"], ["invoice 17"]),
            (
                ["--source-id", json.dumps({"$oid": str(BAD)}), "--error", "negative"],
                [f'invoice {{"$oid": "{BAD}"}}'],
            ),
            (["--status", "pending", "--status", "processing"], ['invoice "A-17"']),
        ],
        ids=lambda value: " ".join(value) if value and value[0].startswith("--") else "",
    )
    async def test_selects(
        self, options: list[str], expected: list[str], monque: CommandLine
    ) -> None:
        page = (await monque("reactive", "list", "--json", *options)).json

        found = [f"{task['task']} {json.dumps(task['source_id'])}" for task in page["tasks"]]
        assert found == expected

    async def test_pages_go_on_with_the_cursor(self, monque: CommandLine) -> None:
        first = await monque("reactive", "list", "--limit", "3")
        cursor = first.err.split()[-1]
        rest = (await monque("reactive", "list", "--json", "--cursor", cursor)).json

        assert "more records: add" in first.err
        assert [task["source_id"] for task in rest["tasks"]] == [17]
        assert rest["has_next"] is False


class TestStats:
    async def test_counts_and_tells_how_far_planning_is(
        self, db: Db, monque: CommandLine, queue: Monque
    ) -> None:
        async def invoice(task: ReactiveTask) -> None:
            if task.values["total"] < 0:
                raise ValueError("a negative total")

        queue.reactive(
            "orders",
            invoice,
            name="invoice",
            watch={"total": {"$abs": "$total"}},
            debounce=0,
            retry=Fixed(1, max_attempts=1),
        )
        await db["orders"].insert_many([{"_id": 1, "total": 3}, {"_id": 2, "total": "much"}])
        async with queue:
            await queue.run_until_idle()
            shown = await monque("reactive", "stats")
            counted = (await monque("reactive", "stats", "--json")).json

        heading, row, _, leader, lag = shown.out.splitlines()
        assert heading.split()[:2] == ["TASK", "COLLECTION"]
        assert row.split() == ["invoice", "orders", *"00010", "1", "planned"]
        assert leader.split() == ["leader", queue.scheduler_instance_id]
        assert lag.startswith("stream lag  ")
        assert counted["leader"] == queue.scheduler_instance_id
        assert counted["stream_lag"] >= 0
        (task,) = counted["tasks"].values()
        assert (task["completed"], task["total"], task["parked"]) == (1, 1, 1)
        assert (task["lag"], task["reconciling"], task["error"]) == (None, False, None)
        assert task["reconciled_at"].endswith("Z")

    async def test_tells_what_is_late_broken_or_led_by_nobody(
        self, db: Db, monque: CommandLine
    ) -> None:
        await declare(db)
        await declare(db, "index", "products")
        await db[META].update_one({"task": "index"}, {"$set": {"error": "no such stage"}})
        late = datetime.now(UTC) - timedelta(hours=2)
        await put_record(db, 1, status="pending", nextRunAt=late, dueAt=late)

        result = await monque("reactive", "stats")

        _, index, invoice, *_ = result.out.splitlines()
        assert index.endswith("broken")
        assert invoice.split()[-3:] == ["2h", "0", "reconciling"]
        assert "leader      none\nstream lag  unknown\n" in result.out
        assert result.err == "index cannot be planned: no such stage\n"

    async def test_says_so_if_there_are_none(self, monque: CommandLine) -> None:
        result, listed = await asyncio.gather(
            monque("reactive", "stats"), monque("reactive", "list")
        )

        assert (result.code, result.out, result.err) == (0, "", "there are no reactive tasks\n")
        assert (listed.code, listed.out, listed.err) == (0, "", "no matching records\n")


@pytest.mark.usefixtures("records")
class TestRetry:
    async def test_asks_with_the_count_and_takes_no_for_an_answer(
        self, monque: CommandLine, queue: Monque
    ) -> None:
        chosen = ("reactive", "retry", "--name", "invoice", "--status", "failed")
        refused, unanswered = await asyncio.gather(monque(*chosen, typed="n\n"), monque(*chosen))

        assert refused.code == unanswered.code == 1
        assert "retry 1 record? [y/N]" in refused.err
        assert "confirm with --yes" in unanswered.err
        assert (await statuses(queue))["invoice", BAD] == "failed"

        agreed = await monque(*chosen, typed="y\n")
        assert (agreed.code, agreed.out.strip()) == (0, "1 record retried")
        assert (await statuses(queue))["invoice", BAD] == "pending"

    async def test_runs_everything_again_and_what_runs_once_more(
        self, db: Db, monque: CommandLine, queue: Monque
    ) -> None:
        soon = datetime.now(UTC) + timedelta(minutes=1)
        await put_record(db, "busy", status="processing", nextRunAt=soon)

        result = await monque("reactive", "retry", "--all", "--yes", "--json")

        assert result.json == {"action": "retry", "changed": 5, "refused": []}
        found = await statuses(queue)
        assert found.pop(("invoice", "busy")) == "processing_dirty"
        assert set(found.values()) == {"pending"}

    async def test_nothing_chosen_is_nothing_wrong(self, monque: CommandLine) -> None:
        result = await monque("reactive", "retry", "--error", "no such error")

        assert (result.code, result.out) == (0, "0 records retried\n")


class TestReconcile:
    async def test_asks_the_leader(self, db: Db, monque: CommandLine) -> None:
        await declare(db)
        await db[META].update_one({"task": "invoice"}, {"$unset": {"reconcile": ""}})
        await Leases(Driver(db).collection(META)).take(LEADER, "one", timedelta(minutes=5))

        result = await monque("reactive", "reconcile", "invoice")

        assert (result.code, result.err) == (0, "")
        assert result.out == "the leader will examine all documents of invoice\n"
        task = await db[META].find_one({"task": "invoice"})
        assert task is not None
        assert task["reconcile"]["reason"] == "it was requested"

    async def test_without_a_leader_says_what_will_happen(
        self, db: Db, monque: CommandLine
    ) -> None:
        await declare(db)

        result = await monque("reactive", "reconcile", "invoice")

        assert result.code == 0
        assert result.out == "the next leader will examine all documents of invoice\n"
        assert "there is no leader now: start a worker" in result.err

    async def test_ends_with_1_if_there_is_no_such_task(self, monque: CommandLine) -> None:
        result = await monque("reactive", "reconcile", "invoice")

        assert (result.code, result.out) == (1, "")
        assert "unknown reactive task 'invoice'" in result.err


async def test_errors_are_shown_without_control_characters(db: Db, monque: CommandLine) -> None:
    await declare(db)
    await put_record(db, 1, status="failed", lastError="ValueError: \x1b[2J\nno")
    await db[META].update_one({"task": "invoice"}, {"$set": {"error": "broken \x1b[2J\nno"}})

    listed = await monque("reactive", "list")
    counted = await monque("reactive", "stats")
    doctor = await monque("doctor")

    assert listed.out.splitlines()[1].endswith(r"ValueError: \x1b[2J")
    assert r"invoice cannot be planned: broken \x1b[2J\nno" in counted.err.splitlines()
    assert r"broken \x1b[2J\nno" in doctor.out


async def test_code_is_not_a_id_of_a_document(monque: CommandLine) -> None:
    result = await monque("reactive", "list", "--source-id", '{"$code": "1"}')

    assert result.code == 2
    assert "JavaScript code" in result.err
