"""Reactive tasks whose runs are recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.tally import Tally

if TYPE_CHECKING:
    from monque_core import Monque, ReactiveTask
    from monque_core.reactive import TaskRecord


def note_runs(monque: Monque, collection: object = "orders", **options: Any) -> Tally[Any]:
    """Register a task; by default `invoice` on orders, without debounce.

    Return its runs: the ids of documents and the watched values.
    """
    ran: Tally[Any] = Tally()

    async def note(task: ReactiveTask) -> None:
        ran.add((task.source_id, task.values))

    given: Any = {"name": "invoice", "debounce": 0, **options}
    monque.reactive(collection, note, **given)
    return ran


async def settle(monque: Monque) -> None:
    """Wait until every change is planned, and every due task has run."""
    await monque.run_until_idle()


async def record_of(monque: Monque, source_id: Any = 1, name: str = "invoice") -> TaskRecord:
    """Read the record of a document, which must exist."""
    page = await monque.get_reactive_tasks(name=name, source_id=source_id)
    assert len(page.tasks) == 1, page.tasks
    return page.tasks[0]


async def statuses(monque: Monque, name: str = "invoice") -> dict[Any, str]:
    """Return the status of every record of a task, by the id of its document."""
    page = await monque.get_reactive_tasks(name=name, limit=10_000)
    return {record.source_id: record.status for record in page.tasks}
