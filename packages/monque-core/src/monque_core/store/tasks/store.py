"""Everything monque keeps of reactive tasks in MongoDB, behind one door."""

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
    """How often claims on them are renewed."""


class TaskStore:
    """The records, and how far the planner is."""

    def __init__(self, handle: Driver, meta: Collection, leases: Leases, options: Options) -> None:
        self._driver = handle
        self._options = options
        self.progress = PlannerState(meta)
        self.sources = SourceCollections(handle)
        self.planning = PlanWriter(handle)
        self.upkeep = RecordCleanup(handle)
        self.listing = TaskListing(handle, self.progress)
        self.statistics = TaskStatistics(handle, self.progress, leases)

    @property
    def database(self) -> str:
        """Give the name of the database that is meant where none is named."""
        return self._driver.native.name

    def place_of(self, collection: object) -> tuple[str, str]:
        """Give the names of a source collection's database and of itself."""
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
        """Create the indexes of a task's records; raise `TaskBrokenError` if they cannot be."""
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
        """Give the records of a source collection to whoever runs these tasks."""
        records = self._driver.collection(records_name(collection), database)
        claimant = RecordOwner(
            self._options.scheduler_instance_id,
            to_timedelta(self._options.reactive_options.visibility_timeout),
        )
        return Records(
            TaskQueue(records, claimant, definitions, self._driver.connectivity),
            TaskOutcomes(records, claimant, definitions),
            claimant.renewal_interval,
        )
