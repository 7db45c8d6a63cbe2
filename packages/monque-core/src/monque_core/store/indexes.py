"""The indexes; most are partial, because each index makes every change more expensive."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from pymongo import ASCENDING, DESCENDING, IndexModel

from monque_core.jobs.job import JobStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monque_core.store.driver import Document

# A query uses a partial index only if it repeats these predicates word for word.
PENDING: Final[Document] = {"status": JobStatus.PENDING}
PROCESSING: Final[Document] = {"status": JobStatus.PROCESSING}
FINISHED: Final[Document] = {
    "status": {"$in": [JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED]}
}
UNSUCCESSFUL: Final[Document] = {"status": {"$in": [JobStatus.FAILED, JobStatus.CANCELLED]}}
RECURRING: Final[Document] = {"repeatInterval": {"$gt": ""}}
KEYED: Final[Document] = {
    "uniqueKey": {"$gt": ""},
    "status": {"$in": list(JobStatus.ACTIVE)},
}


CLAIM: Final = "monque_py_claim"
IN_PROCESS: Final = "monque_py_processing"
UNIQUE: Final = "monque_py_unique"
RETENTION: Final = "monque_py_retention"
_DEAD_LEASES_STAY = timedelta(days=1)


def meta_indexes() -> Sequence[IndexModel]:
    """Return the indexes that remove dead leases, and keep two instances from one seat."""
    return [
        IndexModel(
            [("expiresAt", ASCENDING)],
            name="monque_py_expiry",
            expireAfterSeconds=int(_DEAD_LEASES_STAY.total_seconds()),
        ),
        IndexModel(
            [("pool", ASCENDING), ("seat", ASCENDING)],
            name="monque_py_seats",
            unique=True,
            partialFilterExpression={"seat": {"$gte": 0}},
        ),
    ]


def job_indexes(*, retention: bool) -> Sequence[IndexModel]:
    """Return the indexes of the jobs collection, for retention only if that is on."""
    indexes = [
        IndexModel(
            [("name", ASCENDING), ("priority", DESCENDING), ("nextRunAt", ASCENDING)],
            name=CLAIM,
            partialFilterExpression=PENDING,
        ),
        IndexModel(
            # The constant status comes first: otherwise `distinct` would not use the index.
            [("status", ASCENDING), ("heartbeatInterval", ASCENDING), ("lastHeartbeat", ASCENDING)],
            name=IN_PROCESS,
            partialFilterExpression=PROCESSING,
        ),
        IndexModel(
            [("name", ASCENDING), ("uniqueKey", ASCENDING)],
            name=UNIQUE,
            unique=True,
            partialFilterExpression=KEYED,
        ),
        # The only index on all jobs, for listing: no change of status touches it.
        IndexModel([("name", ASCENDING), ("_id", ASCENDING)], name="monque_py_name"),
        # For listing these rare statuses; the frequent ones are found quickly without it.
        IndexModel(
            [("status", ASCENDING), ("_id", ASCENDING)],
            name="monque_py_unsuccessful",
            partialFilterExpression=UNSUCCESSFUL,
        ),
        IndexModel(
            [("name", ASCENDING)],
            name="monque_py_recurring",
            partialFilterExpression=RECURRING,
        ),
    ]
    if retention:
        indexes.append(
            IndexModel(
                [("status", ASCENDING), ("updatedAt", ASCENDING)],
                name=RETENTION,
                partialFilterExpression=FINISHED,
            )
        )
    return indexes
