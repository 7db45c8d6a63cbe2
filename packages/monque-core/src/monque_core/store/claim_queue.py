"""Finding due documents and claiming them: what the queues of jobs and of task records share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from monque_core.store.expressions import one_of
from monque_core.store.indexes import PENDING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bson import ObjectId

    from monque_core.store.driver import Collection, Document
    from monque_core.store.quarantine import Rejected


@dataclass(slots=True)
class DueDocument:
    """A due document that a look has found; another instance may claim it first."""

    id: object
    name: str


W = TypeVar("W")
C = TypeVar("C", bound=DueDocument)


class ClaimQueue(ABC, Generic[W, C]):
    """The due documents of one collection.

    A look reads candidates. A claim stamps them with a claim token, and what carries the token is
    read back: only the token proves that a claim was made.
    """

    _name_field: ClassVar[str]
    _claim_order: ClassVar[list[tuple[str, int]]]
    _candidate_fields: ClassVar[Document]
    _date_condition: ClassVar[Document] = {}
    """What a query on `nextRunAt` repeats for the sake of a partial index."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection

    async def look(self, names: Sequence[str], limit: int, now: datetime) -> list[C | Rejected]:
        """Return the first due candidates of all these names together, in one cheap query."""
        documents = await self._collection.find(
            {self._name_field: one_of(names), **self._due(now)},
            projection=self._candidate_fields,
            sort=self._claim_order,
            limit=limit,
        )
        return await self._candidates(documents, now)

    async def look_at_each(self, limits: Mapping[str, int], now: datetime) -> list[C | Rejected]:
        """Return the first due candidates of each name, so that no name hides another."""
        due = self._due(now)
        branches: list[list[Document]] = [
            [
                {"$match": {self._name_field: name, **due}},
                {"$sort": dict(self._claim_order)},
                {"$limit": limit},
                {"$project": self._candidate_fields},
            ]
            for name, limit in limits.items()
        ]
        pipeline = branches[0] + [
            {"$unionWith": {"coll": self._collection.name, "pipeline": branch}}
            for branch in branches[1:]
        ]
        return await self._candidates(await self._collection.aggregate(pipeline), now)

    async def upcoming(
        self, names: Sequence[str], after: datetime, until: datetime, limit: int
    ) -> list[tuple[str, datetime]]:
        """Return which of these names become due when, soonest first."""
        field = self._name_field
        documents = await self._collection.find(
            {
                field: one_of(names),
                **PENDING,
                "nextRunAt": {"$gt": after, "$lte": until, **self._date_condition},
            },
            projection={"_id": 0, field: 1, "nextRunAt": 1},
            sort=[("nextRunAt", 1)],
            limit=limit,
        )
        due_times = [(document[field], document["nextRunAt"]) for document in documents]
        # A filter also matches an array of which one element matches.
        return [(name, at) for name, at in due_times if type(name) is str and type(at) is datetime]

    async def has_due(self, names: Sequence[str], now: datetime) -> bool:
        """Whether anything of these names could be claimed now."""
        condition = {self._name_field: one_of(names), **self._due(now)}
        return bool(await self._collection.find(condition, projection={"_id": 1}, limit=1))

    async def claim_first(self, name: str, token: ObjectId, now: datetime) -> W | Rejected | None:
        """Claim the first due document of a name in a single operation."""
        return await self._claim_single(name, {self._name_field: name}, token, now)

    async def claim_one(self, candidate: C, token: ObjectId, now: datetime) -> W | Rejected | None:
        """Claim one candidate by itself."""
        return await self._claim_single(candidate.name, {"_id": candidate.id}, token, now)

    @abstractmethod
    async def claim_batch(
        self, candidates: Sequence[C], token: ObjectId, now: datetime
    ) -> list[W | Rejected]:
        """Claim as many of these candidates as are still due."""

    async def claimed_with(
        self, token: ObjectId, names: Sequence[str], at: datetime
    ) -> list[W | Rejected]:
        """Return what a token has claimed at that time, although no reply confirmed it."""
        selection = {self._name_field: one_of(names), **self._claimed_at(at)}
        # Nothing confirmed this claim, so a failover may still roll it back: read what is safe.
        return await self._read_back(selection, token, at, majority=True)

    async def _candidates(self, documents: Sequence[Document], now: datetime) -> list[C | Rejected]:
        candidates: list[C | Rejected] = []
        field = self._name_field
        for document in documents:
            if type(document[field]) is str:
                candidates.append(self._candidate(document))
            else:
                candidates.append(await self._reject_name(document["_id"], document[field], now))
        return candidates

    @abstractmethod
    def _due(self, now: datetime) -> Document:
        """Match what may be claimed now."""

    @abstractmethod
    def _candidate(self, document: Document) -> C | Rejected:
        """Read a document of a look."""

    @abstractmethod
    async def _reject_name(self, id: object, name: object, now: datetime) -> Rejected:
        """Quarantine a document whose name is not a string."""

    @abstractmethod
    async def _claim_single(
        self, name: str, selection: Document, token: ObjectId, now: datetime
    ) -> W | Rejected | None:
        """Claim the first due document of a selection."""

    @abstractmethod
    def _claimed_at(self, at: datetime) -> Document:
        """Match what was claimed at that time by an index: claim tokens have none."""

    @abstractmethod
    async def _read_back(
        self, selection: Document, token: ObjectId, at: datetime, *, majority: bool = False
    ) -> list[W | Rejected]:
        """Return what carries the token, in the order of the claim."""
