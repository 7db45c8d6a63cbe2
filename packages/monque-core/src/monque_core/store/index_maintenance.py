"""Creating the indexes, and restoring them if somebody drops them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pymongo.errors import OperationFailure

from monque_core.errors import MonqueError
from monque_core.store.indexes import UNIQUE, job_indexes, meta_indexes

if TYPE_CHECKING:
    from pymongo import IndexModel

    from monque_core.store.driver import Collection

_FIRST_PAUSE: Final = 120.0
_LONGEST_PAUSE: Final = 3600.0
_DUPLICATE_KEY: Final = 11000


@dataclass(slots=True)
class _Obstacle:
    """An index that could not be created, and when to try again: each attempt reads all jobs."""

    pause: float
    retry_at: float


class IndexMaintenance:
    """The indexes of the jobs and of the leases."""

    def __init__(self, jobs: Collection, meta: Collection, *, retention: bool) -> None:
        self._wanted = {jobs: job_indexes(retention=retention), meta: meta_indexes()}
        self._obstacles: dict[str, _Obstacle] = {}
        self._turns = 0

    async def create(self) -> None:
        """Create all indexes, or raise the error of the driver."""
        for collection, indexes in self._wanted.items():
            await collection.create_indexes(indexes)

    async def restore(self) -> list[MonqueError]:
        """Create missing indexes of one of the collections; return the new problems.

        If all exist, this is one command that changes nothing.
        """
        # The index of the leases is needed less than those of the jobs.
        jobs, meta = self._wanted
        self._turns += 1
        collection = jobs if self._turns % 10 else meta
        now = time.monotonic()
        due = [
            index
            for index in self._wanted[collection]
            if (known := self._obstacles.get(_name(index))) is None or known.retry_at <= now
        ]
        if not due:
            return []
        try:
            await collection.create_indexes(due)
        except OperationFailure:
            return [
                problem
                for index in due
                if (problem := await self._try(collection, index)) is not None
            ]
        for index in due:
            self._obstacles.pop(_name(index), None)
        return []

    async def _try(self, collection: Collection, index: IndexModel) -> MonqueError | None:
        """Create one index; return the problem the first time that it cannot be created."""
        name = _name(index)
        try:
            await collection.create_indexes([index])
        except OperationFailure as error:
            known = self._obstacles.get(name)
            pause = _FIRST_PAUSE if known is None else min(_LONGEST_PAUSE, 2 * known.pause)
            self._obstacles[name] = _Obstacle(pause, time.monotonic() + pause)
            return _problem(collection, name, error) if known is None else None
        self._obstacles.pop(name, None)
        return None


def _name(index: IndexModel) -> str:
    return str(index.document["name"])


def _problem(collection: Collection, name: str, error: OperationFailure) -> MonqueError:
    advice = "drop the conflicting index, or check the privileges of this user"
    if name == UNIQUE and error.code == _DUPLICATE_KEY:
        advice = (
            "two active jobs have the same name and unique key, so cancel or delete one; "
            "until then equal keys may be enqueued twice"
        )
    problem = MonqueError(
        f"the index {name} of {collection.name!r} is missing and cannot be created; this is "
        f"tried at least every hour: {error}; {advice}"
    )
    problem.__cause__ = error
    return problem
