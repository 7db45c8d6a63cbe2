"""The options of a reactive task: defaults, validation and storage."""

from __future__ import annotations

import math
import uuid
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest
from bson import ObjectId, Regex
from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions
from hypothesis import given, settings
from hypothesis import strategies as st

from monque_core.errors import InvalidJobError
from monque_core.jobs.retry import Exponential, Fixed
from monque_core.tasks.definition import (
    CLEANUP_WHEN,
    VERSION_CHANGES,
    Cleanup,
    CleanupWhen,
    Declaration,
    Definition,
    VersionChange,
    define,
)
from monque_core.tasks.watch import Watch

quick = settings(max_examples=60)


def defined(**options: Any) -> Definition:
    given = {"database": "app", "collection": "orders", "name": "invoice"} | options
    return define(given.pop("database"), given.pop("collection"), **given)


def declared(**options: Any) -> Declaration:
    return defined(**options).declaration


def stored(declaration: Declaration) -> dict[str, Any]:
    """Return what a store keeps of it: texts and plain values."""
    kept = {field.name: getattr(declaration, field.name) for field in fields(declaration)}
    cleanup = kept.pop("cleanup")
    del kept["watch"], kept["filter"]
    return kept | {
        "watch_text": declaration.watch_text,
        "filter_text": declaration.filter_text,
        "cleanup_when": cleanup.when,
        "keep_for": cleanup.quiet_time,
    }


def test_the_defaults_are_those_of_the_specification() -> None:
    assert defined() == Definition(
        Declaration(
            name="invoice",
            database="app",
            collection="orders",
            watch=Watch(),
            filter={},
            debounce=timedelta(seconds=1),
            max_wait=timedelta(seconds=10),
            reset_on_change=True,
            cleanup=Cleanup("deleted", timedelta(days=1)),
            version=1,
            on_version_change="nothing",
            reconcile_on_change=True,
        ),
        Exponential(10, factor=2, cap=86_400, max_attempts=5),
        5,
    )
    assert defined().name == "invoice"


def test_every_option_is_taken() -> None:
    definition = defined(
        watch=["status", "total"],
        filter={"status": "paid"},
        debounce=timedelta(milliseconds=250),
        max_wait=5,
        retry=Fixed(3),
        reset_on_change=False,
        cleanup=Cleanup("never", 0),
        history=0,
        version=7,
        on_version_change="failed",
        reconcile_on_change=False,
    )
    assert definition.declaration == Declaration(
        name="invoice",
        database="app",
        collection="orders",
        watch=Watch({"status": 1, "total": 1}),
        filter={"status": "paid"},
        debounce=timedelta(milliseconds=250),
        max_wait=timedelta(seconds=5),
        reset_on_change=False,
        cleanup=Cleanup("never", 0),
        version=7,
        on_version_change="failed",
        reconcile_on_change=False,
    )
    assert (definition.retry, definition.history) == (Fixed(3), 0)


def test_every_word_of_the_type_is_known() -> None:
    assert get_args(VersionChange) == VERSION_CHANGES


@pytest.mark.parametrize(
    ("debounce", "max_wait", "expected"),
    [(0, None, 0), (0.5, None, 5), (0, 0, 0), (2, 2, 2), (2, timedelta(minutes=1), 60)],
)
def test_steady_changes_postpone_a_run_ten_debounces_unless_told(
    debounce: Any, max_wait: Any, expected: float
) -> None:
    assert declared(debounce=debounce, max_wait=max_wait).max_wait.total_seconds() == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": ""}, "name='' is not .*; this is blank"),
        ({"name": "two words"}, "name='two words' is not .*; this holds whitespace"),
        ({"name": None}, "name=None is not .*; this is of type NoneType"),
        ({"name": "x" * 256}, "has 256 characters"),
    ],
)
def test_a_name_is_like_that_of_a_job(options: Any, message: str) -> None:
    with pytest.raises(InvalidJobError, match=message):
        defined(**options)


