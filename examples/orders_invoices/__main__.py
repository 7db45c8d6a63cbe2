"""Orders become paid, invoices follow: `make example NAME=orders_invoices`.

Two instances share the work, the one that plans goes away in the middle, and every fifth invoice
fails at first. In the end every paid order has its invoice, and none has it twice.
"""

import asyncio
import sys
from collections import Counter
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from examples.mongodb import connect, mongodb_uri
from examples.orders_invoices.invoicing import make_monque
from monque_core import Monque
from monque_core.events import LeaderChanged, TaskCompleted, TaskFailed

ORDERS = 20


def tell(monque: Monque) -> None:
    """Print what an instance does."""
    name = monque.scheduler_instance_id

    @monque.on("leader:acquired")
    def leads(_: LeaderChanged) -> None:
        print(f"{name} plans from now on", flush=True)

    @monque.on("task:complete")
    def completed(event: TaskCompleted) -> None:
        print(f"{name}: invoice for order {event.task.source_id}", flush=True)

    @monque.on("task:fail")
    def failed(event: TaskFailed) -> None:
        print(f"{name}: {event.task.last_error}, and is tried again", flush=True)


async def sell(db: AsyncDatabase[dict[str, Any]]) -> None:
    """Write orders, as any program would; nobody here knows of invoices."""
    orders = db["orders"]
    await orders.insert_many(
        {"_id": number, "status": "open", "total": 10 * number} for number in range(1, ORDERS + 1)
    )
    await orders.update_many({"_id": {"$mod": [4, 0]}}, {"$set": {"status": "cancelled"}})
    await orders.update_many({"status": "open"}, {"$set": {"status": "paid"}})


async def correct(db: AsyncDatabase[dict[str, Any]]) -> None:
    """Change what needs a new invoice, and what does not."""
    await db["orders"].update_one({"_id": 1}, {"$set": {"total": 11}})
    await db["orders"].update_one({"_id": 2}, {"$set": {"note": "leave it with the neighbour"}})
    await db["orders"].insert_one({"_id": ORDERS + 1, "status": "paid", "total": 5})


async def wait_until_invoiced(monque: Monque, orders: int) -> None:
    """Wait until the task has completed for so many orders."""
    async with asyncio.timeout(60):
        while True:
            tasks = (await monque.get_reactive_stats()).tasks
            if any(task.completed == task.total == orders for task in tasks):
                return
            await asyncio.sleep(0.1)


async def check(db: AsyncDatabase[dict[str, Any]]) -> int:
    """Compare the invoices with the orders; give the exit code."""
    expected = Counter({(1, 10): 1})  # before its total was corrected
    async for order in db["orders"].find({"status": "paid"}):
        expected[order["_id"], order["total"]] += 1
    written = Counter(
        [(line["order"], line["total"]) async for line in db["invoices"].find()],
    )
    for problem, lines in (("missing", expected - written), ("doubled", written - expected)):
        for order_id, total in lines:
            print(f"{problem}: the invoice for order {order_id} over {total}", flush=True)
    print(f"{written.total()} invoices for {len(expected) - 1} paid orders", flush=True)
    return int(written != expected)


async def main() -> int:
    with contextmanager(mongodb_uri)() as uri:
        async with asynccontextmanager(connect)(uri) as db:
            first, second = make_monque(db, "first"), make_monque(db, "second")
            tell(first)
            tell(second)
            leads = asyncio.Event()
            first.once("leader:acquired", lambda _: leads.set())
            await first.start()
            await leads.wait()
            await second.start()
            await sell(db)
            paid = await db["orders"].count_documents({"status": "paid"})
            await wait_until_invoiced(second, paid)

            await first.stop()
            await correct(db)
            await wait_until_invoiced(second, paid + 1)
            await second.stop()
            return await check(db)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
