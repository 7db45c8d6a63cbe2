"""Every example application runs as a user runs it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from monque_core import JobStatus, Monque
from tests.support.pages import ROOT
from tests.support.program import Program
from tests.support.stored import stored_jobs
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core.jobs.job import AnyJob

_WELCOME = "From shop@shop.example to ada@shop.example: welcome\n"
_REPORT = "From shop@shop.example to owner@shop.example: the stock report\n"
_SERVED_AT = r"[Rr]unning on (http://127\.0\.0\.1:\d+)"


@pytest.fixture
def variables(uri: str, database_name: str) -> dict[str, str]:
    """Return the environment of an example: the test database and a free port."""
    return {"MONGODB_URI": uri.replace("/?", f"/{database_name}?"), "PORT": "0"}


class _InTerminal(Program):
    def interrupt(self) -> None:
        """Press Ctrl-C, which reaches it and those that it has started."""
        os.killpg(self._running().pid, signal.SIGINT)


async def _ended(db: AsyncDatabase[dict[str, Any]], name: str) -> AnyJob:
    """Wait until the one job of a name has run; give it."""

    async def finished() -> list[AnyJob]:
        return await stored_jobs(db, name=name, status=JobStatus.COMPLETED)

    jobs: list[AnyJob] = await eventually(finished)
    (job,) = jobs
    return job


@pytest.mark.parametrize("example", ["script", "plain_core"])
async def test_a_script_stores_jobs_runs_them_and_ends(
    example: str, variables: dict[str, str], db: AsyncDatabase[dict[str, Any]]
) -> None:
    async with Program(f"examples.{example}", **variables) as program:
        assert await program.end() == 0, program.output

    assert sorted(program.lines) == [_WELCOME, _REPORT]
    (schedule,) = await stored_jobs(db, status=JobStatus.PENDING)
    assert (schedule.name, schedule.data) == ("daily-report", "sales")
    assert (schedule.repeat_interval, schedule.timezone) == ("0 9 * * *", "Europe/Berlin")


async def test_the_script_and_the_plain_core_share_one_queue_and_one_schedule(
    variables: dict[str, str], db: AsyncDatabase[dict[str, Any]]
) -> None:
    mail = {"to": "bob@shop.example", "text": "hello"}
    await Monque(db).enqueue("send-email", mail, priority=1)
    async with Program("examples.script", **variables) as script:
        assert await script.end() == 0, script.output
    await Monque(db).enqueue("send-email", mail, priority=1)
    async with Program("examples.plain_core", **variables) as plain_core:
        assert await plain_core.end() == 0, plain_core.output

    expected = sorted([_WELCOME, _REPORT, "From shop@shop.example to bob@shop.example: hello\n"])
    assert sorted(script.lines) == sorted(plain_core.lines) == expected
    assert len(await stored_jobs(db, status=JobStatus.PENDING)) == 1


async def test_an_example_brings_its_own_mongodb_when_it_is_given_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("MONGODB_URI", raising=False)
    async with Program("examples.script") as program:
        assert await program.end() == 0, program.output

    assert sorted(program.lines) == [_WELCOME, _REPORT]


async def test_the_cron_service_runs_schedules_and_nothing_else(
    variables: dict[str, str], db: AsyncDatabase[dict[str, Any]]
) -> None:
    await Monque(db).schedule("@daily", "given-up", None, unique_key="cron_service")
    await Monque(db).schedule("@daily", "of-somebody-else", None)
    async with Program("examples.cron_service", **variables) as service:
        await service.hear("tick is next due at ")
        assert "given-up is no longer scheduled\n" in service.lines
        schedules = {job.name: job for job in await stored_jobs(db, uniqueKey="cron_service")}
        for name in ("clean-up", "report"):
            await Monque(db).reschedule_job(schedules[name].id, schedules[name].created_at)
        await service.hear("cleaned up on ")
        await service.hear("report of ")
        service.terminate()
        assert await service.end() == 0, service.output

    assert service.lines[-1] == "stopped\n"
    assert {job.name: (job.repeat_interval, job.timezone) for job in schedules.values()} == {
        "tick": ("* * * * *", "UTC"),
        "report": ("0 9 * * 1-5", "Europe/Berlin"),
        "clean-up": ("30 3 * * *", "UTC"),
    }
    assert len(await stored_jobs(db, name="of-somebody-else")) == 1


async def test_orders_become_invoices_whoever_plans_and_whatever_fails_at_first(
    variables: dict[str, str], db: AsyncDatabase[dict[str, Any]]
) -> None:
    async with Program("examples.orders_invoices", **variables) as program:
        assert await program.end() == 0, program.output

    assert program.lines[0] == "first plans from now on\n"
    assert "second plans from now on\n" in program.lines
    assert program.output.count("is stuck, and is tried again") == 3
    assert program.lines[-1] == "17 invoices for 16 paid orders and their corrections\n"
    assert await db["invoices"].count_documents({}) == 17
    assert "Traceback" not in program.output


async def test_the_orders_example_runs_again_on_the_database_of_an_earlier_run(
    variables: dict[str, str], db: AsyncDatabase[dict[str, Any]]
) -> None:
    await db["orders"].insert_one({"_id": "of somebody else", "status": "open", "total": 1})
    for run in (1, 2):
        async with Program("examples.orders_invoices", **variables) as program:
            assert await program.end() == 0, program.output
        counts = f"{17 * run} invoices for {16 * run} paid orders and their corrections\n"
        assert program.lines[-1] == counts

    assert await db["orders"].count_documents({"status": "open"}) == 1


async def test_the_orders_example_notices_an_invoice_that_is_missing_or_doubled(
    variables: dict[str, str], db: AsyncDatabase[dict[str, Any]]
) -> None:
    # An order whose task counts as done for the very state it is in.
    paid = {"status": "paid", "total": 990}
    await db["orders"].insert_one({"_id": 99, **paid})
    done = {"status": "completed", "lastObservedValues": paid}
    await db["orders_tasks"].insert_one({"task": "invoice", "sourceDocId": 99, **done})
    # The orders of the run are numbered from 100 on.
    await db["invoices"].insert_one({"order": 102, "total": 1020})

    async with Program("examples.orders_invoices", **variables) as program:
        assert await program.end() == 1, program.output

    assert "missing: the invoice for order 99 over 990\n" in program.lines
    assert "doubled: the invoice for order 102 over 1020\n" in program.lines


async def test_the_fastapi_shop_stores_and_runs_jobs_in_one_process(
    variables: dict[str, str], db: AsyncDatabase[dict[str, Any]]
) -> None:
    async with Program("examples.fastapi_shop", **variables) as shop:
        url = await shop.hear(_SERVED_AT)
        async with httpx.AsyncClient(base_url=url) as http:
            health = await http.get("/health")
            welcome = await http.post("/customers/ada@shop.example")
            order = await http.post("/customers/ada@shop.example/orders", params={"cents": 1250})
            nonsense = await http.post("/customers/ada@shop.example/orders", params={"cents": "a"})

        assert (health.status_code, health.json()) == (200, {"healthy": True})
        assert (welcome.status_code, order.status_code, nonsense.status_code) == (202, 202, 422)
        mailed = await _ended(db, "send-email")
        charged = await _ended(db, "billing.charge")
        assert (str(mailed.id), str(charged.id)) == (welcome.json(), order.json())
        assert mailed.unique_key == "ada@shop.example"
        await shop.hear("To ada@shop.example: welcome\n")
        shop.terminate()
        # uvicorn ends in order and then lets the signal have its way.
        assert await shop.end() in {0, -signal.SIGTERM}

    assert "Application shutdown complete" in shop.output
    assert "Traceback" not in shop.output
    booked = await db["ledger"].find_one({"_id": charged.id})
    assert booked == {"_id": charged.id, "customer": "ada@shop.example", "cents": 1250}


async def test_the_fastapi_shop_closes_the_month_on_schedule(
    variables: dict[str, str], db: AsyncDatabase[dict[str, Any]]
) -> None:
    await db["ledger"].insert_one({"_id": 1, "cents": 5})
    async with Program("examples.fastapi_shop", **variables) as shop:
        await shop.hear(_SERVED_AT)
        (schedule,) = await stored_jobs(db, name="billing.close-month")
        await Monque(db).enqueue("billing.close-month", None)
        await _ended(db, "billing.close-month")
        shop.terminate()
        await shop.end()

    assert (schedule.repeat_interval, schedule.timezone) == ("0 0 1 * *", "Europe/Berlin")
    assert await db["ledger"].count_documents({"closed": {"$ne": None}}) == 1


async def test_flask_stores_jobs_from_plain_views_and_a_worker_process_runs_them(
    variables: dict[str, str], db: AsyncDatabase[dict[str, Any]]
) -> None:
    async with Program("examples.flask_mongoengine", **variables) as shop:
        url = await shop.hear(_SERVED_AT)
        async with httpx.AsyncClient(base_url=url) as http:
            health = await http.get("/health")
            answer = await http.post("/customers/ada@shop.example")
            assert answer.status_code == 202
            job = await _ended(db, "welcome")
            customer = await http.get("/customers/ada@shop.example")
        shop.terminate()
        assert await shop.end() == 0, shop.output

    assert str(job.id) == answer.json()["job"]
    assert customer.json() == {"address": "ada@shop.example", "welcomed": True}
    assert health.json() == {"healthy": True}
    assert "To ada@shop.example: welcome\n" in shop.lines
    assert "worker has ended\n" in shop.lines
    assert "Traceback" not in shop.output


@pytest.mark.skipif(sys.platform == "win32", reason="there are no process groups")
async def test_ctrl_c_lets_the_worker_beside_flask_finish_its_job(
    variables: dict[str, str], db: AsyncDatabase[dict[str, Any]]
) -> None:
    async with _InTerminal("examples.flask_mongoengine", **variables) as shop:
        url = await shop.hear(_SERVED_AT)

        async def is_down() -> bool:
            try:
                async with httpx.AsyncClient(base_url=url) as http:
                    await http.get("/health")
            except httpx.TransportError:
                return True
            return False

        # The job waits for a lock on its customer, so that it runs when Ctrl-C comes.
        async with db.client.start_session() as session, await session.start_transaction():
            customer = {"_id": "eve@shop.example", "welcomed": False}
            await db["customer"].insert_one(customer)
            await db["customer"].update_one(customer, {"$set": {"name": "Eve"}}, session=session)
            await Monque(db).enqueue("welcome", "eve@shop.example")
            await shop.hear("To eve@shop.example: welcome\n")
            shop.interrupt()
            await eventually(is_down)
            await session.commit_transaction()
        assert await shop.end() == 0, shop.output

    assert "worker has ended\n" in shop.lines
    assert (await _ended(db, "welcome")).fail_count == 0
    assert "Traceback" not in shop.output


async def test_flask_ends_at_once_with_the_mongodb_it_brought_along() -> None:
    async with Program("examples.flask_mongoengine", PORT="0") as shop:
        await shop.hear(_SERVED_AT)
        # Connected, and so with something to say goodbye to.
        shop.terminate()
        # Less than the driver looks for a server that is gone.
        assert await asyncio.wait_for(shop.end(), 120) == 0, shop.output


async def test_the_worker_process_of_flask_runs_alone_and_ends_in_order(
    variables: dict[str, str], db: AsyncDatabase[dict[str, Any]]
) -> None:
    await db["customer"].insert_one({"_id": "bob@shop.example", "welcomed": False})
    await Monque(db).enqueue("welcome", "bob@shop.example")
    async with Program("examples.flask_mongoengine.worker", **variables) as worker:
        await worker.hear("To bob@shop.example: welcome\n")
        worker.terminate()
        assert await worker.end() == 0, worker.output

    assert worker.lines == ["To bob@shop.example: welcome\n", "worker has ended\n"]
    assert (await _ended(db, "welcome")).claimed_by is None
    assert await db["customer"].find_one() == {"_id": "bob@shop.example", "welcomed": True}


@pytest.mark.parametrize(
    "path", sorted((ROOT / "examples").rglob("*.py")), ids=lambda path: path.parent.name
)
def test_an_example_is_small(path: Any) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < 120


@pytest.mark.parametrize(
    "main", sorted((ROOT / "examples").glob("*/__main__.py")), ids=lambda path: path.parent.name
)
def test_an_example_says_how_it_is_run(main: Any) -> None:
    first_line = main.read_text(encoding="utf-8").splitlines()[0]
    readme = (ROOT / "examples/README.md").read_text(encoding="utf-8")

    assert f"`make example NAME={main.parent.name}`" in first_line
    assert f"| `make example NAME={main.parent.name}` |" in readme
