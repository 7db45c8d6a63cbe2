"""Formatting of texts and values for people."""

from __future__ import annotations

import json
import logging
import unicodedata
from typing import TYPE_CHECKING, Any

import pytest
from bson import SON
from hypothesis import given, settings
from hypothesis import strategies as st

from monque_core import InvalidCronError, InvalidJobError, JobSelector, Monque
from monque_core.display import (
    brief_message,
    brief_repr,
    cut,
    escape,
    escape_lines,
    log,
    suggestion,
    to_json,
)
from monque_core.jobs.fields import check_priority, check_timeout, check_unique_key
from monque_core.options import Options
from monque_core.tasks.selector import TaskSelector
from monque_core.validation import check_name
from tests.support.stored import count_by_status
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Job


quick = settings(derandomize=True, deadline=None, max_examples=300)


def nested(levels: int, kind: Any = list) -> Any:
    value: Any = kind()
    for _ in range(levels):
        value = [value] if kind is list else kind(a=value)
    return value


class Unspeakable:
    """An object whose `repr` and `str` raise."""

    def __repr__(self) -> str:
        raise RuntimeError("no words")


class Multiline:
    def __repr__(self) -> str:
        return "<\x1b[2J\nERROR forged>"


class TestEscape:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("ValueError: no", "ValueError: no"),
            ("naïve 送信 🐟", "naïve 送信 🐟"),
            (r"C:\new", r"C:\new"),
            ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
            ("one\r\ntwo\tthree", r"one\r\ntwo\tthree"),
            ("\x9b2J\x85", r"\x9b2J\x85"),
            ("\u202egnp.exe\u2066", r"\u202egnp.exe\u2066"),
            ("zero\u200bwidth\ufeff", r"zero\u200bwidth\ufeff"),
            ("\u2028\u2029", r"\u2028\u2029"),
            ("\ud800", r"\ud800"),
        ],
    )
    def test_writes_control_characters_as_python_does(self, text: str, expected: str) -> None:
        assert escape(text) == expected

    @quick
    @given(st.text(st.characters(exclude_categories=[])))
    def test_leaves_nothing_that_moves_a_cursor_or_that_utf_8_cannot_hold(self, text: str) -> None:
        escaped = escape(text)
        escaped.encode()
        assert not {unicodedata.category(each) for each in escaped} & {"Cc", "Cf", "Cs"}
        assert len(escaped.splitlines()) <= 1
        assert escape(escaped) == escaped

    def test_of_lines_keeps_their_breaks_and_indents_all_but_the_first(self) -> None:
        assert escape_lines("one\r\n\x1btwo\nthree", "  ") == "one\\r\n  \\x1btwo\n  three"


class TestJson:
    @quick
    @given(st.text(st.characters(exclude_categories=[])))
    def test_is_on_one_visible_line_and_means_the_same(self, text: str) -> None:
        written = to_json({"text": text})
        written.encode()
        assert not {unicodedata.category(each) for each in written} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
        assert json.loads(written) == {"text": text}

    def test_leaves_letters_of_every_script_as_they_are(self) -> None:
        assert to_json(["送信", "naïve", "🐟"]) == '["送信", "naïve", "🐟"]'


