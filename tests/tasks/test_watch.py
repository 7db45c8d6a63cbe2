"""Which parts of a document a task may watch."""

from __future__ import annotations

import uuid
from collections import OrderedDict
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import pytest
from bson import Decimal128, Int64, ObjectId
from bson.binary import Binary, UuidRepresentation
from bson.codec_options import CodecOptions
from hypothesis import given, settings
from hypothesis import strategies as st

from monque_core.tasks.watch import Watch

quick = settings(max_examples=60)

segments = st.text("abcd_é0 ", min_size=1, max_size=4).filter(
    lambda text: bool(text.strip()) and text != "_id"
)
tops = st.lists(segments, min_size=1, max_size=6, unique=True)
expressions = st.sampled_from(
    ["$a", "$$ROOT.b", {"$sum": "$a.b"}, {"$literal": 0}, ["$a", "$b"], {"$ifNull": ["$a", None]}]
)


def test_without_a_watch_the_whole_document_counts() -> None:
    assert Watch.parse(None).projection() is None
    assert Watch.parse(None) == Watch()


@pytest.mark.parametrize(
    ("spec", "projection"),
    [
        (["status"], {"_id": 1, "status": 1}),
        (("b", "a.c"), {"_id": 1, "a.c": 1, "b": 1}),
        ({"total"}, {"_id": 1, "total": 1}),
        ({"a": 1, "b": True, "c": 1.0, "d": Int64(1)}, {"_id": 1, "a": 1, "b": 1, "c": 1, "d": 1}),
        ({"sum": {"$sum": "$items"}}, {"_id": 1, "sum": {"$sum": "$items"}}),
        ({"z": "$a", "b": 1, "a": "$z"}, {"_id": 1, "b": 1, "z": "$a", "a": "$z"}),
        ({"pair": ["$a", "$b"]}, {"_id": 1, "pair": ["$a", "$b"]}),
        ({"a": {"b": 1, "c": {"d": True}}}, {"_id": 1, "a.b": 1, "a.c.d": 1}),
        ({"a": {"b.c": 1}, "a.d": "$x"}, {"_id": 1, "a.b.c": 1, "a.d": "$x"}),
        ({"a.b": {"$literal": 0}}, {"_id": 1, "a.b": {"$literal": 0}}),
        (MappingProxyType({"a": 1}), {"_id": 1, "a": 1}),
        (OrderedDict(a=1), {"_id": 1, "a": 1}),
        (["a", "ab", "a_b"], {"_id": 1, "a": 1, "a_b": 1, "ab": 1}),
    ],
)
def test_fields_and_expressions_become_a_projection(spec: Any, projection: dict[str, Any]) -> None:
    result = Watch.parse(spec).projection()
    assert result == projection
    assert list(result) == list(projection)


@pytest.mark.parametrize(
    "spec", [["_id"], {"_id": 1}, {"_id": True}, ["_id.tenant", "_id.number"], {"_id": {"a": 1}}]
)
def test_the_id_alone_watches_for_new_documents_only(spec: Any) -> None:
    assert Watch.parse(spec).projection() == {"_id": 1}


def test_the_id_beside_others_is_ignored() -> None:
    assert Watch.parse(["_id", "a"]) == Watch.parse({"a": 1, "_id": True}) == Watch.parse(["a"])


@quick
@given(tops, st.randoms())
def test_the_order_of_fields_does_not_matter(fields: list[str], random: Any) -> None:
    shuffled = list(fields)
    random.shuffle(shuffled)
    first, second = Watch.parse(fields).projection(), Watch.parse(shuffled).projection()
    third = Watch.parse(dict.fromkeys(shuffled, True)).projection()
    assert first is not None
    assert second is not None
    assert third is not None
    assert list(first.items()) == list(second.items()) == list(third.items())


@quick
@given(st.dictionaries(segments, st.just(1) | expressions, min_size=1, max_size=6))
def test_a_projection_is_its_own_watch(spec: dict[str, Any]) -> None:
    watch = Watch.parse(spec)
    projection = watch.projection()
    assert projection is not None
    again = Watch.parse(projection).projection()
    assert again is not None
    assert list(again.items()) == list(projection.items())


def test_values_are_written_by_the_codec_of_the_application() -> None:
    codec: CodecOptions[Any] = CodecOptions(uuid_representation=UuidRepresentation.STANDARD)
    key = uuid.uuid4()
    watch = Watch.parse({"mine": {"$eq": ["$owner", key]}}, codec)
    assert watch.fields == {"mine": {"$eq": ["$owner", Binary.from_uuid(key)]}}
    with pytest.raises(ValueError, match=r"option watch=.* cannot be written as BSON"):
        Watch.parse({"mine": {"$eq": ["$owner", key]}})


