"""The indexes of a record collection; `$merge` finds records by the first one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pymongo import ASCENDING, IndexModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monque_core.store.driver import Document

# MongoDB uses a partial index only if the query repeats its predicate: a comparison with a date
# does not imply that the field is a date.
IS_DATE: Final[Document] = {"$type": "date"}


def task_indexes() -> Sequence[IndexModel]:
    """Return the indexes of a record collection."""
    return [
        IndexModel(
            [("sourceDocId", ASCENDING), ("task", ASCENDING)],
            name="monque_py_tasks_source",
            unique=True,
        ),
        IndexModel(
            [("task", ASCENDING), ("nextRunAt", ASCENDING)],
            name="monque_py_tasks_due",
            partialFilterExpression={"nextRunAt": IS_DATE},
        ),
        IndexModel(
            [("task", ASCENDING), ("unmatchedAt", ASCENDING)],
            name="monque_py_tasks_unmatched",
            partialFilterExpression={"unmatchedAt": IS_DATE},
        ),
        IndexModel(
            [("task", ASCENDING), ("status", ASCENDING), ("_id", ASCENDING)],
            name="monque_py_tasks_status",
        ),
    ]
