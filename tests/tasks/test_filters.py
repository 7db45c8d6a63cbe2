"""Which filters a task may have."""

from __future__ import annotations

import re
import uuid
from collections import OrderedDict
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pytest
from bson import Decimal128, Int64, ObjectId, Regex
from bson.binary import Binary, UuidRepresentation
from bson.codec_options import CodecOptions, TypeEncoder, TypeRegistry
from hypothesis import given, settings
from hypothesis import strategies as st

from monque_core.tasks.filters import check_filter

quick = settings(max_examples=60)

CODEC: CodecOptions[Any] = CodecOptions()
REFUSED = ["$where", "$near", "$nearSphere", "$text"]
ID = ObjectId()

branches = st.one_of(
    st.sampled_from(["$and", "$or", "$nor"]).map(
        lambda key: lambda inner: {key: [{"a": 1}, inner]}
    ),
    st.sampled_from(["$not", "$elemMatch", "a.b", "$expr"]).map(
        lambda key: lambda inner: {key: inner}
    ),
)


def test_no_filter_matches_everything() -> None:
    assert check_filter(None, CODEC) == check_filter({}, CODEC) == {}


@pytest.mark.parametrize(
    "filter",
    [
        {"status": "paid"},
        {"_id": ID, "items": {"$elemMatch": {"price": {"$gt": 5}}}},
        {"$expr": {"$gt": ["$paid", "$total"]}},
        {"$nor": [{"a": None}, {"b": {"$exists": False}}]},
        {"at": {"$gte": datetime(2025, 1, 1, tzinfo=UTC)}},
        {"name": {"$regex": "^a", "$options": "i", "$ne": "abc"}},
        {"place": {"$geoWithin": {"$centerSphere": [[0, 0], 1]}}},
        {"$comment": "$where", "a": "$text", "b": ["$near"]},
        {"$expr": {"$eq": ["$a", {"$literal": {"$where": {"$text": 1}}}]}},
        {"$jsonSchema": {"properties": {"$text": {"bsonType": "string"}}}},
        {"text": 1, "near": 2, "a.where": 3},
        {"price": Decimal128("1.5"), "n": Int64(5), "raw": b"x"},
    ],
)
def test_ordinary_queries_are_returned_as_they_are(filter: dict[str, Any]) -> None:
    checked = check_filter(filter, CODEC)
    assert checked == filter
    assert list(checked) == list(filter)


@pytest.mark.parametrize("filter", [MappingProxyType({"a": 1}), OrderedDict(a=1)])
def test_any_mapping_will_do(filter: Any) -> None:
    checked = check_filter(filter, CODEC)
    assert checked == {"a": 1}
    assert type(checked) is dict


def test_values_become_plain_bson() -> None:
    class DecimalEncoder(TypeEncoder):
        python_type = Decimal

        def transform_python(self, value: Any) -> Any:
            return Decimal128(value)

    codec: CodecOptions[Any] = CodecOptions(
        uuid_representation=UuidRepresentation.STANDARD,
        type_registry=TypeRegistry([DecimalEncoder()]),
    )
    key = uuid.uuid4()
    berlin = timezone(timedelta(hours=2))
    filter = {
        "key": key,
        "price": Decimal("1.5"),
        "at": datetime(2025, 1, 1, 2, tzinfo=berlin),
        "name": re.compile("^a", re.IGNORECASE),
        "in": ("a", "b"),
    }
    checked = check_filter(filter, codec)
    assert checked == {
        "key": Binary.from_uuid(key),
        "price": Decimal128("1.5"),
        "at": datetime(2025, 1, 1, tzinfo=UTC),
        "name": Regex("^a", re.IGNORECASE | re.UNICODE),
        "in": ["a", "b"],
    }
    assert check_filter(checked, CODEC) == checked


def test_a_checked_filter_does_not_follow_changes_of_the_given_one() -> None:
    filter: dict[str, Any] = {"a": {"$in": [1]}}
    checked = check_filter(filter, CODEC)
    filter["a"]["$in"].append(2)
    assert checked == {"a": {"$in": [1]}}


@pytest.mark.parametrize("filter", ["status", 5, True, [], [("a", 1)], object()])
def test_what_is_no_mapping_is_refused(filter: Any) -> None:
    with pytest.raises(ValueError, match=r"option filter=.* must be None or a MongoDB query such"):
        check_filter(filter, CODEC)


@pytest.mark.parametrize(
    "filter",
    [{"a": object()}, {"a": {1, 2}}, {1: "a"}, {"a\0": 1}, {"a": 2**64}, {"a": uuid.uuid4()}],
)
def test_what_is_no_bson_is_refused(filter: Any) -> None:
    with pytest.raises(ValueError, match=r"option filter=.* cannot be written as BSON") as error:
        check_filter(filter, CODEC)
    assert error.value.__cause__ is not None


def test_a_filter_that_contains_itself_is_refused() -> None:
    endless: dict[str, Any] = {}
    endless["a"] = endless
    with pytest.raises(ValueError, match="cannot be written as BSON"):
        check_filter(endless, CODEC)


@pytest.mark.parametrize(
    ("filter", "path", "advice"),
    [
        ({"$where": "this.a > 1"}, "$where", "use $expr"),
        ({"$or": [{"a": 1}, {"$where": "x"}]}, "$or.1.$where", "use $expr"),
        ({"place": {"$near": [0, 0]}}, "place.$near", "use $geoWithin"),
        ({"place": {"$not": {"$nearSphere": [0, 0]}}}, "place.$not.$nearSphere", "use $geoWithin"),
        ({"$text": {"$search": "a"}}, "$text", "use $regex"),
    ],
)
def test_what_the_planner_cannot_evaluate_is_refused_with_advice(
    filter: Any, path: str, advice: str
) -> None:
    expected = f"not allowed: {path} "
    with pytest.raises(ValueError, match=f"{re.escape(expected)}.*{re.escape(advice)}"):
        check_filter(filter, CODEC)


@quick
@given(st.sampled_from(REFUSED), st.lists(branches, max_size=8))
def test_it_is_found_at_any_depth(operator: str, around: list[Any]) -> None:
    filter: dict[str, Any] = {operator: 1}
    for wrap in around:
        filter = wrap(filter)
    with pytest.raises(ValueError, match=rf"not allowed: (\S+\.)?{re.escape(operator)} "):
        check_filter(filter, CODEC)


@quick
@given(st.sampled_from(REFUSED), st.lists(branches, max_size=8))
def test_it_may_be_quoted_at_any_depth(operator: str, around: list[Any]) -> None:
    filter: dict[str, Any] = {"$literal": {operator: [{operator: 1}]}}
    for wrap in around:
        filter = wrap(filter)
    assert check_filter(filter, CODEC) == filter
