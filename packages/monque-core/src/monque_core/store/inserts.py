"""Inserting one-off jobs, with and without unique keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from pymongo import UpdateOne
from pymongo.errors import BulkWriteError, DuplicateKeyError, PyMongoError, WriteConcernError

from monque_core.errors import MonqueConnectionError, MonqueError
from monque_core.store.documents import BulkEncoder, to_document, to_job, unreadable
from monque_core.store.expressions import one_of
from monque_core.store.indexes import KEYED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bson.raw_bson import RawBSONDocument

    from monque_core.jobs.job import AnyJob
    from monque_core.store.driver import Collection, Document, Session

_Put: TypeAlias = "tuple[AnyJob, AnyJob | Exception]"
BATCH_SIZE = 1000
_MANY = 3000
_LARGEST_INSERT = 8000
_DUPLICATE_KEY = 11000
_ATTEMPTS = 100


class Inserts:
    """Inserts new jobs into the jobs collection."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection

    async def put(self, job: AnyJob, session: Session | None = None) -> AnyJob:
        """Insert a job, or return the active one that has its key."""
        if job.unique_key is not None:
            return await self.insert_unique(job, session)
        await self._collection.insert_one(to_document(job), session)
        return job

    async def put_together(self, jobs: Sequence[AnyJob]) -> list[AnyJob | Exception]:
        """Insert several jobs of any names; return the job or the error of each."""
        plain = [job for job in jobs if job.unique_key is None]
        keyed = [job for job in jobs if job.unique_key is not None]
        # By identity: two of the jobs may be equal.
        results = {id(job): result for job, result in await self._put_plain(plain)}
        results |= {id(job): result for job, result in await self._put_keyed(keyed)}
        return [results[id(job)] for job in jobs]

    async def _put_plain(self, jobs: Sequence[AnyJob]) -> list[_Put]:
        refused: set[int] = set()
        try:
            if jobs:
                documents = [to_document(job) for job in jobs]
                await self._collection.insert_many(documents, ordered=False)
        except BulkWriteError as error:
            refused = {failure["index"] for failure in _failures(error)}
        return [
            (job, await self._try_alone(job) if position in refused else job)
            for position, job in enumerate(jobs)
        ]

    async def _put_keyed(self, jobs: Sequence[AnyJob]) -> list[_Put]:
        try:
            return list(zip(jobs, await self.insert_many_unique(jobs, None), strict=True))
        except BulkWriteError as error:
            _failures(error)
            inserted = {entry["_id"] for entry in error.details.get("upserted", [])}
        except MonqueConnectionError:
            raise
        except MonqueError:
            # A document that is not a job has one of the keys: only that caller gets the error.
            inserted = set()
        return [(job, job if job.id in inserted else await self._try_alone(job)) for job in jobs]

    async def _try_alone(self, job: AnyJob) -> AnyJob | Exception:
        """Insert a job that failed in a batch by itself, so that it gets its own error."""
        try:
            return await self.put(job)
        except (MonqueError, PyMongoError) as error:
            return error

    async def insert_alike(self, jobs: Sequence[AnyJob], session: Session | None) -> None:
        """Insert jobs without keys, in order; they differ in their ids and data only."""
        encoder = BulkEncoder(jobs[0], self._collection.codec)

        def next_documents() -> list[RawBSONDocument]:
            return [encoder.document(job) for job in next(batches, ())]

        batches = _insertions(jobs)
        documents = next_documents()
        while documents:
            insertion = self._collection.insert_many(documents, session)
            documents = await self._collection.meanwhile(insertion, next_documents)

    async def insert_unique(self, job: AnyJob, session: Session | None) -> AnyJob:
        """Insert a job with a key, or return the active one that has it already."""
        for _ in range(_ATTEMPTS):
            try:
                document = await self._collection.find_one_and_update(
                    active_with_key(job),
                    {"$setOnInsert": to_document(job)},
                    upsert=True,
                    session=session,
                )
            except DuplicateKeyError:
                if session is not None:
                    # The transaction is aborted: only the caller can start it again.
                    raise
                continue
            assert document is not None
            if document["_id"] == job.id:
                return job
            return to_job(document, deduplicated=True)
        raise _contention(job)

    async def insert_many_unique(
        self, jobs: Sequence[AnyJob], session: Session | None
    ) -> list[AnyJob]:
        """Insert jobs with keys; where a key is taken, return the active job that has it."""
        results: list[AnyJob] = []
        for batch in in_batches(jobs, BATCH_SIZE):
            results += await self._insert_batch_unique(batch, session)
        return results

    async def _insert_batch_unique(
        self, jobs: Sequence[AnyJob], session: Session | None
    ) -> list[AnyJob]:
        results: dict[int, AnyJob] = {}
        missing = dict(enumerate(jobs))
        for _ in range(_ATTEMPTS):
            inserted = await self._upsert(list(missing.values()), session)
            for position, job in list(missing.items()):
                if job.id in inserted:
                    results[position] = missing.pop(position)
            if missing:
                active = await self._active(list(missing.values()), session)
                for position, job in list(missing.items()):
                    if (job.name, job.unique_key) in active:
                        del missing[position]
                        results[position] = active[job.name, job.unique_key]
            if not missing:
                return [results[position] for position in range(len(jobs))]
        raise _contention(next(iter(missing.values())))

    async def _upsert(self, jobs: Sequence[AnyJob], session: Session | None) -> set[object]:
        requests = [
            UpdateOne(active_with_key(job), {"$setOnInsert": to_document(job)}, upsert=True)
            for job in jobs
        ]
        try:
            _, upserted = await self._collection.bulk_write(requests, session)
        except BulkWriteError as error:
            failures = error.details.get("writeErrors", [])
            lost_races = all(failure["code"] == _DUPLICATE_KEY for failure in failures)
            if session is not None or not failures or not lost_races:
                raise
            return {entry["_id"] for entry in error.details.get("upserted", [])}
        return set(upserted.values())

    async def _active(
        self, jobs: Sequence[AnyJob], session: Session | None
    ) -> dict[tuple[str, str | None], AnyJob]:
        names = list({job.name for job in jobs})
        keys = list({job.unique_key for job in jobs})
        documents = await self._collection.find(
            {"name": one_of(names), **KEYED, "uniqueKey": {"$in": keys, **KEYED["uniqueKey"]}},
            session=session,
        )
        for document in documents:
            if type(document["uniqueKey"]) is not str:
                # A filter also matches an array of which one element matches.
                raise unreadable("uniqueKey", document["uniqueKey"], document["_id"])
        active = [to_job(document, deduplicated=True) for document in documents]
        return {(job.name, job.unique_key): job for job in active}


