"""A trial run of the cluster benchmark measures everything and leaves no process behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.benchmarks.cluster.counters import ServerLoad
from tests.support.pages import ROOT
from tests.support.patience import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

_PROGRAM = (sys.executable, "-m", "tests.benchmarks.cluster", "--quick")
_CLIENT = "tests.benchmarks.cluster.client"
_TABLES_WITH_FOOTNOTE = 6


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_trial_run_prints_a_table_per_scenario_and_writes_json(tmp_path: Path) -> None:
    output = tmp_path / "made" / "cluster.json"

    done = subprocess.run(
        [*_PROGRAM, "--instances", "2", "--output", str(output)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    rows = json.loads(output.read_text(encoding="utf-8"))["rows"]
    assert {scenario: len(found) for scenario, found in rows.items()} == {
        "idle": 1,
        "lone": 1,
        "reactive": 1,
        "busy": 2,
        "full": 4,
        "lost": 2,
    }
    assert rows["lone"][0]["find_and_modify"] > 0
    assert all(row["pickup_p50_ms"] > 0 for row in rows["lone"] + rows["busy"] + rows["reactive"])
    assert all(row["claims"] > 0 and row["keys_examined"] >= 1 for row in rows["full"])
    assert [row["fault"] for row in rows["lost"]] == ["killed", "frozen"]
    assert done.stdout.count("\n|---:|") == _TABLES_WITH_FOOTNOTE


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_the_benchmark(number: signal.Signals) -> None:
    command = [*_PROGRAM, "--scenario", "idle", "--idle-seconds", "600"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as program:
        wait_until(lambda: any(_CLIENT in _command_line(pid) for pid in _descendants(program.pid)))
        started = {pid: _command_line(pid) for pid in _descendants(program.pid)}
        program.send_signal(number)
        assert program.wait(timeout=120) != 0

    assert len(started) >= 3
    wait_until(lambda: not [pid for pid, line in started.items() if _command_line(pid) == line])


def test_the_background_is_subtracted_for_the_same_time() -> None:
    background = ServerLoad(60.0, {"find": 30, "getMore": 6}, 60, 0, 0.6)
    load = ServerLoad(20.0, {"find": 30, "findAndModify": 100, "insert": 100}, 220, 100, 1.2)

    own = load.without(background).per(100)

    assert own["find_and_modify"] == 1
    assert own["commands"] == pytest.approx(1.2)
    assert own["get_mores"] == pytest.approx(-0.02)
    assert own["keys_examined"] == pytest.approx(2)
    assert own["server_cpu_ms"] == pytest.approx(10)


def _descendants(pid: int) -> Iterator[int]:
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, _read(children).split()):
            yield child
            yield from _descendants(child)


def _command_line(pid: int) -> str:
    """Return the command line of a process; empty if it has ended."""
    return _read(Path(f"/proc/{pid}/cmdline"))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return ""
