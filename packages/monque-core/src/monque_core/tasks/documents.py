"""Filters and projections as plain BSON, independent of the codec, and as text.

The text is canonical extended JSON. There, some keys denote a type: `{"$regex": …}`, an operator
of a filter, would be read back as a regular expression without its other keys. Such keys get a
second `$` in the text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import bson
from bson import json_util
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.errors import BSONError

from monque_core.display import brief_message, brief_repr
from monque_core.validation import refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DEEPEST_QUERY: Final = 100
PLAIN: Final[CodecOptions[dict[str, Any]]] = CodecOptions(
    document_class=dict, tz_aware=True, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
_TEXT: Final = json_util.JSONOptions(
    json_mode=json_util.JSONMode.CANONICAL,
    document_class=dict,
    tz_aware=True,
    datetime_conversion=DatetimeConversion.DATETIME_AUTO,
)
_TYPE_KEYS: Final = frozenset(
    f"${name}"
    for name in (
        *("binary", "code", "date", "dbPointer", "maxKey", "minKey", "numberDecimal"),
        *("numberDouble", "numberInt", "numberLong", "oid", "ref", "regex", "regularExpression"),
        *("symbol", "timestamp", "undefined", "uuid"),
    )
)
_UNREADABLE: Final = (
    *(BSONError, ArithmeticError, AttributeError, LookupError, RecursionError),
    *(TypeError, ValueError),
)


def plain(option: str, document: Mapping[str, Any], codec: CodecOptions[Any]) -> dict[str, Any]:
    """Return a copy of plain BSON types, which every codec encodes the same way."""
    try:
        copy = bson.decode(bson.encode(document, codec_options=codec), PLAIN)
    except Exception as error:
        # BSON errors contain the repr of a value, which may raise anything.
        raise ValueError(
            f"option {option}={brief_repr(document)} cannot be written as BSON: "
            f"{brief_message(error)}; "
            "use dicts with text keys, lists, text, numbers, datetimes, ObjectIds and the like"
        ) from error
    if _is_too_deep(copy):
        raise refusal(
            option, document, f"nested at most {DEEPEST_QUERY} levels deep, as in MongoDB"
        )
    return copy


def to_bytes(document: Mapping[str, Any]) -> bytes:
    """Return a plain document as BSON."""
    return bson.encode(document, codec_options=PLAIN)


def to_text(document: Mapping[str, Any] | None) -> str:
    """Return a plain document as text; `from_text` reads it back."""
    return json_util.dumps(_rename_keys(document, _escaped), json_options=_TEXT)


def from_text(text: str) -> Any:
    """Return the document that `to_text` was given."""
    try:
        return _rename_keys(json_util.loads(text, json_options=_TEXT), _unescaped)
    except _UNREADABLE as error:
        raise ValueError(f"{brief_repr(text)} is not canonical extended JSON: {error}") from error


def _is_too_deep(document: dict[str, Any]) -> bool:
    level: list[Any] = [document]
    for _ in range(DEEPEST_QUERY):
        branches = [value for value in level if isinstance(value, (dict, list))]
        level = [
            child
            for value in branches
            for child in (value.values() if isinstance(value, dict) else value)
        ]
    return any(isinstance(value, (dict, list)) for value in level)


def _rename_keys(value: Any, rename: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {rename(key): _rename_keys(child, rename) for key, child in value.items()}
    if isinstance(value, list):
        return [_rename_keys(child, rename) for child in value]
    return value


def _escaped(key: str) -> str:
    return f"${key}" if key in _TYPE_KEYS or key.startswith("$$") else key


def _unescaped(key: str) -> str:
    return key[1:] if key.startswith("$$") else key
