"""The indexes monque needs, partial because every one is paid for on every change."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from pymongo import ASCENDING, DESCENDING, IndexModel

from monque_core.jobs.job import JobStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monque_core.store.driver import Document

# A query is served by a partial index only if it repeats these predicates word for word.
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
    """Give the indexes of the jobs collection, with the one for retention if that is on."""
    indexes = [
        IndexModel(
            [("name", ASCENDING), ("priority", DESCENDING), ("nextRunAt", ASCENDING)],
            name=CLAIM,
            partialFilterExpression=PENDING,
        ),
        IndexModel(
            # The status leads, constant as it is: without it `distinct` would not use the index.
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
        # The one index on all jobs, for listing them: no change of status ever touches it.
        IndexModel([("name", ASCENDING), ("_id", ASCENDING)], name="monque_py_name"),
        # The statuses that are rare and looked for; the others are found along the way.
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
