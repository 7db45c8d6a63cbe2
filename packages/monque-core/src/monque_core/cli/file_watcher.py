"""Watch Python files for changes."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

_SCAN_INTERVAL = 0.5
_IGNORED_DIRECTORIES = {"__pycache__", "node_modules", "site-packages"}
_VENV_FILE = "pyvenv.cfg"

Stamp: TypeAlias = tuple[int, int]


class FileWatcher:
    """Polls the Python files below some directories for changes.

    Polling works on every file system, network mounts included. Hidden directories and virtual
    environments are skipped.
    """

    def __init__(self, directories: Sequence[Path]) -> None:
        self._directories = directories
        self._known = self._scan()

    async def changes(self) -> AsyncIterator[list[Path]]:
        """Yield the files that were changed, added or removed since the last scan, forever."""
        while True:
            await asyncio.sleep(_SCAN_INTERVAL)
            found = await asyncio.to_thread(self._scan)
            changed = {path for path, _ in found.items() ^ self._known.items()}
            self._known = found
            if changed:
                yield sorted(changed)

    def _scan(self) -> dict[Path, Stamp]:
        return {
            path: stamp
            for directory in self._directories
            for path, stamp in _python_files(directory).items()
        }


def _python_files(directory: Path) -> dict[Path, Stamp]:
    found: dict[Path, Stamp] = {}
    for folder, folders, names in os.walk(directory):
        if _VENV_FILE in names:
            folders.clear()
            continue
        folders[:] = [
            name for name in folders if name not in _IGNORED_DIRECTORIES and name[0] != "."
        ]
        for name in names:
            path = Path(folder, name)
            if path.suffix == ".py" and (stamp := _stamp(path)):
                found[path] = stamp
    return found


def _stamp(path: Path) -> Stamp | None:
    try:
        status = path.stat()
    except OSError:
        # An editor may be replacing the file.
        return None
    return status.st_mtime_ns, status.st_size
