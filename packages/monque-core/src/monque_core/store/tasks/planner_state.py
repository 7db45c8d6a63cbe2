"""The stored state of the planner: tasks, reconciliations, resume tokens, parked documents."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import bson

from monque_core.errors import LeadershipLostError
from monque_core.store.tasks.declarations import (
    FORGOTTEN_AFTER,
    new_request,
    reconcile_reason,
    to_declared_task,
    to_document,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from bson import ObjectId

    from monque_core.store.driver import Collection, Document
    from monque_core.store.tasks.declarations import DeclaredTask, Phase
    from monque_core.store.tasks.source_collections import LastId
    from monque_core.tasks.definition import Declaration

LEADER: Final = "reactive:leader"
"""The key of the leader's lease."""

_TASK: Final = "reactive:task:"
_STREAM: Final = "reactive:stream:"
_PARKED: Final = "reactive:parked:"


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """The position up to which the change stream of a database is planned."""

    database: str
    token: Mapping[str, Any]
    up_to: datetime
    """All changes up to this time are planned."""


@dataclass(frozen=True, slots=True)
class ParkedDocument:
    """A document for which one task cannot be planned."""

    task: str
    database: str
    collection: str
    source_id: Any
    error: str
    at: datetime


class PlannerState:
    """The planner's part of the meta collection.

    Every instance declares its tasks and may request a reconciliation. Everything else is written
    by the leader, with its term. A write of an older term raises `LeadershipLostError`.
    """

    def __init__(self, meta: Collection) -> None:
        self._meta = meta

    async def declare(self, declaration: Declaration, now: datetime) -> None:
        """Store a task of this instance.

        Request its reconciliation if the task is new, was not declared for long, moved to another
        collection, or changed its filter or watch.
        """
        stored = to_document(declaration)
        await self._meta.find_one_and_update(
            {"_id": _TASK + declaration.name},
            [
                {"$set": {"reason": reconcile_reason(declaration, now)}},
                {
                    "$set": {
                        **{field: {"$literal": value} for field, value in stored.items()},
                        "seenAt": {"$max": ["$seenAt", now]},
                        # A new task has no records of an earlier version.
                        "version": {"$ifNull": ["$version", declaration.version]},
                        "reconcile": {
                            "$cond": [
                                {"$eq": ["$reason", None]},
                                "$reconcile",
                                {**new_request(now), "reason": "$reason"},
                            ]
                        },
                    }
                },
                {"$unset": "reason"},
            ],
            upsert=True,
        )

    async def refresh(self, names: Sequence[str], now: datetime) -> int:
        """Store that this instance still has these tasks; return how many of them are declared."""
        return await self._meta.update_many(
            {"_id": {"$in": [_TASK + name for name in names]}}, {"$max": {"seenAt": now}}
        )

    async def declarations(self, now: datetime) -> list[DeclaredTask]:
        """Return the tasks that some instance has or recently had, ordered by name."""
        return await self._declared({"seenAt": {"$gt": now - FORGOTTEN_AFTER}})

    async def all_declarations(self) -> list[DeclaredTask]:
        """Return every task that was ever declared, ordered by name."""
        return await self._declared({})

    async def take_over(self, term: int) -> None:
        """Reject all later writes of leaders with an older term."""
        await self._meta.update_many(
            {"$and": [{"$or": [_all(_TASK), _all(_STREAM)]}, _not_after(term)]},
            {"$set": {"term": term}},
        )

    async def ask_reconcile(self, name: str, reason: str, now: datetime) -> bool:
        """Request a reconciliation; return False if there is no such task."""
        request = {**new_request(now), "reason": reason}
        matched = await self._meta.update_one(
            {"_id": _TASK + name}, {"$set": {"reconcile": request}}
        )
        return bool(matched)

    async def checkpoint(
        self, name: str, ticket: ObjectId, phase: Phase, after: LastId | None, term: int
    ) -> bool:
        """Save the progress of a reconciliation; return False if a new one was requested."""
        place: Document = {"$set": {"reconcile.phase": phase}}
        if after is None:
            place["$unset"] = {"reconcile.after": ""}
        else:
            place["$set"]["reconcile.after"] = {"id": after.id}
        return await self._write(name, {"reconcile.ticket": ticket}, place, term)

    async def mark_reconciled(self, name: str, ticket: ObjectId, now: datetime, term: int) -> bool:
        """Save that a reconciliation is complete; return False if a new one was requested."""
        done = {"$set": {"reconciledAt": now}, "$unset": {"reconcile": ""}}
        return await self._write(name, {"reconcile.ticket": ticket}, done, term)

    async def mark_version(self, name: str, version: int, term: int) -> bool:
        """Save that a version was applied to the records; return False if the task is gone."""
        return await self._write(name, {}, {"$set": {"version": version}}, term)

    async def set_error(self, name: str, error: str | None, term: int) -> bool:
        """Save why a task cannot be planned, None if it can; return False if the task is gone."""
        update = {"$unset": {"error": ""}} if error is None else {"$set": {"error": error}}
        return await self._write(name, {}, update, term)

    async def save_token(
        self, database: str, token: Mapping[str, Any], up_to: datetime, term: int
    ) -> None:
        """Save the position up to which the change stream of a database is planned."""
        place = {"database": database, "token": dict(token), "upTo": up_to}
        await self._put(_STREAM + database, place, term)

    async def load_token(self, database: str) -> Mapping[str, Any] | None:
        """Return the saved resume token of a database, None if there is none."""
        document = await self._meta.find_one({"_id": _STREAM + database})
        token = None if document is None else document.get("token")
        return token if isinstance(token, dict) else None

    async def streams(self) -> list[StreamPosition]:
        """Return the position of every change stream."""
        return [
            StreamPosition(document["database"], document["token"], document["upTo"])
            for document in await self._meta.find(_all(_STREAM), sort=[("_id", 1)])
        ]

    async def park(self, parked: ParkedDocument, term: int) -> None:
        """Store that a task cannot be planned for a document."""
        document = {
            "task": parked.task,
            "database": parked.database,
            "collection": parked.collection,
            "sourceDocId": parked.source_id,
            "error": parked.error,
            "at": parked.at,
        }
        key = self._parked_key(parked.task, parked.database, parked.collection, parked.source_id)
        await self._put(key, document, term)

    async def unpark(self, declaration: Declaration, ids: Sequence[object]) -> int:
        """Remove parked documents; return how many were parked."""
        place = (declaration.name, declaration.database, declaration.collection)
        keys = [self._parked_key(*place, each) for each in ids]
        return await self._meta.delete_many({"_id": {"$in": keys}})

    async def unpark_before(self, name: str, before: datetime) -> int:
        """Remove the documents that were parked before a time; return how many there were."""
        return await self._meta.delete_many({**_all(_PARKED), "task": name, "at": {"$lt": before}})

    async def parked(self, name: str | None = None, limit: int = 100) -> list[ParkedDocument]:
        """Return the parked documents of one task or all."""
        chosen = _all(_PARKED) | ({} if name is None else {"task": name})
        return [
            ParkedDocument(
                document["task"],
                document["database"],
                document["collection"],
                document.get("sourceDocId"),
                document["error"],
                document["at"],
            )
            for document in await self._meta.find(chosen, sort=[("_id", 1)], limit=limit)
        ]

    async def count_parked(self) -> dict[str, int]:
        """Return the number of parked documents of each task."""
        rows = await self._meta.aggregate(
            [{"$match": _all(_PARKED)}, {"$group": {"_id": "$task", "count": {"$sum": 1}}}]
        )
        return {row["_id"]: row["count"] for row in rows}

    async def _declared(self, condition: Document) -> list[DeclaredTask]:
        documents = await self._meta.find({**_all(_TASK), **condition}, sort=[("_id", 1)])
        return [task for task in map(to_declared_task, documents) if task is not None]

    async def _write(self, name: str, condition: Document, update: Document, term: int) -> bool:
        """Update a task unless a later leader has; return False if the condition is not met."""
        key = {"_id": _TASK + name}
        fenced = {**update, "$set": {**update.get("$set", {}), "term": term}}
        if await self._meta.update_one({**key, **_not_after(term), **condition}, fenced):
            return True
        found = await self._meta.find_one(key, projection={"term": 1})
        if found is not None and (found.get("term") or 0) > term:
            raise _outdated(term, found["term"])
        return False

    async def _put(self, key: str, content: Document, term: int) -> None:
        """Insert or replace a document unless a later leader has written it."""
        document = {"_id": key, **content, "term": term}
        is_mine = {"$lte": [{"$ifNull": ["$term", 0]}, term]}
        written = await self._meta.find_one_and_update(
            {"_id": key},
            [{"$replaceWith": {"$cond": [is_mine, {"$literal": document}, "$$ROOT"]}}],
            upsert=True,
            projection={"term": 1},
        )
        assert written is not None
        if written["term"] > term:
            raise _outdated(term, written["term"])

    def _parked_key(self, task: str, database: str, collection: str, source_id: object) -> str:
        # A digest: the id may be of any type, and too long for a key.
        identity = {"task": task, "ns": [database, collection], "id": source_id}
        encoded = bson.encode(identity, codec_options=self._meta.native.codec_options)
        return _PARKED + hashlib.sha256(encoded).hexdigest()


def _all(prefix: str) -> Document:
    """Match the keys with a prefix: ';' is the character after ':'."""
    return {"_id": {"$gte": prefix, "$lt": f"{prefix[:-1]};"}}


def _not_after(term: int) -> Document:
    """Match what no later leader has written."""
    return {"$or": [{"term": {"$lte": term}}, {"term": None}]}


def _outdated(term: int, later: int) -> LeadershipLostError:
    return LeadershipLostError(f"the term {term} is over: a leader of the term {later} has written")
