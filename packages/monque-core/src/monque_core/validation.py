"""The checks of everything that users pass in: arguments, options and selectors.

Each check returns the value in the form in which it is used, or raises an error that says what
came, what is expected and, for a typo, what may be meant. `error` is the exception to raise: an
option of `Monque` or of a reactive task is a `ValueError`, a property of a job an
`InvalidJobError`.
"""

from __future__ import annotations

import math
import re
import unicodedata
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Protocol, TypeGuard, TypeVar

from bson import Code, ObjectId

from monque_core.clock import truncate
from monque_core.display import brief_repr, suggestion
from monque_core.durations import to_timedelta
from monque_core.errors import InvalidJobError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    Text = TypeVar("Text", bound=str)

ZERO: Final = timedelta(0)
MILLISECOND: Final = timedelta(milliseconds=1)
LARGEST_INT: Final = 2**31 - 1
"""The largest whole number that BSON stores in 32 bits, as Node does."""
LONGEST_NAME: Final = 255
LARGEST_JITTER: Final = 0.5
_BYTE_ORDER_MARK = "\ufeff"
"""Whitespace to Node."""
_NOT_IN_A_COLLECTION_NAME = re.compile(
    r"[$\x00-\x1f\x7f\ud800-\udfff]|^\.|\.$|\.\.|^system\.", re.ASCII
)


class ErrorType(Protocol):
    """An exception, or a function that creates one."""

    def __call__(self, name: str, value: object, message: str, /) -> ValueError:
        """Return the error for a value that is not allowed."""
        ...


def option_error(_name: str, _value: object, message: str) -> ValueError:
    """Return the error for an option of `Monque` or of a reactive task."""
    return ValueError(f"option {message}")


def argument_error(_name: str, _value: object, message: str) -> ValueError:
    """Return the error for an argument of a method."""
    return ValueError(message)


def refusal(
    name: str, value: object, expected: str, *, error: ErrorType = option_error
) -> ValueError:
    """Return the error that says which value is not allowed, and what is expected."""
    message = f"{name}={brief_repr(value)} is not allowed: it must be {expected}"
    return error(name, value, message)


def unknown_option(name: object, known: Collection[str]) -> ValueError:
    """Return the error for an option that does not exist, with the one that may be meant."""
    return ValueError(f"unknown option {brief_repr(name)}: {_hint(name, sorted(known))}")


def check_keywords(function: str, given: Collection[str], known: Collection[str]) -> None:
    """Raise `TypeError` for a keyword argument that a function does not have."""
    for name in given:
        if name not in known:
            raise TypeError(
                f"{function}() got an unexpected keyword argument {name!r}: {_hint(name, known)}"
            )


