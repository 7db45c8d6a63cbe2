"""Logging of arbitrary texts and exceptions."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from monque_core import Monque
from monque_core.log import log
from tests.support.stored import count_by_status
from tests.support.waiting import eventually

if TYPE_CHECKING:
    import pytest
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Job


def test_a_message_is_one_line_without_control_characters(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log(logging.WARNING, "one\n\x1b[2Jtwo")

    (record,) = caplog.records
    assert (record.name, record.getMessage()) == ("monque", r"one\n\x1b[2Jtwo")
    assert record.exc_info is None


async def test_what_a_handler_raises_cannot_forge_a_line_of_the_log(
    db: AsyncDatabase[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    monque = Monque(db, max_retries=1)

    @monque.worker("bad")
    async def fail(job: Job[None]) -> None:
        raise ValueError("no\nERROR forged \x1b[2J")

    await monque.enqueue("bad", None)
    async with monque:
        await eventually(lambda: any("given up" in each for each in caplog.messages))

    (message,) = [each for each in caplog.messages if "given up" in each]
    assert message.endswith(r"is given up: ValueError: no\nERROR forged \x1b[2J")
    assert await count_by_status(db) == {"failed": 1}
