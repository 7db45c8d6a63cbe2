"""Leases in the meta collection, timed by the server's clock: one holder at a time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from monque_core.clock import ServerTime
from monque_core.durations import to_milliseconds

if TYPE_CHECKING:
    from datetime import datetime

    from monque_core.store.driver import Collection, Document


@dataclass(frozen=True, slots=True)
class Grant(ServerTime):
    """A lease that was taken or renewed, with the server's time at that moment."""

    term: int
    """The fencing token: it grows with every change of the holder."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease as stored."""

    holder: str | None
    """None after `lay_down`."""
    expires_at: datetime
    is_expired: bool
    term: int


class Leases:
    """The leases in the meta collection."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection

    async def take(
        self, key: str, holder: str, duration: timedelta, *, new_term: bool = False
    ) -> Grant | None:
        """Take a free or expired lease, or renew an own one; return None if another holds it.

        A renewed lease keeps its term, unless `new_term` is set.
        """
        milliseconds = to_milliseconds(duration)
        expiry = {"$dateAdd": {"startDate": "$$NOW", "unit": "millisecond", "amount": milliseconds}}
        mine = {"$literal": holder}
        is_new_term = {"$or": [new_term, {"$ne": ["$holder", mine]}]}
        asked_ns = time.monotonic_ns()
        document = await self._collection.find_one_and_update(
            {"_id": key},
            [
                {"$set": {"isMine": _is_free_for(holder)}},
                {
                    "$set": {
                        "holder": {"$cond": ["$isMine", mine, "$holder"]},
                        "expiresAt": {"$cond": ["$isMine", expiry, "$expiresAt"]},
                        "term": {
                            "$cond": [{"$and": ["$isMine", is_new_term]}, _next_term(), "$term"]
                        },
                    }
                },
                {"$unset": "isMine"},
            ],
            upsert=True,
        )
        answered_ns = time.monotonic_ns()
        assert document is not None
        if document.get("holder") != holder:
            return None
        server_now = document["expiresAt"] - timedelta(milliseconds=milliseconds)
        return Grant(server_now, asked_ns, answered_ns, _term(document))

    async def read(self, key: str) -> Lease | None:
        """Return a lease, None if there is none."""
        documents = await self._collection.aggregate(
            [
                {"$match": {"_id": key}},
                {"$set": {"isExpired": {"$lte": ["$expiresAt", "$$NOW"]}}},
            ]
        )
        if not documents:
            return None
        (document,) = documents
        holder, expires_at = document.get("holder"), document["expiresAt"]
        return Lease(holder, expires_at, document["isExpired"], _term(document))

    async def give_back(self, key: str, holder: str) -> None:
        """Delete a lease if this holder still has it."""
        await self._collection.delete_one({"_id": key, "holder": holder})

    async def lay_down(self, key: str, holder: str) -> None:
        """Release a lease if this holder still has it, but keep its term for the next holder."""
        await self._collection.update_one(
            {"_id": key, "holder": holder},
            [{"$set": {"expiresAt": "$$NOW"}}, {"$unset": "holder"}],
        )


def _is_free_for(holder: str) -> Document:
    """Compute whether a lease is free for a holder: its own, expired or not there yet."""
    return {
        "$or": [
            {"$eq": ["$holder", {"$literal": holder}]},
            {"$lte": [{"$ifNull": ["$expiresAt", "$$NOW"]}, "$$NOW"]},
        ]
    }


def _next_term() -> Document:
    """Compute a term above all earlier ones, even if the server has deleted the lease."""
    is_numbered = {"$isNumber": "$term"}
    following = {"$cond": [is_numbered, {"$add": [{"$toLong": "$term"}, 1]}, 0]}
    return {"$max": [{"$toLong": "$$NOW"}, following]}


def _term(document: Document) -> int:
    """Return the term of a lease; leases of former versions have none."""
    return int(document.get("term") or 0)


def lease_key(instance_id: str) -> str:
    """Return the key of an instance's own lease."""
    return f"instance:{instance_id}"
