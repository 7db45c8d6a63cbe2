"""`monque worker --reload`: a change of the sources starts it anew."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from monque_core.cli.file_watcher import FileWatcher

if TYPE_CHECKING:
    from pathlib import Path

    from monque_core import Monque
    from tests.support.command_line import CommandLine

UP = "is up"


@pytest.mark.skipif(sys.platform == "win32", reason="--reload needs POSIX")
async def test_a_change_starts_it_anew_and_a_mistake_waits_for_the_next(
    monque: CommandLine, queue: Monque
) -> None:
    shop = monque.directory / "shop.py"
    good = shop.read_text(encoding="utf-8")

    async with monque.start("worker", "shop:monque", "--reload") as worker:
        await worker.hear(UP)

        shop.write_text(good.replace("hello", "welcome"), encoding="utf-8")
        await worker.hear("shop.py changed, restarting")
        await worker.hear(UP, 2)
        await queue.enqueue("greet", "Ada")
        await worker.hear("welcome Ada")

        shop.write_text("this is no Python", encoding="utf-8")
        await worker.hear("SyntaxError")
        await worker.hear("waiting for a source file")

        shop.write_text(good, encoding="utf-8")
        await worker.hear(UP, 3)
        worker.signal()
        assert await worker.end() == 0, worker.output


async def test_sees_what_is_changed_added_and_removed_and_nothing_else(tmp_path: Path) -> None:
    for name in ("a.py", "b.py", "pkg/c.py", ".git/d.py", "venv/e.py", "__pycache__/f.py", "g.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    (tmp_path / "venv" / "pyvenv.cfg").touch()
    sources = FileWatcher([tmp_path])

    os.utime(tmp_path / "a.py", ns=(1, 1))
    (tmp_path / "b.py").unlink()
    (tmp_path / "pkg" / "new.py").touch()
    for unseen in (".git/d.py", "venv/e.py", "__pycache__/f.py", "g.txt"):
        (tmp_path / unseen).write_text("x", encoding="utf-8")
    changed = await anext(sources.changes())

    assert [path.relative_to(tmp_path).as_posix() for path in changed] == [
        "a.py",
        "b.py",
        "pkg/new.py",
    ]
