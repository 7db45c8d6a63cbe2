"""Which instances listen for new jobs: two of each pool, whatever its size.

A pool is the instances whose workers have the same names. A seat is a field of the lease that
each instance holds and renews anyway: a seat ends with the lease and costs nothing to keep.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pymongo.errors import DuplicateKeyError

from monque_core.store.leases import lease_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from monque_core.store.driver import Collection, Document

SEATS: Final = 2


@dataclass(frozen=True, slots=True)
class Listening:
    """An instance that has a seat."""

    instance_id: str
    seat: int
    since: datetime | None = None
    """Since when, by the server's clock; None if it was not read."""
    is_expired: bool = False


@dataclass(frozen=True, slots=True)
class Seating:
    """Who has a seat after this instance asked for one."""

    listening: Sequence[str]
    evicted: Sequence[str] = ()
    """Who lost a seat."""


def pool_of(names: Iterable[str]) -> str:
    """Return the pool of the instances with workers of these names."""
    text = "\n".join(sorted(names))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class ListenerSeats:
    """The seats, as this instance reads and takes them."""

    def __init__(self, meta: Collection, instance_id: str, holder: str) -> None:
        self._meta = meta
        self._id = instance_id
        self._mine = {"_id": lease_key(instance_id), "holder": holder}

    async def join(self, pool: str) -> None:
        """Enter a pool, without a seat."""
        await self._meta.update_one(self._mine, {"$set": {"pool": pool}, "$unset": {"seat": ""}})

    async def keep(self, pool: str) -> None:
        """Enter the pool again if the server has deleted the lease meanwhile."""
        await self._meta.update_one({**self._mine, "pool": None}, {"$set": {"pool": pool}})

    async def listeners(self, pool: str) -> list[Listening]:
        """Return who has a seat in the pool, and is alive as far as its lease shows."""
        return [one for one in await self._seated(pool) if not one.is_expired]

    async def take(
        self, pool: str, *, over: str | None = None, overdue: datetime | None = None
    ) -> Seating:
        """Take a free seat, or one of another instance; return who listens then.

        Expired listeners lose their seats, and so do the instance `over` and those that listened
        already when work became due which nobody has claimed since.
        """
        seated = await self._seated(pool)
        if any(one.instance_id == self._id for one in seated):
            return Seating([one.instance_id for one in seated])
        lost = [
            one
            for one in seated
            if one.is_expired
            or one.instance_id == over
            or (overdue is not None and one.since is not None and one.since < overdue)
        ]
        for one in lost:
            await self.evict(one)
        evicted = [one.instance_id for one in lost]
        kept = [one for one in seated if one not in lost]
        listening = [one.instance_id for one in kept]
        for seat in set(range(SEATS)) - {one.seat for one in kept}:
            step = {"$set": {"pool": pool, "seat": seat}, "$currentDate": {"seatedAt": True}}
            try:
                is_ours = await self._meta.update_one(self._mine, step)
            except DuplicateKeyError:
                continue
            if is_ours:
                return Seating([*listening, self._id], evicted)
        return Seating(listening, evicted)

    async def leave(self, *, for_good: bool = False) -> bool:
        """Leave the seat, `for_good` also the pool; return whether there was a seat."""
        had_seat = await self._meta.update_one(
            {**self._mine, "seat": {"$gte": 0}}, {"$unset": {"seat": ""}}
        )
        if for_good:
            await self._meta.update_one(self._mine, {"$unset": {"pool": ""}})
        return bool(had_seat)

    async def evict(self, other: Listening) -> None:
        """Take the seat of another instance away from it."""
        await self._meta.update_one(
            {"_id": lease_key(other.instance_id), "seat": other.seat}, {"$unset": {"seat": ""}}
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
                {
                    "$project": {
                        "seat": 1,
                        "seatedAt": 1,
                        "isExpired": {"$lte": ["$expiresAt", "$$NOW"]},
                    }
                },
            ]
        )
        return [
            Listening(
                _instance(document["_id"]),
                int(document["seat"]),
                document.get("seatedAt"),
                document["isExpired"],
            )
            for document in documents
        ]


def _instance(key: str) -> str:
    return key.partition(":")[2]
