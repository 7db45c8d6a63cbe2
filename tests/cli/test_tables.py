"""Tables of text that fit the terminal."""

from __future__ import annotations

import pytest

from monque_core.cli.tables import Fit, Table

HEADINGS = ("ID", "NAME", "DUE", "FAILS", "ERROR")
ROWS = [
    ("66f2a1c5", "send-email", "2030-01-31", 3, "ConnectionError: smtp.example.com is away"),
    ("66f2a1c6", "import", "2030-01-31", 12, ""),
]
FIT = Fit(optional=("DUE",), elastic={"NAME": 6, "ERROR": 20})


def width(table: Table) -> int:
    return sum(table.widths) + 2 * (len(table.widths) - 1)


def test_is_whole_where_there_is_room() -> None:
    table = Table(HEADINGS, ROWS, FIT)
    assert table.fitted(200).rows == [list(row) for row in ROWS]


@pytest.mark.parametrize("columns", range(45, 90))
def test_is_never_wider_than_the_terminal(columns: int) -> None:
    table = Table(HEADINGS, ROWS, FIT).fitted(columns)
    assert width(table) <= columns
    assert [row[0] for row in table.rows] == ["66f2a1c5", "66f2a1c6"]
    assert [row[table.headings.index("FAILS")] for row in table.rows] == [3, 12]


def test_leaves_out_what_is_optional_before_texts_become_too_short() -> None:
    table = Table(HEADINGS, ROWS, FIT)
    assert table.fitted(57).headings == ["ID", "NAME", "DUE", "FAILS", "ERROR"]
    assert table.fitted(56).headings == ["ID", "NAME", "FAILS", "ERROR"]
    (first, _) = table.fitted(57).rows
    assert first == ["66f2a1c5", "send-…", "2030-01-31", 3, "ConnectionError: sm…"]


def test_gives_spare_room_to_the_first_elastic_column_first() -> None:
    (first, _) = Table(HEADINGS, ROWS, FIT).fitted(63).rows
    assert first == ["66f2a1c5", "send-email", "2030-01-31", 3, "ConnectionError: smtp…"]


def test_cells_hold_no_control_characters() -> None:
    table = Table(("ERROR",), [("one\r\ntwo \x1b[2J",)], Fit())
    assert table.rows == [[r"one\r\ntwo \x1b[2J"]]


def test_only_very_long_texts_are_cut_in_a_file() -> None:
    (row, _) = Table(HEADINGS, [("i", "n", "d", 1, "x" * 100), ROWS[0]], FIT).shortened().rows
    assert row == ["i", "n", "d", 1, "x" * 59 + "…"]
