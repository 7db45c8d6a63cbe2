"""`monque worker`: one process that runs the jobs of an application."""

from __future__ import annotations

import json
import re
import signal
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.stored import count_by_status, stored

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Monque
    from tests.support.command_line import CommandLine

    Db = AsyncDatabase[dict[str, Any]]

UP = r"instance \S+ is up"


@pytest.mark.parametrize("attribute", ["monque", "make_and_close", "make_blocking"])
async def test_runs_what_is_named_until_sigterm(
    attribute: str, monque: CommandLine, queue: Monque, db: Db
) -> None:
    await queue.enqueue("greet", "Ada")

    async with monque.start("worker", f"shop:{attribute}") as worker:
        await worker.hear("hello Ada")
        await worker.hear(UP)
        await worker.hear(r"jobs block \(concurrency 5\), greet \(concurrency 5\), raise ")
        worker.signal(signal.SIGTERM)

        assert await worker.end() == 0, worker.output
    assert "stopped: no job was left running" in worker.output
    assert ("closed the client" in worker.output) == (attribute == "make_and_close")
    assert await count_by_status(db) == {"completed": 1}


@pytest.mark.parametrize(
    ("target", "expected"),
    [("broken:monque", "No module named 'missing'"), ("shop:fail", "no configuration")],
)
async def test_an_error_of_the_application_is_shown_with_its_own_lines_alone(
    target: str, expected: str, monque: CommandLine
) -> None:
    (monque.directory / "broken.py").write_text("import missing\n", encoding="utf-8")

    async with monque.start("worker", target) as worker:
        assert await worker.end() == 2
    assert expected in worker.output
    files = worker.told(r'File "(.*)"')
    assert files == [str(monque.directory / f"{target.partition(':')[0]}.py")]


async def test_global_options_reach_the_application(
    monque: CommandLine, uri: str, database_name: str, db: Db
) -> None:
    options = ("--uri", uri, "--database", database_name, "--collection", "others")
    await monque(*options, "enqueue", "greet", '"Bob"')
    start = monque.start(
        *options, "worker", "shop:monque", MONQUE_URI="", MONQUE_DATABASE="", MONQUE_COLLECTION="x"
    )

    async with start as worker:
        await worker.hear("hello Bob")
        worker.signal(signal.SIGINT)
        assert await worker.end() == 0, worker.output


async def test_it_says_at_once_that_it_waits_for_a_server(
    monque: CommandLine, absent_uri: str
) -> None:
    uri = absent_uri.replace("//", "//user:secret@").replace("MS=100", "MS=60000")

    async with monque.start("worker", "shop:monque", MONQUE_URI=uri) as worker:
        await worker.hear("connecting to MongoDB at 127.0.0.1:")
        await worker.hear("waiting for MongoDB at 127.0.0.1:.*Errno")
        worker.signal(signal.SIGTERM)
        await worker.hear("stopped before it was up")
    assert "secret" not in worker.output


async def test_no_connection_ends_with_3(monque: CommandLine) -> None:
    nowhere = "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100"
    result = await monque.process("worker", "shop:monque", MONQUE_URI=nowhere)

    assert result.code == 3
    assert "cannot be reached" in result.err


_NEVER_CLOSED = """
import asyncio
from contextlib import asynccontextmanager

import shop

@asynccontextmanager
async def make():
    try:
        yield shop.monque
    finally:
        # As PyMongo's client waits for a server that does not answer, but for ever.
        await asyncio.Event().wait()
"""


async def test_an_application_that_does_not_close_in_time_is_left_as_it_is(
    monque: CommandLine,
) -> None:
    (monque.directory / "slow.py").write_text(_NEVER_CLOSED, encoding="utf-8")

    async with monque.start("worker", "slow:make") as worker:
        await worker.hear(UP)
        worker.signal(signal.SIGTERM)
        await worker.hear("did not close within 5 s")
        assert await worker.end() == 0, worker.output
    assert "stopped" in worker.output


class TestSignals:
    async def test_the_first_finishes_what_runs(
        self, monque: CommandLine, queue: Monque, db: Db
    ) -> None:
        gate = monque.directory / "gate"
        job = await queue.enqueue("wait", str(gate))

        async with monque.start("worker", "shop:monque") as worker:
            await worker.hear("waiting in")
            worker.signal(signal.SIGTERM)
            await worker.hear("finishing")
            gate.touch()

            assert await worker.end() == 0, worker.output
        assert "waited" in worker.output
        assert (await stored(db, job)).status == "completed"

    @pytest.mark.parametrize(
        ("number", "name"), [(signal.SIGINT, "wait"), (signal.SIGTERM, "block")]
    )
    async def test_the_second_ends_at_once_even_if_the_loop_is_blocked(
        self, number: int, name: str, monque: CommandLine, queue: Monque
    ) -> None:
        await queue.enqueue(name, str(monque.directory / "never"))

        async with monque.start("worker", "shop:monque") as worker:
            await worker.hear("waiting in|blocking")
            worker.signal(number)
            await worker.hear("finishing|asked to finish")
            worker.signal(number)

            assert await worker.end() == -number, worker.output


class TestLog:
    async def test_json_lines_carry_what_the_call_gave(
        self, monque: CommandLine, queue: Monque
    ) -> None:
        await queue.enqueue("greet", "Ada")

        arguments = ("--log-format", "json", "--log-level", "debug")
        async with monque.start("worker", "shop:monque", *arguments) as worker:
            await worker.hear("completed in")
            worker.signal()
            assert await worker.end() == 0, worker.output

        lines = [json.loads(line) for line in worker.lines]
        (hello,) = [line for line in lines if line["logger"] == "shop"]
        assert (hello["message"], hello["who"], hello["level"]) == ("hello Ada", "Ada", "info")
        assert {"time", "process"} <= set(hello)
        assert any(line["level"] == "debug" for line in lines)

    async def test_a_failure_is_reported_with_its_traceback(
        self, monque: CommandLine, queue: Monque
    ) -> None:
        await queue.enqueue("wait", None, max_retries=1)

        arguments = ("--log-format", "json", "--log-level", "warning")
        async with monque.start("worker", "shop:monque", *arguments) as worker:
            await worker.hear("is given up")
            worker.signal()
            await worker.end()

        (line,) = [json.loads(line) for line in worker.lines]
        assert line["level"] == "warning"
        assert "Traceback" in line["exception"]

    async def test_no_exception_looks_like_a_line_of_its_own_or_moves_the_cursor(
        self, monque: CommandLine, queue: Monque
    ) -> None:
        forged = "\x1b[2J\r\n2030-01-01 00:00:00,000 ERROR  forged"
        await queue.enqueue("raise", forged, max_retries=1)

        async with monque.start("worker", "shop:monque") as worker:
            await worker.hear("ValueError:", count=2)
            worker.signal()
            await worker.end()

        assert r"is given up: ValueError: \x1b[2J\r\n2030-01-01" in worker.output
        assert not {"\x1b", "\r"} & set(worker.output)
        records = [line for line in worker.lines if not line.startswith("    ")]
        assert all(re.match(r"2\d{3}-\S+ \S+ +(INFO|WARNING) +monque", line) for line in records)
