"""Filters and projections survive encoding to text and decoding."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson import Binary, Code, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.datetime_ms import DatetimeMS
from hypothesis import given, settings
from hypothesis import strategies as st

from monque_core.tasks.documents import (
    DEEPEST_QUERY,
    PLAIN,
    from_text,
    plain,
    to_bytes,
    to_text,
)

quick = settings(max_examples=100)

TYPE_KEYS = [
    *("$binary", "$code", "$date", "$dbPointer", "$id", "$maxKey", "$minKey", "$numberDecimal"),
    *("$numberDouble", "$numberInt", "$numberLong", "$oid", "$options", "$ref", "$regex"),
    *("$regularExpression", "$scope", "$symbol", "$timestamp", "$type", "$undefined", "$uuid"),
]
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
keys = st.one_of(
    st.sampled_from([*TYPE_KEYS, *(f"${key}" for key in TYPE_KEYS), "$", "$$", "$$$", "$in", "a"]),
    texts.filter(lambda text: "\0" not in text),
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False) | st.just(math.nan),
    texts,
    st.binary(max_size=8),
    st.builds(Binary, st.binary(min_size=16, max_size=16), st.sampled_from([3, 4, 5, 128])),
    st.binary(min_size=12, max_size=12).map(ObjectId),
    st.integers(-(2**62), 2**62).map(DatetimeMS),
    st.datetimes().map(lambda naive: naive.replace(tzinfo=UTC)),
    st.sampled_from([Decimal128("1.50"), Decimal128("NaN"), MinKey(), MaxKey(), Timestamp(5, 6)]),
    st.sampled_from([Code("x"), DBRef("users", 5), DBRef("users", ObjectId(), "app")]),
    st.builds(Regex, st.sampled_from(["", "^a", "/"]), st.sampled_from(["", "i", "imsx", "u"])),
    st.integers(0, 5).map(Int64),
)
documents = st.dictionaries(
    keys,
    st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
        max_leaves=10,
    ),
    max_size=4,
)


@quick
@given(documents)
def test_nothing_is_lost_in_the_text(document: dict[str, Any]) -> None:
    given = plain("filter", document, PLAIN)
    assert to_bytes(from_text(to_text(given))) == to_bytes(given)


@quick
@given(documents)
def test_plain_documents_stay_as_they_are(document: dict[str, Any]) -> None:
    given = plain("filter", document, PLAIN)
    assert to_bytes(plain("filter", given, PLAIN)) == to_bytes(given) == bson.encode(given)


def nested(levels: int, branch: Any) -> dict[str, Any]:
    value: Any = 1
    for _ in range(levels - 1):
        value = branch(value)
    return {"a": value}


@pytest.mark.parametrize("branch", [lambda value: {"a": value}, lambda value: [0, value]])
def test_nothing_is_nested_deeper_than_mongodb_can_read(branch: Any) -> None:
    deepest = nested(DEEPEST_QUERY, branch)
    assert from_text(to_text(plain("filter", deepest, PLAIN))) == deepest
    for levels in (DEEPEST_QUERY + 1, 600, 100_000):
        with pytest.raises(ValueError, match=r"option filter=.*(at most 100 levels|as BSON)"):
            plain("filter", nested(levels, branch), PLAIN)


def test_an_operator_that_looks_like_a_type_keeps_what_is_beside_it() -> None:
    document = {"name": {"$regex": "^a", "$options": "i", "$ne": "abc"}}
    text = to_text(document)
    assert json.loads(text) == {"name": {"$$regex": "^a", "$options": "i", "$ne": "abc"}}
    assert from_text(text) == document


def test_the_text_is_canonical_extended_json() -> None:
    document = {"at": datetime(2025, 1, 1, tzinfo=UTC), "n": 1, "name": re.compile("a")}
    assert json.loads(to_text(plain("filter", document, PLAIN))) == {
        "at": {"$date": {"$numberLong": "1735689600000"}},
        "n": {"$numberInt": "1"},
        "name": {"$regularExpression": {"pattern": "a", "options": "u"}},
    }


def test_nothing_is_a_text_too() -> None:
    assert to_text(None) == "null"
    assert from_text("null") is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "nonsense",
        '{"a": {"$oid": 5}}',
        '{"a": {"$oid": "x"}}',
        '{"a": {"$binary": {}}}',
        '{"a": {"$binary": 5, "$type": "00"}}',
        '{"a": {"$numberInt": "x"}}',
        '{"a": {"$numberDecimal": "x"}}',
        '{"a": {"$timestamp": {}}}',
    ],
)
def test_what_was_not_written_by_us_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not canonical extended JSON") as error:
        from_text(text)
    assert error.value.__cause__ is not None
