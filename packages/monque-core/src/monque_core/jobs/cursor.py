"""Opaque cursors of an ordered list of jobs."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from dataclasses import dataclass
from datetime import UTC
from typing import Any, Literal

from bson import json_util
from bson.codec_options import DatetimeConversion
from bson.errors import BSONError

from monque_core.errors import InvalidCursorError

_DIGEST_LENGTH = 16
# Another program may have stored a date that Python cannot represent.
_JSON = json_util.JSONOptions(
    tz_aware=True, tzinfo=UTC, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a job in an order: the value it is sorted by, then its id."""

    value: Any
    id: Any


@dataclass(frozen=True, slots=True)
class Cursor:
    """The first and the last place of a page.

    An empty page is at an edge of the list: after `last` at the `end`, or before `first` at the
    `begin`.
    """

    first: Place
    last: Place
    edge: Literal["begin", "end"] | None = None

    def encode(self, list_id: str) -> str:
        """Return the cursor as text that is valid for one list, that is, one filter and order."""
        ends = [self.first.value, self.first.id, self.last.value, self.last.id, self.edge]
        body = json_util.dumps(ends, separators=(",", ":")).encode()
        return _text(_digest(body, list_id) + body)

    @classmethod
    def decode(cls, text: object, list_id: str) -> Cursor:
        """Return the cursor of a text; raise `InvalidCursorError` if it is not one of this list."""
        if not isinstance(text, str):
            raise InvalidCursorError(f"a cursor must be a text, not {type(text).__name__}")
        try:
            sealed = base64.urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4))
        except (binascii.Error, UnicodeEncodeError, ValueError):
            raise _unknown(text) from None
        if _text(sealed) != text:
            # Base64 has several spellings of the same bytes; only the canonical one is accepted.
            raise _unknown(text)
        digest, body = sealed[:_DIGEST_LENGTH], sealed[_DIGEST_LENGTH:]
        if digest != _digest(body, list_id):
            raise _unknown(text)
        try:
            ends = json_util.loads(body.decode(), json_options=_JSON)
            first, first_id, last, last_id, edge = ends
        except (ValueError, TypeError, json.JSONDecodeError, BSONError):
            raise _unknown(text) from None
        return cls(Place(first, first_id), Place(last, last_id), edge)


def _text(sealed: bytes) -> str:
    return base64.urlsafe_b64encode(sealed).decode().rstrip("=")


def _digest(body: bytes, list_id: str) -> bytes:
    return hashlib.sha256(list_id.encode() + b"\0" + body).digest()[:_DIGEST_LENGTH]


def _unknown(text: str) -> InvalidCursorError:
    return InvalidCursorError(
        f"the cursor {text[:40]!r} does not belong to this query: it was changed, or returned for "
        "another filter or sort; begin again without a cursor"
    )
