"""The command as such: help, global options, exit codes."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from monque_core.cli.app import app
from tests.support.command_line import run_here

if TYPE_CHECKING:
    from pymongo import AsyncMongoClient

    from monque_core import Monque
    from tests.support.command_line import CommandLine

COMMANDS = [
    "worker",
    "enqueue",
    "schedule",
    "schedules",
    "unschedule",
    "stats",
    "top",
    "doctor",
    "local",
    "jobs list",
    "jobs show",
    "jobs cancel",
    "jobs retry",
    "jobs reschedule",
    "jobs delete",
    "reactive list",
    "reactive stats",
    "reactive retry",
    "reactive reconcile",
]
NOWHERE = "mongodb://127.0.0.1:1/shop?serverSelectionTimeoutMS=100"


class TestHelp:
    async def test_names_every_command_and_exit_code(self, monque: CommandLine) -> None:
        result = await monque("--help")

        assert result.code == 0
        for command in {command.split()[0] for command in COMMANDS}:
            assert f"\n  {command} " in result.out
        assert "3 no connection" in " ".join(result.out.split())

    @pytest.mark.parametrize("group", [[], ["jobs"], ["reactive"]])
    def test_sums_up_each_command_in_a_whole_sentence(self, group: list[str]) -> None:
        result = CliRunner(env={"COLUMNS": "80"}).invoke(app, [*group, "--help"])

        _, _, commands = result.output.partition("Commands:\n")
        summaries = commands.partition("\n\n")[0].splitlines()
        assert len(summaries) >= 4
        assert all(line.endswith(".") and not line.endswith("...") for line in summaries)

    @pytest.mark.parametrize("command", COMMANDS)
    def test_of_each_command_has_examples_of_it(self, command: str) -> None:
        result = CliRunner().invoke(app, [*command.split(), "--help"], prog_name="monque")

        assert result.exit_code == 0
        assert f"$ monque {command}" in result.output

    async def test_the_version_is_reported(self, monque: CommandLine) -> None:
        result = await monque.process("--version")

        assert result.code == 0
        assert result.out.startswith("monque ")


class TestUsage:
    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            (["jbos"], "No such command 'jbos'"),
            (["stats", "--nmae", "x"], "--nmae"),
            (["jobs", "list", "--status", "failde"], "did you mean 'failed'?"),
            (["jobs", "list", "--older-than", "soon"], "such as 90s, 15m, 1h30m or 7d"),
            (["jobs", "list", "--newer-than", "2030-01-01T00:00"], "has no time zone"),
            (["jobs", "list", "--name", ""], "is blank"),
            (["jobs", "list", "--cursor", "made-up"], "begin again without a cursor"),
            (["jobs", "show", "7"], "24 hex digits"),
            (["jobs", "cancel", "7"], "24 hex digits"),
            (["jobs", "cancel"], "select the jobs to cancel"),
            (["jobs", "cancel", "--status", "completed"], "only pending jobs can"),
            (["jobs", "delete", "a" * 24, "--name", "x"], "not both"),
            (["jobs", "reschedule", "a" * 24], "give one of --run-at and --delay"),
            (["reactive", "list", "--status", "failde"], "did you mean 'failed'?"),
            (["reactive", "list", "--name", ""], "is blank"),
            (["reactive", "list", "--error", ""], "a text that is not empty"),
            (["reactive", "list", "--error", "\udcff"], "without surrogates"),
            (["reactive", "list", "--source-id", "A-17"], "is not valid JSON"),
            (["reactive", "list", "--source-id", "null"], "have no record"),
            (["reactive", "list", "--source-id", "9" * 20], "cannot be an _id"),
            (["reactive", "retry"], "select the records to retry"),
            (["reactive", "reconcile", "a b"], "holds whitespace"),
            (["enqueue", "a b"], "holds whitespace"),
            (["enqueue", "x", "{to: 1}"], "is not valid JSON"),
            (["enqueue", "x", '{"$oid": "1"}'], "is not valid JSON"),
            (["enqueue", "x", "[" * 100_000], "is not valid JSON"),
            (["enqueue", "x", "--delay", "9999999w"], "is too long"),
            (["enqueue", "x", "1", "--delay", "-1s"], "--delay"),
            (["enqueue", "x", "--delay", "1s", "--run-at", "2030-01-01T00:00Z"], "not both"),
            (["schedule", "61 * * * *", "x"], "invalid cron expression '61 * * * *'"),
            (["schedule", "* * * * *", "x", "--timezone", "Mars"], "Mars"),
            (["top", "--interval", "0"], "--interval"),
            (["local", "--replicas", "9"], "--replicas"),
            (["worker", "shop:monque", "--processes", "0"], "--processes"),
        ],
    )
    def test_a_mistake_is_reported_and_ends_with_2(
        self, arguments: list[str], expected: str
    ) -> None:
        result = run_here(["--uri", NOWHERE, *arguments], os.environ)

        assert result.code == 2, result
        assert expected in result.err.replace("\n", " ")

    async def test_without_a_uri(self, monque: CommandLine) -> None:
        result = await monque("stats", MONQUE_URI="")

        assert result.code == 2
        assert "MONQUE_URI" in result.err
        assert "monque local" in result.err

    async def test_without_a_database(self, monque: CommandLine) -> None:
        result = await monque("stats", MONQUE_DATABASE="")

        assert result.code == 2
        assert "--database" in result.err

    @pytest.mark.parametrize("wrong", ["http://x/y", "mongodb://h/x?w=0", "mongodb://"])
    async def test_a_uri_that_is_none(self, wrong: str, monque: CommandLine) -> None:
        result = await monque("--uri", wrong, "stats")

        assert result.code == 2, result
        assert "URI" in result.err or "w=0 cannot be used" in result.err

    async def test_without_the_extra_it_says_what_to_install(self, monque: CommandLine) -> None:
        program = (
            "import sys; sys.modules['typer'] = None; sys.argv = ['monque', 'stats']; "
            "from monque_core.cli.main import main; main()"
        )
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program), stderr=asyncio.subprocess.PIPE
        )
        _, err = await process.communicate()

        assert process.returncode == 2
        assert err.decode().strip().endswith("pip install 'monque-core[cli]'")


class TestNoConnection:
    @pytest.mark.parametrize(
        "arguments",
        [["jobs", "list"], ["enqueue", "x"], ["doctor"], ["reactive", "reconcile", "x"]],
        ids=lambda arguments: ascii(" ".join(arguments)),
    )
    async def test_ends_with_3_and_one_line(
        self, arguments: list[str], monque: CommandLine
    ) -> None:
        result = await monque("--uri", NOWHERE, *arguments)

        assert result.code == 3, result
        assert result.out == ""
        assert result.err.startswith("monque: ")
        assert len(result.err.splitlines()) == 1
        assert len(result.err) < 200


class TestGlobalOptions:
    async def test_options_go_before_variables(self, monque: CommandLine, queue: Monque) -> None:
        await queue.enqueue("here", None)

        seen = await monque("stats", "--json")
        other_collection = await monque("--collection", "other", "stats", "--json")
        other_database = await monque("--database", "nowhere", "stats", "--json")

        assert seen.json["total"]["pending"] == 1
        assert other_collection.json["total"]["total"] == 0
        assert other_database.json["total"]["total"] == 0

    async def test_the_database_may_be_in_the_uri(
        self, monque: CommandLine, queue: Monque, uri: str, database_name: str
    ) -> None:
        await queue.enqueue("here", None)

        seen = await monque(
            "stats",
            "--json",
            MONQUE_DATABASE="",
            MONQUE_URI=uri.replace("/?", f"/{database_name}?"),
        )

        assert seen.json["total"]["pending"] == 1

    async def test_looking_creates_nothing(
        self, monque: CommandLine, client: AsyncMongoClient[dict[str, Any]], database_name: str
    ) -> None:
        for command in (["jobs", "list"], ["stats"], ["doctor"], ["reactive", "stats"]):
            await monque(*command)

        assert database_name not in await client.list_database_names()


# What is no UTF-8 on a command line, Python has as half of a surrogate pair.
BROKEN = "a\udcff"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--collection", BROKEN, "stats"],
        ["--database", BROKEN, "stats"],
        ["stats", "--name", BROKEN],
        ["enqueue", BROKEN],
        ["enqueue", "mail", BROKEN],
        ["enqueue", "mail", f'"{BROKEN}"'],
        ["enqueue", "mail", "1", "--unique-key", BROKEN],
        ["enqueue", "mail", "1", "--run-at", BROKEN],
        ["schedule", BROKEN, "mail"],
        ["schedule", "@daily", "mail", "--timezone", BROKEN],
        ["jobs", "show", BROKEN],
        ["jobs", "list", "--cursor", BROKEN],
        ["reactive", "list", "--error", BROKEN],
        ["reactive", "list", "--source-id", f'"{BROKEN}"'],
        ["reactive", "reconcile", BROKEN],
    ],
    ids=lambda arguments: ascii(" ".join(arguments)),
)
async def test_what_is_not_a_utf_8_is_refused(arguments: list[str], monque: CommandLine) -> None:
    result = await monque(*arguments)

    assert result.code == 2
    assert r"\udcff" in result.err


async def test_a_target_that_is_not_utf_8_is_refused(monque: CommandLine) -> None:
    result = await monque.process("worker", f"{BROKEN}:monque")

    assert result.code == 2
    assert r"\udcff" in result.err


async def test_a_terminal_of_another_encoding_does_not_end_a_command(
    monque: CommandLine, queue: Monque
) -> None:
    await queue.enqueue("送信", None)

    result = await monque.process("jobs", "list", PYTHONIOENCODING="latin-1")

    assert result.code == 0
    assert r"\u9001\u4fe1" in result.out
