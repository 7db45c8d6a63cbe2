"""The storage of reactive tasks: one attribute per concern."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pymongo.asynchronous.collection import AsyncCollection
from pymongo.collection import Collection as BlockingCollection
from pymongo.errors import OperationFailure

from monque_core.durations import to_timedelta
from monque_core.store.tasks.documents import records_name
from monque_core.store.tasks.indexes import task_indexes
from monque_core.store.tasks.listing import TaskListing
from monque_core.store.tasks.outcomes import TaskOutcomes
from monque_core.store.tasks.plan_writer import PlanWriter, TaskBrokenError
from monque_core.store.tasks.planner_state import PlannerState
from monque_core.store.tasks.queue import TaskQueue
from monque_core.store.tasks.record_cleanup import RecordCleanup
from monque_core.store.tasks.source_collections import SourceCollections
from monque_core.store.tasks.statistics import TaskStatistics
from monque_core.store.tasks.transitions import RecordOwner

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from monque_core.options import Options
    from monque_core.store.driver import Collection, Driver
    from monque_core.store.leases import Leases
    from monque_core.tasks.definition import Declaration, Definition


@dataclass(frozen=True, slots=True)
class Records:
    """The records of the tasks on one source collection."""

    queue: TaskQueue
    outcomes: TaskOutcomes
    renewal_interval: timedelta
    """How often claims on the records are renewed."""


class TaskStore:
    """Task records, source collections and the state of the planner."""

    def __init__(self, driver: Driver, meta: Collection, leases: Leases, options: Options) -> None:
        self._driver = driver
        self._options = options
        self.planner_state = PlannerState(meta)
        self.sources = SourceCollections(driver)
        self.plan_writer = PlanWriter(driver)
        self.record_cleanup = RecordCleanup(driver)
        self.listing = TaskListing(driver, self.planner_state)
        self.statistics = TaskStatistics(driver, self.planner_state, leases)

    @property
    def database(self) -> str:
        """Return the name of the default database."""
        return self._driver.native.name

    def place_of(self, collection: object) -> tuple[str, str]:
        """Return the names of a source collection: of its database and its own."""
        if isinstance(collection, str):
            return self._driver.native.name, collection
        native = collection
        if type(collection).__module__.split(".")[0] == "motor":
            native = getattr(collection, "delegate", None)
        if isinstance(native, AsyncCollection | BlockingCollection):
            return native.database.name, native.name
        raise TypeError(
            "collection must be the name of a collection, or a PyMongo or Motor collection, "
            f"not {type(collection).__module__}.{type(collection).__qualname__}"
        )

    async def prepare(self, declaration: Declaration) -> None:
        """Create the indexes of the records; raise `TaskBrokenError` if that is impossible."""
        if self._options.skip_index_creation:
            return
        records = self._driver.collection(
            records_name(declaration.collection), declaration.database
        )
        try:
            await records.create_indexes(task_indexes())
        except OperationFailure as error:
            raise TaskBrokenError(declaration.name, error) from error

    def records(
        self, database: str, collection: str, definitions: Mapping[str, Definition]
    ) -> Records:
        """Return the records of a source collection, to run these tasks."""
        records = self._driver.collection(records_name(collection), database)
        owner = RecordOwner(
            self._options.scheduler_instance_id,
            to_timedelta(self._options.reactive_options.visibility_timeout),
        )
        return Records(
            TaskQueue(records, owner, definitions, self._driver.connectivity),
            TaskOutcomes(records, owner, definitions),
            owner.renewal_interval,
        )
