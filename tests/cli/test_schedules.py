"""`monque enqueue`, `schedule`, `schedules` and `unschedule`."""

from __future__ import annotations

import re
import shlex
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.stored import jobs_in, stored_jobs

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Monque
    from tests.support.command_line import CommandLine

    Db = AsyncDatabase[dict[str, Any]]


class TestEnqueue:
    async def test_stores_a_job_with_its_options(self, db: Db, monque: CommandLine) -> None:
        result = await monque(
            *("enqueue", "mail", '{"to": "ada", "at": {"$date": "2030-01-01T00:00:00Z"}}'),
            *("--run-at", "2035-01-01T01:00+01:00", "--unique-key", "ada", "--priority", "5"),
            *("--max-retries", "3", "--timeout", "1m30s", "--json"),
        )

        (job,) = await stored_jobs(db)
        assert result.json["id"] == str(job.id)
        assert job.data == {"to": "ada", "at": datetime(2030, 1, 1, tzinfo=UTC)}
        assert job.next_run_at == datetime(2035, 1, 1, tzinfo=UTC)
        assert (job.unique_key, job.priority, job.max_retries) == ("ada", 5, 3)
        assert job.timeout == timedelta(seconds=90)

    async def test_reads_stdin_and_tells_of_a_job_that_was_there(
        self, db: Db, monque: CommandLine
    ) -> None:
        arguments = ("enqueue", "mail", "-", "--delay", "1h", "--unique-key", "ada")
        first = await monque(*arguments, typed='{"to": "ada"}')
        again = await monque(*arguments, typed='{"to": "bob"}')

        (job,) = await stored_jobs(db)
        assert job.data == {"to": "ada"}
        assert job.next_run_at - job.created_at == timedelta(hours=1)
        assert first.out.startswith(f"{job.id} mail is due at ")
        assert again.out == first.out.strip() + " (it already existed)\n"

    async def test_a_text_without_quotes_is_refused_with_how_to_write_it(
        self, db: Db, monque: CommandLine
    ) -> None:
        refused = await monque("enqueue", "mail", "it's ada")
        assert refused.code == 2

        (written,) = re.findall("for a string, write (.*)", refused.err)
        (argument,) = shlex.split(written)
        assert (await monque("enqueue", "mail", argument)).code == 0
        (job,) = await stored_jobs(db)
        assert job.data == "it's ada"

    @pytest.mark.parametrize("text", ['{"to": ada}', "[1, 2", '"ada'])
    async def test_other_json_that_is_broken_comes_with_an_example(
        self, text: str, monque: CommandLine
    ) -> None:
        refused = await monque("enqueue", "mail", text)
        assert (refused.code, "for a string" in refused.err) == (2, False)
        assert """'{"to": "ada@example.com"}'""" in refused.err

    async def test_without_data_it_is_null(self, db: Db, monque: CommandLine) -> None:
        assert (await monque("enqueue", "clean-up")).code == 0

        (job,) = await stored_jobs(db)
        assert job.data is None


class TestSchedules:
    async def test_are_stored_listed_and_removed(self, db: Db, monque: CommandLine) -> None:
        none = await monque("schedules")
        assert (none.code, none.err) == (0, "no schedules\n")

        added = await monque(
            *("schedule", "0 9 * * 1-5", "report", '{"kind": "daily"}'),
            *("--timezone", "Europe/Berlin", "--unique-key", "daily", "--priority", "2"),
        )
        (job,) = await stored_jobs(db)
        assert added.out.startswith(f"{job.id} report is due at ")
        assert (job.repeat_interval, job.timezone) == ("0 9 * * 1-5", "Europe/Berlin")
        assert (job.data, job.priority) == ({"kind": "daily"}, 2)

        heading, row = (await monque("schedules")).out.splitlines()
        assert heading.split()[:3] == ["NAME", "CRON", "TIMEZONE"]
        assert "0 9 * * 1-5  Europe/Berlin" in row
        assert row.endswith("waiting  daily")

        removed = await monque("unschedule", "report", "--unique-key", "daily")
        assert (removed.code, removed.out) == (0, "1 schedule(s) removed\n")
        assert await stored_jobs(db) == []

    async def test_one_that_nobody_claims_is_seen(
        self, db: Db, monque: CommandLine, queue: Monque
    ) -> None:
        late = await queue.schedule("@daily", "late", None)
        await queue.schedule("@daily", "waits", None)
        runs = await queue.schedule("@daily", "runs", None)
        a_while_ago = datetime.now(UTC) - timedelta(minutes=5)
        await jobs_in(db).update_one({"_id": late.id}, {"$set": {"nextRunAt": a_while_ago}})
        await jobs_in(db).update_one(
            {"_id": runs.id}, {"$set": {"nextRunAt": a_while_ago, "status": "processing"}}
        )

        listed = (await monque("schedules", "--json")).json

        states = {schedule["name"]: schedule["state"] for schedule in listed}
        assert states == {"late": "unclaimed", "waits": "waiting", "runs": "running"}

    async def test_removing_several_is_asked_about(
        self, monque: CommandLine, queue: Monque
    ) -> None:
        await queue.schedule("@daily", "report", 1)
        await queue.schedule("@daily", "report", 2)

        refused = await monque("unschedule", "report", typed="n\n")
        assert refused.code == 1
        assert "remove 2 schedules of report?" in refused.err
        assert len(await queue.get_schedules()) == 2

        assert (await monque("unschedule", "report", "--yes", "--json")).json == {"removed": 2}
        assert (await monque("unschedule", "report")).code == 1
