"""What is logged of a failure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from dependency_injector import providers

from monque_core.testing import MovableClock
from monque_di import MonqueContainer, cron, job, lifespan
from tests.support.polling import QUICK_POLLS
from tests.support.waiting import eventually

if TYPE_CHECKING:
    import pytest
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Job


async def test_the_last_failure_of_a_schedule_says_when_it_runs_again(
    db: AsyncDatabase[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    clock = MovableClock(datetime(2030, 1, 1, 8, 59, tzinfo=UTC))

    @job(name="report")
    @cron("0 9 * * *")
    class Report:
        def handle(self, job: Job[None]) -> None:
            raise ValueError("no figures")

    options = {"clock": clock, "max_retries": 1, **QUICK_POLLS}
    container = MonqueContainer(
        connection=providers.Object(db), options=providers.Object(options), jobs=[Report]
    )
    async with lifespan(container):
        clock.advance(timedelta(minutes=1))
        await eventually(lambda: caplog.records)

    message = caplog.records[0].getMessage()
    assert "its last attempt" in message
    assert "runs again at 2030-01-02 09:00:00+00:00" in message
