"""Payloads as MongoDB Extended JSON."""

from __future__ import annotations

import json
import shlex
import sys
from typing import Any

import bson
import typer
from bson import json_util
from bson.errors import BSONError

from monque_core.display import brief_message, brief_repr

_STDIN = "-"
_LONGEST_WORD = 60


def read_payload(text: str) -> Any:
    """Return a payload; read it from standard input if the text is `-`."""
    source = sys.stdin.read() if text == _STDIN else text
    return _read(source, """'{"to": "ada@example.com"}'""")


def read_source_id(text: str) -> Any:
    """Return the `_id` of a document."""
    source_id = _read(text, """17, '"A-17"' or '{"$oid": "66f2a1c5e4b0a1b2c3d4e5f6"}'""")
    if source_id is None:
        raise typer.BadParameter("documents whose _id is null have no record")
    try:
        bson.encode({"_id": source_id})
    except (ValueError, OverflowError, RecursionError, BSONError) as error:
        raise typer.BadParameter(
            f"{brief_repr(text)} cannot be an _id: {brief_message(error)}"
        ) from None
    return source_id


def _read(text: str, example: str) -> Any:
    try:
        return json_util.loads(text, json_options=json_util.JSONOptions(tz_aware=True))
    except (ValueError, TypeError, RecursionError, BSONError) as error:
        raise typer.BadParameter(
            f"{brief_repr(text)} is not valid JSON: {brief_message(error)}; "
            f"{_advice(text, example)}"
        ) from None


def to_extended_json(data: object) -> Any:
    """Return a payload as relaxed Extended JSON."""
    return json.loads(json_util.dumps(data, json_options=json_util.RELAXED_JSON_OPTIONS))


def _advice(text: str, example: str) -> str:
    word = text.strip()
    if word and len(word) <= _LONGEST_WORD and word[0] not in '{["' and word.isprintable():
        return f"for a string, write {shlex.quote(json.dumps(word, ensure_ascii=False))}"
    return f"quote it for the shell, for example {example}"
