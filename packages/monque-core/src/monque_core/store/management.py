"""Changing and deleting jobs from outside, one by one and in bulk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pymongo import UpdateOne
from pymongo.errors import BulkWriteError, DuplicateKeyError

from monque_core.errors import JobStateError
from monque_core.jobs.job import JobStatus
from monque_core.store import transitions
from monque_core.store.documents import to_job
from monque_core.store.selection import selected

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
# Spelled out, for an index has no bounds for "not an ObjectId".
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
        """Tell whether the action did anything."""
        return self.job.status != self.previous_status


class Management:
    """The jobs collection in the hands of an operator."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection

    async def cancel(self, job_id: ObjectId, now: datetime) -> ChangedJob | None:
        """Cancel a pending job; one that is cancelled already is given as it is."""
        step = transitions.cancel(job_id, now)
        written = await self._write(job_id, step, "cancel", already=JobStatus.CANCELLED)
        if written is None:
            return None
        document, is_new = written
        return ChangedJob(to_job(document), JobStatus.PENDING if is_new else JobStatus.CANCELLED)

    async def retry(self, job_id: ObjectId, now: datetime) -> ChangedJob | None:
        """Make a failed or cancelled job pending again, due at once or as it was."""
        step = transitions.retry(job_id, now)
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
        step = transitions.reschedule(job_id, run_at, now)
        written = await self._write(job_id, step, "reschedule")
        return None if written is None else ChangedJob(to_job(written[0]), JobStatus.PENDING)

    async def delete(self, job_id: ObjectId) -> bool:
        """Delete a job in whatever status; a run of it finds out that it lost its claim."""
        return bool(await self._collection.delete_one({"_id": job_id}))

    def cancel_many(
        self, selector: JobSelector, now: datetime, *, schedules: bool = False
    ) -> AsyncIterator[int]:
        """Cancel the chosen jobs that are pending; tell of each batch how many.

        Schedules among them are cancelled only if that is asked for.
        """
        condition: Document = {"status": transitions.CANCELLABLE}
        if not schedules:
            condition["repeatInterval"] = None

        async def cancel(batch: list[Document]) -> int:
            step = transitions.cancel({"$in": [document["_id"] for document in batch]}, now)
            return await self._collection.update_many(step.filter, step.update)

        return self._in_batches({"$and": [selected(selector, now), condition]}, cancel)

    def retry_many(
        self, selector: JobSelector, now: datetime, spread: timedelta
    ) -> AsyncIterator[int]:
        """Make the chosen jobs that failed or were cancelled pending; tell of each batch how many.

        They become due at random within the time given, for they would all run at once; those that
        were cancelled before they were due become due as they were. One whose unique key is active
        again is left as it is.
        """

        async def retry(batch: list[Document]) -> int:
            # One whose key is active again would end an update of many.
            keyed = [document["_id"] for document in batch if document.get("uniqueKey")]
            others = [document["_id"] for document in batch if not document.get("uniqueKey")]
            step = transitions.retry({"$in": others}, now, spread)
            count = await self._collection.update_many(step.filter, step.update)
            return count + await retry_each(keyed) if keyed else count

        async def retry_each(ids: list[object]) -> int:
            steps = [transitions.retry(job_id, now, spread) for job_id in ids]
            requests = [UpdateOne(step.filter, step.update) for step in steps]
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
        """Delete the chosen jobs; tell of each batch how many."""
        chosen = selected(selector, now)

        async def delete(batch: list[Document]) -> int:
            ids = [document["_id"] for document in batch]
            return await self._collection.delete_many({"$and": [{"_id": {"$in": ids}}, chosen]})

        return self._in_batches(chosen, delete)

    async def count_retryable(self, selector: JobSelector, now: datetime) -> int:
        """Count the chosen jobs that failed or were cancelled."""
        return await self._collection.count(_retryable(selector, now))

    async def _write(
        self,
        job_id: ObjectId,
        step: Transition,
        action: str,
        *,
        already: StatusName | None = None,
        return_document: bool = True,
    ) -> tuple[Document, bool] | None:
        """Write once; a miss is read, to tell a job that is gone from one in another status.

        One that is in the wanted status `already` is given as it is, and False with it.
        """
        for _ in range(_ATTEMPTS):
            document = await self._collection.find_one_and_update(
                step.filter, step.update, return_document=return_document
            )
            if document is not None:
                return document, True
            found = await self._collection.find_one({"_id": job_id})
            if found is None:
                return None
            status = found.get("status")
            if already is not None and status == already:
                return found, False
            if status not in step.filter["status"]["$in"]:
                raise JobStateError(job_id, str(status), action)
        # It comes and goes, and whoever claims it is faster each time.
        raise JobStateError(job_id, JobStatus.PROCESSING, action)

    async def _in_batches(
        self, chosen: Document, act: Callable[[list[Document]], Awaitable[int]]
    ) -> AsyncIterator[int]:
        """Act on the chosen jobs in the order of their ids, so that none is met twice."""
        ours = {"$and": [chosen, {"_id": {"$type": "objectId"}}]}
        newest = await self._collection.find_one(ours, projection={"_id": 1}, sort=[("_id", -1)])
        place: Document = {"$type": "objectId"}
        # Jobs that come meanwhile are not chosen: there might be no end of them.
        until = {"$lte": None if newest is None else newest["_id"]}
        while batch := await self._ids({"$and": [chosen, {"_id": place | until}]}, _BATCH_SIZE):
            yield await act(batch)
            place = {"$gt": batch[-1]["_id"]}
        # Ids of other kinds are another program's, and do not compare with ours.
        strangers = await self._ids({"$and": [chosen, {"_id": {"$type": _OTHER_TYPES}}]}, 0)
        for start in range(0, len(strangers), _BATCH_SIZE):
            yield await act(strangers[start : start + _BATCH_SIZE])

    async def _ids(self, condition: Document, limit: int) -> list[Document]:
        return await self._collection.find(
            condition, projection={"_id": 1, "uniqueKey": 1}, sort=[("_id", 1)], limit=limit
        )


def _retryable(selector: JobSelector, now: datetime) -> Document:
    return {"$and": [selected(selector, now), {"status": transitions.RETRYABLE}]}
