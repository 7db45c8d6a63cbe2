"""The container and the endpoints of the shop."""

from typing import Annotated

from dependency_injector import containers, providers
from fastapi import Depends, FastAPI, Response, status

from examples.fastapi_shop.jobs import Billing, Mailer, SendEmail, transaction
from examples.mongodb import connect, mongodb_uri
from monque_di import MonqueContainer, MonqueService, RunScoped, lifespan


class Shop(containers.DeclarativeContainer):
    uri = providers.Resource(mongodb_uri)
    db = providers.Resource(connect, uri)
    session = RunScoped(transaction, db)
    mailer = providers.Singleton(Mailer)
    monque = providers.Container(
        MonqueContainer,
        connection=db,
        options={"shutdown_timeout": 10},
        jobs=[SendEmail, Billing],
    )


shop = Shop()
app = FastAPI(title="Shop", lifespan=lambda _: lifespan(shop))


def queue() -> MonqueService:
    service: MonqueService = shop.monque.service()
    return service


Queue = Annotated[MonqueService, Depends(queue)]


@app.post("/customers/{address}", status_code=status.HTTP_202_ACCEPTED)
async def sign_up(address: str, queue: Queue) -> str:
    """Welcome a customer; repeated calls enqueue only one mail."""
    job = await SendEmail.enqueue(queue, {"to": address, "text": "welcome"}, unique_key=address)
    return str(job.id)


@app.post("/customers/{address}/orders", status_code=status.HTTP_202_ACCEPTED)
async def order(address: str, cents: int, queue: Queue) -> str:
    """Take an order, and charge it in a job."""
    job = await Billing.charge.enqueue(queue, {"customer": address, "cents": cents})
    return str(job.id)


@app.get("/health")
async def health(queue: Queue, response: Response) -> dict[str, bool]:
    """Report to a load balancer whether jobs run in this process."""
    if not queue.is_healthy:
        response.status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    return {"healthy": queue.is_healthy}
