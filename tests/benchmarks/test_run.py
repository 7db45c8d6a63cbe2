"""The benchmarks run and write their results; no test depends on speed."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.benchmarks import run
from tests.support.pages import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def test_a_small_run_prints_a_table_writes_json_and_draws(tmp_path: Path) -> None:
    output = tmp_path / "made" / "bench.json"

    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.benchmarks.run"),
            *("--rounds", "1", "--scale", "0.01", "--output", str(output)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    result = json.loads(output.read_text(encoding="utf-8"))
    assert result["limit_batch_size"] in {100, 300, 1000}
    assert done.stdout.startswith(f"{result['date']}, commit {result['commit']}\n\n| benchmark |")
    for name in ("enqueue, 100 tasks at once", "enqueue with unique keys, 100 tasks at once"):
        (measure,) = [measure for measure in result["measures"] if measure["name"] == name]
        assert measure["naive"] > 0
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    assert len(rows) == len(result["measures"]) + 1
    for measure in result["measures"]:
        # In such a short time, there may be no command, and no tick of the server's CPU clock.
        is_coarse = measure["name"] in {"idle, commands", "server CPU per drained job"}
        assert measure["monque"] > 0 or is_coarse
        assert len(measure["rounds"]) == 1
        assert any(measure["name"] in row for row in rows)
    assert {measure["name"] for measure in result["measures"]} >= {
        "drain, concurrency 5",
        "drain, concurrency 20",
        "drain, concurrency 100",
        "drain, thread handlers, concurrency 20",
        "drain, two processes, concurrency 20",
        "drain, two processes, thread handlers, concurrency 20",
        "client CPU per drained job",
        "settle failures",
        "settle recurring jobs",
        "enqueue, one by one",
        "enqueue, 100 tasks at once",
        "enqueue with unique keys, 100 tasks at once",
        "enqueue_many",
        "SyncMonque.enqueue, one by one",
        "pick-up from here p50",
        "pick-up from another process p99",
        "reactive planning of a burst",
        "reactive change to handler p99",
        "claim of 100, 1,000,000 jobs stored",
        "idle, commands",
        "idle, CPU of the client",
        "stored bytes per pending job",
        "memory per running job",
    }
    for picture in ("bench-drain.png", "bench-pick-up.png", "bench-claim.png"):
        assert (output.parent / picture).read_bytes().startswith(b"\x89PNG")


def test_a_small_growth_run_prints_a_table_and_writes_json(tmp_path: Path) -> None:
    output = tmp_path / "growth.json"

    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.benchmarks.growth"),
            *("--scale", "0.001", "--output", str(output)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    result = json.loads(output.read_text(encoding="utf-8"))
    assert {cost["dimension"] for cost in result["costs"]} == {
        "jobs stored",
        "concurrency of a worker",
        "names",
        "retention",
        "ms added to a round trip",
        "idle instances",
        "instances",
    }
    assert all(cost["jobs_per_second"] > 0 for cost in result["costs"])
    assert result["oplog_bytes_per_job"] > 0
    assert len([line for line in done.stdout.splitlines() if line.startswith("| ")]) == 23


def test_the_result_names_the_commit_of_the_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert run.commit() is None

    def git(*arguments: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        command = ["git", *identity, *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    (tmp_path / "file").write_text("one", encoding="utf-8")
    git("init")
    git("add", "file")
    git("commit", "--message", "first")
    assert run.commit() == git("rev-parse", "--short=12", "HEAD")
    (tmp_path / "file").write_text("two", encoding="utf-8")
    assert run.commit() == git("rev-parse", "--short=12", "HEAD") + "-dirty"
