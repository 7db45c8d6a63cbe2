"""Leases: what only one holder may do at a time, timed by the server's own clock."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from monque_core.durations import to_milliseconds

if TYPE_CHECKING:
    from datetime import datetime

    from monque_core.store.handle import Collection, Document


@dataclass(frozen=True, slots=True)
class ServerTime:
    """What the server's clock showed between two readings of `time.monotonic_ns()`."""

    instant: datetime
    asked_ns: int
    answered_ns: int


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease as stored."""

    holder: str
    expires_at: datetime
    is_expired: bool


class Leases:
    """The leases in the meta collection."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection

    async def take(self, key: str, holder: str, duration: timedelta) -> ServerTime | None:
        """Take a free or expired lease, or renew one's own; None if someone else holds it."""
        milliseconds = to_milliseconds(duration)
        expiry = {"$dateAdd": {"startDate": "$$NOW", "unit": "millisecond", "amount": milliseconds}}
        asked_ns = time.monotonic_ns()
        document = await self._collection.find_one_and_update(
            {"_id": key},
            [
                {"$set": {"isMine": _is_free_for(holder)}},
                {
                    "$set": {
                        "holder": {"$cond": ["$isMine", {"$literal": holder}, "$holder"]},
                        "expiresAt": {"$cond": ["$isMine", expiry, "$expiresAt"]},
                    }
                },
                {"$unset": "isMine"},
            ],
            upsert=True,
        )
        answered_ns = time.monotonic_ns()
        assert document is not None
        if document["holder"] != holder:
            return None
        server_now = document["expiresAt"] - timedelta(milliseconds=milliseconds)
        return ServerTime(server_now, asked_ns, answered_ns)

    async def read(self, key: str) -> Lease | None:
        """See who holds a lease."""
        documents = await self._collection.aggregate(
            [
                {"$match": {"_id": key}},
                {"$set": {"isExpired": {"$lte": ["$expiresAt", "$$NOW"]}}},
            ]
        )
        if not documents:
            return None
        (document,) = documents
        return Lease(document["holder"], document["expiresAt"], document["isExpired"])

    async def give_back(self, key: str, holder: str) -> None:
        """Let go of a lease, if it is still one's own."""
        await self._collection.delete_one({"_id": key, "holder": holder})


def _is_free_for(holder: str) -> Document:
    """Compute whether a lease is one's own, expired or not there yet."""
    return {
        "$or": [
            {"$eq": ["$holder", {"$literal": holder}]},
            {"$lte": [{"$ifNull": ["$expiresAt", "$$NOW"]}, "$$NOW"]},
        ]
    }
