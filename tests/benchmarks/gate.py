"""A barrier at which several processes start simultaneously."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    Db = AsyncDatabase[dict[str, Any]]

READY = b"ready\n"
_COLLECTION = "gate"
_LOOK_GAP = 0.05
_NOTICE = 0.1


async def close(db: Db) -> None:
    """Close the barrier; processes that arrive wait."""
    await db[_COLLECTION].drop()


async def open_soon(db: Db) -> float:
    """Open the barrier shortly from now; return the wall time at which all start."""
    begins_at = time.time() + _NOTICE
    await db[_COLLECTION].insert_one({"begins_at": begins_at})
    return begins_at


async def pass_through(db: Db) -> None:
    """Report that this process is ready, and wait for the start time."""
    print(READY.decode(), end="", flush=True)
    while (said := await db[_COLLECTION].find_one()) is None:
        await asyncio.sleep(_LOOK_GAP)
    await asyncio.sleep(said["begins_at"] - time.time())
