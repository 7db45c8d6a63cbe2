"""Renewing claims on task records, and writing the outcomes of their runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from pymongo import UpdateOne

from monque_core.store.claim_renewal import ClaimRenewal
from monque_core.store.tasks.documents import InvalidRecordError, to_record
from monque_core.store.tasks.transitions import renew, settle
from monque_core.tasks.outcome import SUCCEEDED, Outcome
from monque_core.tasks.record import TaskRecord, TaskStatus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime, timedelta

    from monque_core.store.driver import Collection, Document, Session
    from monque_core.store.tasks.transitions import RecordOwner
    from monque_core.store.transitions import Transition
    from monque_core.tasks.definition import Definition

# The snapshot may be large, and is known.
_STATE_FIELDS = {"lastObservedValues": 0}

TaskVerdict: TypeAlias = TaskRecord | Literal["lost"]
"""The record as stored after its outcome was written; "lost" if the claim was lost before."""


@dataclass(slots=True, eq=False)
class TaskSettlement:
    """The outcome of one claim, to be written."""

    record: TaskRecord
    outcome: Outcome
    duration: timedelta | None = None


class TaskOutcomes(ClaimRenewal[TaskRecord]):
    """The claimed records of this instance in one collection."""

    _running = TaskStatus.RUNNING

    def __init__(
        self, records: Collection, owner: RecordOwner, definitions: Mapping[str, Definition]
    ) -> None:
        super().__init__(records, owner.instance_id)
        self._owner = owner
        self._definitions = definitions

    async def settle(
        self, settlements: Sequence[TaskSettlement], now: datetime
    ) -> list[TaskVerdict]:
        """Write outcomes in one bulk write, and return a verdict for each.

        Only the server knows which of the records were dirty, so they are read back.
        """
        if not settlements:
            return []
        steps = [self._step(one, now) for one in settlements]
        matched, _ = await self._collection.bulk_write(
            [UpdateOne(step.filter, step.update) for step in steps]
        )
        states = await self._states([one.record for one in settlements], _STATE_FIELDS)
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
        """Write the success in the transaction of a session; return False if the claim is lost."""
        duration = None if record.started_at is None else now - record.started_at
        step = self._step(TaskSettlement(record, SUCCEEDED, duration), now)
        if await self._collection.update_one(step.filter, step.update, session=session):
            return True
        stored = await self._collection.find_one(
            {"_id": record.id}, session=session, projection=_STATE_FIELDS
        )
        return stored is not None and _is_over(record, stored)

    def _renewal(self, claims: Sequence[TaskRecord], now: datetime) -> Transition:
        return renew(claims, self._owner, now)

    def _step(self, settlement: TaskSettlement, now: datetime) -> Transition:
        record = settlement.record
        return settle(
            record,
            settlement.outcome,
            settlement.duration,
            self._definitions[record.task],
            self._owner,
            now,
        )


def _is_over(record: TaskRecord, state: Document) -> bool:
    """Whether the outcome of this run is stored already: its token is there, but no claim.

    This is the case after a lost reply, and after a transaction that completed the record.
    """
    return (
        state.get("claimToken") == record.claim_token
        and state.get("status") not in TaskStatus.RUNNING
    )


def _stored(record: TaskRecord, state: Document) -> TaskRecord:
    """Return the record as it is stored, with the snapshot that the run was for."""
    try:
        return replace(to_record(state), values=record.values, collection=record.collection)
    except InvalidRecordError:
        return record
