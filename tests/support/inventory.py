"""The jobs collection, for tests without an event loop."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any

from bson.codec_options import CodecOptions

from monque_core.store.documents import to_job

if TYPE_CHECKING:
    from pymongo.database import Database

    from monque_core.jobs.job import AnyJob

_AWARE: CodecOptions[dict[str, Any]] = CodecOptions(tz_aware=True, tzinfo=UTC)


def stored_jobs(db: Database[dict[str, Any]], **filter: object) -> list[AnyJob]:
    """Read the jobs that match, oldest first."""
    jobs = db.get_collection("monque_jobs", codec_options=_AWARE)
    return [to_job(document) for document in jobs.find(filter).sort("_id", 1)]
