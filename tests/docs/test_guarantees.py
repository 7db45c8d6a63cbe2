"""The page of guarantees names every rule of the checker, and only tests that exist."""

from __future__ import annotations

import re

from tests.faults.lab.checker import RULES
from tests.faults.run import EXPERIMENTS
from tests.support.pages import ROOT, page_text

_PAGE = "docs/guarantees.md"


def _guarantees() -> list[tuple[str, str]]:
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", page_text(_PAGE), re.MULTILINE)
    return [row for row in rows if "`" in row[1]]


def test_every_guarantee_names_existing_tests_or_rules() -> None:
    rules = {rule.__name__ for rule in RULES}
    guarantees = _guarantees()
    assert len(guarantees) >= len(RULES) - 1
    for guarantee, checked_by in guarantees:
        for name in re.findall(r"`(.+?)`", checked_by):
            assert name in rules or (ROOT / name).is_file(), (guarantee, name)


def test_every_rule_of_the_checker_belongs_to_a_guarantee() -> None:
    named = {name for _, checked_by in _guarantees() for name in re.findall(r"`(\w+)`", checked_by)}
    assert named == {rule.__name__ for rule in RULES}


def test_every_experiment_is_documented() -> None:
    assert all(f"`{name}`" in page_text(_PAGE) for name in EXPERIMENTS)
