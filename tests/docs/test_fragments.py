"""The fragments on the pages do what the pages say, in the context that they need."""

from __future__ import annotations

import ast
import inspect
from typing import TYPE_CHECKING, Any

import pytest

from monque_core import Monque, ReactiveTask
from tests.support.pages import Block, blocks
from tests.support.tally import Tally
from tests.support.task_records import META, declare, put_record
from tests.support.trial import Project

if TYPE_CHECKING:
    from pathlib import Path

    from pymongo.asynchronous.database import AsyncDatabase

_ONLY_COMPILED = {
    # Written for other queues, which are not installed.
    "docs/howto/migrate/apscheduler.md",
    "docs/howto/migrate/arq.md",
    "docs/howto/migrate/celery.md",
    # Needs two servers.
    "docs/scale.md",
}


def _fragment(page: str) -> Block:
    (block,) = [block for block in blocks("python fragment") if block.page == page]
    return block


async def _run(fragment: Block, **names: object) -> None:
    code = compile(fragment.code, str(fragment), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    given = eval(code, names)
    if inspect.isawaitable(given):
        await given


async def test_the_reactive_task_of_the_readme_runs_for_paid_orders(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    sent: Tally[tuple[object, object]] = Tally()

    async def send_invoice(order: object, total: object) -> None:
        sent.add((order, total))

    monque = Monque(db)
    await _run(
        _fragment("README.md"), monque=monque, ReactiveTask=ReactiveTask, send_invoice=send_invoice
    )
    async with monque:
        await db["orders"].insert_many(
            [{"_id": 1, "status": "open", "total": 7}, {"_id": 2, "status": "paid", "total": 5}]
        )
        await sent.reach(1)

    assert sent == [(2, 5)]


async def test_a_removed_task_is_deleted_as_the_page_says(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    for name in ("export", "invoice"):
        await declare(db, name, "orders")
        await put_record(db, 1, name, "orders")

    await _run(_fragment("docs/reactive.md"), db=db)

    assert await db["orders_tasks"].distinct("task") == ["invoice"]
    assert await db[META].distinct("task") == ["invoice"]


_TESTS = {
    "docs/reference/local-mongo.md": """
from pymongo import MongoClient

def test_there_is_a_server(mongodb_uri):
    with MongoClient(mongodb_uri) as client:
        assert client.admin.command("hello")["isWritablePrimary"]
""",
    "docs/di/testing.md": """
from shop.container import FakeMailer, SendEmail

async def test_mails_are_sent(app):
    mailer = FakeMailer()
    with app.mailer.override(mailer):
        await SendEmail.enqueue(app.monque.service(), "Ada")
        await app.monque.service().monque.run_until_idle()
    assert mailer.sent == ["Ada"]
""",
}


@pytest.mark.parametrize("conftest", blocks("python conftest"), ids=str)
def test_the_fixtures_of_a_page_serve_a_test(conftest: Block, tmp_path: Path) -> None:
    programs = [block.code for block in blocks("python") if block.page == "docs/di/testing.md"]
    (container,) = [code for code in programs if "test_mails_are_sent" in code]
    (tmp_path / "shop").mkdir()
    project = Project(tmp_path, None)
    project.write("shop/__init__.py", "")
    project.write("shop/container.py", container.partition("\nasync def test_")[0])
    project.write("conftest.py", conftest.code)
    project.write("test_page.py", _TESTS[conftest.page])

    verdict = project.run()

    assert verdict.summary == "1 passed", verdict.text


def test_every_other_fragment_is_listed_as_not_runnable() -> None:
    tried = {"README.md", "docs/reactive.md"}

    assert {block.page for block in blocks("python fragment")} == _ONLY_COMPILED | tried
