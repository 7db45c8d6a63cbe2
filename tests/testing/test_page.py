"""The tests on the page about testing run as written, and the page tells of all there is."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING

import pytest

from monque_core import testing
from monque_core.testing import fixtures, sync
from tests.support.pages import Block, blocks, page_text
from tests.support.trial import Project

if TYPE_CHECKING:
    from pathlib import Path

PAGE = "docs/testing.md"


def on_the_page(kind: str) -> list[Block]:
    """Return the code blocks of a kind."""
    return [block for block in blocks(kind) if block.page == PAGE]


@pytest.fixture
def project(tmp_path: Path, uri: str) -> Project:
    """Return a project that is set up as on the page."""
    project = Project(tmp_path, uri)
    (conftest,) = on_the_page("python")
    (settings,) = on_the_page("toml")
    project.write("conftest.py", conftest.code)
    project.write("pyproject.toml", settings.code)
    return project


def test_the_tests_on_all_pages_pass(project: Project) -> None:
    passing = [module for module in blocks("python tests") if module.output is None]
    for module in passing:
        name = re.sub(r"\W", "_", str(module))
        project.write(f"test_{name}.py", module.code)

    verdict = project.run("-W", "error")

    assert verdict.code == 0, verdict.text
    assert verdict.summary == f"{sum(one.code.count('def test_') for one in passing)} passed"


@pytest.mark.parametrize(
    "module", [module for module in on_the_page("python tests") if module.output], ids=str
)
def test_a_test_on_the_page_fails_as_it_says(module: Block, project: Project) -> None:
    project.write("test_page.py", module.code)

    verdict = project.run("-W", "error")

    assert verdict.summary == "1 failed", verdict.text
    told = "\n".join(re.findall(r"^E {7}(.*)$", verdict.text, re.MULTILINE))
    assert told == (module.output or "").rstrip("\n")


def test_the_page_lists_every_fixture_and_no_other() -> None:
    given = {
        name
        for name, value in vars(fixtures).items()
        if type(value).__name__ == "FixtureFunctionDefinition" and not name.startswith("_")
    }
    section = page_text(PAGE).partition("\n## Fixtures\n")[2].partition("\n## ")[0]

    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == given
    assert given


@pytest.mark.parametrize("name", testing.__all__)
def test_every_public_name_is_in_a_test_on_the_page(name: str) -> None:
    assert any(name in module.code for module in on_the_page("python tests"))


def test_the_page_lists_every_argument_of_the_assertion_and_no_other() -> None:
    section = page_text(PAGE).partition("\n| argument | |\n")[2].partition("\n\n")[0]
    arguments = set(inspect.signature(testing.assert_enqueued).parameters) - {"name"}

    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == arguments


@pytest.mark.parametrize("name", ["assert_enqueued", "assert_not_enqueued", "run_until_idle"])
def test_the_blocking_functions_take_what_the_others_take(name: str) -> None:
    awaited = inspect.signature(getattr(testing, name)).parameters
    blocking = inspect.signature(getattr(sync, name)).parameters

    assert [(one.name, one.kind, one.default) for one in awaited.values()] == [
        (one.name, one.kind, one.default) for one in blocking.values()
    ]
