"""Mistakes that type checkers find in an application, each silenced where it is found.

Both checkers complain of a silence that was not needed, so that none can go unnoticed.
"""
# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from typing import TYPE_CHECKING

from examples.fastapi_shop.jobs import Billing, Mailer, SendEmail
from examples.script.jobs import DailyReport
from monque_core import EnqueueOptions
from monque_di import MonqueService, cron, job, job_controller

if TYPE_CHECKING:
    from monque_core import Job


async def right(queue: MonqueService) -> None:
    await SendEmail.enqueue(queue, {"to": "ada", "text": "hello"}, unique_key="ada", delay=3)
    await SendEmail.enqueue(queue.monque, {"to": "ada", "text": "hello"})
    await DailyReport.enqueue(queue, "sales", priority=2)
    await Billing.charge.enqueue(queue, {"customer": "ada", "cents": 1}, max_retries=3)
    await Billing.close_month.enqueue(queue, None)
    await queue.enqueue("send-email", {"to": "ada"}, unique_key="ada")
    job: Job[int] = await queue.enqueue("count", 1)
    jobs: list[Job[int]] = await queue.enqueue_many("count", [1, 2], unique_key=str)
    assert job.data + jobs[0].data == 2
    options: EnqueueOptions = {"delay": 1.5, "priority": 3}
    await DailyReport.enqueue(queue, "sales", **options)


async def wrong_data(queue: MonqueService) -> None:
    await SendEmail.enqueue(queue, {"too": 1})  # type: ignore[typeddict-item]
    await SendEmail.enqueue(queue, {"to": "ada"})  # type: ignore[typeddict-item]
    await SendEmail.enqueue(queue, "ada")  # type: ignore[arg-type]
    await DailyReport.enqueue(queue, 7)  # type: ignore[arg-type]
    await Billing.charge.enqueue(queue, {"customer": "ada"})  # type: ignore[typeddict-item]
    await Billing.charge.enqueue(queue, None)  # type: ignore[arg-type]
    await Billing.close_month.enqueue(queue, "march")  # type: ignore[arg-type]


async def wrong_options(queue: MonqueService) -> None:
    await queue.enqueue("x", 1, unique_kez="a")  # type: ignore[call-arg]
    await queue.enqueue("x", 1, priority="high")  # type: ignore[arg-type]
    await queue.enqueue_many("x", 7)  # type: ignore[arg-type]
    await queue.schedule("@daily")  # type: ignore[call-arg]
    await queue.unschedule(7)  # type: ignore[arg-type]
    await DailyReport.enqueue(queue, "sales", unique_kez="a")  # type: ignore[call-arg]
    await DailyReport.enqueue(queue, "sales", priority="high")  # type: ignore[arg-type]
    await Billing.close_month.enqueue(queue, None, dalay=3)  # type: ignore[call-arg]
    EnqueueOptions(dealy=3)  # type: ignore[typeddict-unknown-key]


async def wrong_queue(queue: MonqueService) -> None:
    await DailyReport.enqueue("queue", "sales")  # type: ignore[arg-type]
    await DailyReport.enqueue("sales")  # type: ignore[arg-type, call-arg]
    await queue.enque("x", 1)  # type: ignore[attr-defined]


async def wrong_result(queue: MonqueService) -> None:
    report: Job[int] = await DailyReport.enqueue(queue, "sales")  # type: ignore[assignment]
    order = await Billing.charge.enqueue(queue, {"customer": "ada", "cents": 1})
    assert report.data + order.data["cent"] == 2  # type: ignore[typeddict-item]


async def wrong_services() -> None:
    SendEmail("mailer")  # type: ignore[arg-type]
    await SendEmail(Mailer()).handle("job")  # type: ignore[arg-type]


@job(naem="x")  # type: ignore[call-arg]
class WrongName: ...


@job(name="x", scope="session")  # type: ignore[arg-type]
class WrongScope: ...


@cron("@daily", timezone=3)  # type: ignore[arg-type]
class WrongTimezone: ...


@job_controller(7)  # type: ignore[arg-type]
class WrongNamespace:
    @job(name="two")  # type: ignore[arg-type]
    async def two(self, job: Job[int], more: int) -> None: ...