def active_with_key(job: AnyJob) -> Document:
    """Match the pending or processing job that has this job's name and key."""
    return {
        "name": job.name,
        **KEYED,
        "uniqueKey": {"$eq": job.unique_key, **KEYED["uniqueKey"]},
    }


def _insertions(jobs: Sequence[AnyJob]) -> Iterator[Sequence[AnyJob]]:
    """Yield batches, larger ones after the first few: each insert waits for a majority."""
    start, size = 0, BATCH_SIZE
    while start < len(jobs):
        yield jobs[start : start + size]
        start += size
        if start >= _MANY:
            size = min(2 * size, _LARGEST_INSERT)


def in_batches(jobs: Sequence[AnyJob], size: int) -> Iterator[Sequence[AnyJob]]:
    """Yield batches of at most this size."""
    for start in range(0, len(jobs), size):
        yield jobs[start : start + size]


def _failures(error: BulkWriteError) -> list[Document]:
    """Return the errors of single documents; raise an error that concerns all of them."""
    failures: list[Document] = error.details.get("writeErrors", [])
    if not failures:
        concern = error.details["writeConcernErrors"][-1]
        raise WriteConcernError(concern.get("errmsg"), concern.get("code"), concern) from error
    return failures


def _contention(job: AnyJob) -> MonqueError:
    return MonqueError(
        f"unique key {job.unique_key!r} of {job.name!r} could not be inserted in "
        f"{_ATTEMPTS} attempts: other jobs take and free it faster than it can be read; try again"
    )