def check_whole_number(
    name: str,
    value: object,
    *,
    least: int,
    most: int | None = LARGEST_INT,
    meaning: str = "",
    error: ErrorType = option_error,
) -> int:
    """Return a whole number that is neither too small nor too large."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int)
        or value < least
        or (most is not None and value > most)
    ):
        span = f"of at least {least}" if most is None else f"from {least} to {most}"
        what = f", {meaning}" if meaning else ""
        raise refusal(name, value, f"a whole number {span}{what}", error=error)
    return value


def _check_number(
    name: str, value: object, *, least: float, most: float, kind: str, error: ErrorType
) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not least <= value <= most
        or value == math.inf
    ):
        span = f"of at least {least}" if most == math.inf else f"between {least} and {most}"
        raise refusal(name, value, f"a {kind} {span}", error=error)
    return value


def check_factor(name: str, value: object) -> float:
    """Return a finite number of at least 1."""
    return _check_number(
        name, value, least=1, most=math.inf, kind="finite number", error=option_error
    )


def check_share(name: str, value: object, *, error: ErrorType = option_error) -> float:
    """Return by how much a delay may vary at random, a share of it."""
    share = _check_number(name, value, least=0, most=LARGEST_JITTER, kind="share", error=error)
    return float(share)


def check_duration(
    name: str, value: object, *, least: timedelta = ZERO, error: ErrorType = option_error
) -> timedelta:
    """Return a duration in whole milliseconds, rounded up, as it is stored."""
    duration = check_exact_duration(name, value, least=least, error=error)
    return -(-duration // MILLISECOND) * MILLISECOND


def check_exact_duration(
    name: str, value: object, *, least: timedelta = ZERO, error: ErrorType = option_error
) -> timedelta:
    """Return a duration as it was given, in seconds or as a `timedelta`."""
    span = f"of at least {_in_words(least)}" if least else "that is not negative"
    expected = f"a duration {span}, in seconds or as a timedelta"
    try:
        duration = to_timedelta(value)
    except ValueError as problem:
        raise refusal(name, value, f"{expected}; this {problem}", error=error) from None
    if duration < least:
        raise refusal(name, value, expected, error=error)
    return duration


def check_time_limit(timeout: object) -> timedelta:
    """Return how long a call may take; zero is allowed."""
    return check_exact_duration("timeout", timeout, error=argument_error)


def check_flag(name: str, value: object) -> bool:
    """Return an option that is True or False."""
    if not isinstance(value, bool):
        raise refusal(name, value, "True or False")
    return value


def check_choice(
    name: str, value: object, choices: Sequence[Text], *, error: ErrorType = option_error
) -> Text:
    """Return one of a few words."""
    for choice in choices:
        if value == choice:
            return choice
    close = suggestion(value, choices)
    hint = f"; did you mean {close!r}?" if close else ""
    raise refusal(name, value, f"one of {', '.join(map(repr, choices))}{hint}", error=error)


def check_text(
    name: str, value: object, *, longest: int, spaces: bool, error: ErrorType = InvalidJobError
) -> str:
    """Return a text that is not blank, not too long, and that every program can store."""
    problem = _problem(value, longest=longest, spaces=spaces)
    if problem is None and is_text(value):
        return value
    forbidden = "control characters" if spaces else "whitespace or control characters"
    expected = f"a text of 1 to {longest} characters without {forbidden}"
    raise refusal(name, value, f"{expected}; this {problem}", error=error)


def check_name(name: object) -> str:
    """Return the name of a job or a reactive task."""
    return check_text("name", name, longest=LONGEST_NAME, spaces=False)


def check_id(job_id: object) -> ObjectId:
    """Return the id of a job from an `ObjectId` or its text."""
    if isinstance(job_id, ObjectId):
        return job_id
    if is_text(job_id) and ObjectId.is_valid(job_id):
        return ObjectId(job_id)
    expected = "the id of a job, an ObjectId or its 24 hex digits"
    raise refusal("id", job_id, expected, error=InvalidJobError)


def check_aware(instant: object, *, field: str) -> datetime:
    """Return a point in time in UTC milliseconds; raise for one without a time zone."""
    expected = (
        "a timezone-aware datetime, such as datetime.now(timezone.utc) or "
        "value.replace(tzinfo=ZoneInfo('Europe/Berlin'))"
    )
    problem = f"is of type {type(instant).__name__}"
    if isinstance(instant, datetime):
        problem = "has no time zone"
        if instant.tzinfo is not None and instant.utcoffset() is not None:
            try:
                return truncate(instant)
            except OverflowError:
                problem = "is out of range"
    raise refusal(field, instant, f"{expected}; this {problem}", error=InvalidJobError) from None


def _problem(value: object, *, longest: int, spaces: bool) -> str | None:
    """Return why a value is not an allowed text, None if it is one."""
    if not is_text(value):
        return f"is of type {type(value).__name__}"
    if not value.replace(_BYTE_ORDER_MARK, " ").strip():
        return "is blank"
    if len(value) > longest:
        return f"has {len(value)} characters"
    # Node counts a character beyond U+FFFF twice.
    if 2 * len(value) > longest and (units := _utf16_units(value)) > longest:
        return f"takes {units} units of UTF-16, by which Node counts"
    if value.isprintable() and (spaces or " " not in value):
        return None
    for character in value:
        category = unicodedata.category(character)
        if category == "Cs":
            return "holds half of a surrogate pair, which UTF-8 cannot store"
        if not spaces and (character.isspace() or character == _BYTE_ORDER_MARK):
            return "holds whitespace"
        if category == "Cc":
            return "holds a control character"
    return None


def _utf16_units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _hint(name: object, known: Collection[str]) -> str:
    close = suggestion(name, known)
    return f"did you mean {close!r}?" if close else f"known are {', '.join(known)}"


def _in_words(duration: timedelta) -> str:
    return "1 ms" if duration == MILLISECOND else str(duration)


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
