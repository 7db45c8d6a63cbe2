"""Text tables that fit the terminal."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import typer

from monque_core.cli.output import colored
from monque_core.display import cut, escape

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Row: TypeAlias = Sequence[object]
    Cell: TypeAlias = str | int

_GAP = 2
_MAX_WIDTH_IN_FILES = 60


@dataclass(frozen=True, slots=True)
class Fit:
    """How a table adapts to a narrow terminal."""

    optional: Sequence[str] = ()
    """Columns that may be dropped, in this order."""
    elastic: Mapping[str, int] = field(default_factory=dict)
    """Columns whose text may be cut, each with its minimum width."""


class Table:
    """Headings and rows; cells are numbers, or text without control characters."""

    def __init__(self, headings: Sequence[str], rows: Iterable[Row], fit: Fit) -> None:
        self.headings = list(headings)
        self.rows: list[list[Cell]] = [[_cell(value) for value in row] for row in rows]
        self._fit = fit

    @property
    def widths(self) -> list[int]:
        """Return the width of each column."""
        columns = zip(self.headings, *self.rows, strict=True)
        return [max(len(str(cell)) for cell in column) for column in columns]

    def fits(self, width: int) -> bool:
        """Whether the table fits without dropping a column or cutting below a minimum width."""
        return _total(self._least_widths()) <= width

    def fitted(self, width: int) -> Table:
        """Return the table reduced to this width, as far as its `Fit` allows."""
        table = self
        for heading in self._fit.optional:
            if table.fits(width):
                break
            table = table._without(heading)
        return table._cut(table._widths_within(width))

    def shortened(self) -> Table:
        """Return the table for a file or pipe, where only very long text is cut."""
        return self._cut(
            [
                _MAX_WIDTH_IN_FILES if heading in self._fit.elastic else width
                for heading, width in zip(self.headings, self.widths, strict=True)
            ]
        )

    def _without(self, heading: str) -> Table:
        index = self.headings.index(heading)
        rows = [row[:index] + row[index + 1 :] for row in self.rows]
        return Table(self.headings[:index] + self.headings[index + 1 :], rows, self._fit)

    def _cut(self, widths: Sequence[int]) -> Table:
        rows = (
            [
                cut(cell, width) if isinstance(cell, str) else cell
                for cell, width in zip(row, widths, strict=True)
            ]
            for row in self.rows
        )
        return Table(self.headings, rows, self._fit)

    def _least_widths(self) -> list[int]:
        return [
            min(width, max(len(heading), self._fit.elastic.get(heading, width)))
            for heading, width in zip(self.headings, self.widths, strict=True)
        ]

    def _widths_within(self, total: int) -> list[int]:
        """Return the minimum widths, with spare space given to the first columns first."""
        widths = self._least_widths()
        for index, wanted in enumerate(self.widths):
            spare = max(0, total - _total(widths))
            widths[index] = min(wanted, widths[index] + spare)
        return widths


def print_table(headings: Sequence[str], *choices: Iterable[Row], fit: Fit | None = None) -> None:
    """Print aligned columns: numbers right-aligned, known words in color on a terminal.

    If the rows are given in several forms, print the first that fits the terminal.
    """
    tables = [Table(headings, rows, fit or Fit()) for rows in choices]
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        table = next((table for table in tables if table.fits(width)), tables[-1]).fitted(width)
    else:
        table = tables[0].shortened()
    typer.echo(_line(table.headings, table.widths))
    for row in table.rows:
        typer.echo(_line(row, table.widths))


def _line(row: Sequence[Cell], widths: Sequence[int]) -> str:
    texts = []
    for cell, width in zip(row, widths, strict=True):
        text = str(cell)
        blanks = " " * (width - len(text))
        # Pad outside of the color codes, so that `rstrip` works.
        texts.append(colored(text) + blanks if isinstance(cell, str) else blanks + text)
    return (" " * _GAP).join(texts).rstrip()


def _cell(value: object) -> Cell:
    return value if isinstance(value, int) else escape(str(value))


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)
