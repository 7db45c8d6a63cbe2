"""Payloads as MongoDB Extended JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

import bson
import typer
from bson import json_util
from bson.errors import BSONError

_STDIN = "-"


def read_payload(text: str) -> Any:
    """Read a payload, from standard input if it is `-`."""
    source = sys.stdin.read() if text == _STDIN else text
    return _read(source, """'{"to": "ada@example.com"}'""")


def read_source_id(text: str) -> Any:
    """Read the `_id` of a document."""
    source_id = _read(text, """17, '"A-17"' or '{"$oid": "66f2a1c5e4b0a1b2c3d4e5f6"}'""")
    if source_id is None:
        raise typer.BadParameter("a document whose _id is null has no record")
    try:
        bson.encode({"_id": source_id})
    except (ValueError, OverflowError, RecursionError, BSONError) as error:
        raise typer.BadParameter(f"{_shortened(text)} can be no _id: {error}") from None
    return source_id


def _read(text: str, example: str) -> Any:
    try:
        return json_util.loads(text, json_options=json_util.JSONOptions(tz_aware=True))
    except (ValueError, TypeError, RecursionError, BSONError) as error:
        raise typer.BadParameter(
            f"{_shortened(text)} is not JSON: {error}; quote it for the shell, as in {example}"
        ) from None


def plain(data: object) -> Any:
    """Give a payload as what JSON can hold: Extended JSON, relaxed."""
    return json.loads(json_util.dumps(data, json_options=json_util.RELAXED_JSON_OPTIONS))


def _shortened(text: str) -> str:
    return repr(text) if len(text) <= 60 else f"{text[:57]!r}…"
