"""Cursors survive encoding and decoding, and nothing else is accepted as a cursor."""

from __future__ import annotations

import base64
import json
import string
from datetime import UTC, datetime
from typing import Any

import pytest
from bson import Int64, MinKey, ObjectId
from bson.datetime_ms import DatetimeMS
from hypothesis import assume, given
from hypothesis import strategies as st

from monque_core import InvalidCursorError
from monque_core.jobs.cursor import Cursor, Place
from tests.support.payloads import instants, object_ids, texts

LIST = "-created_at JobSelector()"

values = st.one_of(st.none(), instants, object_ids, texts, st.integers(-(2**31), 2**31 - 1))
ids = st.one_of(object_ids, texts, st.integers(-(2**63), 2**63 - 1).map(Int64), instants)
places = st.builds(Place, values, ids)
cursors = st.builds(Cursor, places, places)
ALPHABET = string.ascii_letters + string.digits + "-_+/=!. \n\0é"


def in_utc(value: Any) -> Any:
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) else value


def plain(cursor: Cursor) -> list[Any]:
    """Yield contents of cursors; naive times are UTC, as the driver reads them."""
    ends = (cursor.first, cursor.last)
    return [(in_utc(place.value), in_utc(place.id)) for place in ends]


def a_cursor() -> Cursor:
    at = datetime(2026, 5, 5, 12, 0, 30, 123_000, tzinfo=UTC)
    return Cursor(Place(at, ObjectId("a" * 24)), Place(None, ObjectId("b" * 24)))


@given(cursors, texts)
def test_a_cursor_survives_encoding_and_decoding(cursor: Cursor, list_id: str) -> None:
    assert plain(Cursor.decode(cursor.encode(list_id), list_id)) == plain(cursor)


@given(cursors)
def test_it_is_safe_in_a_url(cursor: Cursor) -> None:
    assert set(cursor.encode(LIST)) <= set(string.ascii_letters + string.digits + "-_")


@pytest.mark.parametrize("value", [DatetimeMS(2**55), DatetimeMS(-(2**55)), MinKey(), 2.5, True])
def test_it_holds_whatever_is_stored_in_the_field(value: object) -> None:
    cursor = Cursor(Place(value, ObjectId()), Place(value, ObjectId()))
    assert Cursor.decode(cursor.encode(LIST), LIST) == cursor


@given(cursors, st.data())
def test_any_changed_character_is_detected(cursor: Cursor, data: st.DataObject) -> None:
    text = cursor.encode(LIST)
    position = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from(ALPHABET))
    assume(text[position] != other)
    with pytest.raises(InvalidCursorError):
        Cursor.decode(text[:position] + other + text[position + 1 :], LIST)


def test_spare_bits_of_the_last_character_are_checked() -> None:
    """If the last character has spare bits, several characters decode to the same bytes."""
    for length in range(1, 5):
        text = Cursor(Place("x" * length, 1), Place("y", 2)).encode(LIST)
        for other in ALPHABET:
            if other != text[-1]:
                with pytest.raises(InvalidCursorError):
                    Cursor.decode(text[:-1] + other, LIST)


@given(cursors, st.sampled_from(ALPHABET), st.data())
def test_nothing_can_be_added(cursor: Cursor, more: str, data: st.DataObject) -> None:
    text = cursor.encode(LIST)
    position = data.draw(st.integers(0, len(text)))
    with pytest.raises(InvalidCursorError):
        Cursor.decode(text[:position] + more + text[position:], LIST)


@given(cursors, st.data())
def test_nothing_can_be_taken_away(cursor: Cursor, data: st.DataObject) -> None:
    text = cursor.encode(LIST)
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    assume(text[:start] + text[end:] != text)
    with pytest.raises(InvalidCursorError):
        Cursor.decode(text[:start] + text[end:], LIST)


@given(texts)
def test_any_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidCursorError):
        Cursor.decode(text, LIST)


@given(st.binary(max_size=80))
def test_any_encoded_bytes_are_refused(sealed: bytes) -> None:
    text = base64.urlsafe_b64encode(sealed).decode().rstrip("=")
    with pytest.raises(InvalidCursorError):
        Cursor.decode(text, LIST)


@pytest.mark.parametrize("other", ["", "-created_at", "created_at JobSelector()", LIST + " ", "é"])
def test_it_is_valid_for_one_query_only(other: str) -> None:
    text = a_cursor().encode(LIST)
    with pytest.raises(InvalidCursorError, match="returned for another filter or sort"):
        Cursor.decode(text, other)


@pytest.mark.parametrize("text", [5, b"abc", ["abc"], {"cursor": 1}, ObjectId()])
def test_it_must_be_a_text(text: object) -> None:
    expected = f"a cursor must be a text, not {type(text).__name__}"
    with pytest.raises(InvalidCursorError, match=expected):
        Cursor.decode(text, LIST)


def test_the_error_says_what_to_do_and_is_short() -> None:
    with pytest.raises(InvalidCursorError, match="begin again without a cursor") as caught:
        Cursor.decode("x" * 5000, LIST)
    assert len(str(caught.value)) < 250
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("half", ["\ud800", "abc\udfff"])
def test_half_a_surrogate_pair_is_refused(half: str) -> None:
    with pytest.raises(InvalidCursorError):
        Cursor.decode(half, LIST)


def test_it_does_not_hold_the_filter() -> None:
    """Cursors appear in URLs and logs, so they must not contain the filter."""
    text = a_cursor().encode("-created_at secret")
    sealed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    assert b"secret" not in sealed
    assert len(json.loads(sealed[16:])) >= 4
