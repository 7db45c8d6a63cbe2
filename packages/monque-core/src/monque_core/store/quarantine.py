"""Documents among the jobs that cannot be run, put where they are met only once."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pymongo.errors import WriteError

from monque_core.errors import InvalidJobError
from monque_core.store.rejected import Rejected
from monque_core.store.transitions import quarantine
from monque_core.store.write_errors import is_document_error, is_too_large

if TYPE_CHECKING:
    from datetime import datetime

    from monque_core.store.driver import Collection, Document

LEFT_ALONE_SECONDS: Final = 60.0
MOST_LEFT_ALONE: Final = 100
_MOST_TOLD = 10_000


@dataclass(frozen=True, slots=True)
class RejectedJob(Rejected):
    """A document in the queue that cannot be run here: set aside as failed, or left alone."""


class Quarantine:
    """Fails what cannot be run; what cannot even be failed is left alone for a while."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._left: list[tuple[float, object]] = []
        self._told: set[str] = set()

    @property
    def others(self) -> Document:
        """Match everything but what is left alone for now."""
        if not self._left:
            return {}
        now = time.monotonic()
        self._left = [(until, job_id) for until, job_id in self._left if until > now]
        return {"_id": {"$nin": [job_id for _, job_id in self._left]}}

    async def put(
        self,
        job_id: object,
        error: InvalidJobError,
        now: datetime,
        condition: Document | None = None,
    ) -> RejectedJob:
        """Fail a document that is no job; it is told by whoever did it, and by nobody else."""
        refusal: WriteError | None = None
        # The second grows nothing: there may be no room for a reason.
        for reason in (str(error), None):
            step = quarantine(job_id, reason, now)
            try:
                done = await self._collection.update_one(
                    {**(condition or {}), **step.filter}, step.update
                )
            except WriteError as refused:
                if not is_document_error(refused):
                    raise
                refusal = refused
            else:
                return RejectedJob(job_id, error if done else None)
        assert refusal is not None
        return self.leave_refused(job_id, refusal)

    async def refuse(self, job_id: object, refusal: WriteError, now: datetime) -> RejectedJob:
        """Turn away a job whose claim the server has refused."""
        if not is_too_large(refusal):
            if len(self._left) >= MOST_LEFT_ALONE:
                # Then it is for no fault of theirs: one error says more than one for each.
                raise refusal
            # Not failed: it is the collection's validator, or the server, that may be at fault.
            return self.leave_refused(job_id, refusal)
        error = InvalidJobError(
            "data",
            None,
            f"the stored job {job_id!r} has no room for a claim in MongoDB's 16 MB, and is set "
            "aside as failed with its data as it is; store the bulk elsewhere and put a reference "
            "to it into the job",
        )
        error.__cause__ = refusal
        return await self.put(job_id, error, now)

    def leave_refused(self, job_id: object, refusal: WriteError) -> RejectedJob:
        """Leave alone for a while what cannot be changed."""
        error = InvalidJobError(
            "_id",
            job_id,
            f"MongoDB refuses every change to the stored job {job_id!r}, which is tried again "
            f"every {LEFT_ALONE_SECONDS:.0f} s: {refusal}; look at the collection's validator",
        )
        error.__cause__ = refusal
        return self.leave(job_id, error)

    def leave(self, job_id: object, error: InvalidJobError) -> RejectedJob:
        """Leave a document alone for a while; the error is told the first time."""
        self._left.append((time.monotonic() + LEFT_ALONE_SECONDS, job_id))
        identity = repr(job_id)
        if identity in self._told:
            return RejectedJob(job_id, None)
        if len(self._told) >= _MOST_TOLD:
            self._told.clear()
        self._told.add(identity)
        return RejectedJob(job_id, error)
