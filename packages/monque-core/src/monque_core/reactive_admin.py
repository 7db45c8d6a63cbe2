"""Looking at reactive tasks, and managing them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Literal

from monque_core.display import brief_repr
from monque_core.errors import InvalidJobError, MonqueError
from monque_core.tasks.selector import TaskSelector, check_storable_id
from monque_core.validation import check_name, check_whole_number

if TYPE_CHECKING:
    from monque_core.options import Options
    from monque_core.store.store import Store
    from monque_core.tasks.selector import TaskStatuses
    from monque_core.tasks.views import ReactiveStats, TaskPage


class ReactiveAdmin(ABC):
    """The part of `Monque` that shows what became of reactive tasks, and runs them again."""

    _options: Options
    _store: Store

    @abstractmethod
    async def initialize(self) -> None:
        """Make the collection ready."""

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
        direction: Literal["forward", "backward"] = "forward",
    ) -> TaskPage:
        """Read a page of records, the newest first, of all tasks that were ever declared.

        `collection` is the source collection, `error` a part of the last error. Hand back the
        cursor of a page for the one after or before it.
        """
        selector = self._selector(name, collection, status, source_id, error)
        check_whole_number("limit", limit, least=1, error=InvalidJobError)
        if direction not in ("forward", "backward"):
            raise ValueError(f"direction={brief_repr(direction)} must be 'forward' or 'backward'")
        await self.initialize()
        return await self._store.tasks.listing.page(selector, limit, cursor, direction)

    async def count_reactive_tasks(
        self,
        *,
        name: str | None = None,
        collection: str | None = None,
        status: TaskStatuses | None = None,
        source_id: Any = None,
        error: str | None = None,
    ) -> int:
        """Count the records that `get_reactive_tasks` would show."""
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
        """Run the chosen records again, with all their attempts, and tell how many.

        What runs at the moment runs once more afterwards. Choosing nothing means everything, and
        must be asked for with `everything=True`.
        """
        selector = self._selector(name, collection, status, source_id, error)
        if selector == TaskSelector() and not everything:
            raise ValueError(
                "retry_reactive_tasks() without a choice would run every task for every document "
                "again; choose by name, collection, status, source_id or error, or pass "
                "everything=True"
            )
        await self.initialize()
        retried = 0
        async for count in self._store.tasks.listing.retry(selector, self._options.clock.now()):
            retried += count
        return retried

    async def reconcile(self, name: str) -> None:
        """Have the leader examine all documents of a task again, whatever it has seen of them."""
        check_name(name)
        await self.initialize()
        now = self._options.clock.now()
        if not await self._store.tasks.progress.ask_reconcile(name, "it was asked for", now):
            raise MonqueError(
                f"there is no reactive task {name!r}: it is known once an instance that has it "
                "was started"
            )

    async def get_reactive_stats(self) -> ReactiveStats:
        """Count the records of each task in each status, and tell how far planning is."""
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
        if source_id is not None:
            check_storable_id(source_id, self._store.codec)
        return TaskSelector(
            name=name, collection=collection, status=status, source_id=source_id, error=error
        )
