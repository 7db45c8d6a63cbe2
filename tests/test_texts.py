"""Which values MongoDB stores as text."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

import pytest
from bson import Code

from monque_core import InvalidCronError, InvalidJobError, JobSelector, Monque
from monque_core.jobs.fields import check_unique_key
from monque_core.options import Options
from monque_core.tasks.definition import define
from monque_core.tasks.selector import TaskSelector
from monque_core.texts import is_collection_name, is_text
from monque_core.validation import check_id, check_name
from tests.support.stored import jobs_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from pymongo.asynchronous.database import AsyncDatabase


class Name(StrEnum):
    MAIL = "mail"


def test_bson_code_is_not_a_text() -> None:
    assert is_text("mail")
    assert is_text(Name.MAIL)
    assert not is_text(Code("mail"))
    assert not is_text(b"mail")


@pytest.mark.parametrize(
    "check",
    [
        check_name,
        check_unique_key,
        lambda _: check_id(Code("a" * 24)),
        JobSelector,
        lambda code: TaskSelector(name=code),
        lambda code: TaskSelector(collection=code),
        lambda code: TaskSelector(error=code),
        lambda code: TaskSelector(source_id=code),
        lambda code: Options.parse({"collection_name": code}),
        lambda code: Options.parse({"scheduler_instance_id": code}),
        lambda code: define("shop", "orders", name=code),
        lambda code: define("shop", code, name="invoice"),
        lambda code: define(code, "orders", name="invoice"),
        lambda code: define("shop", "orders", name="invoice", watch=[code]),
    ],
)
def test_bson_code_is_refused_wherever_a_text_is_expected(check: Callable[[str], object]) -> None:
    with pytest.raises(ValueError, match=r"Code\("):
        check(Code("mail"))


async def test_bson_code_is_refused_as_a_name_or_key(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    monque = Monque(db)
    with pytest.raises(InvalidJobError, match="is of type Code"):
        await monque.enqueue(Code("mail"), None)
    with pytest.raises(InvalidJobError, match="is of type Code"):
        await monque.enqueue("mail", None, unique_key=Code("k"))
    with pytest.raises(InvalidJobError, match="is of type Code"):
        await monque.enqueue_many("mail", [Code("a"), Code("b")], unique_key=lambda key: key)
    with pytest.raises(InvalidCronError):
        await monque.schedule(Code("@daily"), "mail", None)
    with pytest.raises(InvalidJobError, match="timezone"):
        await monque.schedule("@daily", "mail", None, timezone=Code("Europe/Berlin"))

    await monque.enqueue(Name.MAIL, None, unique_key=Name.MAIL)
    document = await jobs_in(db).find_one({"name": {"$type": "string"}, "uniqueKey": "mail"})
    assert document is not None
    assert await jobs_in(db).count_documents({}) == 1


@pytest.mark.parametrize("name", ["jobs", "jobs.of.today", "système", "x" * 300])
def test_a_collection_name_may_hold_any_visible_character(name: str) -> None:
    assert is_collection_name(name)


@pytest.mark.parametrize("name", ["", "a$", "a\n", ".a", "a.", "a..b", "system.a", "\ud800", None])
def test_bad_collection_names_are_refused(name: object) -> None:
    assert not is_collection_name(name)
