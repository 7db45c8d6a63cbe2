"""Paging through an ordered list in both directions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from monque_core.jobs.cursor import Cursor, Place

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Start:
    """Where to start reading: at a place, or right after it."""

    place: Place
    inclusive: bool


class Rows(Protocol[T]):
    """An ordered list that can be read from any place, forwards or backwards."""

    async def read(self, start: Start | None, limit: int, *, backwards: bool) -> list[T]:
        """Return the rows that follow; backwards, in reverse order."""
        ...

    async def has_any(self, start: Start, *, backwards: bool) -> bool:
        """Whether any row follows."""
        ...

    def place(self, row: T) -> Place:
        """Return the place of a row."""
        ...


@dataclass(frozen=True, slots=True)
class Sheet(Generic[T]):
    """Consecutive rows, their cursor, and whether there are others."""

    rows: Sequence[T]
    cursor: Cursor | None
    has_next: bool
    has_previous: bool


async def page_after(rows: Rows[T], cursor: Cursor | None, limit: int) -> Sheet[T]:
    """Return what comes after the page of a cursor, or the first page."""
    start = None
    if cursor is not None:
        is_begin = cursor.edge == "begin"
        start = Start(cursor.first if is_begin else cursor.last, inclusive=is_begin)
    found = await rows.read(start, limit + 1, backwards=False)
    if not found:
        if cursor is None:
            return Sheet([], None, has_next=False, has_previous=False)
        at_end = Cursor(cursor.last, cursor.last, "end")
        has_previous = await rows.has_any(Start(cursor.last, inclusive=True), backwards=True)
        return Sheet([], at_end, has_next=False, has_previous=has_previous)
    page = found[:limit]
    ends = Cursor(rows.place(page[0]), rows.place(page[-1]))
    has_previous = await rows.has_any(Start(ends.first, inclusive=False), backwards=True)
    return Sheet(page, ends, len(found) > limit, has_previous)


async def page_before(rows: Rows[T], cursor: Cursor, limit: int) -> Sheet[T]:
    """Return what comes before the page of a cursor."""
    is_end = cursor.edge == "end"
    start = Start(cursor.last if is_end else cursor.first, inclusive=is_end)
    found = await rows.read(start, limit + 1, backwards=True)
    if not found:
        at_begin = Cursor(cursor.first, cursor.first, "begin")
        has_next = await rows.has_any(Start(cursor.first, inclusive=True), backwards=False)
        return Sheet([], at_begin, has_next=has_next, has_previous=False)
    page = found[:limit][::-1]
    ends = Cursor(rows.place(page[0]), rows.place(page[-1]))
    has_next = await rows.has_any(Start(ends.last, inclusive=False), backwards=False)
    return Sheet(page, ends, has_next, len(found) > limit)
