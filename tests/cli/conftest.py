"""A shell in which `monque` finds the test's database."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from monque_core import Monque
from tests.support.command_line import COMMAND, CommandLine
from tests.support.shop import SHOP
from tests.support.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pymongo.asynchronous.database import AsyncDatabase


@pytest.fixture
def monque(uri: str, database_name: str, tmp_path: Path) -> CommandLine:
    """Return the command, in a directory with the module `shop`."""
    (tmp_path / "shop.py").write_text(SHOP, encoding="utf-8")
    return CommandLine(tmp_path, MONQUE_URI=uri, MONQUE_DATABASE=database_name)


@pytest.fixture
def queue(db: AsyncDatabase[dict[str, Any]]) -> Monque:
    """Return the collection of jobs that the command uses."""
    return Monque(db, stats_cache_ttl=0)


@pytest.fixture
def terminal(monque: CommandLine) -> Iterator[Callable[..., Terminal]]:
    """Return a function that runs the command in a terminal."""
    if sys.platform == "win32":
        pytest.skip("pseudo-terminals are a thing of POSIX")
    opened: list[Terminal] = []

    def open_terminal(*arguments: str, columns: int = 120) -> Terminal:
        command = [*COMMAND, *arguments]
        opened.append(Terminal(command, monque.environment, monque.directory, columns))
        return opened[-1]

    yield open_terminal
    for each in opened:
        each.close()
