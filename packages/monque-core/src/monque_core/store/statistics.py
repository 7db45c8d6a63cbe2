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
    from collections.abc import Iterable, Sequence

    from monque_core.store.driver import Collection, Document

_LONGEST_MS = 30_000
# Other programs may have stored dates that Python does not know.
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime(9999, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Figures:
    """What was counted, by name and in all."""

    by_name: dict[str, QueueStats]
    total: QueueStats


class JobStatistics:
    """The jobs collection in figures."""

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
            # Not isinstance: code that somebody stored is text, too, and has no hash.
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
    """Count by name and status, and time what was completed, in one pass.

    Node leaves no trace of when its runs began. Of those, only the time since they were due is
    known, and good for a name that has no others.
    """
    is_completed = {"$eq": ["$status", JobStatus.COMPLETED]}
    # A claim before the job was due is not that of the run which completed it.
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
    """Match dates: what is none sorts before the first or after the last of them."""
    return [
        condition
        for field in fields
        for condition in ({"$gte": [field, _EARLIEST]}, {"$lte": [field, _LATEST]})
    ]


def _mean_since(begin: str, condition: Document) -> Document:
    """Compute the mean time until completion; a mean leaves out what is null."""
    return {"$avg": {"$cond": [condition, {"$subtract": ["$updatedAt", begin]}, None]}}
