"""An application that closes its client before it stops its instance."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from pymongo import AsyncMongoClient, MongoClient
from pymongo.errors import InvalidOperation

from monque_core import Job, Monque, MonqueConnectionError, ShutdownTimeoutError
from tests.support.happenings import Happenings
from tests.support.stored import stored_jobs

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase


@pytest.mark.parametrize("kind", ["async", "blocking"])
async def test_a_client_closed_too_early_is_reported_once_and_stop_returns(
    db: AsyncDatabase[dict[str, Any]], uri: str, kind: str
) -> None:
    client: Any = (AsyncMongoClient if kind == "async" else MongoClient)(uri)
    monque = Monque(client[db.name], heartbeat_interval=0.2, poll_interval=0.1)
    happenings = Happenings(monque)
    may_end = asyncio.Event()

    @monque.worker("waits")
    async def wait(job: Job[None]) -> None:
        await may_end.wait()

    await monque.start()
    await monque.enqueue("waits", None)
    await happenings.reach("job:start")
    await (client.close() if kind == "async" else asyncio.to_thread(client.close))
    # A reply that arrived while the client was closing ends an outage that was reported already.
    while_closing = len(happenings.of("job:error"))
    await happenings.reach("job:error")
    may_end.set()
    with pytest.raises(MonqueConnectionError, match="after close") as caught:
        await monque.enqueue("waits", None)
    assert isinstance(caught.value.__cause__, InvalidOperation)
    assert not monque.is_healthy
    await monque.stop(timeout=1)

    # Once for the outage, however many loops hit it, and once for the unsettled job.
    *outages, unfinished = (event.error for event in happenings.of("job:error"))
    assert 1 <= len(outages) <= while_closing + 1
    assert all(isinstance(outage, MonqueConnectionError) for outage in outages)
    assert isinstance(unfinished, ShutdownTimeoutError)
    # Recovery hands it to the next instance.
    (job,) = await stored_jobs(db)
    assert job.status == "processing"
