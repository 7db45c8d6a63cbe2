"""Settings on the pages besides Python and monque commands are well-formed.

YAML is parsed when the site is built, because the parser is installed there.
"""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import tomllib
from typing import TYPE_CHECKING

import pytest

from tests.support.pages import ROOT, Block, blocks, page_paths

if TYPE_CHECKING:
    from pathlib import Path

_KNOWN = {"console", "dockerfile", "ini", "js", "json", "python", "text", "toml", "yaml"}


def _pip_lines() -> list[str]:
    pages = [*page_paths(), ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("packages/*/README.md"))]
    return [
        line
        for page in pages
        for line in re.findall(r"^(?:\$ )?(pip install .*)$", page.read_text("utf-8"), re.MULTILINE)
    ]


@pytest.mark.parametrize("line", sorted(set(_pip_lines())))
def test_a_pip_command_names_existing_packages_and_extras(line: str) -> None:
    assert not re.search(r"[ \"]monque-(core|di)\b", line), "they are not on PyPI yet"
    for path, _, extras in re.findall(r"\./(packages/[\w-]+)(\[([\w,]+)\])?", line):
        manifest = tomllib.loads((ROOT / path / "pyproject.toml").read_text(encoding="utf-8"))
        given = set(manifest["project"]["optional-dependencies"])
        assert set(filter(None, extras.split(","))) <= given


@pytest.mark.parametrize("unit", blocks("ini"), ids=str)
def test_a_unit_of_systemd_has_its_sections(unit: Block) -> None:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # as configparser says to
    parser.read_string(unit.code)

    assert parser.sections() == ["Unit", "Service", "Install"]
    assert " worker shop:make_monque " in parser["Service"]["ExecStart"]
    assert int(parser["Service"]["TimeoutStopSec"]) > 30


@pytest.mark.parametrize("file", blocks("dockerfile"), ids=str)
def test_a_dockerfile_has_instructions_alone_and_passes_signals_on(file: Block) -> None:
    lines = [line for line in file.code.splitlines() if not line.startswith("#")]
    instructions = [line.partition(" ")[::2] for line in lines]

    assert [name for name, _ in instructions if name not in {"FROM", "WORKDIR", "COPY", "RUN"}] == [
        "CMD"
    ]
    assert instructions[0][0] == "FROM"
    assert json.loads(instructions[-1][1])[:3] == ["monque", "worker", "shop:make_monque"]


@pytest.mark.parametrize("script", blocks("js"), ids=str)
def test_a_script_for_node_is_javascript(script: Block, tmp_path: Path) -> None:
    if (node := shutil.which("node")) is None:
        pytest.skip("node is not installed")
    path = tmp_path / "script.mjs"
    path.write_text(script.code, encoding="utf-8")

    subprocess.run([node, "--check", path], check=True)


@pytest.mark.parametrize("settings", blocks("toml"), ids=str)
def test_settings_are_toml(settings: Block) -> None:
    assert tomllib.loads(settings.code)


def test_every_kind_of_block_is_checked() -> None:
    fences = re.compile(r"^```(\w+)", re.MULTILINE)
    written = {kind for page in page_paths() for kind in fences.findall(page.read_text("utf-8"))}

    assert written <= _KNOWN
