"""The demonstration: job flows, exit, and failure if a job was lost or ran twice."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from bson import ObjectId

from monque_core import Job, JobStatus, Monque
from monque_core.demo import __main__ as command
from monque_core.demo.audit import Audit, AuditResult
from monque_core.demo.demo import MinuteClock, Report
from monque_core.demo.metrics import DemoMetrics
from monque_core.demo.view import PlainView
from tests.support.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pymongo.asynchronous.collection import AsyncCollection
    from pymongo.asynchronous.database import AsyncDatabase

DEMO = [sys.executable, "-m", "monque_core.demo"]
GOOD_ENDING = "No job was lost and none ran twice."


@pytest.fixture
def terminal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Terminal]:
    """Return a terminal in which the demonstration runs with the arguments of the marker."""
    if sys.platform == "win32":
        pytest.skip("pseudo-terminals are a thing of POSIX")
    terminal = Terminal([*DEMO, *request.param], os.environ, tmp_path)
    yield terminal
    terminal.close()


@pytest.fixture(scope="module")
def done() -> subprocess.CompletedProcess[str]:
    """Return a demonstration that ran to its end without a terminal."""
    return subprocess.run(
        [*DEMO, "--seconds", "4"], capture_output=True, text=True, timeout=200, check=False
    )


class TestWithoutATerminal:
    def test_prints_plain_lines_and_a_summary_and_succeeds(
        self, done: subprocess.CompletedProcess[str]
    ) -> None:
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stderr == ""
        assert "\x1b" not in done.stdout
        moments = re.findall(
            r"^ +[\d.]+ s  running  pending \d+  processing \d+  completed (\d+)",
            done.stdout,
            flags=re.MULTILINE,
        )
        assert len(moments) >= 2
        assert int(moments[-1]) > int(moments[0])
        assert re.search(r"jobs/s on average; due to running p50 \d+ ms, p99 \d+ ms", done.stdout)
        assert GOOD_ENDING in done.stdout

    def test_every_kind_of_work_is_done(self, done: subprocess.CompletedProcess[str]) -> None:
        counts = re.search(r"([\d,]+) jobs enqueued; .*?([\d,]+) completed", done.stdout)
        assert counts is not None, done.stdout + done.stderr
        assert counts[1] == counts[2]
        assert re.search(r"[1-9]\d* failed runs were retried", done.stdout)
        assert re.search(r"[1-9]\d* run\(s\) of the schedule", done.stdout)

    def test_without_a_mongod_it_says_what_to_do(self) -> None:
        done = subprocess.run(
            DEMO,
            env=os.environ | {"MONQUE_MONGOD": "/nowhere/mongod"},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )

        assert done.returncode == 2
        assert "MONQUE_MONGOD is '/nowhere/mongod'" in done.stderr
        assert "Traceback" not in done.stderr

    @pytest.mark.parametrize("seconds", ["0", "-1", "soon", "nan"])
    def test_a_bad_duration_is_refused(
        self, seconds: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit) as refusal:
            command.main([f"--seconds={seconds}"])

        assert refusal.value.code == 2
        assert "--seconds" in capsys.readouterr().err


class TestInATerminal:
    @pytest.mark.parametrize("terminal", [["--seconds", "4"]], indirect=True)
    def test_redraws_one_screen_and_leaves_a_summary(self, terminal: Terminal) -> None:
        assert terminal.read_to_end() == 0, terminal.output
        assert "\x1b[2K" in terminal.output
        for heading in ("worker", "running", "retried", "recent events", "jobs/s"):
            assert heading in terminal.output
        assert GOOD_ENDING in terminal.output

    @pytest.mark.parametrize("terminal", [["--seconds", "4", "--plain"]], indirect=True)
    def test_plain_lines_can_be_asked_for(self, terminal: Terminal) -> None:
        assert terminal.read_to_end() == 0, terminal.output
        assert "\x1b" not in terminal.output
        assert GOOD_ENDING in terminal.output

    @pytest.mark.parametrize("terminal", [["--seconds", "600"]], indirect=True)
    def test_an_interrupt_ends_it_cleanly(self, terminal: Terminal) -> None:
        terminal.read_until("recent events")
        terminal.process.send_signal(signal.SIGINT)

        assert terminal.read_to_end() == 0, terminal.output
        assert "Summary after" in terminal.output
        assert GOOD_ENDING in terminal.output
        assert "Traceback" not in terminal.output

    def test_without_rich_it_says_so_and_prints_lines(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        monkeypatch.setitem(sys.modules, "rich.console", None)

        assert isinstance(command._choose_view(plain=False)(), PlainView)
        assert "pip install 'monque-core[demo]'" in capsys.readouterr().err


class TestTheAudit:
    """The verdict for documents and runs that are not as expected."""

    async def test_a_job_that_ran_once_is_correct(self, books: Books) -> None:
        job = await books.stored(status=JobStatus.COMPLETED, claims=1)
        await books.run(job)

        assert (await books.check()).is_good

    async def test_a_job_that_succeeded_after_a_failure_is_correct(self, books: Books) -> None:
        job = await books.stored(status=JobStatus.COMPLETED, claims=2, failCount=1)
        await books.run(job, fails=True)
        await books.run(job)

        assert (await books.check()).is_good

    async def test_a_job_that_never_ran_is_lost(self, books: Books) -> None:
        job = await books.stored(status=JobStatus.PENDING)

        assert await books.check() == AuditResult(lost=frozenset({job.id}), duplicated=frozenset())

    async def test_a_job_that_ran_but_is_not_completed_is_lost(self, books: Books) -> None:
        job = await books.stored(status=JobStatus.PROCESSING, claims=1)
        await books.run(job)

        assert (await books.check()).lost == {job.id}

    async def test_a_job_that_is_completed_but_never_ran_is_lost(self, books: Books) -> None:
        job = await books.stored(status=JobStatus.COMPLETED, claims=1)

        assert (await books.check()).lost == {job.id}

    async def test_a_job_that_is_gone_from_the_collection_is_lost(self, books: Books) -> None:
        job = await books.stored(status=JobStatus.COMPLETED, claims=1)
        await books.run(job)
        await books.collection.delete_one({"_id": job.id})

        assert (await books.check()).lost == {job.id}

    async def test_a_job_that_succeeded_twice_is_a_duplicate_run(self, books: Books) -> None:
        job = await books.stored(status=JobStatus.COMPLETED, claims=1)
        await books.run(job)
        await books.run(job)

        assert await books.check() == AuditResult(lost=frozenset(), duplicated=frozenset({job.id}))

    async def test_a_job_with_more_claims_than_ends_is_a_duplicate_run(self, books: Books) -> None:
        job = await books.stored(status=JobStatus.COMPLETED, claims=2)
        await books.run(job)

        assert (await books.check()).duplicated == {job.id}

    async def test_a_run_that_was_cancelled_counts(self, books: Books) -> None:
        job = await books.stored(status=JobStatus.COMPLETED, claims=1)
        with pytest.raises(asyncio.CancelledError):
            await books.audit.count_run(job, _cancelled)
        await books.run(job)

        assert (await books.check()).duplicated == {job.id}

    async def test_a_schedule_may_run_at_every_tick_but_once(self, books: Books) -> None:
        job = await books.stored(status=JobStatus.PENDING, repeatInterval="* * * * *")
        await books.run(job)
        job.next_run_at = datetime(2030, 1, 1, 0, 1, tzinfo=UTC)
        await books.run(job)
        assert (await books.check()).is_good

        await books.run(job)
        assert (await books.check()).duplicated == {job.id}

    async def test_a_schedule_that_is_gone_is_lost(self, books: Books) -> None:
        job = await books.stored(status=JobStatus.PENDING, repeatInterval="* * * * *")
        await books.collection.delete_one({"_id": job.id})

        assert (await books.check()).lost == {job.id}

    @pytest.mark.parametrize(("lost", "duplicated"), [(1, 0), (0, 1), (2, 3)])
    async def test_a_bad_verdict_is_printed_and_fails_the_command(
        self,
        lost: int,
        duplicated: int,
        db: AsyncDatabase[dict[str, Any]],
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        clock = MinuteClock(1.0)
        result = AuditResult(
            frozenset(ObjectId() for _ in range(lost)),
            frozenset(ObjectId() for _ in range(duplicated)),
        )
        report = Report(
            seconds=1.0,
            total=9,
            counts={},
            metrics=DemoMetrics(Monque(db), clock, quiet=()),
            schedule_runs=0,
            result=result,
        )

        async def run_demo(*_: object) -> Report:
            return report

        monkeypatch.setattr(command, "run_demo", run_demo)

        assert await asyncio.to_thread(command.main, []) == 1
        assert f"{lost} job(s) lost, {duplicated} ran more than once" in capsys.readouterr().out


@pytest.mark.parametrize("seconds", [0.5, 8.0, 59.0])
def test_the_clock_of_the_demonstration_reaches_a_full_minute_when_asked(seconds: float) -> None:
    clock = MinuteClock(seconds)
    now = clock.now()

    assert 0 <= (now - datetime.now(UTC)).total_seconds() < 61
    beyond_the_minute = (now.timestamp() + seconds + 30) % 60 - 30
    assert abs(beyond_the_minute) < 1


class Books:
    """An audit and the collection it is checked against."""

    def __init__(self, collection: AsyncCollection[dict[str, Any]]) -> None:
        self.collection = collection
        self.audit = Audit()

    async def stored(self, **fields: Any) -> Job[None]:
        """Store a job with these fields and record it as expected."""
        now = datetime(2030, 1, 1, tzinfo=UTC)
        document = {"_id": ObjectId(), "name": "job", "failCount": 0, **fields}
        await self.collection.insert_one(document)
        job = Job(
            id=document["_id"],
            name="job",
            data=None,
            status=document["status"],
            next_run_at=now,
            created_at=now,
            updated_at=now,
            repeat_interval=document.get("repeatInterval"),
        )
        if job.is_recurring:
            self.audit.scheduled(job)
        else:
            self.audit.enqueued([job])
        return job

    async def run(self, job: Job[None], *, fails: bool = False) -> None:
        """Record a run of the job."""
        if fails:
            with pytest.raises(ConnectionError):
                await self.audit.count_run(job, _failing)
        else:
            await self.audit.count_run(job, _succeeding)

    async def check(self) -> AuditResult:
        """Compare the expectations with the collection."""
        return await self.audit.check(self.collection)


@pytest.fixture
def books(db: AsyncDatabase[dict[str, Any]]) -> Books:
    """Return an audit of a collection of the test's own."""
    return Books(db["monque_jobs"])


async def _succeeding() -> None:
    return


async def _failing() -> None:
    raise ConnectionError("no")


async def _cancelled() -> None:
    raise asyncio.CancelledError
