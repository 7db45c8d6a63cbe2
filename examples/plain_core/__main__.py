"""The jobs of `examples/script` on the core alone, without DI: `make example NAME=plain_core`.

Names and data are the same, so that either program may run what the other has stored.
"""

import asyncio
from contextlib import asynccontextmanager, contextmanager
from typing import TypedDict

from examples.mongodb import connect, mongodb_uri
from monque_core import Job, Monque


class Email(TypedDict):
    to: str
    text: str


async def send(to: str, text: str) -> None:
    print(f"From shop@shop.example to {to}: {text}", flush=True)


async def main() -> None:
    with contextmanager(mongodb_uri)() as uri:
        async with asynccontextmanager(connect)(uri) as db:
            monque = Monque(db)

            @monque.worker("send-email", concurrency=10)
            async def send_email(job: Job[Email]) -> None:
                await send(**job.data)

            @monque.worker("daily-report")
            async def daily_report(job: Job[str]) -> None:
                await send("owner@shop.example", f"the {job.data} report")

            await monque.schedule(
                "0 9 * * *",
                "daily-report",
                "sales",
                timezone="Europe/Berlin",
                unique_key="daily-report",
            )
            await monque.enqueue("send-email", Email(to="ada@shop.example", text="welcome"))
            await monque.enqueue("daily-report", "stock")
            await monque.run_until_idle()


if __name__ == "__main__":
    asyncio.run(main())
