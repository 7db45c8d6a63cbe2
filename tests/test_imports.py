"""What an import loads: names, since times depend on the machine."""

from __future__ import annotations

import subprocess
import sys

import pytest

import monque_core
import monque_core.reactive

_FOR_WORKERS = ("monque_core.scheduler.engine", "monque_core.reactive.runtime")
_FOR_REACTIVE_TASKS = ("monque_core.store.tasks.store", "monque_core.tasks.definition")
_OPTIONAL = ("motor", "pytest", "rich", "typer", "uvloop")


def _loaded_by(statement: str) -> set[str]:
    program = f"{statement}\nimport sys\nprint(*sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    return set(ended.stdout.split())


def test_an_import_of_the_package_loads_what_a_producer_needs() -> None:
    loaded = _loaded_by("from monque_core import Monque")

    assert "monque_core.producer" in loaded
    assert loaded.isdisjoint({"croniter", "monque_core.local", "monque_core.sync", *_OPTIONAL})
    assert loaded.isdisjoint({*_FOR_WORKERS, *_FOR_REACTIVE_TASKS})


def test_the_command_line_loads_no_table_layout_and_no_engine() -> None:
    loaded = _loaded_by("import monque_core.cli.app")

    assert "typer" in loaded
    assert loaded.isdisjoint({"croniter", "rich", "monque_core.store.tasks.store", *_FOR_WORKERS})


@pytest.mark.parametrize("package", [monque_core, monque_core.reactive])
def test_every_public_name_can_be_imported(package: object) -> None:
    names = package.__all__  # type: ignore[attr-defined]  # both packages have one

    assert all(getattr(package, name) is not None for name in names)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="module 'monque_core' has no attribute 'Monk'"):
        _ = monque_core.Monk  # type: ignore[attr-defined]  # that is what is tested
