"""Type checkers understand the examples and SyncMonque, and find what is wrong with wrong uses."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages import ROOT

_EXAMPLES = ROOT / "examples"
_MISTAKES = Path(__file__).with_name("mistakes.py")
_SYNC_MISTAKES = ROOT / "tests/sync/mistakes.py"
_SPARE = '"spare"  # type: ignore[misc]'
# Without a cache, on a busy machine.
_LONGEST_RUN = 800

pytestmark = [pytest.mark.long, pytest.mark.timeout(_LONGEST_RUN + 10)]


@pytest.fixture
def spare_silence(tmp_path: Path) -> Path:
    """Yield the wrong programs, and one with an unneeded ignore comment."""
    path = tmp_path / "spare_silence.py"
    text = _MISTAKES.read_text(encoding="utf-8")
    path.write_text(f"{text}\n\n{_SPARE}\n", encoding="utf-8")
    return path


def _last_line(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def test_mypy_finds_every_mistake_and_no_other(spare_silence: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict"),
            *(_EXAMPLES, _MISTAKES, _SYNC_MISTAKES, spare_silence),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=_LONGEST_RUN,
        check=False,
    )

    errors = re.findall(r"^(.+):(\d+): error: .*\[([\w-]+)\]$", done.stdout, re.MULTILINE)
    assert [(Path(path).name, int(line), code) for path, line, code in errors] == [
        (spare_silence.name, _last_line(spare_silence), "unused-ignore")
    ], done.stdout + done.stderr


def test_pyright_finds_every_mistake_and_no_other(spare_silence: Path, tmp_path: Path) -> None:
    settings = {
        "include": [str(_EXAMPLES), str(_MISTAKES), str(_SYNC_MISTAKES), str(spare_silence)],
        "extraPaths": [str(ROOT)],
        "pythonVersion": "3.11",
        "typeCheckingMode": "standard",
    }
    config = tmp_path / "pyrightconfig.json"
    config.write_text(json.dumps(settings), encoding="utf-8")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "basedpyright"),
            *("--project", config, "--pythonpath", sys.executable, "--outputjson"),
        ],
        capture_output=True,
        text=True,
        timeout=_LONGEST_RUN,
        check=False,
    )

    found = json.loads(done.stdout)
    count = len(list(_EXAMPLES.rglob("*.py"))) + 3
    assert found["summary"]["filesAnalyzed"] >= count
    assert [
        (Path(complaint["file"]).name, complaint["range"]["start"]["line"] + 1, complaint["rule"])
        for complaint in found["generalDiagnostics"]
    ] == [(spare_silence.name, _last_line(spare_silence), "reportUnnecessaryTypeIgnoreComment")], (
        done.stdout
    )
