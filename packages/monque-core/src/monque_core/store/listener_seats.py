"""Which instances listen for new jobs: two of each pool, whatever its size.

A pool is the instances whose workers have the same names. A seat is a field of the lease that
each instance holds and renews anyway: a seat ends with the lease and costs nothing to keep.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pymongo.errors import DuplicateKeyError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from monque_core.store.driver import Collection, Document

SEATS: Final = 2


@dataclass(frozen=True, slots=True)
class Listening:
    """An instance that has a seat."""

    instance_id: str
    seat: int
    is_expired: bool = False


def pool_of(names: Iterable[str]) -> str:
    """Return the pool of the instances with workers of these names."""
    text = "\n".join(sorted(names))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class ListenerSeats:
    """The seats, as this instance reads and takes them."""

    def __init__(self, meta: Collection, instance_id: str, holder: str) -> None:
        self._meta = meta
        self._id = instance_id
        self._mine = {"_id": _key(instance_id), "holder": holder}

    async def join(self, pool: str) -> None:
        """Enter a pool, without a seat."""
        await self._meta.update_one(self._mine, {"$set": {"pool": pool}, "$unset": {"seat": ""}})

    async def listeners(self, pool: str) -> list[Listening]:
        """Return who has a seat in the pool, and is alive as far as its lease shows."""
        return [one for one in await self._seated(pool) if not one.is_expired]

    async def take(self, pool: str, *, over: str | None = None) -> list[Listening]:
        """Take a free seat, or that of another instance; return who listens then.

        The caller is among them if it has a seat now.
        """
        seated = await self._seated(pool)
        if any(one.instance_id == self._id for one in seated):
            return seated
        lost = [one for one in seated if one.is_expired or one.instance_id == over]
        for one in lost:
            await self.evict(one)
        kept = [one for one in seated if one not in lost]
        for seat in set(range(SEATS)) - {one.seat for one in kept}:
            try:
                is_ours = await self._meta.update_one(
                    self._mine, {"$set": {"pool": pool, "seat": seat}}
                )
            except DuplicateKeyError:
                continue
            if is_ours:
                return [*kept, Listening(self._id, seat)]
        return kept

    async def leave(self) -> None:
        """Give up the seat."""
        await self._meta.update_one(self._mine, {"$unset": {"seat": ""}})

    async def evict(self, other: Listening) -> None:
        """Take the seat of another instance away from it."""
        await self._meta.update_one(
            {"_id": _key(other.instance_id), "seat": other.seat}, {"$unset": {"seat": ""}}
        )

    async def standby(self, pool: str, count: int) -> list[str]:
        """Return some instances of the pool without a seat, chosen at random."""
        others: Document = {
            "pool": pool,
            "seat": None,
            "_id": {"$ne": self._mine["_id"]},
            "$expr": {"$gt": ["$expiresAt", "$$NOW"]},
        }
        documents = await self._meta.aggregate(
            [{"$match": others}, {"$sample": {"size": count}}, {"$project": {"_id": 1}}]
        )
        return [_instance(document["_id"]) for document in documents]

    async def _seated(self, pool: str) -> list[Listening]:
        documents = await self._meta.aggregate(
            [
                {"$match": {"pool": pool, "seat": {"$gte": 0}}},
                {"$project": {"seat": 1, "isExpired": {"$lte": ["$expiresAt", "$$NOW"]}}},
            ]
        )
        return [
            Listening(_instance(document["_id"]), int(document["seat"]), document["isExpired"])
            for document in documents
        ]


def _key(instance_id: str) -> str:
    return f"instance:{instance_id}"


def _instance(key: str) -> str:
    return key.partition(":")[2]
