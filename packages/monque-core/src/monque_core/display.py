"""Texts and values as people see them: on a terminal, in the log, in the message of an error."""

from __future__ import annotations

import contextlib
import difflib
import json
import logging
import reprlib
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_LONGEST_REPR = 160
_LONGEST_MESSAGE = 300
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories that move the cursor, reorder or break lines, or that UTF-8 cannot hold."""
_LONGEST_TYPO = 100
logger = logging.getLogger("monque")


def escape(text: str) -> str:
    r"""Return a text whose control characters are written as in Python: `\x1b`, `\n`, `\u202e`.

    Whoever chose the text can then neither change what a terminal shows nor forge a line.
    """
    return _replaced(text, lambda character: character.encode("unicode_escape").decode("ascii"))


def escape_lines(text: str, indent: str = "") -> str:
    """Return a text of several lines, each one escaped, and indented from the second one on."""
    return f"\n{indent}".join(map(escape, text.split("\n")))


def to_json(value: object) -> str:
    """Return a value as JSON on one line, in which control characters are escaped."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return _replaced(text, lambda character: json.dumps(character)[1:-1])


def cut(text: str, longest: int) -> str:
    """Return a text of at most so many characters, with an ellipsis where its end is left out."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def brief_repr(value: object) -> str:
    """Return a value as it is written in Python, short and on one line whatever it holds."""
    try:
        text = _BRIEF.repr(value)
    except Exception:  # noqa: BLE001  # a __repr__ may raise anything
        text = object.__repr__(value)
    return escape(cut(text, _LONGEST_REPR))


def brief_message(error: BaseException) -> str:
    """Return the message of an exception, short and on one line whatever it holds."""
    try:
        return escape(cut(str(error), _LONGEST_MESSAGE))
    except Exception:  # noqa: BLE001  # a __str__ may raise anything
        return type(error).__name__


def suggestion(word: object, known: Iterable[str]) -> str | None:
    """Return the known word that a typo most likely stands for, None if there is none."""
    if not isinstance(word, str) or len(word) > _LONGEST_TYPO:
        return None
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return close[0] if close else None


def _replaced(text: str, write: Callable[[str], str]) -> str:
    if text.isprintable():
        return text
    return "".join(
        write(character) if unicodedata.category(character) in _INVISIBLE else character
        for character in text
    )


class _Brief(reprlib.Repr):
    """`reprlib`, also for bytes and for integers of more digits than Python converts."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 4
        self.maxstring = 100
        self.maxother = _LONGEST_REPR

    def repr_int(self, value: int, _level: int) -> str:
        """Return an integer, or its size if it has very many digits."""
        bits = value.bit_length()
        return repr(value) if bits <= 256 else f"<integer of {bits} bits>"

    def repr_bytes(self, value: bytes, _level: int) -> str:
        """Return bytes, or their beginning."""
        return repr(value) if len(value) <= 30 else f"{value[:30]!r}..."


_BRIEF = _Brief()


def log(level: int, message: str, error: BaseException | None = None) -> None:
    """Log a message on one line, and the traceback of an error if it can be formatted."""
    line = escape(message)
    try:
        logger.log(level, "%s", line, exc_info=error)
    except Exception:  # noqa: BLE001  # a handler may let out what the exception raises
        with contextlib.suppress(Exception):
            logger.log(level, "%s", line)
