"""Cancelling, retrying, rescheduling and deleting jobs, one by one and in bulk."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pymongo import UpdateOne
from pymongo.errors import BulkWriteError, DuplicateKeyError

from monque_core.errors import JobStateError
from monque_core.jobs.job import JobStatus
from monque_core.store import transitions
from monque_core.store.documents import to_job
from monque_core.store.indexes import FINISHED
from monque_core.store.listing import selected
from monque_core.store.shard_key import BY_ID, among

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from datetime import datetime, timedelta

    from bson import ObjectId

    from monque_core.jobs.job import AnyJob, StatusName
    from monque_core.jobs.selector import JobSelector
    from monque_core.store.driver import Collection, Document
    from monque_core.store.transitions import Transition

_BATCH_SIZE = 1000
_ATTEMPTS = 10
_DUPLICATE_KEY = 11000
# Listed, because "not an ObjectId" has no index bounds.
_OTHER_TYPES = [
    *("minKey", "null", "number", "symbol", "string", "object", "binData", "bool", "date"),
    *("timestamp", "dbPointer", "javascript", "maxKey"),
]


@dataclass(frozen=True, slots=True)
class ChangedJob:
    """A job as it is after an action, and the status it had before."""

    job: AnyJob
    previous_status: StatusName

    @property
    def is_new(self) -> bool:
        """Whether the action changed the job."""
        return self.job.status != self.previous_status


class Management:
    """The actions of operators on the jobs collection."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection

    async def cancel(self, job_id: ObjectId, now: datetime) -> ChangedJob | None:
        """Cancel a pending job; return one that is cancelled already as it is."""
        step = partial(transitions.cancel, now=now)
        written = await self._write(job_id, step, "cancel", already=JobStatus.CANCELLED)
        if written is None:
            return None
        document, is_new = written
        return ChangedJob(to_job(document), JobStatus.PENDING if is_new else JobStatus.CANCELLED)

    async def retry(self, job_id: ObjectId, now: datetime) -> ChangedJob | None:
        """Make a failed or cancelled job pending again, due now or at its own later time."""
        step = partial(transitions.retry, now=now)
        try:
            written = await self._write(job_id, step, "retry", return_document=False)
        except DuplicateKeyError:
            found = await self._collection.find_one({"_id": job_id}, projection={"status": 1})
            if found is None:
                return None
            raise JobStateError(
                job_id, found["status"], "retry", "its unique key is active again"
            ) from None
        if written is None:
            return None
        before = to_job(written[0])
        return ChangedJob(transitions.retried(before, now), before.status)

    async def reschedule(
        self, job_id: ObjectId, run_at: datetime, now: datetime
    ) -> ChangedJob | None:
        """Move a pending job in time."""
        step = partial(transitions.reschedule, run_at=run_at, now=now)
        written = await self._write(job_id, step, "reschedule")
        return None if written is None else ChangedJob(to_job(written[0]), JobStatus.PENDING)

    async def delete(self, job_id: ObjectId) -> bool:
        """Delete a job in any status; a run of it loses its claim."""
        return bool(await self._collection.delete_one({"_id": job_id}))

    def cancel_many(
        self, selector: JobSelector, now: datetime, *, schedules: bool = False
    ) -> AsyncIterator[int]:
        """Cancel the chosen jobs that are pending; yield the number of each batch.

        Schedules are cancelled only with `schedules`.
        """
        condition: Document = {"status": transitions.CANCELLABLE}
        if not schedules:
            condition["repeatInterval"] = None

        async def cancel(batch: list[Document]) -> int:
            step = transitions.cancel(among(batch), now)
            return await self._collection.update_many(step.filter, step.update, hint=BY_ID)

        return self._in_batches({"$and": [selected(selector, now), condition]}, cancel)

    def retry_many(
        self, selector: JobSelector, now: datetime, spread: timedelta
    ) -> AsyncIterator[int]:
        """Make the chosen failed and cancelled jobs pending; yield the number of each batch.

        They become due at random times within `spread`, so that they do not all run at once. A job
        that was cancelled before it was due keeps its due time. A job whose unique key is active
        again is left as it is.
        """

        async def retry(batch: list[Document]) -> int:
            # A job whose key is active again would end an `update_many`.
            keyed = [document for document in batch if document.get("uniqueKey")]
            others = [document for document in batch if not document.get("uniqueKey")]
            step = transitions.retry(among(others), now, spread)
            count = await self._collection.update_many(step.filter, step.update, hint=BY_ID)
            return count + await retry_each(keyed) if keyed else count

        async def retry_each(documents: list[Document]) -> int:
            steps = [transitions.retry(among([one]), now, spread) for one in documents]
            requests = [UpdateOne(step.filter, step.update, hint=BY_ID) for step in steps]
            try:
                matched, _ = await self._collection.bulk_write(requests)
            except BulkWriteError as error:
                failures = error.details.get("writeErrors", [])
                is_unsure = bool(error.details.get("writeConcernErrors"))
                if is_unsure or any(each["code"] != _DUPLICATE_KEY for each in failures):
                    raise
                return int(error.details["nModified"])
            return matched

        return self._in_batches(_retryable(selector, now), retry)

    def delete_many(self, selector: JobSelector, now: datetime) -> AsyncIterator[int]:
        """Delete the chosen jobs; yield the number of each batch."""
        chosen = selected(selector, now)

        async def delete(batch: list[Document]) -> int:
            condition = {"$and": [chosen, among(batch)]}
            return await self._collection.delete_many(condition, hint=BY_ID)

        return self._in_batches(chosen, delete)

    async def count_retryable(self, selector: JobSelector, now: datetime) -> int:
        """Return how many of the chosen jobs failed or were cancelled."""
        return await self._collection.count(_retryable(selector, now))

    async def _write(
        self,
        job_id: ObjectId,
        step: Callable[[Document], Transition],
        action: str,
        *,
        already: StatusName | None = None,
        return_document: bool = True,
    ) -> tuple[Document, bool] | None:
        """Return the written document and True, None if there is no such job.

        A job that is in the status `already` is returned as it is, with False. Raise
        `JobStateError` for any other status.
        """
        for _ in range(_ATTEMPTS):
            # A sharded collection refuses to find and modify a document by its id alone.
            found = await self._collection.find_one({"_id": job_id})
            if found is None:
                return None
            made, status = step(among([found])), found.get("status")
            if already is not None and status == already:
                return found, False
            if status not in made.filter["status"]["$in"]:
                raise JobStateError(job_id, str(status), action)
            document = await self._collection.find_one_and_update(
                made.filter, made.update, return_document=return_document, hint=BY_ID
            )
            if document is not None:
                return document, True
        # It changes its status all the time, and was claimed before each attempt.
        raise JobStateError(job_id, JobStatus.PROCESSING, action)

    async def _in_batches(
        self, chosen: Document, act: Callable[[list[Document]], Awaitable[int]]
    ) -> AsyncIterator[int]:
        """Act on the chosen jobs in the order of their ids, so that none comes twice."""
        ours = {"$and": [chosen, {"_id": {"$type": "objectId"}}]}
        newest = await self._collection.find_one(ours, projection={"_id": 1}, sort=[("_id", -1)])
        place: Document = {"$type": "objectId"}
        # Leave out jobs that are inserted meanwhile: there might be no end of them.
        until = {"$lte": None if newest is None else newest["_id"]}
        while batch := await self._ids({"$and": [chosen, {"_id": place | until}]}, _BATCH_SIZE):
            yield await act(batch)
            place = {"$gt": batch[-1]["_id"]}
        # Other programs may use ids of other types, which do not compare with ObjectIds.
        foreign = await self._ids({"$and": [chosen, {"_id": {"$type": _OTHER_TYPES}}]}, 0)
        for start in range(0, len(foreign), _BATCH_SIZE):
            yield await act(foreign[start : start + _BATCH_SIZE])

    async def _ids(self, condition: Document, limit: int) -> list[Document]:
        return await self._collection.find(
            condition, projection={"name": 1, "uniqueKey": 1}, sort=[("_id", 1)], limit=limit
        )


class FinishedJobs:
    """Deletes completed, failed and cancelled jobs once they are old enough."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self.collection_name = collection.name

    async def estimate_all(self) -> int:
        """Return about how many jobs are stored in any status, from the collection's metadata."""
        return await self._collection.estimate()

    async def delete(self, status: str, before: datetime, limit: int) -> int:
        """Delete at most so many jobs of a finished status, oldest first; return how many."""
        old: Document = {
            "$and": [FINISHED, {"status": status}],
            "updatedAt": {"$lt": before},
        }
        found = await self._collection.find(
            old, projection={"name": 1}, sort=[("updatedAt", 1)], limit=limit
        )
        if not found:
            return 0
        return await self._collection.delete_many({**among(found), **old}, hint=BY_ID)


def _retryable(selector: JobSelector, now: datetime) -> Document:
    return {"$and": [selected(selector, now), {"status": transitions.RETRYABLE}]}