DURATION = "a duration that is not negative, in seconds or as a timedelta"
RETRY = r"one of Exponential\(…\), Fixed\(…\), Linear\(…\), Series\(…\) and Cron\(…\)"


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        ("watch", [], "None for the whole document"),
        ("watch", {"a": 0}, "exclusions are refused"),
        ("filter", "paid", "None or a MongoDB query"),
        ("debounce", -1, DURATION),
        ("debounce", "1s", DURATION),
        ("debounce", None, DURATION),
        ("debounce", True, DURATION),
        ("debounce", math.inf, DURATION),
        ("max_wait", -1, DURATION),
        ("max_wait", "1s", DURATION),
        ("max_wait", 0.999, "no shorter than debounce, which is 0:00:01"),
        ("retry", Exponential, RETRY),
        ("retry", 5, RETRY),
        ("retry", False, RETRY),
        ("cleanup", "never", r"Cleanup\(when=…, keep_for=…\)"),
        ("cleanup", Cleanup, r"Cleanup\(when=…, keep_for=…\)"),
        ("cleanup", False, r"Cleanup\(when=…, keep_for=…\)"),
        ("history", -1, "a whole number from 0"),
        ("history", 1.5, "a whole number from 0"),
        ("history", None, "a whole number from 0"),
        ("history", True, "a whole number from 0"),
        ("version", 0, "a whole number from 1"),
        ("version", "1", "a whole number from 1"),
        ("version", 2**31, "a whole number from 1"),
        ("on_version_change", "fail", r"'all'; did you mean 'failed'\?"),
        ("on_version_change", "al", r"'all'; did you mean 'all'\?"),
        ("on_version_change", None, "one of 'nothing', 'failed', 'all'"),
        ("reconcile_on_change", 1, "True or False"),
        ("reconcile_on_change", "no", "True or False"),
        ("database", "", "a MongoDB database name"),
        ("database", "a.b", "a MongoDB database name"),
        ("database", "a b", "a MongoDB database name"),
        ("database", "a$b", "a MongoDB database name"),
        ("database", "a\0b", "a MongoDB database name"),
        ("database", "é" * 32, "a MongoDB database name"),
        ("database", None, "a MongoDB database name"),
        ("database", "admin", "cannot be watched"),
        ("database", "config", "cannot be watched"),
        ("database", "local", "cannot be watched"),
        ("collection", "", "a MongoDB collection name"),
        ("collection", None, "a MongoDB collection name"),
        ("collection", "a$b", "a MongoDB collection name"),
        ("collection", "a\0", "a MongoDB collection name"),
        ("collection", ".a", "a MongoDB collection name"),
        ("collection", "a.", "a MongoDB collection name"),
        ("collection", "a..b", "a MongoDB collection name"),
        ("collection", "system.views", "a MongoDB collection name"),
        ("collection", "x" * 246, "shorter: with its database it takes 250 bytes, and 249"),
    ],
)
def test_a_bad_option_is_refused(option: str, value: Any, allowed: str) -> None:
    with pytest.raises(ValueError, match=rf"^option {option}.* is not allowed: .*{allowed}"):
        defined(**{option: value})


def test_a_debounce_whose_tenfold_is_too_long_needs_its_own_max_wait() -> None:
    century = timedelta(days=36_500 * 2)
    with pytest.raises(ValueError, match=r"option max_wait=.* this is too long"):
        defined(debounce=century)
    assert declared(debounce=century, max_wait=century).max_wait == century


@pytest.mark.parametrize("name", ["orders", "shop.orders", "Aufträge", "orders-2025", "x" * 245])
def test_ordinary_collections_are_taken(name: str) -> None:
    assert declared(collection=name).collection == name


@pytest.mark.parametrize("name", ["app", "app_2", "my-app", "é" * 31, "adminy"])
def test_ordinary_databases_are_taken(name: str) -> None:
    assert declared(database=name).database == name


