"""Keeping claims alive and writing down how their runs end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from pymongo import UpdateOne

from monque_core.store.tasks.documents import InvalidRecordError, to_record
from monque_core.store.tasks.transitions import held, renew, settle
from monque_core.tasks.outcome import SUCCEEDED, Outcome
from monque_core.tasks.record import TaskRecord, TaskStatus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime, timedelta

    from bson import ObjectId

    from monque_core.store.driver import Collection, Document, Session
    from monque_core.store.tasks.transitions import RecordOwner
    from monque_core.store.transitions import Transition
    from monque_core.tasks.definition import Definition

# The snapshot may be large, and is known.
_STATE_FIELDS = {"lastObservedValues": 0}

TaskVerdict: TypeAlias = TaskRecord | Literal["lost"]
"""The record as it is stored once its outcome is written, or that the claim was not ours."""


@dataclass(slots=True, eq=False)
class TaskSettlement:
    """The outcome of one claim, to be written down."""

    record: TaskRecord
    outcome: Outcome
    duration: timedelta | None = None


class TaskOutcomes:
    """The running side of a collection of records."""

    def __init__(
        self, records: Collection, claimant: RecordOwner, definitions: Mapping[str, Definition]
    ) -> None:
        self._records = records
        self._claimant = claimant
        self._definitions = definitions

    async def renew(
        self, records: Sequence[TaskRecord], now: datetime
    ) -> set[tuple[ObjectId, ObjectId | None]]:
        """Keep claims alive; give (id, token) of those that are no longer ours."""
        if not records:
            return set()
        step = renew(records, self._claimant, now)
        if await self._records.update_many(step.filter, step.update) == len(records):
            return set()
        ours = held(records, self._claimant)
        found = await self._records.find(ours, projection={"claimToken": 1})
        kept = {(document["_id"], document["claimToken"]) for document in found}
        return {(record.id, record.claim_token) for record in records} - kept

    async def settle(
        self, settlements: Sequence[TaskSettlement], now: datetime
    ) -> list[TaskVerdict]:
        """Write outcomes together, and say for each what became of it.

        Only the server knows which of the records were dirty, so they are read back.
        """
        if not settlements:
            return []
        steps = [self._step(one, now) for one in settlements]
        matched, _ = await self._records.bulk_write(
            [UpdateOne(step.filter, step.update) for step in steps]
        )
        ids = [one.record.id for one in settlements]
        documents = await self._records.find({"_id": {"$in": ids}}, projection=_STATE_FIELDS)
        states = {document["_id"]: document for document in documents}
        all_written = matched == len(settlements)
        return [
            _stored(one.record, state)
            if (state := states.get(one.record.id)) and (all_written or _is_over(one.record, state))
            else "lost"
            for one in settlements
        ]

    async def complete_in_session(
        self, record: TaskRecord, now: datetime, session: Session
    ) -> bool:
        """Write the success as part of the caller's transaction; False if the claim is lost."""
        duration = None if record.started_at is None else now - record.started_at
        step = self._step(TaskSettlement(record, SUCCEEDED, duration), now)
        if await self._records.update_one(step.filter, step.update, session):
            return True
        stored = await self._records.find_one(
            {"_id": record.id}, session=session, projection=_STATE_FIELDS
        )
        return stored is not None and _is_over(record, stored)

    def _step(self, settlement: TaskSettlement, now: datetime) -> Transition:
        record = settlement.record
        return settle(
            record,
            settlement.outcome,
            settlement.duration,
            self._definitions[record.task],
            self._claimant,
            now,
        )


def _is_over(record: TaskRecord, state: Document) -> bool:
    """Tell whether the run was settled before: its token is there, and nobody runs the record.

    So it is after a lost reply, and after a transaction that completed it.
    """
    return (
        state.get("claimToken") == record.claim_token
        and state.get("status") not in TaskStatus.RUNNING
    )


def _stored(record: TaskRecord, state: Document) -> TaskRecord:
    """Give the record as it is stored, with the snapshot that the run was for."""
    try:
        return replace(to_record(state), values=record.values, collection=record.collection)
    except InvalidRecordError:
        return record
