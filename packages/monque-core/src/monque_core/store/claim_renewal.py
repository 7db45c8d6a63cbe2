"""Renewing claims, and reading back what became of them: what jobs and task records share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, TypeAlias, TypeVar

from pymongo.errors import WriteError

from monque_core.store.shard_key import BY_ID
from monque_core.store.write_errors import write_each

if TYPE_CHECKING:
    from collections.abc import Collection as Members
    from collections.abc import Hashable, Sequence
    from datetime import datetime

    from bson import ObjectId

    from monque_core.store.driver import Collection, Document
    from monque_core.store.transitions import Transition

Loss: TypeAlias = Literal["lost", "deleted"]
"""Why a claim is gone: another run has the document, or the document was deleted."""
_OWNER_FIELDS = {"status": 1, "claimedBy": 1, "claimToken": 1}


class _Claimed(Protocol):
    id: Any
    claim_token: ObjectId | None


W = TypeVar("W", bound=_Claimed)


class ClaimRenewal(ABC, Generic[W]):
    """The claims of one instance on one collection, until their outcomes are written."""

    _running: ClassVar[Members[str]]
    """The statuses of a claimed document."""

    def __init__(self, collection: Collection, instance_id: str) -> None:
        self._collection = collection
        self._instance_id = instance_id

    async def renew(
        self, claims: Sequence[W], now: datetime
    ) -> dict[tuple[Hashable, ObjectId | None], Loss]:
        """Renew claims, and return (id, token) of those that were lost, and why."""
        if not claims:
            return {}
        step = self._renewal(claims, now)
        try:
            matched = await self._collection.update_many(step.filter, step.update, hint=BY_ID)
            if matched == len(claims):
                return {}
        except WriteError:
            # One that the server rejects must not cost the others their claims.
            await write_each(self._collection, [one.id for one in claims], step)
            raise
        states = await self._states(claims, _OWNER_FIELDS)
        return {
            (one.id, one.claim_token): "lost" if one.id in states else "deleted"
            for one in claims
            if not self._is_ours(one, states.get(one.id, {}))
        }

    @abstractmethod
    def _renewal(self, claims: Sequence[W], now: datetime) -> Transition:
        """Return the write that renews claims."""

    def _is_ours(self, claim: W, state: Document) -> bool:
        return (
            state.get("status") in self._running
            and state.get("claimedBy") == self._instance_id
            and state.get("claimToken") == claim.claim_token
        )

    def _identified(self, claims: Sequence[W]) -> Document:
        """Match these documents, whoever has claimed them now."""
        return {"_id": {"$in": [one.id for one in claims]}}

    async def _states(self, claims: Sequence[W], fields: Document) -> dict[Any, Document]:
        """Return these fields of the documents that exist, by id."""
        documents = await self._collection.find(
            self._identified(claims), projection=fields, hint=BY_ID
        )
        return {document["_id"]: document for document in documents}
