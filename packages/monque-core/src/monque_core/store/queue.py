"""Looking for due jobs and claiming them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from monque_core.errors import InvalidJobError
from monque_core.store.documents import to_job, unreadable
from monque_core.store.indexes import PENDING, PROCESSING
from monque_core.store.selection import one_of
from monque_core.store.transitions import CLAIM_ORDER, Owner, claim, claimed, due, set_aside
from monque_core.store.turned_away import TurnedAway

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bson import ObjectId

    from monque_core.jobs.job import AnyJob
    from monque_core.store.handle import Collection, Document

_CANDIDATE_FIELDS = {"name": 1, "claims": 1, "failCount": 1, "maxRetries": 1}


@dataclass(slots=True)
class Candidate:
    """A due job that a look has seen; whether it can be had, only the claim tells."""

    id: object
    name: str
    claims: float = 0
    failures: float = 0
    max_retries: int | None = None

    @property
    def interrupted(self) -> bool:
        """Tell whether a claim of it ended without an outcome, as a killed process leaves it."""
        return self.claims > self.failures


@dataclass(frozen=True, slots=True)
class Unreadable(TurnedAway):
    """A document in the queue that is no job, and was set aside as failed."""


class Queue:
    """The pending side of the jobs collection."""

    def __init__(self, collection: Collection, owner: Owner) -> None:
        self._collection = collection
        self._owner = owner

    async def look(
        self, names: Sequence[str], limit: int, now: datetime
    ) -> list[Candidate | Unreadable]:
        """See the first due jobs of all these names together, in one cheap query."""
        documents = await self._collection.find(
            {"name": one_of(names), **due(now)},
            projection=_CANDIDATE_FIELDS,
            sort=CLAIM_ORDER,
            limit=limit,
        )
        return await self._candidates(documents, now)

    async def look_at_each(
        self, limits: Mapping[str, int], now: datetime
    ) -> list[Candidate | Unreadable]:
        """See the first due jobs of each name, so that no name hides another; still one query."""
        branches = [_first_due(name, limit, now) for name, limit in limits.items()]
        pipeline = branches[0] + [
            {"$unionWith": {"coll": self._collection.name, "pipeline": branch}}
            for branch in branches[1:]
        ]
        documents = await self._collection.aggregate(pipeline)
        return await self._candidates(documents, now)

    async def upcoming(
        self, names: Sequence[str], after: datetime, until: datetime, limit: int
    ) -> list[tuple[str, datetime]]:
        """See which of these names become due when, soonest first."""
        documents = await self._collection.find(
            {"name": one_of(names), **PENDING, "nextRunAt": {"$gt": after, "$lte": until}},
            projection={"_id": 0, "name": 1, "nextRunAt": 1},
            sort=[("nextRunAt", 1)],
            limit=limit,
        )
        due_times = [(document["name"], document["nextRunAt"]) for document in documents]
        # An array matches what one of its elements does.
        return [(name, at) for name, at in due_times if type(name) is str and type(at) is datetime]

    async def claim_first(
        self, name: str, token: ObjectId, now: datetime
    ) -> AnyJob | Unreadable | None:
        """Claim the first due job of a name in a single operation."""
        return await self._claim_single({"name": name}, token, now)

    async def claim_one(
        self, candidate: Candidate, token: ObjectId, now: datetime
    ) -> AnyJob | Unreadable | None:
        """Claim this job by itself."""
        return await self._claim_single({"_id": candidate.id}, token, now)

    async def claim_batch(
        self, candidates: Sequence[Candidate], token: ObjectId, now: datetime
    ) -> list[AnyJob | Unreadable]:
        """Claim as many of these as are still to be had."""
        ids = [candidate.id for candidate in candidates]
        step = claim({"_id": {"$in": ids}}, self._owner, token, now)
        if not await self._collection.update_many(step.filter, step.update):
            return []
        return await self._read_back({"_id": {"$in": ids}}, token, now)

    async def claimed_with(self, token: ObjectId, at: datetime) -> list[AnyJob | Unreadable]:
        """Read back what a token has claimed at that time, though no reply told of it."""
        # What the claim wrote beside its token, which has no index of its own, finds it.
        beat = {"heartbeatInterval": self._owner.heartbeat_ms, "lastHeartbeat": at}
        return await self._read_back(beat, token, at)

    async def has_due(self, names: Sequence[str], now: datetime) -> bool:
        """Tell whether anything of these names could be claimed now."""
        return bool(await self.look(names, 1, now))

    async def _read_back(
        self, selection: Document, token: ObjectId, at: datetime
    ) -> list[AnyJob | Unreadable]:
        """Read what carries the token, which alone proves that a claim was made."""
        mine = {"claimedBy": self._owner.instance_id, "claimToken": token}
        known = claimed(self._owner, token, at)
        documents = await self._collection.find(
            {**PROCESSING, **selection, **mine},
            # Half of it is what this very claim wrote: dates above all, which are slow to read.
            projection=dict.fromkeys(known, 0),
        )
        jobs = [await self._read({**document, **known}) for document in documents]
        # The indexes return them in other orders; runs start in the order of the claim.
        jobs.sort(key=_claim_rank)
        return jobs

    async def _claim_single(
        self, selection: Document, token: ObjectId, now: datetime
    ) -> AnyJob | Unreadable | None:
        step = claim(selection, self._owner, token, now)
        document = await self._collection.find_one_and_update(
            step.filter, step.update, sort=CLAIM_ORDER
        )
        return None if document is None else await self._read(document)

    async def _read(self, document: Document) -> AnyJob | Unreadable:
        try:
            return to_job(document)
        except InvalidJobError as error:
            return await self._set_aside(document["_id"], error, document["lockedAt"])

    async def _candidates(
        self, documents: Sequence[Document], now: datetime
    ) -> list[Candidate | Unreadable]:
        candidates: list[Candidate | Unreadable] = []
        for document in documents:
            if type(document["name"]) is str:
                candidates.append(_candidate(document))
            else:
                error = unreadable("name", document["name"])
                candidates.append(await self._set_aside(document["_id"], error, now))
        return candidates

    async def _set_aside(self, job_id: object, error: InvalidJobError, now: datetime) -> Unreadable:
        """Fail a document that is no job, so that it is met only once."""
        step = set_aside(job_id, str(error), now)
        await self._collection.update_one(step.filter, step.update)
        return Unreadable(job_id, error)


def _first_due(name: str, limit: int, now: datetime) -> list[Document]:
    return [
        {"$match": {"name": name, **due(now)}},
        {"$sort": dict(CLAIM_ORDER)},
        {"$limit": limit},
        {"$project": _CANDIDATE_FIELDS},
    ]


def _candidate(document: Document) -> Candidate:
    limit = document.get("maxRetries")
    return Candidate(
        document["_id"],
        document["name"],
        _count(document.get("claims")),
        _count(document.get("failCount")),
        limit if isinstance(limit, int) else None,
    )


def _count(value: object) -> float:
    return value if isinstance(value, (int, float)) else 0


def _claim_rank(job: AnyJob | Unreadable) -> tuple[int, Any]:
    if isinstance(job, Unreadable):
        return (0, 0)
    return (1, (-job.priority, job.next_run_at))
