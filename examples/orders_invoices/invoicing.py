"""The one thing this application does: an invoice for every state in which an order is paid."""

from typing import Any

from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase

from monque_core import Fixed, Monque, ReactiveOptions, ReactiveTask


class PrinterJamError(Exception):
    pass


def make_monque(db: AsyncDatabase[dict[str, Any]], instance_id: str) -> Monque:
    """Make an instance that writes invoices; any number of them may run."""
    monque = Monque(
        db,
        scheduler_instance_id=instance_id,
        reactive_options=ReactiveOptions(leader_lease=3),
    )

    @monque.reactive(
        "orders",
        name="invoice",
        watch=["status", "total"],
        filter={"status": "paid"},
        debounce=0.2,
        retry=Fixed(0.2, max_attempts=5),
    )
    async def invoice(task: ReactiveTask) -> None:
        if task.source_id % 5 == 0 and task.attempts == 1:
            raise PrinterJamError(f"the invoice of order {task.source_id} is stuck")

        async def write(session: AsyncClientSession) -> None:
            # Ends the run if the order is no longer paid.
            await task.document(session=session, projection={"_id": 1})
            line = {"order": task.source_id, "total": task.values["total"], "by": instance_id}
            await db["invoices"].insert_one(line, session=session)
            await task.complete(session=session)

        async with db.client.start_session() as session:
            await session.with_transaction(write)

    return monque
