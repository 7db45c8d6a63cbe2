"""A project that is tested with pytest in its own process."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

CONFTEST = 'pytest_plugins = ["monque_core.testing"]\n'
SETTINGS = """\
[tool.pytest.ini_options]
asyncio_mode = "auto"
asyncio_default_fixture_loop_scope = "function"
filterwarnings = ["error"]
"""
_LONGEST_RUN = 200


@dataclass(frozen=True, slots=True)
class Verdict:
    """The exit code and the output of a run of pytest."""

    code: int
    text: str

    @property
    def summary(self) -> str:
        """Return the last line, without the duration."""
        return self.text.rstrip().splitlines()[-1].strip("= ").partition(" in ")[0]


class Project:
    """Files in a directory, on which pytest runs in its own process."""

    def __init__(self, path: Path, uri: str | None) -> None:
        self._path = path
        self._environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTEST_", "MONGODB_URI"))
        }
        if uri is not None:
            self._environment["MONGODB_URI"] = uri
        self.write("conftest.py", CONFTEST)
        self.write("pyproject.toml", SETTINGS)

    def write(self, name: str, text: str) -> None:
        """Write a file of the project."""
        (self._path / name).write_text(text, encoding="utf-8")

    def run(self, *arguments: str, installed_plugins: bool = False) -> Verdict:
        """Run pytest with pytest-asyncio only, or with all installed plugins, which is slow."""
        plugins = (
            [] if installed_plugins else ["--disable-plugin-autoload", "-ppytest_asyncio.plugin"]
        )
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-pno:cacheprovider", *plugins, *arguments],
            env=self._environment,
            cwd=self._path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            timeout=_LONGEST_RUN,
            check=False,
        )
        return Verdict(done.returncode, done.stdout)
