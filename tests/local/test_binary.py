from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from monque_core.errors import MonqueConnectionError
from monque_core.local.binary import find_mongod

if TYPE_CHECKING:
    from pathlib import Path


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Remove every mongod from the environment; return a directory to put one into."""
    monkeypatch.delenv("MONQUE_MONGOD", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    monkeypatch.delitem(sys.modules, "fiftyone", raising=False)
    return tmp_path


def test_the_variable_comes_before_the_path_and_the_path_before_the_wheel(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_wheel = program(nowhere / "site" / "fiftyone" / "db" / "bin" / "mongod")
    assert find_mongod() == in_wheel

    on_path = program(nowhere / "bin" / "mongod")
    assert find_mongod() == on_path

    named = program(nowhere / "elsewhere" / "mongod-7")
    monkeypatch.setenv("MONQUE_MONGOD", str(named))
    assert find_mongod() == named


def test_the_wheel_is_found_without_importing_the_package_around_it(nowhere: Path) -> None:
    in_wheel = program(nowhere / "site" / "fiftyone" / "db" / "bin" / "mongod")
    (nowhere / "site" / "fiftyone" / "__init__.py").write_text("raise ImportError('too much')")

    assert find_mongod() == in_wheel


def test_a_missing_mongod_is_reported_with_where_to_get_one(nowhere: Path) -> None:
    with pytest.raises(MonqueConnectionError, match=r"pip install 'monque-core\[local\]'"):
        find_mongod()


@pytest.mark.parametrize("executable", [True, False], ids=["missing", "not executable"])
def test_a_variable_that_names_no_program_is_an_error(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch, executable: bool
) -> None:
    program(nowhere / "bin" / "mongod")
    named = nowhere / "mongod"
    if not executable:
        named.write_text("")
    monkeypatch.setenv("MONQUE_MONGOD", str(named))

    with pytest.raises(MonqueConnectionError, match=r"MONQUE_MONGOD is .* not an executable file"):
        find_mongod()
