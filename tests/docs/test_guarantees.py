"""The page of guarantees names every rule of the checker, and only tests that exist."""

from __future__ import annotations

import re

from tests.faults.lab.checker import RULES
from tests.faults.run import EXPERIMENTS
from tests.support.pages import ROOT, page_text

_PAGE = "docs/guarantees.md"


def _promises() -> list[tuple[str, str]]:
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", page_text(_PAGE), re.MULTILINE)
    return [row for row in rows if "`" in row[1]]


def test_every_promise_names_what_shows_it_and_that_exists() -> None:
    rules = {rule.__name__ for rule in RULES}
    promises = _promises()
    assert len(promises) >= len(RULES) - 1
    for promise, shown_by in promises:
        for name in re.findall(r"`(.+?)`", shown_by):
            assert name in rules or (ROOT / name).is_file(), (promise, name)


def test_every_rule_of_the_checker_stands_for_a_promise() -> None:
    named = {name for _, shown_by in _promises() for name in re.findall(r"`(\w+)`", shown_by)}
    assert named == {rule.__name__ for rule in RULES}


def test_every_experiment_is_named() -> None:
    assert all(f"`{name}`" in page_text(_PAGE) for name in EXPERIMENTS)
