"""Counting jobs."""

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
    from collections.abc import Iterable

    from monque_core.store.handle import Collection, Document

_LONGEST_MS = 30_000
# Other programs may have stored dates that Python does not know.
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime(9999, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Figures:
    """What was counted, by name and in all."""

    by_name: dict[str, QueueStats]
    total: QueueStats


class Statistics:
    """The jobs collection in figures."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection

    async def count(self, name: str | None = None) -> Figures:
        """Count the jobs of every name, or of one, in one aggregation."""
        chosen: Document = {} if name is None else {"name": name}
        pipeline = _pipeline(chosen)
        try:
            rows = await self._collection.aggregate(pipeline, maxTimeMS=_LONGEST_MS)
        except ExecutionTimeout as error:
            raise AggregationTimeoutError(
                f"counting the jobs took longer than {_LONGEST_MS // 1000} s; count one name, or "
                "delete finished jobs with JobRetention"
            ) from error
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        durations: dict[str, tuple[float, int]] = {}
        for row in rows:
            name_of_row, status = row["_id"].get("name"), row["_id"].get("status")
            # Not isinstance: code that somebody stored is text, too, and has no hash.
            if type(name_of_row) is str and status in JobStatus.ALL:
                counts[name_of_row][status] = row["count"]
                if row["duration"] is not None:
                    durations[name_of_row] = (row["duration"], row["timed"])
        return Figures(
            {each: _stats(counts[each], [durations.get(each, (0, 0))]) for each in counts},
            _stats(sum(counts.values(), Counter()), durations.values()),
        )


def _stats(by_status: Counter[str], durations: Iterable[tuple[float, int]]) -> QueueStats:
    """Put counts and mean durations together; a mean weighs as much as it has runs."""
    timed = list(durations)
    runs = sum(count for _, count in timed)
    average = None
    if runs:
        average = timedelta(milliseconds=sum(mean * count for mean, count in timed) / runs)
    return QueueStats(
        **{status: by_status[status] for status in JobStatus.ALL}, average_duration=average
    )


def _pipeline(chosen: Document) -> list[Document]:
    """Count by name and status, and time what was completed, in one pass."""
    # What is no date sorts before the first or after the last of them.
    are_dates = [
        condition
        for field in ("$updatedAt", "$claimedAt")
        for condition in ({"$gte": [field, _EARLIEST]}, {"$lte": [field, _LATEST]})
    ]
    is_timed = {"$and": [{"$eq": ["$status", JobStatus.COMPLETED]}, *are_dates]}
    took = {"$subtract": ["$updatedAt", "$claimedAt"]}
    return [
        {"$match": chosen},
        {
            "$group": {
                "_id": {"name": "$name", "status": "$status"},
                "count": {"$sum": 1},
                # What another program wrote may be no date, and a mean leaves out what is null.
                "duration": {"$avg": {"$cond": [is_timed, took, None]}},
                "timed": {"$sum": {"$cond": [is_timed, 1, 0]}},
            }
        },
    ]
