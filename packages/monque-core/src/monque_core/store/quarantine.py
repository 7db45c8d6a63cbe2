"""Quarantine of documents that cannot run, so that they are found only once."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pymongo.errors import WriteError

from monque_core.errors import InvalidJobError
from monque_core.store.shard_key import BY_ID
from monque_core.store.transitions import quarantine
from monque_core.store.write_errors import is_document_error, is_too_large

if TYPE_CHECKING:
    from datetime import datetime

    from monque_core.store.driver import Collection, Document

SKIPPED_SECONDS: Final = 60.0
MOST_SKIPPED: Final = 100
_MOST_REPORTED = 10_000


@dataclass(frozen=True, slots=True)
class Rejected:
    """A document that cannot run: quarantined as failed, or skipped for a while."""

    id: object
    error: Exception | None
    """Why; None if another instance quarantined it first, and reports it."""


class Quarantine:
    """Fails jobs that cannot run, and skips for a while those that cannot even be changed."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._skipped: list[tuple[float, object]] = []
        self._reported: set[str] = set()

    @property
    def others(self) -> Document:
        """Match everything except what is skipped at the moment."""
        if not self._skipped:
            return {}
        now = time.monotonic()
        self._skipped = [(until, job_id) for until, job_id in self._skipped if until > now]
        return {"_id": {"$nin": [job_id for _, job_id in self._skipped]}}

    async def put(
        self,
        job_id: object,
        name: object,
        error: InvalidJobError,
        now: datetime,
        condition: Document | None = None,
    ) -> Rejected:
        """Fail a document that is not a job; only the instance that does so gets the error."""
        refusal: WriteError | None = None
        # The second update adds nothing: the document may have no room for a reason.
        for reason in (str(error), None):
            step = quarantine(job_id, name, reason, now)
            try:
                done = await self._collection.update_one(
                    {**(condition or {}), **step.filter}, step.update, hint=BY_ID
                )
            except WriteError as refused:
                if not is_document_error(refused):
                    raise
                refusal = refused
            else:
                return Rejected(job_id, error if done else None)
        assert refusal is not None
        return self.skip_refused(job_id, refusal)

    async def refuse(
        self, job_id: object, name: object, refusal: WriteError, now: datetime
    ) -> Rejected:
        """Quarantine a job whose claim the server has refused."""
        if not is_too_large(refusal):
            if len(self._skipped) >= MOST_SKIPPED:
                # The cause is not in so many jobs: raise one error instead of one for each.
                raise refusal
            # Not failed: the cause may be the collection's validator, or the server.
            return self.skip_refused(job_id, refusal)
        error = InvalidJobError(
            "data",
            None,
            f"the stored job {job_id!r} has no room for a claim in MongoDB's 16 MB and was "
            "quarantined as failed, with its data unchanged; store the large part elsewhere and "
            "put a reference to it into the job",
        )
        error.__cause__ = refusal
        return await self.put(job_id, name, error, now)

    def skip_refused(self, job_id: object, refusal: WriteError) -> Rejected:
        """Skip a job for a while because the server refuses to change it."""
        error = InvalidJobError(
            "_id",
            job_id,
            f"MongoDB refuses every change to the stored job {job_id!r}: {refusal}; it is tried "
            f"again every {SKIPPED_SECONDS:.0f} s; check the collection's validator",
        )
        error.__cause__ = refusal
        return self.skip(job_id, error)

    def skip(self, job_id: object, error: InvalidJobError) -> Rejected:
        """Skip a document for a while; the error is reported the first time."""
        self._skipped.append((time.monotonic() + SKIPPED_SECONDS, job_id))
        identity = repr(job_id)
        if identity in self._reported:
            return Rejected(job_id, None)
        if len(self._reported) >= _MOST_REPORTED:
            self._reported.clear()
        self._reported.add(identity)
        return Rejected(job_id, error)
