"""Which data can be stored, its size limit, and when the data of two schedules is equal."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

import bson
import pytest
from bson.codec_options import CodecOptions
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from monque_core.errors import InvalidJobError, MonqueError, PayloadTooLargeError
from monque_core.jobs.fields import check_unique_key
from monque_core.jobs.payload import DEEPEST_PAYLOAD, check_payload, schedule_key
from tests.support.payloads import ONE_OF_EACH, keys, payloads

if TYPE_CHECKING:
    from collections.abc import Callable

CODEC: CodecOptions[dict[str, Any]] = CodecOptions(tz_aware=True)
MEGABYTE = 1024 * 1024
quick = settings(max_examples=60)


def nested(levels: int) -> object:
    data: object = 1
    for _ in range(levels):
        data = {"a": data}
    return data


def endless() -> list[object]:
    loop: list[object] = []
    loop.append(loop)
    return loop


class Order(BaseModel):
    number: int


@dataclass
class Line:
    number: int


class TestData:
    @pytest.mark.parametrize("kind", ONE_OF_EACH)
    def test_may_be_of_every_bson_type(self, kind: str) -> None:
        check_payload(ONE_OF_EACH[kind], CODEC, None)

    @quick
    @given(payloads)
    def test_may_be_any_bson_value(self, data: object) -> None:
        check_payload(data, CODEC, None)

    @pytest.mark.parametrize(
        ("make", "kind"),
        [
            (object, "object"),
            (lambda: {1, 2}, "set"),
            (lambda: {"at": object()}, "dict"),
            (lambda: {1: "a number as a key"}, "dict"),
            (lambda: {"a\0b": 1}, "dict"),
            (lambda: 2**63, "int"),
            (lambda: "\ud83d", "str"),
            (lambda: UUID(int=1), "UUID"),
            (endless, "list"),
            (lambda: nested(100_000), "dict"),
        ],
    )
    def test_that_bson_cannot_hold_is_refused(self, make: Callable[[], object], kind: str) -> None:
        data = make()
        with pytest.raises(
            InvalidJobError,
            match=rf"^data of type {kind} cannot be stored as BSON: .*; use dicts with text keys",
        ) as caught:
            check_payload(data, CODEC, None)
        assert caught.value.field == "data"
        assert caught.value.value is data
        assert caught.value.__cause__ is not None

    @pytest.mark.parametrize(
        ("data", "advice"),
        [
            (Order(number=1), "Order is a Pydantic model: store its model_dump(), or"),
            ({"orders": [Order(number=1)]}, "Order is a Pydantic model"),
            (Line(1), "Line is a dataclass: store dataclasses.asdict(…) of it"),
            ([{"a": [Line(1)]}], "Line is a dataclass"),
        ],
    )
    def test_that_is_a_model_is_refused_with_the_way_to_store_it(
        self, data: object, advice: str
    ) -> None:
        with pytest.raises(InvalidJobError, match=re.escape(advice)):
            check_payload(data, CODEC, None)

    def test_that_is_nested_deeper_than_mongodb_allows_is_refused(self) -> None:
        check_payload(nested(DEEPEST_PAYLOAD), CODEC, None)
        check_payload({"wide": [nested(1)] * 1000}, CODEC, None)
        for levels in (DEEPEST_PAYLOAD + 1, 200, 400):
            with pytest.raises(InvalidJobError) as caught:
                check_payload(nested(levels), CODEC, None)
            assert str(caught.value) == "data is nested deeper than the 98 levels MongoDB stores"
            assert caught.value.field == "data"

    def test_is_encoded_as_the_handle_says(self) -> None:
        codec: CodecOptions[dict[str, Any]] = CodecOptions(
            uuid_representation=bson.binary.UuidRepresentation.STANDARD
        )
        check_payload(UUID(int=1), codec, None)


class TestSize:
    def test_is_that_of_the_data_alone_in_bytes_of_bson(self) -> None:
        data = {"to": "ada@example.org"}
        size = len(bson.encode(data))
        check_payload(data, CODEC, size)
        with pytest.raises(PayloadTooLargeError) as caught:
            check_payload(data, CODEC, size - 1)
        assert (caught.value.actual_size, caught.value.max_size) == (size, size - 1)
        assert str(caught.value) == (
            f"the payload takes {size} bytes of BSON and at most {size - 1} are allowed; "
            "store the bulk elsewhere and put a reference to it into the job"
        )

    @quick
    @given(st.dictionaries(keys, payloads, max_size=4))
    def test_is_bounded_exactly(self, data: dict[str, object]) -> None:
        size = len(bson.encode(data))
        check_payload(data, CODEC, size)
        with pytest.raises(PayloadTooLargeError):
            check_payload(data, CODEC, size - 1)

    def test_without_an_option_is_what_a_document_has_room_for(self) -> None:
        check_payload(b"x" * (15 * MEGABYTE), CODEC, None)
        with pytest.raises(PayloadTooLargeError) as caught:
            check_payload(b"x" * (16 * MEGABYTE), CODEC, None)
        assert caught.value.actual_size > 16 * MEGABYTE
        assert 15 * MEGABYTE < caught.value.max_size < 16 * MEGABYTE

    def test_is_never_more_than_a_document_has_room_for(self) -> None:
        with pytest.raises(PayloadTooLargeError):
            check_payload(b"x" * (16 * MEGABYTE), CODEC, 100 * MEGABYTE)

    def test_that_is_too_large_is_both_a_value_error_and_a_monque_error(self) -> None:
        assert issubclass(PayloadTooLargeError, ValueError)
        assert issubclass(PayloadTooLargeError, MonqueError)


def shuffled(value: object, chance: random.Random) -> object:
    if isinstance(value, dict):
        items = list(value.items())
        chance.shuffle(items)
        return {key: shuffled(inner, chance) for key, inner in items}
    if isinstance(value, list):
        return [shuffled(inner, chance) for inner in value]
    return value


class TestScheduleKey:
    def test_is_a_unique_key_like_any_other(self) -> None:
        key = schedule_key("@daily", "UTC", {"a": 1}, CODEC)
        assert check_unique_key(key) == key

    def test_does_not_depend_on_the_order_of_keys(self) -> None:
        one = {"a": 1, "b": [{"c": 2, "d": {"e": 3, "f": 4}}]}
        other = {"b": [{"d": {"f": 4, "e": 3}, "c": 2}], "a": 1}
        assert list(one) != list(other)
        assert schedule_key("@daily", "UTC", one, CODEC) == schedule_key(
            "@daily", "UTC", other, CODEC
        )

    @quick
    @given(payloads, st.integers(0, 1000))
    def test_does_not_depend_on_the_order_of_keys_at_any_depth(
        self, data: object, seed: int
    ) -> None:
        again = shuffled(data, random.Random(seed))
        assert schedule_key("@daily", "UTC", data, CODEC) == schedule_key(
            "@daily", "UTC", again, CODEC
        )

    @quick
    @given(payloads)
    def test_is_the_same_for_the_data_as_it_is_read_back(self, data: object) -> None:
        stored = bson.decode(bson.encode({"d": data}, codec_options=CODEC), CODEC)["d"]
        assert schedule_key("@daily", "UTC", data, CODEC) == schedule_key(
            "@daily", "UTC", stored, CODEC
        )

    def test_differs_with_whatever_else_differs(self) -> None:
        schedules: list[tuple[str, str, object]] = [
            ("@daily", "UTC", {"a": 1}),
            ("@hourly", "UTC", {"a": 1}),
            ("@daily", "Europe/Berlin", {"a": 1}),
            ("@daily", "UTC", {"a": 2}),
            ("@daily", "UTC", {"a": "1"}),
            ("@daily", "UTC", {"a": None}),
            ("@daily", "UTC", {"a": 1, "b": 1}),
            ("@daily", "UTC", {"a": {"b": 1}}),
            ("@daily", "UTC", {"a.b": 1}),
            ("@daily", "UTC", {}),
            ("@daily", "UTC", None),
            ("@daily", "UTC", [1, 2]),
            ("@daily", "UTC", [2, 1]),
        ]
        found = {schedule_key(*schedule, CODEC) for schedule in schedules}
        assert len(found) == len(schedules)
