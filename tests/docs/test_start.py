"""Whoever follows the first page gets what it says."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from tests.support.command_line import CommandLine
from tests.support.pages import blocks, page_text

if TYPE_CHECKING:
    from pathlib import Path

_PAGE = "docs/start.md"
_COMMANDS = (
    "monque local --port 27117",
    "monque worker shop:make_monque --processes 2",
    """monque enqueue greet '"Ada"'""",
    "monque stats",
)


async def test_the_workers_of_the_first_page_run_what_the_shell_and_a_program_enqueue(
    uri: str, database_name: str, tmp_path: Path
) -> None:
    on_the_page = [block.code for block in blocks("python") if block.page == _PAGE]
    (shop,) = [code for code in on_the_page if "make_monque" in code]
    (tmp_path / "shop.py").write_text(shop, encoding="utf-8")
    shell = CommandLine(tmp_path, MONQUE_URI=uri.replace("/?", f"/{database_name}?"))

    async with shell.start("worker", "shop:make_monque", "--processes", "2") as workers:
        await workers.hear("is up", 2)
        assert (await shell("enqueue", "greet", '"Ada"')).code == 0
        await workers.hear("hello Ada\n")
        stats = await shell("stats")
        workers.signal(signal.SIGINT)
        assert await workers.end() == 0, workers.output

    assert "greet" in stats.out


def test_the_commands_of_the_first_page_are_those_that_are_tried() -> None:
    shown = [line for line in page_text(_PAGE).splitlines() if line.startswith("$ monque ")]

    assert [f"$ {command}" for command in _COMMANDS] == shown
