"""The management API of reactive tasks: list, count, retry and reconcile."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from monque_core.errors import MonqueError
from monque_core.store.paging import PageRequest
from monque_core.validation import check_name

if TYPE_CHECKING:
    from monque_core.options import Options
    from monque_core.store.paging import Direction
    from monque_core.store.store import Store
    from monque_core.tasks.selector import TaskSelector, TaskStatuses
    from monque_core.tasks.views import ReactiveStats, TaskPage


class ReactiveAdmin(ABC):
    """The part of `Monque` that reads and manages reactive tasks."""

    _options: Options
    _store: Store

    @abstractmethod
    async def initialize(self) -> None:
        """Create indexes, recover stale jobs, check the instance id."""

    async def get_reactive_tasks(
        self,
        *,
        name: str | None = None,
        collection: str | None = None,
        status: TaskStatuses | None = None,
        source_id: Any = None,
        error: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
        direction: Direction = "forward",
    ) -> TaskPage:
        """Return a page of records, the newest first, of all tasks that were ever registered.

        `collection` is the source collection, `error` a part of the last error. Pass the cursor of
        a page to get the page after or before it.
        """
        selector = self._selector(name, collection, status, source_id, error)
        request = PageRequest.parse(selector.identity, limit, cursor, direction)
        await self.initialize()
        return await self._store.tasks.listing.page(selector, request)

    async def count_reactive_tasks(
        self,
        *,
        name: str | None = None,
        collection: str | None = None,
        status: TaskStatuses | None = None,
        source_id: Any = None,
        error: str | None = None,
    ) -> int:
        """Return how many records `get_reactive_tasks` would return."""
        selector = self._selector(name, collection, status, source_id, error)
        await self.initialize()
        return await self._store.tasks.listing.count(selector)

    async def retry_reactive_tasks(
        self,
        *,
        name: str | None = None,
        collection: str | None = None,
        status: TaskStatuses | None = None,
        source_id: Any = None,
        error: str | None = None,
        everything: bool = False,
    ) -> int:
        """Run the selected records again, with all their attempts, and return how many.

        A record that is running runs once more afterwards. To select all records, pass
        `everything=True`.
        """
        selector = self._selector(name, collection, status, source_id, error)
        criteria = (name, collection, status, source_id, error)
        if all(each is None for each in criteria) and not everything:
            raise ValueError(
                "retry_reactive_tasks() without arguments would run every task for every document "
                "again; select by name, collection, status, source_id or error, or pass "
                "everything=True"
            )
        await self.initialize()
        retried = 0
        async for count in self._store.tasks.listing.retry(selector, self._options.clock.now()):
            retried += count
        return retried

    async def reconcile(self, name: str) -> None:
        """Make the leader examine all documents of a task again."""
        check_name(name)
        await self.initialize()
        now = self._options.clock.now()
        if not await self._store.tasks.planner_state.ask_reconcile(name, "it was requested", now):
            raise MonqueError(
                f"unknown reactive task {name!r}: a task is known after an instance with it was "
                "started"
            )

    async def get_reactive_stats(self) -> ReactiveStats:
        """Return how many records each task has in each status, and how far planning is."""
        await self.initialize()
        return await self._store.tasks.statistics.read(self._options.clock.now())

    def _selector(
        self,
        name: str | None,
        collection: str | None,
        status: TaskStatuses | None,
        source_id: Any,
        error: str | None,
    ) -> TaskSelector:
        from monque_core.tasks.selector import TaskSelector, check_storable_id  # noqa: PLC0415  # slow

        if source_id is not None:
            check_storable_id(source_id, self._store.codec)
        return TaskSelector(
            name=name, collection=collection, status=status, source_id=source_id, error=error
        )
