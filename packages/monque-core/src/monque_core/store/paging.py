"""Reading an ordered list page by page, in both directions: what all lists share."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Literal, Protocol, TypeAlias, TypeVar

from monque_core.display import brief_repr, log
from monque_core.errors import InvalidJobError, MonqueError
from monque_core.jobs.cursor import Cursor, Place
from monque_core.validation import check_whole_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from monque_core.store.driver import Document

T = TypeVar("T")
Direction: TypeAlias = Literal["forward", "backward"]


@dataclass(frozen=True, slots=True)
class PageRequest:
    """Which page of a list to read."""

    list_id: str
    """The filter and the order of the list; a cursor belongs to one list."""
    limit: int
    cursor: Cursor | None = None
    is_backward: bool = False

    @classmethod
    def parse(
        cls, list_id: str, limit: int, cursor: str | None, direction: Direction
    ) -> PageRequest:
        """Check the arguments of a call that reads a page."""
        check_whole_number("limit", limit, least=1, error=InvalidJobError)
        if direction not in ("forward", "backward"):
            raise ValueError(f"direction={brief_repr(direction)} must be 'forward' or 'backward'")
        known = None if cursor is None else Cursor.decode(cursor, list_id)
        return cls(list_id, limit, known, direction == "backward")


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
    """The rows of a page, its cursor, and whether there are rows before and after it."""

    rows: Sequence[T]
    cursor: str | None
    has_next: bool
    has_previous: bool


async def read_page(rows: Rows[T], request: PageRequest) -> Sheet[T]:
    """Return the first page of a list, or the one after or before a cursor."""
    cursor = request.cursor
    if cursor is None or not request.is_backward:
        return await _page_after(rows, cursor, request)
    return await _page_before(rows, cursor, request)


async def _page_after(rows: Rows[T], cursor: Cursor | None, request: PageRequest) -> Sheet[T]:
    start = None
    if cursor is not None:
        is_begin = cursor.edge == "begin"
        start = Start(cursor.first if is_begin else cursor.last, inclusive=is_begin)
    found = await rows.read(start, request.limit + 1, backwards=False)
    if not found:
        if cursor is None:
            return Sheet([], None, has_next=False, has_previous=False)
        at_end = Cursor(cursor.last, cursor.last, "end").encode(request.list_id)
        has_previous = await rows.has_any(Start(cursor.last, inclusive=True), backwards=True)
        return Sheet([], at_end, has_next=False, has_previous=has_previous)
    page = found[: request.limit]
    ends = Cursor(rows.place(page[0]), rows.place(page[-1]))
    has_previous = await rows.has_any(Start(ends.first, inclusive=False), backwards=True)
    return Sheet(page, ends.encode(request.list_id), len(found) > request.limit, has_previous)


async def _page_before(rows: Rows[T], cursor: Cursor, request: PageRequest) -> Sheet[T]:
    is_end = cursor.edge == "end"
    start = Start(cursor.last if is_end else cursor.first, inclusive=is_end)
    found = await rows.read(start, request.limit + 1, backwards=True)
    if not found:
        at_begin = Cursor(cursor.first, cursor.first, "begin").encode(request.list_id)
        has_next = await rows.has_any(Start(cursor.first, inclusive=True), backwards=False)
        return Sheet([], at_begin, has_next=has_next, has_previous=False)
    page = found[: request.limit][::-1]
    ends = Cursor(rows.place(page[0]), rows.place(page[-1]))
    has_next = await rows.has_any(Start(ends.last, inclusive=False), backwards=False)
    return Sheet(page, ends.encode(request.list_id), has_next, len(found) > request.limit)


def readable(documents: Iterable[Document], read: Callable[[Document], T]) -> list[T]:
    """Return the documents that can be read, and log the others.

    `read` raises a `MonqueError` for a document that it cannot read.
    """
    found = []
    for document in documents:
        try:
            found.append(read(document))
        except MonqueError as error:
            log(logging.WARNING, f"the document {document['_id']} is left out: {error}")
    return found
