"""`monque top`, in a terminal and without one."""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.task_records import declare, put_record

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Job, Monque
    from tests.support.command_line import CommandLine
    from tests.support.terminal import Terminal

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@asynccontextmanager
async def busy(queue: Monque) -> AsyncIterator[Job[None]]:
    """Return a running job."""
    started, may_end = asyncio.Event(), asyncio.Event()

    @queue.worker("long")
    async def run(_: object) -> None:
        started.set()
        await may_end.wait()

    async with queue:
        job = await queue.enqueue("long", None)
        await started.wait()
        yield job
        may_end.set()


@pytest.mark.parametrize("key", ["q", "\x03"], ids=["q", "Ctrl-C"])
async def test_a_live_screen_that_a_key_ends(
    key: str,
    db: AsyncDatabase[dict[str, Any]],
    queue: Monque,
    terminal: Callable[..., Terminal],
) -> None:
    await declare(db)
    async with busy(queue) as job:
        await queue.enqueue_many("mail", range(3))
        screen = terminal("top", "--interval", "0.2")
        await asyncio.to_thread(screen.read_until, "0.0 jobs/s")
        screen.type(key)
        code = await asyncio.to_thread(screen.read_to_end)

    assert code == 0, screen.output
    assert "\x1b[?1049h" in screen.output
    assert "\x1b[?1049l" in screen.output
    for word in ("mail", "long", str(job.id), queue.scheduler_instance_id, "pending 3", "invoice"):
        assert word in screen.output


async def test_one_plain_look_without_a_terminal(
    db: AsyncDatabase[dict[str, Any]], monque: CommandLine, queue: Monque
) -> None:
    await declare(db)
    await put_record(db, 1)
    async with busy(queue) as job:
        result = await monque("top")

    assert result.code == 0, result
    assert [line.split()[0] for line in result.out.splitlines() if line] == [
        "NAME",
        "long",
        "total",
        "TASK",
        "invoice",
        "leader",
        "stream",
        "RUNNING",
        str(job.id),
    ]


async def test_a_narrow_screen_shows_every_number_and_id_whole(
    db: AsyncDatabase[dict[str, Any]], queue: Monque, terminal: Callable[..., Terminal]
) -> None:
    await declare(db, "invoice-of-every-order")
    await put_record(db, 1, "invoice-of-every-order", status="failed")
    async with busy(queue) as job:
        await queue.enqueue_many("a[/b]-[red]-name-of-many-letters", range(1234))
        screen = terminal("top", "--interval", "0.2", columns=80)
        await asyncio.to_thread(screen.read_until, "0.0 jobs/s")
        await asyncio.to_thread(screen.read_until, str(job.id))
        screen.type("q")
        code = await asyncio.to_thread(screen.read_to_end)

    assert code == 0, screen.output
    lines = CONTROL.sub("", screen.output.replace("\x1b[H", "\n")).splitlines()
    assert max(map(len, lines)) <= 80
    for row in (
        r"pending 1,234   processing 1   completed 0   failed 0   cancelled 0",
        r"NAME +PENDING +PROCESSING +COMPLETED +FAILED +(CANCELLED +)?AVERAGE +JOBS/S",
        r"a\[/b\]-\[red\]\S*… +1234 +0 +0 +0 .*",
        r"TASK +PENDING +PROCESSING +DIRTY +(COMPLETED +)?FAILED +LAG +PARKED +STATE",
        r"invoice-of\S*… +0 +0 +0 .* 0 +\w+",
        rf"{job.id} +long +\S+ +\S+ ago +\S+",
    ):
        assert any(re.fullmatch(row, line.strip()) for line in lines), (row, lines)
