"""Stores of instances, and the setup of tests that use them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bson import ObjectId

from monque_core.options import Options
from monque_core.store.documents import to_document
from monque_core.store.quarantine import Rejected
from monque_core.store.store import Store
from tests.support.samples import NOW
from tests.support.stored import jobs_in

if TYPE_CHECKING:
    from datetime import datetime

    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core.jobs.job import AnyJob


async def open_store(db: object, instance_id: str = "me", **options: object) -> Store:
    """Return the store of an instance, with its indexes created."""
    store = Store(db, Options.parse({"scheduler_instance_id": instance_id, **options}))
    await store.prepare()
    return store


async def put(db: AsyncDatabase[dict[str, Any]], *jobs: AnyJob) -> None:
    """Insert jobs directly into the collection."""
    await jobs_in(db).insert_many([to_document(job) for job in jobs])


async def document_of(db: AsyncDatabase[dict[str, Any]], job: AnyJob) -> dict[str, Any]:
    """Read the document of a job."""
    document = await jobs_in(db).find_one({"_id": job.id})
    assert document is not None, f"{job.name} {job.id} is gone"
    return document


async def set_fields(db: AsyncDatabase[dict[str, Any]], job: AnyJob, **fields: object) -> None:
    """Change a document directly in the collection."""
    result = await jobs_in(db).update_one({"_id": job.id}, {"$set": fields})
    assert result.matched_count == 1


async def claim(store: Store, name: str = "send-email", now: datetime = NOW) -> AnyJob:
    """Claim the first due job of a name, which must exist."""
    job = await store.queue.claim_first(name, ObjectId(), now)
    assert job is not None
    assert not isinstance(job, Rejected)
    return job
