"""Reactive tasks whose runs are noted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.tally import Tally

if TYPE_CHECKING:
    from monque_core import Monque, ReactiveTask
    from monque_core.reactive import TaskRecord


def note_runs(monque: Monque, collection: object = "orders", **options: Any) -> Tally[Any]:
    """Register a task, `invoice` on orders and without debounce unless told otherwise.

    Gives what it ran for: the ids of documents and the values that were watched.
    """
    ran: Tally[Any] = Tally()

    async def note(task: ReactiveTask) -> None:
        ran.add((task.source_id, task.values))

    given: Any = {"name": "invoice", "debounce": 0, **options}
    monque.reactive(collection, note, **given)
    return ran


async def settle(monque: Monque) -> None:
    """Wait until everything that was written is planned, and what is due has run."""
    await monque.run_until_idle()


async def record_of(monque: Monque, source_id: Any = 1, name: str = "invoice") -> TaskRecord:
    """Read the record of a document, which must be there."""
    page = await monque.get_reactive_tasks(name=name, source_id=source_id)
    assert len(page.tasks) == 1, page.tasks
    return page.tasks[0]


async def statuses(monque: Monque, name: str = "invoice") -> dict[Any, str]:
    """Tell the status of every record of a task, by the id of its document."""
    page = await monque.get_reactive_tasks(name=name, limit=10_000)
    return {record.source_id: record.status for record in page.tasks}
