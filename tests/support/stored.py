"""Reading the jobs collection."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any

from bson.codec_options import CodecOptions

from monque_core.store.documents import to_job

if TYPE_CHECKING:
    from pymongo.asynchronous.collection import AsyncCollection
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core.jobs.job import AnyJob

_AWARE: CodecOptions[dict[str, Any]] = CodecOptions(tz_aware=True, tzinfo=UTC)


def jobs_in(
    db: AsyncDatabase[dict[str, Any]], collection_name: str = "monque_jobs"
) -> AsyncCollection[dict[str, Any]]:
    """Return the jobs collection with aware datetimes."""
    return db.get_collection(collection_name, codec_options=_AWARE)


async def stored(db: AsyncDatabase[dict[str, Any]], job: AnyJob) -> AnyJob:
    """Read the current state of a job."""
    document = await jobs_in(db).find_one({"_id": job.id})
    assert document is not None, f"{job.name} {job.id} is gone"
    return to_job(document)


async def stored_jobs(db: AsyncDatabase[dict[str, Any]], **filter: object) -> list[AnyJob]:
    """Read the jobs that match, oldest first."""
    return [to_job(document) async for document in jobs_in(db).find(filter).sort("_id", 1)]


async def count_by_status(db: AsyncDatabase[dict[str, Any]]) -> dict[str, int]:
    """Count the jobs of each status."""
    groups = await jobs_in(db).aggregate([{"$group": {"_id": "$status", "n": {"$sum": 1}}}])
    return {group["_id"]: group["n"] async for group in groups}
