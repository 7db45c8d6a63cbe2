"""`monque jobs`: looking at jobs and changing them."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from bson import ObjectId

from monque_core import JobStatus
from tests.support.stored import count_by_status, jobs_in, stored

if TYPE_CHECKING:
    from collections.abc import Callable

    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Job, Monque
    from tests.support.command_line import CommandLine
    from tests.support.terminal import Terminal

    Db = AsyncDatabase[dict[str, Any]]

COLOUR = re.compile(r"\x1b\[[0-9;]*m")


async def put(db: Db, job: Job[Any], **fields: object) -> None:
    """Update fields of a stored job."""
    await jobs_in(db).update_one({"_id": job.id}, {"$set": fields})


async def failed(db: Db, queue: Monque, name: str = "mail", count: int = 1) -> list[Job[Any]]:
    """Store jobs that have failed."""
    jobs = await queue.enqueue_many(name, range(count))
    await jobs_in(db).update_many(
        {"_id": {"$in": [job.id for job in jobs]}},
        {"$set": {"status": "failed", "failCount": 3, "failReason": "ValueError: no"}},
    )
    return jobs


class TestList:
    async def test_shows_the_newest_first_in_columns(
        self, monque: CommandLine, queue: Monque
    ) -> None:
        first = await queue.enqueue("mail", 1)
        second = await queue.enqueue("print", 2)

        result = await monque("jobs", "list")

        heading, *rows = [line.split() for line in result.out.splitlines()]
        assert heading == ["ID", "NAME", "STATUS", "DUE", "CREATED", "FAILS", "ERROR"]
        assert [row[:3] for row in rows] == [
            [str(second.id), "print", "pending"],
            [str(first.id), "mail", "pending"],
        ]

    async def test_json_has_everything_of_a_job_and_extended_json_for_its_data(
        self, monque: CommandLine, queue: Monque
    ) -> None:
        at = datetime(2035, 1, 1, 12, 30, tzinfo=UTC)
        data = {"at": at, "ids": [ObjectId("a" * 24)], "n": 1}
        job = await queue.enqueue("mail", data, run_at=at, unique_key="k", timeout=1.5)

        (record,) = (await monque("jobs", "list", "--json")).json["jobs"]

        assert record["id"] == str(job.id)
        assert record["next_run_at"] == "2035-01-01T12:30:00.000Z"
        assert (record["unique_key"], record["timeout"]) == ("k", 1.5)
        assert record["data"] == {
            "at": {"$date": "2035-01-01T12:30:00Z"},
            "ids": [{"$oid": "a" * 24}],
            "n": 1,
        }

    async def test_selects_by_name_status_and_age(
        self, db: Db, monque: CommandLine, queue: Monque
    ) -> None:
        old = await queue.enqueue("mail", "old")
        await put(db, old, createdAt=datetime.now(UTC) - timedelta(days=8))
        new = await queue.enqueue("mail", "new")
        await queue.enqueue("print", "other")
        (broken,) = await failed(db, queue)

        async def ids(*arguments: str) -> set[str]:
            page = (await monque("jobs", "list", "--json", *arguments)).json
            return {job["id"] for job in page["jobs"]}

        assert await ids("--older-than", "7d") == {str(old.id)}
        assert await ids("--name", "mail", "--newer-than", "7d") == {str(new.id), str(broken.id)}
        assert await ids("--status", "failed", "--status", "cancelled") == {str(broken.id)}

    async def test_pages_go_on_with_the_cursor(self, monque: CommandLine, queue: Monque) -> None:
        jobs = await queue.enqueue_many("mail", range(3))

        first = (
            await monque("jobs", "list", "--limit", "2", "--sort", "created_at", "--json")
        ).json
        rest = await monque(
            *("jobs", "list", "--limit", "2", "--sort", "created_at"),
            *("--cursor", first["cursor"], "--json"),
        )

        assert first["has_next"]
        assert not rest.json["has_next"]
        found = [job["id"] for job in first["jobs"] + rest.json["jobs"]]
        assert found == [str(job.id) for job in jobs]

    @pytest.mark.parametrize("columns", [80, 120, 200])
    async def test_shows_errors_and_fits_the_terminal(
        self, columns: int, db: Db, queue: Monque, terminal: Callable[..., Terminal]
    ) -> None:
        (job,) = await failed(db, queue, "nightly-import-of-everything")
        await put(db, job, failReason="ValueError: no " + "x" * 300)

        screen = terminal("jobs", "list", columns=columns)

        assert screen.read_to_end() == 0, screen.output
        heading, row = (line.rstrip() for line in COLOUR.sub("", screen.output).splitlines())
        assert heading.endswith("FAILS  ERROR")
        assert row.startswith(str(job.id))
        assert "ValueError: no" in row
        assert len(row) == columns

    async def test_says_so_if_there_is_none(self, monque: CommandLine) -> None:
        result = await monque("jobs", "list")

        assert (result.code, result.out, result.err) == (0, "", "no matching jobs\n")


class TestShow:
    async def test_tells_everything(self, db: Db, monque: CommandLine, queue: Monque) -> None:
        (job,) = await failed(db, queue)

        result = await monque("jobs", "show", str(job.id))
        record = (await monque("jobs", "show", str(job.id), "--json")).json

        assert "fail_reason  ValueError: no" in result.out
        assert record["status"] == "failed"
        assert record["fail_count"] == 3

    @pytest.mark.parametrize(
        ("data", "expected"),
        [
            ({"to": None, "ok": True, "at": datetime(2030, 1, 31, tzinfo=UTC)},) * 2,
            ("ada", "ada"),
            ("5", "5"),
            (5, 5),
            (None, None),
        ],
    )
    async def test_writes_data_as_json_that_enqueue_reads(
        self, data: Any, expected: Any, monque: CommandLine, queue: Monque
    ) -> None:
        job = await queue.enqueue("mail", data)

        lines = (await monque("jobs", "show", str(job.id))).out.splitlines()

        (written,) = [line.removeprefix("data").strip() for line in lines if line[:4] == "data"]
        again = await monque("enqueue", "mail", written, "--json")
        found = await queue.get_job(again.json["id"])
        assert found is not None
        assert found.data == expected
        assert "'" not in written
        assert "None" not in written

    async def test_escapes_what_an_exception_says(
        self, db: Db, monque: CommandLine, queue: Monque
    ) -> None:
        (job,) = await failed(db, queue)
        reason = "ValueError: \x1b[2J\rgone\nstatus  completed \u202e"
        await put(db, job, failReason=reason)

        shown = await monque("jobs", "show", str(job.id))
        listed = await monque("jobs", "list")

        escaped = r"ValueError: \x1b[2J\rgone\nstatus  completed \u202e"
        assert f"fail_reason  {escaped}\n" in shown.out
        assert listed.out.splitlines()[1].endswith(r"ValueError: \x1b[2J\rgone")
        as_json = await monque("jobs", "show", str(job.id), "--json")
        assert as_json.out.rstrip("\n").isprintable()
        assert as_json.json["fail_reason"] == reason

    async def test_a_job_that_is_not_there_ends_with_1(self, monque: CommandLine) -> None:
        result = await monque("jobs", "show", "a" * 24)

        assert (result.code, result.out) == (1, "")
        assert result.err == f"job {'a' * 24} does not exist\n"


class TestByIds:
    async def test_each_action_does_what_it_says(
        self, db: Db, monque: CommandLine, queue: Monque
    ) -> None:
        job = await queue.enqueue("mail", 1)
        at = datetime(2035, 1, 1, tzinfo=UTC)

        moved = await monque("jobs", "reschedule", str(job.id), "--run-at", "2035-01-01T00:00Z")
        assert (moved.code, moved.out) == (0, "1 job rescheduled\n")
        assert (await stored(db, job)).next_run_at == at

        assert (await monque("jobs", "cancel", str(job.id))).out == "1 job cancelled\n"
        assert (await stored(db, job)).status == JobStatus.CANCELLED

        assert (await monque("jobs", "retry", str(job.id))).out == "1 job retried\n"
        assert (await stored(db, job)).status == JobStatus.PENDING

        assert (await monque("jobs", "delete", str(job.id))).out == "1 job deleted\n"
        assert await queue.get_job(job.id) is None

    async def test_cancelling_twice_has_nothing_to_do_the_second_time(
        self, monque: CommandLine, queue: Monque
    ) -> None:
        first, second = await queue.enqueue_many("mail", range(2))
        await monque("jobs", "cancel", str(first.id))

        again = await monque("jobs", "cancel", str(first.id))
        both = await monque("jobs", "cancel", str(first.id), str(second.id))
        all_done = await monque("jobs", "cancel", str(first.id), "--json")

        assert (again.code, again.out) == (0, "0 jobs cancelled\n")
        assert again.err == f"job {first.id} was already cancelled\n"
        assert (both.code, both.out) == (0, "1 job cancelled\n")
        assert all_done.json == {"action": "cancel", "changed": 0, "refused": []}

    async def test_what_cannot_be_done_is_reported_and_ends_with_1(
        self, db: Db, monque: CommandLine, queue: Monque
    ) -> None:
        done, waiting = await queue.enqueue_many("mail", range(2))
        await put(db, done, status="completed")

        ids = [str(done.id), "a" * 24, str(waiting.id)]
        result = await monque("jobs", "cancel", *ids)
        refused = await monque("jobs", "cancel", *ids, "--json")

        assert result.code == refused.code == 1
        assert result.out == "1 job cancelled\n"
        assert f"cannot cancel job {done.id}: it is completed" in result.err
        assert f"job {'a' * 24} does not exist" in result.err
        assert [each["id"] for each in json.loads(refused.out)["refused"]] == ids[:2]


class TestInBulk:
    @pytest.mark.parametrize(
        ("action", "expected"),
        [
            (["cancel", "--name", "mail"], {"pending": 1, "failed": 2, "cancelled": 3}),
            (["retry", "--name", "mail"], {"pending": 6}),
            (["delete", "--name", "mail", "--status", "failed"], {"pending": 4}),
            (["delete", "--all"], {}),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, list) else "",
    )
    async def test_acts_on_what_is_chosen(
        self,
        action: list[str],
        expected: dict[str, int],
        db: Db,
        monque: CommandLine,
        queue: Monque,
    ) -> None:
        await queue.enqueue_many("mail", range(3))
        await queue.enqueue("print", None)
        await failed(db, queue, count=2)

        result = await monque("jobs", *action, "--yes", "--json")

        changed = {"cancel": 3, "retry": 2, "delete": 6 if "--all" in action else 2}[action[0]]
        assert result.json == {"action": action[0], "changed": changed, "refused": []}
        assert await count_by_status(db) == expected

    async def test_reschedules_what_is_chosen(
        self, db: Db, monque: CommandLine, queue: Monque
    ) -> None:
        await queue.enqueue_many("mail", range(3))
        other = await queue.enqueue("print", None)
        before = datetime.now(UTC)

        result = await monque("jobs", "reschedule", "--name", "mail", "--delay", "2h", "-y")

        assert result.out == "3 jobs rescheduled\n"
        for job in await queue.get_jobs(name="mail"):
            assert timedelta(hours=2) <= job.next_run_at - before < timedelta(hours=2, minutes=5)
        assert (await stored(db, other)).next_run_at == other.next_run_at

    async def test_asks_with_the_count_and_takes_no_for_an_answer(
        self, db: Db, monque: CommandLine, queue: Monque
    ) -> None:
        await queue.enqueue_many("mail", range(3))

        refused = await monque("jobs", "delete", "--name", "mail", typed="n\n")
        unanswered = await monque("jobs", "delete", "--name", "mail")
        assert refused.code == unanswered.code == 1
        assert "delete 3 jobs? [y/N]" in refused.err
        assert "confirm with --yes" in unanswered.err
        assert await count_by_status(db) == {"pending": 3}

        agreed = await monque("jobs", "delete", "--name", "mail", typed="y\n")
        assert agreed.code == 0
        assert await count_by_status(db) == {}

    async def test_cancels_schedules_only_if_they_are_named(
        self, monque: CommandLine, queue: Monque
    ) -> None:
        await queue.enqueue_many("mail", range(2))
        await queue.schedule("@daily", "mail", None)

        result = await monque("jobs", "cancel", "--name", "mail", "--yes")
        assert result.out == "2 jobs cancelled\n"
        assert "1 schedule skipped; add --schedules to cancel schedules too" in result.err
        assert len(await queue.get_schedules()) == 1

        asked = await monque("jobs", "cancel", "--name", "mail", "--schedules", typed="y\n")
        assert "cancel 1 job, of which 1 is a schedule?" in asked.err
        assert await queue.get_schedules() == []

    async def test_mentions_the_schedules_that_it_deletes(
        self, monque: CommandLine, queue: Monque
    ) -> None:
        await queue.enqueue("mail", None)
        await queue.schedule("@daily", "mail", None)

        refused = await monque("jobs", "delete", "--name", "mail", typed="n\n")
        assert "delete 2 jobs, of which 1 is a schedule?" in refused.err
        result = await monque("jobs", "delete", "--name", "mail", "--yes")
        assert "1 schedule among the jobs to delete" in result.err

    async def test_nothing_chosen_is_nothing_wrong(self, monque: CommandLine) -> None:
        result = await monque("jobs", "delete", "--status", "completed", "--older-than", "30d")

        assert (result.code, result.out) == (0, "0 jobs deleted\n")

    async def test_long_work_has_a_progress_bar_in_a_terminal(
        self, queue: Monque, db: Db, terminal: Callable[..., Terminal]
    ) -> None:
        await queue.enqueue_many("mail", range(2500))

        screen = terminal("jobs", "cancel", "--name", "mail")
        screen.read_until("cancel 2500 jobs?")
        screen.type("y\n")

        assert screen.read_to_end() == 0, screen.output
        assert "cancel jobs" in screen.output
        assert "100%" in screen.output
        assert "2500 jobs cancelled" in screen.output
        assert await count_by_status(db) == {"cancelled": 2500}
