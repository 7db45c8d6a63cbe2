"""The indexes of a collection of records; the first is also what `$merge` finds a record by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pymongo import ASCENDING, IndexModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monque_core.store.driver import Document

# A query is served by a partial index only if it repeats these predicates word for word: that a
# date is asked for does not tell MongoDB that only dates are meant.
IS_DATE: Final[Document] = {"$type": "date"}


def task_indexes() -> Sequence[IndexModel]:
    """Give the indexes of a collection of records."""
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
