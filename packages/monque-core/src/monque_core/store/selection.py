"""What a selector means to MongoDB."""

from __future__ import annotations

from typing import TYPE_CHECKING

from monque_core.store.expressions import one_of

if TYPE_CHECKING:
    from datetime import datetime

    from monque_core.jobs.selector import JobSelector
    from monque_core.store.driver import Document


def selected(selector: JobSelector, now: datetime) -> Document:
    """Match the jobs that a selector chooses."""
    chosen: Document = {}
    if selector.name is not None:
        chosen["name"] = selector.name
    if selector.statuses is not None:
        chosen["status"] = one_of(selector.statuses)
    before, after = selector.created_before(now), selector.created_after(now)
    created = {"$lt": before, "$gt": after}
    if before is not None or after is not None:
        chosen["createdAt"] = {operator: at for operator, at in created.items() if at is not None}
    return chosen
