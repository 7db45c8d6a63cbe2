"""Payloads as MongoDB Extended JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

import typer
from bson import json_util
from bson.errors import BSONError

_STDIN = "-"


def read_payload(text: str) -> Any:
    """Read a payload, from standard input if it is `-`."""
    source = sys.stdin.read() if text == _STDIN else text
    try:
        return json_util.loads(source, json_options=json_util.JSONOptions(tz_aware=True))
    except (ValueError, TypeError, RecursionError, BSONError) as error:
        raise typer.BadParameter(
            f"{_shortened(source)} is not JSON: {error}; quote it for the shell, "
            """as in '{"to": "ada@example.com"}'"""
        ) from None


def plain(data: object) -> Any:
    """Give a payload as what JSON can hold: Extended JSON, relaxed."""
    return json.loads(json_util.dumps(data, json_options=json_util.RELAXED_JSON_OPTIONS))


def _shortened(text: str) -> str:
    return repr(text) if len(text) <= 60 else f"{text[:57]!r}…"
