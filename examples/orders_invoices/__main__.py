"""Reactive tasks write an invoice for each paid order: `make example NAME=orders_invoices`.

Two instances share the work, the leader stops in the middle, and every fifth invoice fails at
first. At the end, every paid order has exactly one invoice.
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


def print_events(monque: Monque) -> None:
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


async def sell(db: AsyncDatabase[dict[str, Any]]) -> dict[str, Any]:
    """Write orders without regard to invoices; return a filter that matches them."""
    orders = db["orders"]
    # Continue the numbers of an earlier run on this database.
    numbered = orders.find({"_id": {"$type": "number"}}).sort("_id", -1).limit(1)
    first = max([order["_id"] async for order in numbered], default=0) + 1
    ours = {"_id": {"$gte": first}}
    await orders.insert_many(
        {"_id": number, "status": "open", "total": 10 * number}
        for number in range(first, first + ORDERS)
    )
    every_fourth = {"_id": {"$gte": first, "$mod": [4, 0]}}
    await orders.update_many(every_fourth, {"$set": {"status": "cancelled"}})
    await orders.update_many({**ours, "status": "open"}, {"$set": {"status": "paid"}})
    return ours


async def correct(db: AsyncDatabase[dict[str, Any]], ours: dict[str, Any]) -> None:
    """Change one order so that it needs a new invoice, and one so that it does not."""
    orders = db["orders"]
    paid = orders.find({**ours, "status": "paid"}).sort("_id", 1).limit(2)
    one, other = [order async for order in paid]
    again = {"$inc": {"total": 1}, "$push": {"invoicedBefore": one["total"]}}
    await orders.update_one({"_id": one["_id"]}, again)
    await orders.update_one({"_id": other["_id"]}, {"$set": {"note": "ring twice"}})
    await orders.insert_one({"_id": one["_id"] + ORDERS, "status": "paid", "total": 5})


async def wait_until_invoiced(monque: Monque, orders: int) -> None:
    """Wait until the task has completed for this number of orders."""
    async with asyncio.timeout(60):
        while True:
            tasks = (await monque.get_reactive_stats()).tasks
            if any(task.completed == task.total == orders for task in tasks):
                return
            await asyncio.sleep(0.1)


async def check(db: AsyncDatabase[dict[str, Any]]) -> int:
    """Compare the invoices with the orders; return the exit code."""
    orders = [order async for order in db["orders"].find({"status": "paid"})]
    expected = Counter(
        (order["_id"], total)
        for order in orders
        for total in (order["total"], *order.get("invoicedBefore", ()))
    )
    written = Counter(
        [(line["order"], line["total"]) async for line in db["invoices"].find()],
    )
    for problem, lines in (("missing", expected - written), ("doubled", written - expected)):
        for order_id, total in lines:
            print(f"{problem}: the invoice for order {order_id} over {total}", flush=True)
    print(f"{written.total()} invoices for {len(orders)} paid orders and their corrections")
    return int(written != expected)


async def main() -> int:
    with contextmanager(mongodb_uri)() as uri:
        async with asynccontextmanager(connect)(uri) as db:
            first, second = make_monque(db, "first"), make_monque(db, "second")
            print_events(first)
            print_events(second)
            leads = asyncio.Event()
            first.once("leader:acquired", lambda _: leads.set())
            await first.start()
            await leads.wait()
            await second.start()
            ours = await sell(db)
            paid = await db["orders"].count_documents({"status": "paid"})
            await wait_until_invoiced(second, paid)

            await first.stop()
            await correct(db, ours)
            await wait_until_invoiced(second, paid + 1)
            await second.stop()
            return await check(db)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
