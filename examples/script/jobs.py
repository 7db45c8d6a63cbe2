"""The jobs of a shop, and the service they need."""

from typing import TypedDict

from monque_core import Job
from monque_di import JobHandler, cron, job


class Email(TypedDict):
    to: str
    text: str


class Mailer:
    def __init__(self, sender: str) -> None:
        self.sender = sender

    async def send(self, to: str, text: str) -> None:
        print(f"From {self.sender} to {to}: {text}", flush=True)


@job("send-email", concurrency=10)
class SendEmail(JobHandler[Email]):
    def __init__(self, mailer: Mailer) -> None:
        self.mailer = mailer

    async def handle(self, job: Job[Email]) -> None:
        await self.mailer.send(**job.data)


@job("daily-report")
@cron("0 9 * * *", timezone="Europe/Berlin", data="sales")
class DailyReport(JobHandler[str]):
    """Reports to the owner every morning, and whenever asked."""

    def __init__(self, mailer: Mailer) -> None:
        self.mailer = mailer

    async def handle(self, job: Job[str]) -> None:
        await self.mailer.send("owner@shop.example", f"the {job.data} report")