class TestBriefRepr:
    @pytest.mark.parametrize("value", [None, 5, "it's", b"x", {"a": [1, 2.5]}, ("a",), {1}])
    def test_is_that_of_python_for_what_is_short(self, value: object) -> None:
        assert brief_repr(value) == repr(value)

    @pytest.mark.parametrize(
        "value",
        [
            "x" * 10_000_000,
            b"x" * 10_000_000,
            list(range(1_000_000)),
            {str(i): i for i in range(100_000)},
            10**10_000,
            nested(100_000),
            nested(5_000, dict),
            nested(5_000, SON),
            [["x" * 1_000] * 1_000] * 1_000,
            Unspeakable(),
            [Unspeakable()],
            Multiline(),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_is_short_and_on_one_line_whatever_the_value(self, value: object) -> None:
        text = brief_repr(value)
        assert len(text) < 300
        assert text.isprintable()

    def test_of_a_long_text_shows_its_beginning(self) -> None:
        assert brief_repr("abc" + "x" * 1000).startswith("'abcxxx")


def test_a_message_is_short_and_on_one_line_whatever_the_exception() -> None:
    class WordlessError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    assert brief_message(ValueError("no\n\x1b[2J")) == r"no\n\x1b[2J"
    assert len(brief_message(ValueError("x" * 100_000))) <= 300
    assert brief_message(WordlessError()) == "WordlessError"


def test_cut_leaves_room_for_the_ellipsis() -> None:
    assert cut("abcdef", 6) == "abcdef"
    assert cut("abcdefg", 6) == "abcde…"


def test_a_typo_gets_the_closest_word_and_anything_else_none() -> None:
    assert suggestion("complted", ["pending", "completed"]) == "completed"
    assert suggestion("zebra", ["pending", "completed"]) is None
    assert suggestion("x" * 1_000_000, ["pending"]) is None
    assert suggestion(["pending"], ["pending"]) is None


MONSTERS = [
    nested(100_000),
    nested(5_000, dict),
    "x" * 1_000_000,
    10**10_000,
    Unspeakable(),
]


@pytest.mark.parametrize("monster", MONSTERS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize(
    "check",
    [
        check_name,
        check_unique_key,
        check_priority,
        check_timeout,
        JobSelector,
        lambda value: JobSelector(status=value),
        lambda value: JobSelector(older_than=value),
        lambda value: TaskSelector(status=value),
        lambda value: TaskSelector(error=value),
        lambda value: TaskSelector(name=value),
        *(
            lambda value, name=name: Options.parse({name: value})
            for name in ("collection_name", "scheduler_instance_id", "retry_jitter", "clock")
        ),
    ],
)
def test_no_validation_error_is_long_or_fails_itself(check: Any, monster: object) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the text is measured below
        check(monster)
    assert len(str(caught.value)) < 800


@pytest.mark.parametrize("monster", MONSTERS, ids=lambda value: type(value).__name__)
async def test_no_validation_error_of_a_call_is_long_or_fails_itself(db: Any, monster: Any) -> None:
    monque = Monque(db)
    calls = [
        monque.enqueue("mail", {"text": Unspeakable(), "monster": monster}),
        monque.schedule(monster, "mail", None),
        monque.schedule("@daily", "mail", None, timezone=monster),
        monque.get_jobs(limit=monster),
        monque.get_jobs_with_cursor(sort=monster),
        monque.get_jobs_with_cursor(direction=monster),
        monque.get_reactive_tasks(direction=monster),
    ]
    for call in calls:
        with pytest.raises((InvalidJobError, InvalidCronError, ValueError)) as caught:
            await call
        assert len(str(caught.value)) < 800


def test_a_message_is_one_line_without_control_characters(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log(logging.WARNING, "one\n\x1b[2Jtwo")

    (record,) = caplog.records
    assert (record.name, record.getMessage()) == ("monque", r"one\n\x1b[2Jtwo")
    assert record.exc_info is None


async def test_what_a_handler_raises_cannot_forge_a_line_of_the_log(
    db: AsyncDatabase[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    monque = Monque(db, max_retries=1)

    @monque.worker("bad")
    async def fail(job: Job[None]) -> None:
        raise ValueError("no\nERROR forged \x1b[2J")

    await monque.enqueue("bad", None)
    async with monque:
        await eventually(lambda: any("given up" in each for each in caplog.messages))

    (message,) = [each for each in caplog.messages if "given up" in each]
    assert message.endswith(r"is given up: ValueError: no\nERROR forged \x1b[2J")
    assert await count_by_status(db) == {"failed": 1}