FILTERS: list[Any] = [
    None,
    {"status": "paid"},
    {"name": {"$regex": "^a", "$options": "i", "$ne": "abc"}},
    {"name": Regex("^a", "i"), "_id": {"$gt": ObjectId()}},
    {"at": {"$gte": datetime(2025, 1, 1, tzinfo=UTC)}, "key": uuid.uuid4()},
    {"$expr": {"$eq": ["$a", {"$literal": {"$date": "not one", "$oid": 5}}]}},
]
WATCHES: list[Any] = [
    None,
    ["_id"],
    ["b", "a.c"],
    {"a": {"b": 1}, "sum": {"$sum": "$items.price"}},
    {"mine": {"$eq": ["$owner", uuid.uuid4()]}, "pair": ["$a", "$b"]},
]
CODEC: CodecOptions[Any] = CodecOptions(uuid_representation=UuidRepresentation.STANDARD)


@pytest.mark.parametrize("filter", FILTERS)
@pytest.mark.parametrize("watch", WATCHES)
def test_a_declaration_is_the_same_after_storage(filter: Any, watch: Any) -> None:
    declaration = declared(filter=filter, watch=watch, codec=CODEC)
    restored = Declaration.restore(**stored(declaration))
    assert restored == declaration
    assert restored.fingerprint == declaration.fingerprint
    assert restored.filter_text == declaration.filter_text
    assert restored.watch_text == declaration.watch_text


@quick
@given(
    st.floats(0, 1e6),
    st.floats(0, 1e6),
    st.sampled_from(CLEANUP_WHEN),
    st.floats(0, 1e9),
    st.integers(1, 2**31 - 1),
    st.sampled_from(VERSION_CHANGES),
    st.booleans(),
    st.booleans(),
)
def test_durations_and_choices_are_the_same_after_storage_in_milliseconds(
    debounce: float,
    longer: float,
    when: Any,
    keep_for: float,
    version: int,
    on_version_change: Any,
    reconcile_on_change: bool,
    reset_on_change: bool,
) -> None:
    declaration = declared(
        debounce=debounce,
        max_wait=debounce + longer,
        cleanup=Cleanup(when, keep_for),
        reset_on_change=reset_on_change,
        version=version,
        on_version_change=on_version_change,
        reconcile_on_change=reconcile_on_change,
    )
    kept = stored(declaration)
    for name in ("debounce", "max_wait", "keep_for"):
        milliseconds = kept[name] // timedelta(milliseconds=1)
        kept[name] = timedelta(milliseconds=milliseconds)
    assert Declaration.restore(**kept) == declaration


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("filter_text", "{", "is not canonical extended JSON"),
        ("filter_text", '"paid"', "option filter="),
        ("filter_text", '{"$where": "x"}', "option filter="),
        ("watch_text", "5", "option watch="),
        ("watch_text", "{}", "option watch="),
        ("debounce", None, "option debounce="),
        ("max_wait", timedelta(0), "option max_wait="),
        ("cleanup_when", "later", "option cleanup.when="),
        ("keep_for", -1, "option cleanup.keep_for="),
        ("version", 0, "option version="),
        ("on_version_change", "some", "option on_version_change="),
        ("reset_on_change", None, "option reset_on_change="),
        ("reconcile_on_change", None, "option reconcile_on_change="),
        ("name", "", "name="),
        ("database", "local", "option database="),
        ("collection", "", "option collection="),
    ],
)
def test_what_was_stored_is_checked_like_what_is_declared(
    field: str, value: Any, problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        Declaration.restore(**stored(declared()) | {field: value})


def fingerprint(**options: Any) -> str:
    return declared(**options).fingerprint


def test_a_fingerprint_is_a_digest() -> None:
    assert len(fingerprint()) == 64
    assert int(fingerprint(), 16) > 0


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"watch": ["a", "b"]}, {"watch": ["b", "a"]}),
        ({"watch": ["a", "b"]}, {"watch": {"b": True, "a": 1}}),
        ({"watch": ["a.b"]}, {"watch": {"a": {"b": 1}}}),
        ({"watch": ["a"]}, {"watch": ["_id", "a"]}),
        ({"filter": None}, {"filter": {}}),
        ({}, {"debounce": 5, "version": 2, "name": "other", "collection": "users"}),
        ({"filter": {"a": [1]}}, {"filter": {"a": (1,)}}),
    ],
)
def test_what_selects_and_watches_the_same_has_the_same_fingerprint(one: Any, other: Any) -> None:
    assert fingerprint(**one) == fingerprint(**other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"watch": None}, {"watch": ["a"]}),
        ({"watch": None}, {"watch": ["_id"]}),
        ({"watch": ["a"]}, {"watch": {"a": "$a"}}),
        ({"watch": {"x": "$a", "y": "$b"}}, {"watch": {"y": "$b", "x": "$a"}}),
        ({"filter": {}}, {"filter": {"a": None}}),
        ({"filter": {"a": 1, "b": 2}}, {"filter": {"b": 2, "a": 1}}),
        ({"filter": {"a": 1}}, {"filter": {"a": True}}),
        ({"filter": {"a": "x"}}, {"filter": {"a": Regex("x")}}),
        ({"filter": {"a": 1}}, {"watch": ["a"]}),
    ],
)
def test_what_selects_or_watches_something_else_has_another(one: Any, other: Any) -> None:
    assert fingerprint(**one) != fingerprint(**other)


