"""Task records as one list across all their collections: pages, counts and bulk retries."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from monque_core.jobs.cursor import Place
from monque_core.store.expressions import one_of
from monque_core.store.paging import read_page, readable
from monque_core.store.tasks import transitions
from monque_core.store.tasks.documents import records_name, to_record
from monque_core.tasks.record import TaskStatus
from monque_core.tasks.views import TaskPage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from datetime import datetime

    from monque_core.store.driver import Collection, Document, Driver
    from monque_core.store.paging import PageRequest, Start
    from monque_core.store.tasks.planner_state import PlannerState
    from monque_core.tasks.selector import TaskSelector

_BATCH_SIZE = 1000
# Ids of other kinds are another program's, and do not compare with ours.
_OURS: Final[Document] = {"_id": {"$type": "objectId"}}


@dataclass(frozen=True, slots=True)
class Chosen:
    """The chosen records of one collection."""

    source: str
    """The source collection."""
    namespace: str
    records: Collection
    filter: Document


class TaskListing:
    """The records of every task that was ever declared."""

    def __init__(self, driver: Driver, planner_state: PlannerState) -> None:
        self._driver = driver
        self._planner_state = planner_state

    async def page(self, selector: TaskSelector, request: PageRequest) -> TaskPage:
        """Return a page of the chosen records, the newest first."""
        sheet = await read_page(_Records(await self._chosen(selector)), request)
        tasks = [
            record
            for chosen, document in sheet.rows
            for record in readable([document], partial(to_record, collection=chosen.source))
        ]
        return TaskPage(tasks, sheet.cursor, sheet.has_next, sheet.has_previous)

    async def count(self, selector: TaskSelector) -> int:
        """Return the number of chosen records."""
        return sum([await one.records.count(one.filter) for one in await self._chosen(selector)])

    async def retry(self, selector: TaskSelector, now: datetime) -> AsyncIterator[int]:
        """Make the chosen records run again at once; yield the size of each batch."""
        for chosen in await self._chosen(selector):
            async for retried in _retry(chosen, now):
                yield retried

    async def _chosen(self, selector: TaskSelector) -> list[Chosen]:
        """Return the collections that may contain chosen records."""
        names: dict[tuple[str, str], list[str]] = {}
        for task in await self._planner_state.all_declarations():
            one = task.declaration
            is_meant = (
                selector.name in (None, one.name)
                and selector.database in (None, one.database)
                and selector.collection in (None, one.collection)
            )
            if is_meant:
                names.setdefault((one.database, one.collection), []).append(one.name)
        return [
            Chosen(
                collection,
                f"{database}.{collection}",
                self._driver.collection(records_name(collection), database),
                _filter(selector, names[database, collection]),
            )
            for database, collection in sorted(names)
        ]


def _filter(selector: TaskSelector, names: Sequence[str]) -> Document:
    chosen: Document = {}
    if selector.name is not None or selector.statuses is not None:
        # With both, the index has the records of each pair in the order of their ids.
        chosen["task"] = one_of(names)
        chosen["status"] = one_of(selector.statuses or TaskStatus.ALL)
    if selector.source_id is not None:
        chosen["sourceDocId"] = {"$eq": selector.source_id}
    if selector.error is not None:
        # A BSON pattern ends at a null character.
        pattern = re.escape(selector.error).replace("\0", r"\x00")
        chosen["lastError"] = {"$regex": pattern}
    return chosen


async def _retry(chosen: Chosen, now: datetime) -> AsyncIterator[int]:
    """Retry in the order of the ids, so that no record is retried twice."""
    records, ours = chosen.records, {"$and": [chosen.filter, _OURS]}
    newest = await records.find_one(ours, projection={"_id": 1}, sort=[("_id", -1)])
    if newest is None:
        return
    # Records that are created meanwhile are not chosen: this might never end.
    place: Document = {"$lte": newest["_id"]}
    while batch := await records.find(
        {"$and": [chosen.filter, {"_id": place}]},
        projection={"_id": 1},
        sort=[("_id", 1)],
        limit=_BATCH_SIZE,
    ):
        ids = [document["_id"] for document in batch]
        step = transitions.retry({"$and": [{"_id": {"$in": ids}}, chosen.filter]}, now)
        yield await records.update_many(step.filter, step.update)
        place = {"$gt": ids[-1], "$lte": newest["_id"]}


class _Records:
    """The chosen records of some collections as one list, the newest first."""

    def __init__(self, chosen: Sequence[Chosen]) -> None:
        self._chosen = chosen

    async def read(
        self, start: Start | None, limit: int, *, backwards: bool
    ) -> list[tuple[Chosen, Document]]:
        rows = [
            (chosen, document)
            for chosen in self._chosen
            for document in await self._find(chosen, start, limit, backwards=backwards)
        ]
        rows.sort(key=lambda row: (row[1]["_id"], row[0].namespace), reverse=not backwards)
        return rows[:limit]

    async def has_any(self, start: Start, *, backwards: bool) -> bool:
        for chosen in self._chosen:
            if await self._find(chosen, start, 1, backwards=backwards, projection={"_id": 1}):
                return True
        return False

    def place(self, row: tuple[Chosen, Document]) -> Place:
        chosen, document = row
        return Place(chosen.namespace, document["_id"])

    async def _find(
        self, chosen: Chosen, start: Start | None, limit: int, *, backwards: bool, **options: Any
    ) -> list[Document]:
        beyond = {} if start is None else _beyond(start, chosen.namespace, backwards=backwards)
        return await chosen.records.find(
            {"$and": [chosen.filter, _OURS, beyond]},
            sort=[("_id", 1 if backwards else -1)],
            limit=limit,
            **options,
        )


def _beyond(start: Start, namespace: str, *, backwards: bool) -> Document:
    """Match what follows in a collection; equal ids are ordered by the name of the collection."""
    place = start.place
    is_other_side = namespace > place.value if backwards else namespace < place.value
    equal = is_other_side or (start.inclusive and namespace == place.value)
    later = "$gt" if backwards else "$lt"
    return {"_id": {f"{later}e" if equal else later: place.id}}
