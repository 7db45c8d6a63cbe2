"""Background tasks and how they are ended."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from monque_core import MonqueConnectionError
from monque_core.scheduler.loop import wait_until


async def fail_when_cancelled() -> None:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        raise MonqueConnectionError("MongoDB cannot be reached") from None


async def test_a_task_that_fails_while_it_is_cancelled_leaves_no_unretrieved_exception() -> None:
    loop = asyncio.get_running_loop()
    complaints: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    assert not await wait_until(loop.time(), fail_when_cancelled())
    gc.collect()
    assert complaints == []


async def test_a_failure_before_the_end_is_raised() -> None:
    async def fail() -> None:
        raise MonqueConnectionError("MongoDB cannot be reached")

    with pytest.raises(MonqueConnectionError):
        await wait_until(asyncio.get_running_loop().time() + 60, fail())
