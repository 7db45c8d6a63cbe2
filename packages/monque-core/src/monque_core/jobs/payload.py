"""The data of a job as BSON: its limits, and the key derived from it."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import bson

from monque_core.display import brief_message
from monque_core.errors import InvalidJobError, PayloadTooLargeError

if TYPE_CHECKING:
    from bson.codec_options import CodecOptions

LARGEST_DOCUMENT = 16 * 1024 * 1024
_ROOM_FOR_OTHER_FIELDS = 64 * 1024
LARGEST_PAYLOAD = LARGEST_DOCUMENT - _ROOM_FOR_OTHER_FIELDS
DEEPEST_PAYLOAD = 98
_BYTES_PER_LEVEL = len(bson.encode({"": {}})) - len(bson.encode({}))
_SMALLEST_DEEP = DEEPEST_PAYLOAD * _BYTES_PER_LEVEL
"""Smaller data cannot be nested that deep, so its levels need not be counted."""
_EMPTY_WRAPPER = len(bson.encode({"d": None}))
_DERIVED_KEY_PREFIX = "monque:schedule:"


def check_payload(data: object, codec: CodecOptions[Any], max_size: int | None) -> None:
    """Raise for data that BSON cannot hold or that exceeds the limit, in bytes."""
    size = len(_encode({"d": data}, codec, data)) - _EMPTY_WRAPPER
    if size > _SMALLEST_DEEP and _depth(data) > DEEPEST_PAYLOAD:
        raise InvalidJobError(
            "data", data, f"data is nested deeper than the {DEEPEST_PAYLOAD} levels MongoDB stores"
        )
    limit = LARGEST_PAYLOAD if max_size is None else min(max_size, LARGEST_PAYLOAD)
    if size > limit:
        raise PayloadTooLargeError(size, limit)


def schedule_key(cron: str, timezone: str, data: object, codec: CodecOptions[Any]) -> str:
    """Return the unique key of a schedule without one; the order of keys in its data is ignored."""
    content = {"cron": cron, "timezone": timezone, "data": _sorted(data)}
    digest = hashlib.sha256(_encode(content, codec, data)).hexdigest()
    return f"{_DERIVED_KEY_PREFIX}{digest}"


def _depth(data: object) -> int:
    """Return how many levels of documents and arrays there are."""
    depth, level = 0, [data]
    while any(isinstance(value, (Mapping, list, tuple)) for value in level):
        depth += 1
        level = _children(level)
    return depth


def _sorted(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, (list, tuple)):
        return [_sorted(item) for item in value]
    return value


def _encode(document: Mapping[str, object], codec: CodecOptions[Any], data: object) -> bytes:
    try:
        return bson.encode(document, codec_options=codec)
    except Exception as error:
        # BSON's own errors hold the repr of a value, which may raise anything by itself.
        raise InvalidJobError(
            "data",
            data,
            f"data of type {type(data).__name__} cannot be stored as BSON: {brief_message(error)}; "
            f"{_advice(data)}",
        ) from error


def _advice(data: object) -> str:
    """Return what to store instead of the data, for example of a model or dataclass in it."""
    seen: dict[int, object] = {}
    level = [data]
    while level := [value for value in level if id(value) not in seen]:
        seen.update({id(value): value for value in level})
        for value in level:
            kind = type(value).__name__
            if callable(getattr(type(value), "model_dump", None)):
                return (
                    f"{kind} is a Pydantic model: store its model_dump(), or "
                    'model_dump(mode="json") if it has fields that BSON does not know'
                )
            if dataclasses.is_dataclass(value) and not isinstance(value, type):
                return f"{kind} is a dataclass: store dataclasses.asdict(…) of it"
        level = _children(level)
    return "use dicts with text keys, lists, text, numbers, datetimes, ObjectIds and the like"


def _children(level: list[object]) -> list[object]:
    """Return what is in the documents and arrays of one level."""
    return [
        child
        for value in level
        if isinstance(value, (Mapping, list, tuple))
        for child in (value.values() if isinstance(value, Mapping) else value)
    ]
