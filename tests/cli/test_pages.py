"""Every `console` block of the pages about the command runs, and prints what the page says.

A line after `$` is a command, another line is output, in which `…` stands for anything. `console
service` runs until it is result to end. `console fragment` cannot run here.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from bson import ObjectId

from tests.support.pages import Block, blocks, page_text
from tests.support.stored import jobs_in
from tests.support.task_records import META, declare, put_record

if TYPE_CHECKING:
    from pathlib import Path

    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Monque
    from tests.support.command_line import CommandLine

PAGES = (
    "docs/reference/cli.md",
    "docs/operations.md",
    "docs/reactive.md",
    "docs/reference/local-mongo.md",
)
_USUAL_PORT = "27017"


def on_pages(kind: str) -> list[Block]:
    """Return the code blocks of a kind on the pages about the command."""
    return [block for block in blocks(kind) if block.page in PAGES]


@pytest.fixture
async def shell(
    monque: CommandLine,
    queue: Monque,
    db: AsyncDatabase[dict[str, Any]],
    uri: str,
    tmp_path: Path,
) -> CommandLine:
    """Yield a shell with the command, and with the shop, jobs and tasks of the pages."""
    binaries = tmp_path / "bin"
    binaries.mkdir()
    command = binaries / "monque"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m monque_core.cli "$@"\n')
    command.chmod(0o755)
    (module,) = [block for block in on_pages("python") if "def make_monque" in block.code]
    (tmp_path / "shop.py").write_text(module.code, encoding="utf-8")
    monque.environment |= {
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        "MONQUE_URI": uri.replace("/?", f"/{db.name}?"),
    }
    await queue.initialize()
    created = datetime(2026, 3, 1, 9, tzinfo=UTC)
    job = {"name": "send-email", "data": {"to": "ada@example.com"}, "createdAt": created}
    await jobs_in(db).insert_many(
        [
            {
                **job,
                "_id": ObjectId("66f2a1c5e4b0a1b2c3d4e5f6"),
                "status": "failed",
                "nextRunAt": datetime(2026, 3, 1, 9, 17, 3, tzinfo=UTC),
                "updatedAt": created,
                "failCount": 10,
                "failReason": "ConnectionError: smtp.example.com is away",
            },
            {
                **job,
                "_id": ObjectId("66f2a1c5e4b0a1b2c3d4e5f7"),
                "status": "pending",
                "nextRunAt": datetime(2035, 1, 31, 9, tzinfo=UTC),
                "updatedAt": created,
                "failCount": 0,
            },
        ]
    )
    await declare(db)
    await db[META].update_one({"task": "invoice"}, {"$unset": {"reconcile": ""}})
    await put_record(db, 17)
    await put_record(
        db,
        ObjectId("65e19c10e4b0a1b2c3d4e5f6"),
        status="failed",
        attempts=5,
        updatedAt=datetime(2026, 3, 1, 9, 17, 3, tzinfo=UTC),
        lastError="ConnectionError: smtp.example.com is away",
    )
    return monque


@pytest.mark.skipif(sys.platform == "win32", reason="the pages speak to a POSIX shell")
@pytest.mark.parametrize("block", on_pages("console"), ids=str)
async def test_commands_run_and_print_what_the_page_says(
    block: Block, shell: CommandLine, db: AsyncDatabase[dict[str, Any]]
) -> None:
    if block.page == "docs/reactive.md":
        await declare(db, "greet", "customers")
        await put_record(db, 2, "greet", "customers", status="failed", lastError="KeyError: 2")
    # Each command is result before it runs, so that its output can be found.
    script = "\n".join(f"echo '{_MARK}'; {command}" for command, _ in sessions(block))
    process = await asyncio.create_subprocess_exec(
        *("bash", "-euo", "pipefail", "-c", script),
        cwd=shell.directory,
        env=shell.environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()

    assert process.returncode == 0, out.decode() + err.decode()
    printed = out.decode().split(f"{_MARK}\n")[1:]
    for (command, expected), text in zip(sessions(block), printed, strict=True):
        assert not expected or matches(expected, text), f"$ {command}\n{text}"


@pytest.mark.skipif(sys.platform == "win32", reason="the pages speak to a POSIX shell")
@pytest.mark.parametrize("block", on_pages("console service"), ids=str)
async def test_services_run_until_they_are_reported_to_end(
    block: Block, shell: CommandLine
) -> None:
    ((command, _),) = sessions(block)
    # Somebody may have a server there.
    name, *arguments = command.replace(_USUAL_PORT, "0").split()
    assert name == "monque"

    async with shell.start(*arguments) as service:
        await service.hear("is up|MongoDB is running")
        service.signal(signal.SIGTERM)

        assert await service.end() == 0, service.output


def test_every_command_is_shown_and_every_block_is_of_a_kind() -> None:
    shown = "".join(block.code for block in [*on_pages("console"), *on_pages("console service")])
    for command in ("enqueue", "schedule", "schedules", "unschedule", "stats", "top", "doctor"):
        assert f"$ monque {command}" in shown
    for action in ("list", "show", "cancel", "retry", "reschedule", "delete"):
        assert f"$ monque jobs {action}" in shown
    for action in ("list", "stats", "retry", "reconcile"):
        assert f"$ monque reactive {action}" in shown
    written = sum(page_text(page).count("\n```console") for page in PAGES)
    kinds = ("console", "console service", "console fragment")
    assert written == sum(len(on_pages(kind)) for kind in kinds)


_MARK = "---- next"


def sessions(block: Block) -> list[tuple[str, str]]:
    """Yield each command of a block with its documented output."""
    parts = re.split(r"^\$ (.*)\n", block.code, flags=re.MULTILINE)
    assert parts[0] == "", f"{block} does not begin with a command"
    return list(zip(parts[1::2], parts[2::2], strict=True))


def matches(expected: str, text: str) -> bool:
    """Whether a text matches the documented one, where … matches anything."""
    pattern = re.escape(expected.strip()).replace("…", ".*")
    return re.fullmatch(pattern, text.strip(), flags=re.DOTALL) is not None
