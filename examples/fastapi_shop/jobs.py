"""The jobs of the shop and their dependencies."""

from collections.abc import AsyncIterator
from typing import Any, TypedDict

from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase

from monque_core import Job
from monque_di import JobHandler, cron, job, job_controller

Database = AsyncDatabase[dict[str, Any]]


class Email(TypedDict):
    to: str
    text: str


class Order(TypedDict):
    customer: str
    cents: int


class Mailer:
    async def send(self, to: str, text: str) -> None:
        print(f"To {to}: {text}", flush=True)


async def transaction(db: Database) -> AsyncIterator[AsyncClientSession]:
    """Yield a session; its transaction is committed if the run succeeds, otherwise aborted."""
    async with db.client.start_session() as session, await session.start_transaction():
        yield session


@job("send-email", concurrency=10)
class SendEmail(JobHandler[Email]):
    def __init__(self, mailer: Mailer) -> None:
        self.mailer = mailer

    async def handle(self, job: Job[Email]) -> None:
        await self.mailer.send(**job.data)


@job_controller("billing")
class Billing:
    def __init__(self, db: Database, session: AsyncClientSession) -> None:
        self.ledger = db["ledger"]
        self.session = session

    @job("charge")
    async def charge(self, job: Job[Order]) -> None:
        """Book an order; repeated runs book it once."""
        await self.ledger.update_one(
            {"_id": job.id}, {"$setOnInsert": job.data}, upsert=True, session=self.session
        )

    @cron("0 0 1 * *", name="close-month", timezone="Europe/Berlin")
    async def close_month(self, job: Job[None]) -> None:
        """Close all open bookings."""
        await self.ledger.update_many(
            {"closed": None}, {"$set": {"closed": job.next_run_at}}, session=self.session
        )