def test_the_fingerprint_is_the_same_in_every_process() -> None:
    declaration = declared(watch=["status", "total"], filter={"status": "paid"})
    assert declaration.fingerprint == (
        "48f1fb5ed779e75aab868933be9fdaf232958705fadcf0c25d6100733117d595"
    )


def test_records_of_deleted_documents_stay_a_day() -> None:
    assert Cleanup() == Cleanup("deleted", 86_400) == Cleanup("deleted", timedelta(days=1))
    assert Cleanup().quiet_time == timedelta(days=1)


def test_every_word_of_the_cleanup_is_known() -> None:
    assert get_args(CleanupWhen) == CLEANUP_WHEN


@pytest.mark.parametrize("when", CLEANUP_WHEN)
@pytest.mark.parametrize("keep_for", [0, 0.5, 3600, timedelta(days=900)])
def test_each_cleanup_is_accepted(when: CleanupWhen, keep_for: Any) -> None:
    cleanup = Cleanup(when, keep_for)
    assert cleanup.when == when
    assert cleanup.keep_for == cleanup.quiet_time
    assert isinstance(cleanup.keep_for, timedelta)


@pytest.mark.parametrize(
    ("when", "meant"),
    [("delete", "deleted"), ("unmatch", "unmatched"), ("Never", "never"), ("gone", None)],
)
def test_a_typo_gets_a_hint(when: Any, meant: str | None) -> None:
    ending = rf"; did you mean '{meant}'\?$" if meant else "'never'$"
    with pytest.raises(
        ValueError, match=rf"option cleanup.when='{when}' .* one of 'deleted', .*{ending}"
    ):
        Cleanup(when)


@pytest.mark.parametrize("when", [None, 1, True, ["deleted"]])
def test_an_unknown_status_is_refused(when: Any) -> None:
    with pytest.raises(ValueError, match=r"option cleanup.when=.* one of 'deleted'"):
        Cleanup(when)


@pytest.mark.parametrize("keep_for", [-1, "1d", None, True, float("nan")])
def test_what_is_no_duration_is_refused(keep_for: Any) -> None:
    with pytest.raises(ValueError, match=r"option cleanup.keep_for=.* that is not negative"):
        Cleanup("deleted", keep_for)
