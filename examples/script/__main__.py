"""Jobs as classes in a plain script: `make example NAME=script`.

It stores two jobs and a schedule, runs what is due, and ends.
"""

import asyncio

from dependency_injector import containers, providers

from examples.mongodb import connect, mongodb_uri
from examples.script.jobs import DailyReport, Mailer, SendEmail
from monque_di import MonqueContainer, MonqueService, lifespan


class App(containers.DeclarativeContainer):
    config = providers.Configuration(default={"sender": "shop@shop.example"})
    uri = providers.Resource(mongodb_uri)
    db = providers.Resource(connect, uri)
    mailer = providers.Singleton(Mailer, sender=config.sender)
    monque = providers.Container(
        MonqueContainer,
        connection=db,
        packages=["examples.script.jobs"],
    )


async def main() -> None:
    app = App()
    queue: MonqueService = app.monque.service()
    async with lifespan(app):
        await SendEmail.enqueue(queue, {"to": "ada@shop.example", "text": "welcome"})
        await DailyReport.enqueue(queue, "stock")
        await queue.run_until_idle()


if __name__ == "__main__":
    asyncio.run(main())
