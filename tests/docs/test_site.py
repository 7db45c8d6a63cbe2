"""The documentation site has every page and every public name; `make docs` builds it strictly."""

from __future__ import annotations

import re

import pytest

import monque_core
import monque_di
from monque_core import errors, reactive, testing
from tests.support.pages import ROOT, page_paths, page_text

_IN_NAVIGATION = re.compile(r"^ +- [^:]+: ([\w/-]+\.md)$", re.MULTILINE)


def test_every_page_is_in_the_navigation_once_and_nothing_else() -> None:
    listed = _IN_NAVIGATION.findall(page_text("mkdocs.yml"))
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in page_paths()[1:]]

    # The hook of the site generates the page of the examples.
    assert sorted(listed) == sorted([*pages, "examples.md"])


def _public_names() -> list[str]:
    modules = (monque_core, reactive, testing, monque_di)
    known = {name for name in vars(errors) if not name.startswith("_")}
    # A name that is exported twice is documented where it is imported from most often.
    return sorted({name for module in modules for name in module.__all__} - known)


@pytest.mark.parametrize("name", _public_names())
def test_every_public_name_has_its_signature_shown(name: str) -> None:
    shown = re.findall(
        r"^::: [\w.]+\.(\w+)$", page_text("docs/reference/docstrings.md"), re.MULTILINE
    )

    assert shown.count(name) == 1


def test_the_errors_and_events_are_shown_as_modules() -> None:
    page = page_text("docs/reference/docstrings.md")

    assert "::: monque_core.errors\n" in page
    assert "::: monque_core.events\n" in page
