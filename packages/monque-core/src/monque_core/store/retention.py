"""Deleting finished jobs once they are old enough."""

from __future__ import annotations

from typing import TYPE_CHECKING

from monque_core.store.indexes import FINISHED

if TYPE_CHECKING:
    from datetime import datetime

    from monque_core.store.driver import Collection, Document


class FinishedJobs:
    """The completed, failed and cancelled part of the jobs collection."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self.collection_name = collection.name

    async def estimate_all(self) -> int:
        """Return about how many jobs are stored in any status, from the collection's metadata."""
        return await self._collection.estimate()

    async def delete(self, status: str, before: datetime, limit: int) -> int:
        """Delete at most so many jobs of a finished status, oldest first; tell how many."""
        old: Document = {
            "$and": [FINISHED, {"status": status}],
            "updatedAt": {"$lt": before},
        }
        found = await self._collection.find(
            old, projection={"_id": 1}, sort=[("updatedAt", 1)], limit=limit
        )
        if not found:
            return 0
        ids = [document["_id"] for document in found]
        return await self._collection.delete_many({"_id": {"$in": ids}, **old})
