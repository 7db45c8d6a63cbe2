"""A source collection with reactive tasks, and all parts of the store that serve them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from bson import ObjectId, Timestamp
from bson.codec_options import CodecOptions

from monque_core.store.driver import Driver
from monque_core.store.tasks.indexes import task_indexes
from monque_core.store.tasks.outcomes import TaskOutcomes, TaskSettlement, TaskVerdict
from monque_core.store.tasks.plan_updates import ChangedDocuments, Deletion
from monque_core.store.tasks.plan_writer import PlanResult, PlanWriter
from monque_core.store.tasks.queue import TaskQueue
from monque_core.store.tasks.transitions import RecordOwner
from monque_core.tasks.definition import Definition, define
from monque_core.tasks.record import TaskRecord

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core.store.transitions import Transition
    from monque_core.tasks.outcome import Outcome

NOW = datetime(2026, 5, 5, 12, 0, 30, tzinfo=UTC)
VISIBILITY = timedelta(seconds=60)
LATEST = Timestamp(2**32 - 1, 0)
"""A cluster time after everything that was ever planned."""
_AWARE: CodecOptions[dict[str, Any]] = CodecOptions(tz_aware=True, tzinfo=UTC)


def after(seconds: float) -> datetime:
    """Return the time this many seconds after `NOW`."""
    return NOW + timedelta(seconds=seconds)


class TaskBench:
    """Operations on a source collection and its records, by default of the task `invoice`."""

    def __init__(self, db: AsyncDatabase[dict[str, Any]], collection: str = "orders") -> None:
        self.collection = collection
        self.database = db.name
        self.handle = Driver(db)
        self.source = db.get_collection(collection, codec_options=_AWARE)
        self.records = db.get_collection(f"{collection}_tasks", codec_options=_AWARE)
        self.plan_writer = PlanWriter(self.handle)
        self.definitions: dict[str, Definition] = {}
        self._own = self.handle.collection(f"{collection}_tasks")

    async def prepare(self) -> None:
        """Create the indexes of the records."""
        await self._own.create_indexes(task_indexes())

    def define(self, name: str = "invoice", **options: Any) -> Definition:
        """Declare a task, or redeclare it."""
        definition = define(self.database, self.collection, name=name, **options)
        self.definitions[name] = definition
        return definition

    def queue(self, instance_id: str = "me") -> TaskQueue:
        """Return the queue of an instance."""
        owner = RecordOwner(instance_id, VISIBILITY)
        return TaskQueue(self._own, owner, self.definitions, self.handle.connectivity)

    def outcomes(self, instance_id: str = "me") -> TaskOutcomes:
        """Return the outcomes of an instance."""
        return TaskOutcomes(self._own, RecordOwner(instance_id, VISIBILITY), self.definitions)

    async def plan(
        self,
        *ids: Any,
        deleted: tuple[Any, ...] = (),
        deleted_at: Timestamp = LATEST,
        task: str = "invoice",
        now: datetime = NOW,
        term: int = 1,
    ) -> PlanResult:
        """Plan documents; the result lists those that were parked."""
        declaration = self.definitions[task].declaration
        deletions = [Deletion(id, deleted_at) for id in deleted]
        return await self.plan_writer.plan(declaration, ChangedDocuments(ids, deletions), now, term)

    async def cluster_time(self) -> Timestamp:
        """Return the time of the last write, as a change stream reports it."""
        time: Timestamp = (await self.handle.command("hello"))["lastWrite"]["opTime"]["ts"]
        return time

    async def put(self, id: Any, now: datetime = NOW, term: int = 1, **fields: Any) -> PlanResult:
        """Replace a document, and plan it."""
        await self.source.replace_one({"_id": {"$eq": id}}, {"_id": id, **fields}, upsert=True)
        return await self.plan(id, now=now, term=term)

    async def record(self, id: Any = 1, task: str = "invoice") -> dict[str, Any]:
        """Read the record of a document, which must exist."""
        found = await self.records.find_one({"sourceDocId": {"$eq": id}, "task": task})
        assert found is not None, f"there is no record of {task} for {id!r}"
        return found

    async def edit(self, id: Any = 1, task: str = "invoice", **fields: Any) -> dict[str, Any]:
        """Change a record directly in the collection and return it; None removes a field."""
        gone = {field: "" for field, value in fields.items() if value is None}
        kept = {field: value for field, value in fields.items() if value is not None}
        update = {"$set": kept} if kept else {}
        update |= {"$unset": gone} if gone else {}
        result = await self.records.update_one({"sourceDocId": {"$eq": id}, "task": task}, update)
        assert result.matched_count == 1
        return await self.record(id, task)

    async def claim(
        self, task: str = "invoice", now: datetime = NOW, instance_id: str = "me"
    ) -> TaskRecord:
        """Claim the first due record of a task, which must exist."""
        record = await self.queue(instance_id).claim_first(task, ObjectId(), now)
        assert isinstance(record, TaskRecord), record
        return record

    async def settle(
        self,
        record: TaskRecord,
        outcome: Outcome,
        now: datetime = NOW,
        instance_id: str = "me",
        seconds: float = 2,
    ) -> TaskVerdict:
        """Settle one claim."""
        settlement = TaskSettlement(record, outcome, timedelta(seconds=seconds))
        (verdict,) = await self.outcomes(instance_id).settle([settlement], now)
        return verdict

    async def apply(self, step: Transition) -> int:
        """Apply a transition to all records that it matches."""
        result = await self.records.update_many(step.filter, step.update)
        return result.matched_count
