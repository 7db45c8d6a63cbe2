"""Counting jobs and timing the completed ones."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pymongo.errors import ExecutionTimeout

from monque_core.errors import AggregationTimeoutError
from monque_core.jobs.job import JobStatus
from monque_core.jobs.views import QueueStats

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from monque_core.store.driver import Collection, Document

_LONGEST_MS = 30_000
# Other programs may have stored dates that Python cannot represent.
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime(9999, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Figures:
    """Statistics by name and in all."""

    by_name: dict[str, QueueStats]
    total: QueueStats


class JobStatistics:
    """Computes statistics of the jobs collection."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection

    async def count(self, name: str | None = None) -> Figures:
        """Count the jobs of every name, or of one, in one aggregation."""
        chosen: Document = {} if name is None else {"name": name}
        hint = "; count one name, or delete finished jobs with JobRetention"
        rows = await count_rows(self._collection, _pipeline(chosen), "the jobs", hint)
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        durations: dict[str, tuple[float, int]] = {}
        for row in rows:
            name_of_row, status = row["_id"].get("name"), row["_id"].get("status")
            # Not isinstance: Code is a str, too, and is not hashable.
            if type(name_of_row) is str and status in JobStatus.ALL:
                counts[name_of_row][status] = row["count"]
                if row["duration"] is not None:
                    durations[name_of_row] = (row["duration"], row["timed"])
                elif row["sinceDue"] is not None:
                    durations[name_of_row] = (row["sinceDue"], row["untimed"])
        return Figures(
            {each: _stats(counts[each], [durations.get(each, (0, 0))]) for each in counts},
            _stats(sum(counts.values(), Counter()), durations.values()),
        )


async def count_rows(
    collection: Collection, pipeline: list[Document], what: str, hint: str = ""
) -> Sequence[Document]:
    """Run an aggregation that counts; raise `AggregationTimeoutError` if it takes too long."""
    try:
        return await collection.aggregate(pipeline, maxTimeMS=_LONGEST_MS)
    except ExecutionTimeout as error:
        raise AggregationTimeoutError(
            f"counting {what} took longer than {_LONGEST_MS // 1000} s{hint}"
        ) from error


def _stats(by_status: Counter[str], durations: Iterable[tuple[float, int]]) -> QueueStats:
    """Return counts and the mean of mean durations, weighted by their runs."""
    timed = list(durations)
    runs = sum(count for _, count in timed)
    average = None
    if runs:
        average = timedelta(milliseconds=sum(mean * count for mean, count in timed) / runs)
    return QueueStats(
        **{status: by_status[status] for status in JobStatus.ALL}, average_duration=average
    )


def _pipeline(chosen: Document) -> list[Document]:
    """Count by name and status, and time what was completed, in one pass.

    Node does not store when its runs began. For a name that has only such runs, the time since
    they were due is used.
    """
    is_completed = {"$eq": ["$status", JobStatus.COMPLETED]}
    # A claim before the job was due does not belong to the run that completed it.
    is_claim_of_run = {"$not": [{"$gt": ["$nextRunAt", "$claimedAt"]}]}
    is_timed = {"$and": [is_completed, *_are_dates("$updatedAt", "$claimedAt"), is_claim_of_run]}
    is_untimed = {
        "$and": [
            is_completed,
            *_are_dates("$updatedAt", "$nextRunAt"),
            {"$gte": ["$updatedAt", "$nextRunAt"]},
            {"$not": [is_timed]},
        ]
    }
    return [
        {"$match": chosen},
        {
            "$group": {
                "_id": {"name": "$name", "status": "$status"},
                "count": {"$sum": 1},
                "duration": _mean_since("$claimedAt", is_timed),
                "timed": {"$sum": {"$cond": [is_timed, 1, 0]}},
                "sinceDue": _mean_since("$nextRunAt", is_untimed),
                "untimed": {"$sum": {"$cond": [is_untimed, 1, 0]}},
            }
        },
    ]


def _are_dates(*fields: str) -> list[Document]:
    """Match dates: other types sort before the earliest or after the latest date."""
    return [
        condition
        for field in fields
        for condition in ({"$gte": [field, _EARLIEST]}, {"$lte": [field, _LATEST]})
    ]


def _mean_since(begin: str, condition: Document) -> Document:
    """Compute the mean time until completion; a mean leaves out what is null."""
    return {"$avg": {"$cond": [condition, {"$subtract": ["$updatedAt", begin]}, None]}}