def test_a_watch_does_not_follow_changes_of_what_it_was_made_from() -> None:
    spec: dict[str, Any] = {"sum": {"$sum": ["$a"]}}
    watch = Watch.parse(spec)
    spec["sum"]["$sum"].append("$b")
    assert watch.fields == {"sum": {"$sum": ["$a"]}}


def refused(spec: Any) -> str:
    with pytest.raises(ValueError, match=r"^option watch") as error:
        Watch.parse(spec)
    return str(error.value)


@pytest.mark.parametrize("spec", [[], (), {}, set()])
def test_an_empty_watch_is_refused(spec: Any) -> None:
    assert "None for the whole document, or hold at least one field" in refused(spec)


def test_a_single_field_must_be_in_a_list() -> None:
    assert "did you mean ['status']?" in refused("status")


@pytest.mark.parametrize("spec", [5, True, b"a", object(), datetime.now(UTC), iter(["a"])])
def test_other_types_are_refused(spec: Any) -> None:
    assert "None, a list of fields or a projection of them" in refused(spec)


@pytest.mark.parametrize("path", ["", " ", "\t", None, 5, b"a", ["a"]])
def test_a_field_needs_a_name(path: Any) -> None:
    message = refused(["a", path])
    assert f"option watch={path!r}" in message
    assert "a field such as 'total'" in message


@pytest.mark.parametrize("path", [".a", "a.", "a..b", ".", "a. .b"])
@pytest.mark.parametrize("spec", [lambda path: [path], lambda path: {path: 1}])
def test_a_path_needs_a_name_at_each_step(spec: Any, path: str) -> None:
    assert "with a name before and after each dot" in refused(spec(path))


@pytest.mark.parametrize("path", ["$a", "a.$b", "a.$id", "$", "$$ROOT"])
@pytest.mark.parametrize("spec", [lambda path: [path], lambda path: {path: 1}])
def test_a_name_cannot_begin_with_a_dollar(spec: Any, path: str) -> None:
    assert "a name cannot begin with '$'" in refused(spec(path))


@pytest.mark.parametrize("path", ["a\0b", "a\ud800"])
def test_a_name_must_be_storable(path: str) -> None:
    assert "a field such as" in refused([path])
    refused({path: 1})


@pytest.mark.parametrize("key", [5, None, ("a",)])
def test_a_key_must_be_text(key: Any) -> None:
    assert "cannot be written as BSON" in refused({key: 1})


@pytest.mark.parametrize("value", [0, False, 0.0, -0.0, Int64(0)])
@pytest.mark.parametrize("spec", [lambda v: {"a": v}, lambda v: {"b": 1, "x": {"a": v}}])
def test_exclusions_are_refused(spec: Any, value: Any) -> None:
    assert "exclusions are refused" in refused(spec(value))


@pytest.mark.parametrize(
    "spec", [{"_id": 0, "a": 1}, {"_id": False}, {"_id": "$a"}, {"_id": {"x": 0}}, {"_id.x": "$a"}]
)
def test_the_id_is_neither_excluded_nor_computed(spec: Any) -> None:
    assert "1 or left out, since an _id never changes" in refused(spec)


@pytest.mark.parametrize("value", [2, -1, 0.5, Int64(7), float("nan")])
def test_other_numbers_are_refused(value: Any) -> None:
    assert "1 to watch the field, or an expression" in refused({"a": value})


@pytest.mark.parametrize(
    "value",
    [None, "", "$", b"x", ObjectId(), datetime.now(UTC), Decimal128("1"), []],
)
def test_constants_are_refused(value: Any) -> None:
    message = refused({"a": value})
    assert "option watch['a']=" in message
    assert "no constant" in message
    assert "did you mean" not in message


def test_a_forgotten_dollar_gets_a_hint() -> None:
    assert "did you mean '$total'?" in refused({"sum": "total"})


@pytest.mark.parametrize("value", [{}, {"$sum": "$a", "$avg": "$b"}, {"$sum": "$a", "b": 1}])
def test_an_expression_has_one_operator(value: Any) -> None:
    assert "an expression, which has one operator" in refused({"a": value})


@pytest.mark.parametrize(
    ("spec", "above", "below"),
    [
        (["a", "a.b"], "a", "a.b"),
        (["a.b.c", "x", "a"], "a", "a.b.c"),
        (["a.b", "a.b.c", "a-b"], "a.b", "a.b.c"),
        ({"a": 1, "a.b": "$x"}, "a", "a.b"),
        ({"a": {"b": 1}, "a.b.c": 1}, "a.b", "a.b.c"),
        (["_id", "_id.x"], "_id", "_id.x"),
    ],
)
def test_one_path_inside_of_another_is_refused(spec: Any, above: str, below: str) -> None:
    assert f"names '{above}' and '{below}' inside of it" in refused(spec)


@pytest.mark.parametrize("spec", [["a", "b", "a"], {"a.b": 1, "a": {"b": 1}}])
def test_a_path_given_twice_is_refused(spec: Any) -> None:
    assert "twice: name it once" in refused(spec)
