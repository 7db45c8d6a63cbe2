"""A barrier at which several processes start simultaneously."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    Db = AsyncDatabase[dict[str, Any]]

READY = b"ready\n"
_COLLECTION = "start_barrier"
_POLL_SECONDS = 0.05
_NOTICE_SECONDS = 0.1


async def reset(db: Db) -> None:
    """Make the processes that arrive at the barrier wait."""
    await db[_COLLECTION].drop()


async def release(db: Db) -> float:
    """Release all waiting processes in a moment; return the wall time of their start."""
    begins_at = time.time() + _NOTICE_SECONDS
    await db[_COLLECTION].insert_one({"begins_at": begins_at})
    return begins_at


async def wait(db: Db) -> None:
    """Report that this process is ready, and wait for the start time."""
    print(READY.decode(), end="", flush=True)
    while (release := await db[_COLLECTION].find_one()) is None:
        await asyncio.sleep(_POLL_SECONDS)
    await asyncio.sleep(release["begins_at"] - time.time())
