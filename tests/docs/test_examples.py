"""Every example in the documentation runs as it is written.

`python file` blocks make one application, which test_django.py runs. `python conftest` blocks and
fragments that need little context are run by test_fragments.py.
"""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.pages import Block, blocks, page_paths

if TYPE_CHECKING:
    from pathlib import Path

_LONGEST_RUN = 200


@pytest.fixture
def environment(uri: str, database_name: str) -> dict[str, str]:
    """Return the environment that the pages tell the reader to set up."""
    database = uri.replace("/?", f"/{database_name}?")
    return os.environ | {"MONGODB_URI": database, "MONQUE_URI": database}


@pytest.mark.parametrize("program", blocks("python"), ids=str)
def test_a_program_runs_and_prints_what_the_page_says(
    program: Block, environment: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "example.py"
    path.write_text(program.code, encoding="utf-8")

    done = subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=_LONGEST_RUN,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    if program.output is not None:
        assert done.stdout == program.output, done.stderr


@pytest.mark.parametrize("service", blocks("python service"), ids=str)
def test_a_service_ends_cleanly_on_sigterm(
    service: Block, environment: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "service.py"
    path.write_text(service.code, encoding="utf-8")

    with subprocess.Popen(
        [sys.executable, "-u", str(path)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        if service.output is not None:
            first_line = process.stdout.readline()
        else:
            first_line = next(line for line in process.stderr if "is up at" in line)
        process.send_signal(signal.SIGTERM)
        rest, problems = process.communicate(timeout=_LONGEST_RUN)

    assert process.returncode == 0, first_line + rest + problems
    if service.output is not None:
        assert first_line + rest == service.output


@pytest.mark.parametrize("fragment", blocks("python fragment"), ids=str)
def test_a_fragment_compiles(fragment: Block) -> None:
    compile(fragment.code, str(fragment), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_every_python_block_is_tested() -> None:
    written = sum(path.read_text(encoding="utf-8").count("\n```python") for path in page_paths())
    kinds = ("service", "fragment", "tests", "file", "conftest")
    tested = len(blocks("python", *(f"python {kind}" for kind in kinds)))

    assert written == tested


def test_most_examples_run() -> None:
    assert len(blocks("python fragment")) * 4 <= len(blocks("python", "python service"))
