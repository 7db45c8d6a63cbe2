"""The transitions of a job as the page on the document format specifies them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.support.pages import page_text

_ROW = re.compile(
    r"^\| (?P<write>[^|]+) \| (?P<filter>[^|]+) \| (?P<sets>[^|]+) \|(?P<removes>.*)\|$"
)


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields that one cell names."""

    needed: frozenset[str]
    more: frozenset[str]
    """The part in parentheses: done by Python, optional for other programs."""
    statuses: frozenset[str]
    is_of_abandoned: bool
    """Whether it concerns stale claims, which need more fields in the filter."""

    @property
    def all(self) -> frozenset[str]:
        """Return the fields that Python uses."""
        return self.needed | self.more


@dataclass(frozen=True, slots=True)
class Promise:
    """One row: what a write requires and changes."""

    filter: Fields
    sets: Fields
    removes: Fields


def promises() -> dict[str, Promise]:
    """Return every write on the page by its name."""
    _, _, section = page_text("docs/reference/document-format.md").partition("\n## Transitions\n")
    tables, _, _ = section.partition("\n### ")
    rows = [found for line in tables.splitlines() if (found := _ROW.match(line))]
    return {
        row["write"].strip("`"): Promise(*(_fields(row[cell]) for cell in Promise.__slots__))
        for row in rows
        if row["write"] not in {"write", "---"}
    }


def _fields(cell: str) -> Fields:
    needed, _, more = cell.partition("(")
    statuses = re.findall(r"pending|processing|completed|failed|cancelled", needed)
    return Fields(_names(needed), _names(more), frozenset(statuses), "stale" in needed)


def _names(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"`(\w+)`", text))
