"""Noticing that source files change."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

_LOOK_GAP = 0.5
_NOT_SOURCES = {"__pycache__", "node_modules", "site-packages"}
_VENV_MARK = "pyvenv.cfg"

Stamp: TypeAlias = tuple[int, int]


class SourceFiles:
    """The Python files below some directories, looked at again and again.

    That works on every kind of file system, mounted ones included, and is cheap enough for the
    sources of an application; hidden directories and virtual environments are left out.
    """

    def __init__(self, directories: Sequence[Path]) -> None:
        self._directories = directories
        self._known = self._look()

    async def changes(self) -> AsyncIterator[list[Path]]:
        """Give the files that were changed, added or removed since the last look, for ever."""
        while True:
            await asyncio.sleep(_LOOK_GAP)
            found = await asyncio.to_thread(self._look)
            changed = {path for path, _ in found.items() ^ self._known.items()}
            self._known = found
            if changed:
                yield sorted(changed)

    def _look(self) -> dict[Path, Stamp]:
        return {
            path: stamp
            for directory in self._directories
            for path, stamp in _python_files(directory).items()
        }


def _python_files(directory: Path) -> dict[Path, Stamp]:
    found: dict[Path, Stamp] = {}
    for folder, folders, names in os.walk(directory):
        if _VENV_MARK in names:
            folders.clear()
            continue
        folders[:] = [name for name in folders if name not in _NOT_SOURCES and name[0] != "."]
        for name in names:
            path = Path(folder, name)
            if path.suffix == ".py" and (stamp := _stamp(path)):
                found[path] = stamp
    return found


def _stamp(path: Path) -> Stamp | None:
    try:
        status = path.stat()
    except OSError:
        # Editors replace files: it may be gone for a moment.
        return None
    return status.st_mtime_ns, status.st_size
