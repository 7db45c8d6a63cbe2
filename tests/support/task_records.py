"""Records of reactive tasks, stored without running an instance."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from monque_core.store.driver import Driver
from monque_core.store.tasks.indexes import task_indexes
from monque_core.store.tasks.planner_state import PlannerState
from monque_core.tasks.definition import define

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

META = "monque_jobs_meta"


async def declare(
    db: AsyncDatabase[dict[str, Any]], name: str = "invoice", collection: str = "orders"
) -> None:
    """Declare a task and create the indexes of its records, like the start of an instance."""
    handle = Driver(db)
    await handle.collection(f"{collection}_tasks").create_indexes(task_indexes())
    declaration = define(db.name, collection, name=name).declaration
    await PlannerState(handle.collection(META)).declare(declaration, datetime.now(UTC))


async def put_record(
    db: AsyncDatabase[dict[str, Any]],
    source_id: Any,
    task: str = "invoice",
    collection: str = "orders",
    **fields: Any,
) -> None:
    """Store the record of a task for a document."""
    now = datetime.now(UTC)
    record = {
        "task": task,
        "sourceDocId": source_id,
        "status": "completed",
        "attempts": 1,
        "nextRunAt": None,
        "createdAt": now,
        "updatedAt": now,
        "lastObservedValues": {"total": 10},
    }
    await db[f"{collection}_tasks"].insert_one(record | fields)
