"""Reading jobs: one, some, and page by page; and the filter of a selector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from monque_core.jobs.cursor import Place
from monque_core.jobs.job import JobStatus
from monque_core.jobs.views import JobPage
from monque_core.store.documents import to_job
from monque_core.store.expressions import one_of
from monque_core.store.indexes import RECURRING
from monque_core.store.paging import read_page, readable

if TYPE_CHECKING:
    from datetime import datetime

    from bson import ObjectId

    from monque_core.jobs.job import AnyJob
    from monque_core.jobs.selector import JobSelector
    from monque_core.store.driver import Collection, Document
    from monque_core.store.paging import PageRequest, Start

SortName: TypeAlias = Literal["created_at", "updated_at", "next_run_at"]

# Ids grow with the time of creation, and always have an index.
_FIELDS: Final[dict[SortName, str]] = {
    "created_at": "_id",
    "updated_at": "updatedAt",
    "next_run_at": "nextRunAt",
}


def selected(selector: JobSelector, now: datetime) -> Document:
    """Match the jobs that a selector chooses."""
    chosen: Document = {}
    if selector.name is not None:
        chosen["name"] = selector.name
    if selector.statuses is not None:
        chosen["status"] = one_of(selector.statuses)
    before, after = selector.created_before(now), selector.created_after(now)
    created = {"$lt": before, "$gt": after}
    if before is not None or after is not None:
        chosen["createdAt"] = {operator: at for operator, at in created.items() if at is not None}
    return chosen


@dataclass(frozen=True, slots=True)
class Order:
    """The order of a list."""

    by: SortName
    descending: bool

    @property
    def reversed(self) -> Order:
        """Return the reversed order."""
        return Order(self.by, not self.descending)

    @property
    def keys(self) -> list[tuple[str, int]]:
        """Return the fields and directions to sort by; the id decides between equal values."""
        direction = -1 if self.descending else 1
        field = _FIELDS[self.by]
        return [(field, direction)] if field == "_id" else [(field, direction), ("_id", direction)]

    def place(self, document: Document) -> Place:
        """Return the place of a document."""
        return Place(document.get(_FIELDS[self.by]), document["_id"])

    @property
    def sortable(self) -> Document:
        """Match documents that have a place in this order: other types do not compare."""
        ours: Document = {"_id": {"$type": "objectId"}}
        field = _FIELDS[self.by]
        if field == "_id":
            return ours
        return {**ours, "$or": [{field: {"$type": "date"}}, {field: None}]}

    def from_(self, place: Place) -> Document:
        """Match a place and what comes after it."""
        return {"$or": [self.beyond(place), {"_id": {"$eq": place.id}}]}

    def beyond(self, place: Place) -> Document:
        """Match what comes after a place."""
        later = "$lt" if self.descending else "$gt"
        field = _FIELDS[self.by]
        if field == "_id":
            return {"_id": {later: place.id}}
        among_equals = {field: {"$eq": place.value}, "_id": {later: place.id}}
        if place.value is None:
            # A missing value sorts first, and a comparison with it matches nothing.
            return {"$or": [among_equals] + ([] if self.descending else [{field: {"$ne": None}}])}
        missing = [{field: None}] if self.descending else []
        return {"$or": [{field: {later: place.value}}, among_equals, *missing]}


class JobListing:
    """The jobs collection as lists."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection

    async def get(self, job_id: ObjectId) -> AnyJob | None:
        """Return one job."""
        document = await self._collection.find_one({"_id": job_id})
        return None if document is None else to_job(document)

    async def find(
        self, selector: JobSelector, order: Order, limit: int, skip: int, now: datetime
    ) -> list[AnyJob]:
        """Return the selected jobs in order."""
        chosen = selected(selector, now)
        documents = await self._collection.find(chosen, sort=order.keys, limit=limit, skip=skip)
        return readable(documents, to_job)

    async def page(
        self, selector: JobSelector, order: Order, request: PageRequest, now: datetime
    ) -> JobPage:
        """Return a page of the selected jobs."""
        rows = _Jobs(self._collection, selected(selector, now), order)
        sheet = await read_page(rows, request)
        jobs = readable(sheet.rows, to_job)
        return JobPage(jobs, sheet.cursor, sheet.has_next, sheet.has_previous)

    async def schedules(self, name: str | None) -> list[AnyJob]:
        """Return the recurring jobs, of one name or all."""
        chosen: Document = {} if name is None else {"name": name}
        documents = await self._collection.find(
            {**RECURRING, **chosen, "status": {"$in": list(JobStatus.ACTIVE)}},
            sort=[("name", 1)],
        )
        return readable(documents, to_job)


class _Jobs:
    """The rows of a paged list: the chosen jobs in order."""

    def __init__(self, collection: Collection, chosen: Document, order: Order) -> None:
        self._collection = collection
        self._chosen = chosen
        self._order = order

    async def read(self, start: Start | None, limit: int, *, backwards: bool) -> list[Document]:
        order = self._order.reversed if backwards else self._order
        return await self._collection.find(
            self._following(start, order), sort=order.keys, limit=limit
        )

    async def has_any(self, start: Start, *, backwards: bool) -> bool:
        order = self._order.reversed if backwards else self._order
        found = await self._collection.find_one(
            self._following(start, order), projection={"_id": 1}, sort=order.keys
        )
        return found is not None

    def place(self, row: Document) -> Place:
        return self._order.place(row)

    def _following(self, start: Start | None, order: Order) -> Document:
        beyond: Document = {}
        if start is not None:
            beyond = order.from_(start.place) if start.inclusive else order.beyond(start.place)
        return {"$and": [self._chosen, order.sortable, beyond]}
