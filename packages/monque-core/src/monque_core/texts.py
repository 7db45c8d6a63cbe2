"""Texts that MongoDB stores as text."""

from __future__ import annotations

import re
from typing import TypeGuard

from bson import Code

_NOT_IN_A_COLLECTION_NAME = re.compile(
    r"[$\x00-\x1f\x7f\ud800-\udfff]|^\.|\.$|\.\.|^system\.", re.ASCII
)


def is_text(value: object) -> TypeGuard[str]:
    """Whether a value is a `str` that BSON stores as text.

    `bson.Code` is a `str` too, is stored as JavaScript code, and equals no text in a query.
    """
    return isinstance(value, str) and not isinstance(value, Code)


def has_surrogates(text: str) -> bool:
    """Whether a text holds half of a surrogate pair, which UTF-8 cannot hold."""
    return any("\ud800" <= character <= "\udfff" for character in text)


def is_collection_name(value: object) -> TypeGuard[str]:
    """Whether MongoDB accepts a value as the name of a collection, its length aside."""
    return is_text(value) and value != "" and not _NOT_IN_A_COLLECTION_NAME.search(value)
