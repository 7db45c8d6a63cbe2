"""How far the planner is: the declared tasks, their reconciliation, the place in each stream."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import bson
from bson import ObjectId

from monque_core.errors import LeadershipLostError
from monque_core.log import log
from monque_core.store.expressions import milliseconds
from monque_core.store.tasks.source_collections import LastId
from monque_core.tasks.definition import Declaration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from monque_core.store.driver import Collection, Document

FORGOTTEN_AFTER: Final = timedelta(days=1)
"""A task that no instance has for so long is not planned any more."""

# Not all clocks agree: what one leader may have left out already must be made up for.
_MISSED_AFTER: Final = FORGOTTEN_AFTER - timedelta(hours=1)

LEADER: Final = "reactive:leader"
"""The key of the leader's lease."""

Phase: TypeAlias = Literal["scan", "orphans"]

_TASK: Final = "reactive:task:"
_STREAM: Final = "reactive:stream:"
_PARKED: Final = "reactive:parked:"


@dataclass(frozen=True, slots=True)
class ReconcileRequest:
    """A reconciliation that was asked for, and how far it is."""

    ticket: ObjectId
    """Tells one request from the next: who asks again wants it from the beginning."""
    reason: str
    asked_at: datetime
    phase: Phase = "scan"
    after: LastId | None = None
    """Where the phase goes on; None at its beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredTask:
    """A declared task, and what the planner has done for it."""

    declaration: Declaration
    seen_at: datetime
    applied_version: int
    reconciled_at: datetime | None
    reconciliation: ReconcileRequest | None
    error: str | None
    """Why the task cannot be planned at present."""

    def is_forgotten(self, now: datetime) -> bool:
        """Tell whether no instance has had the task for so long that it is not planned."""
        return self.seen_at <= now - FORGOTTEN_AFTER


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """How far the change stream of a database has been worked off."""

    database: str
    token: Mapping[str, Any]
    up_to: datetime
    """Everything that happened until then has been planned."""


@dataclass(frozen=True, slots=True)
class ParkedDocument:
    """A document that one task cannot be planned for."""

    task: str
    database: str
    collection: str
    source_id: Any
    error: str
    at: datetime


class PlannerState:
    """The planner's part of the meta collection.

    Every instance declares its tasks, and anyone may ask for a reconciliation. All else is written
    by the leader, with its term, and refused with `LeadershipLostError` once a later one has
    written.
    """

    def __init__(self, meta: Collection) -> None:
        self._meta = meta

    async def declare(self, declaration: Declaration, now: datetime) -> None:
        """Say that an instance has this task, as it is declared now.

        Its reconciliation is asked for if the task is new, was unseen for long, moved to another
        collection, or changed what it looks at.
        """
        stored = _stored(declaration)
        await self._meta.find_one_and_update(
            {"_id": _TASK + declaration.name},
            [
                {"$set": {"reason": _reason(declaration, now)}},
                {
                    "$set": {
                        **{field: {"$literal": value} for field, value in stored.items()},
                        "seenAt": {"$max": ["$seenAt", now]},
                        # What is new has nothing of a former version.
                        "version": {"$ifNull": ["$version", declaration.version]},
                        "reconcile": {
                            "$cond": [
                                {"$eq": ["$reason", None]},
                                "$reconcile",
                                {**_request(now), "reason": "$reason"},
                            ]
                        },
                    }
                },
                {"$unset": "reason"},
            ],
            upsert=True,
        )

    async def refresh(self, names: Sequence[str], now: datetime) -> int:
        """Say that an instance still has these tasks; tell how many are declared at all."""
        return await self._meta.update_many(
            {"_id": {"$in": [_TASK + name for name in names]}}, {"$max": {"seenAt": now}}
        )

    async def declarations(self, now: datetime) -> list[DeclaredTask]:
        """Read the tasks that some instance has, or had lately, in the order of their names."""
        return await self._declared({"seenAt": {"$gt": now - FORGOTTEN_AFTER}})

    async def all_declarations(self) -> list[DeclaredTask]:
        """Read every task that there are records of, in the order of their names."""
        return await self._declared({})

    async def take_over(self, term: int) -> None:
        """Refuse from now on what the leaders before this term write."""
        await self._meta.update_many(
            {"$and": [{"$or": [_all(_TASK), _all(_STREAM)]}, _not_after(term)]},
            {"$set": {"term": term}},
        )

    async def ask_reconcile(self, name: str, reason: str, now: datetime) -> bool:
        """Ask for a reconciliation from the beginning; False if there is no such task."""
        request = {**_request(now), "reason": reason}
        matched = await self._meta.update_one(
            {"_id": _TASK + name}, {"$set": {"reconcile": request}}
        )
        return bool(matched)

    async def checkpoint(
        self, name: str, ticket: ObjectId, phase: Phase, after: LastId | None, term: int
    ) -> bool:
        """Save how far a reconciliation is; False if it was asked for anew meanwhile."""
        place: Document = {"$set": {"reconcile.phase": phase}}
        if after is None:
            place["$unset"] = {"reconcile.after": ""}
        else:
            place["$set"]["reconcile.after"] = {"id": after.id}
        return await self._write(name, {"reconcile.ticket": ticket}, place, term)

    async def mark_reconciled(self, name: str, ticket: ObjectId, now: datetime, term: int) -> bool:
        """Save that a reconciliation is complete; False if it was asked for anew meanwhile."""
        done = {"$set": {"reconciledAt": now}, "$unset": {"reconcile": ""}}
        return await self._write(name, {"reconcile.ticket": ticket}, done, term)

    async def mark_version(self, name: str, version: int, term: int) -> bool:
        """Save that the records have been made to fit a version; False if the task is gone."""
        return await self._write(name, {}, {"$set": {"version": version}}, term)

    async def set_error(self, name: str, error: str | None, term: int) -> bool:
        """Save why a task cannot be planned, None once it can; False if the task is gone."""
        update = {"$unset": {"error": ""}} if error is None else {"$set": {"error": error}}
        return await self._write(name, {}, update, term)

    async def save_token(
        self, database: str, token: Mapping[str, Any], up_to: datetime, term: int
    ) -> None:
        """Save how far the change stream of a database has been worked off."""
        place = {"database": database, "token": dict(token), "upTo": up_to}
        await self._put(_STREAM + database, place, term)

    async def load_token(self, database: str) -> Mapping[str, Any] | None:
        """Read where the change stream of a database goes on, None if that was never saved."""
        document = await self._meta.find_one({"_id": _STREAM + database})
        token = None if document is None else document.get("token")
        return token if isinstance(token, dict) else None

    async def streams(self) -> list[StreamPosition]:
        """Read how far every change stream has been worked off."""
        return [
            StreamPosition(document["database"], document["token"], document["upTo"])
            for document in await self._meta.find(_all(_STREAM), sort=[("_id", 1)])
        ]

    async def park(self, parked: ParkedDocument, term: int) -> None:
        """Set a document aside that a task cannot be planned for."""
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
        """Forget that documents could not be planned for; tell how many were parked."""
        place = (declaration.name, declaration.database, declaration.collection)
        keys = [self._parked_key(*place, each) for each in ids]
        return await self._meta.delete_many({"_id": {"$in": keys}})

    async def unpark_before(self, name: str, before: datetime) -> int:
        """Forget what a task was parked for before a time; tell how many that were."""
        return await self._meta.delete_many({**_all(_PARKED), "task": name, "at": {"$lt": before}})

    async def parked(self, name: str | None = None, limit: int = 100) -> list[ParkedDocument]:
        """Read the parked documents of one task or all."""
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
        """Count the parked documents of each task."""
        rows = await self._meta.aggregate(
            [{"$match": _all(_PARKED)}, {"$group": {"_id": "$task", "count": {"$sum": 1}}}]
        )
        return {row["_id"]: row["count"] for row in rows}

    async def _declared(self, condition: Document) -> list[DeclaredTask]:
        documents = await self._meta.find({**_all(_TASK), **condition}, sort=[("_id", 1)])
        return [task for task in map(_readable, documents) if task is not None]

    async def _write(self, name: str, condition: Document, update: Document, term: int) -> bool:
        """Write to a task unless a later leader has; False if the condition is not met."""
        key = {"_id": _TASK + name}
        fenced = {**update, "$set": {**update.get("$set", {}), "term": term}}
        if await self._meta.update_one({**key, **_not_after(term), **condition}, fenced):
            return True
        found = await self._meta.find_one(key, projection={"term": 1})
        if found is not None and (found.get("term") or 0) > term:
            raise _outdated(term, found["term"])
        return False

    async def _put(self, key: str, content: Document, term: int) -> None:
        """Put a document, new or in place of another, unless a later leader has."""
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
        # By what is encoded: the id may be of any type, and too long for a key.
        identity = {"task": task, "ns": [database, collection], "id": source_id}
        encoded = bson.encode(identity, codec_options=self._meta.native.codec_options)
        return _PARKED + hashlib.sha256(encoded).hexdigest()


def _all(prefix: str) -> Document:
    """Match the documents of one kind: ';' follows ':'."""
    return {"_id": {"$gte": prefix, "$lt": f"{prefix[:-1]};"}}


def _not_after(term: int) -> Document:
    """Match what no later leader has written."""
    return {"$or": [{"term": {"$lte": term}}, {"term": None}]}


def _outdated(term: int, later: int) -> LeadershipLostError:
    return LeadershipLostError(f"the term {term} is over: a leader of the term {later} has written")


def _request(now: datetime) -> Document:
    return {"ticket": ObjectId(), "phase": "scan", "askedAt": now}


def _reason(declaration: Declaration, now: datetime) -> Document:
    """Compute why a declaration makes a reconciliation necessary, null if it does not."""
    is_moved = [
        {"$ne": ["$database", {"$literal": declaration.database}]},
        {"$ne": ["$collection", {"$literal": declaration.collection}]},
    ]
    is_changed = {"$ne": ["$fingerprint", declaration.fingerprint]}
    is_missed = {"$lte": ["$seenAt", now - _MISSED_AFTER]}
    reasons = [
        ({"$eq": [{"$type": "$fingerprint"}, "missing"]}, "the task is new"),
        ({"$or": is_moved}, "its collection is another one"),
        (is_missed, "no instance had it for a day"),
    ]
    if declaration.reconcile_on_change:
        reasons.append((is_changed, "its filter or watch has changed"))
    branches = [{"case": condition, "then": reason} for condition, reason in reasons]
    return {"$switch": {"branches": branches, "default": None}}


def _stored(declaration: Declaration) -> Document:
    cleanup = declaration.cleanup
    return {
        "task": declaration.name,
        "database": declaration.database,
        "collection": declaration.collection,
        "filter": declaration.filter_text,
        "watch": declaration.watch_text,
        "fingerprint": declaration.fingerprint,
        "debounceMs": milliseconds(declaration.debounce),
        "maxWaitMs": milliseconds(declaration.max_wait),
        "resetOnChange": declaration.reset_on_change,
        "cleanup": {"when": cleanup.when, "keepForMs": milliseconds(cleanup.quiet_time)},
        "declaredVersion": declaration.version,
        "onVersionChange": declaration.on_version_change,
        "reconcileOnChange": declaration.reconcile_on_change,
    }


def _readable(document: Document) -> DeclaredTask | None:
    try:
        return _task(document)
    except (KeyError, TypeError, ValueError) as error:
        log(logging.WARNING, f"the task {document['_id']} is left out: {error!r}")
        return None


def _task(document: Document) -> DeclaredTask:
    cleanup = document["cleanup"]
    declaration = Declaration.restore(
        name=document["task"],
        database=document["database"],
        collection=document["collection"],
        watch_text=document["watch"],
        filter_text=document["filter"],
        debounce=timedelta(milliseconds=document["debounceMs"]),
        max_wait=timedelta(milliseconds=document["maxWaitMs"]),
        reset_on_change=document["resetOnChange"],
        cleanup_when=cleanup["when"],
        keep_for=timedelta(milliseconds=cleanup["keepForMs"]),
        version=document["declaredVersion"],
        on_version_change=document["onVersionChange"],
        reconcile_on_change=document["reconcileOnChange"],
    )
    asked = document.get("reconcile")
    return DeclaredTask(
        declaration=declaration,
        seen_at=document["seenAt"],
        applied_version=document["version"],
        reconciled_at=document.get("reconciledAt"),
        reconciliation=None if asked is None else _reconciliation(asked),
        error=document.get("error"),
    )


def _reconciliation(asked: Document) -> ReconcileRequest:
    after = asked.get("after")
    return ReconcileRequest(
        asked["ticket"],
        asked["reason"],
        asked["askedAt"],
        asked["phase"],
        None if after is None else LastId(after["id"]),
    )
