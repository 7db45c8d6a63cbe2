"""The page on stored documents lists every field that reactive tasks write, and no other."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from monque_core import Fixed, Monque, ReactiveTask
from tests.support.pages import page_text
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

_PAGE = "docs/reference/document-format.md"


def _section(heading: str) -> str:
    _, _, text = page_text(_PAGE).partition(f"\n## {heading}\n")
    return text.partition("\n## ")[0]


def _fields_of_kinds() -> dict[str, set[str]]:
    """Return the fields that the page lists for each kind of meta document."""
    table = _section("Meta documents")
    rows = re.findall(r"^\| `(reactive:\w+):<\w+>` \| (.*) \|$", table, re.MULTILINE)
    return {kind: set(re.findall(r"`(\w+)`", told)) for kind, told in rows}


async def test_every_field_of_reactive_tasks_is_listed_and_no_other(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    stored: set[str] = set()

    async def look() -> None:
        async for record in db["numbers_tasks"].find():
            stored.update(record)

    monque = Monque(db)
    monque.on("task:fail", lambda _: None)
    monque.on("task:error", lambda _: None)

    @monque.reactive(
        "numbers", name="add", watch={"n": {"$toInt": "$n"}}, debounce=0, retry=Fixed(3600)
    )
    async def add(task: ReactiveTask) -> None:
        await look()
        assert task.values["n"] != 1

    async with monque:
        await db["numbers"].insert_many([{"n": "1"}, {"n": "2"}, {"n": "none"}])
        await monque.run_until_idle()
        await look()
        await db["numbers"].delete_one({"n": "2"})
        await monque.run_until_idle()
        await look()
        monque.reactive("numbers", add, name="broken", filter={"n": {"$unheard": 1}})

        async def is_noticed() -> object:
            return await db["monque_jobs_meta"].find_one({"error": {"$regex": "unheard"}})

        await eventually(is_noticed)
        meta = [document async for document in db["monque_jobs_meta"].find()]

    records = re.findall(r"^\| `(\w+)`", _section("Records of reactive tasks"), re.MULTILINE)
    assert stored == set(records)

    found: dict[str, set[str]] = {}
    for document in meta:
        kind = ":".join(document.pop("_id").split(":")[:2])
        found.setdefault(kind, set()).update(document)
    leases = {kind: found.pop(kind) for kind in [*found] if not kind.startswith("reactive:")}
    leader = found.pop("reactive:leader")
    assert found == _fields_of_kinds()
    assert leases
    common = {"holder", "expiresAt", "term"}
    assert leader == common
    assert any(lease > common for lease in leases.values())
    for lease in leases.values():
        assert common <= lease <= common | {"pool", "seat"}
        assert all(f"`{field}`" in _section("Leases") for field in lease)
