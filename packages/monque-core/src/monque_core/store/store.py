"""The collections of one instance, and the check of the server at startup."""

from __future__ import annotations

import time
from functools import cached_property
from typing import TYPE_CHECKING

from pymongo.errors import PyMongoError

from monque_core.clock import ServerTime
from monque_core.durations import to_milliseconds
from monque_core.errors import MonqueConnectionError
from monque_core.store.change_stream import streams_lag
from monque_core.store.cluster_signals import ClusterSignals
from monque_core.store.driver import Driver
from monque_core.store.index_maintenance import IndexMaintenance
from monque_core.store.insert_batcher import InsertBatcher
from monque_core.store.inserts import Inserts
from monque_core.store.job_stream import JobStreams
from monque_core.store.leases import Leases
from monque_core.store.lenient_decoding import LenientCollection
from monque_core.store.listener_seats import ListenerSeats
from monque_core.store.listing import JobListing
from monque_core.store.management import FinishedJobs, Management
from monque_core.store.outcomes import Outcomes
from monque_core.store.queue import JobQueue
from monque_core.store.schedules import Schedules
from monque_core.store.stale_jobs import StaleJobs
from monque_core.store.statistics import JobStatistics
from monque_core.store.transitions import Owner

if TYPE_CHECKING:
    from monque_core.options import Options
    from monque_core.store.driver import Document
    from monque_core.store.tasks.store import TaskStore

_MONGODB_6_0_WIRE_VERSION = 17
_MORE_READINGS = 3
_QUICK_READING_NS = 50_000_000


class Store:
    """One object per purpose on the collections of an instance."""

    def __init__(self, database: object, options: Options, *, in_place: bool = False) -> None:
        self._driver = Driver(database, in_place=in_place)
        self._options = options
        owner = Owner(options.scheduler_instance_id, to_milliseconds(options.heartbeat_interval))
        jobs = LenientCollection(self._driver, options.collection_name)
        self.codec = self._driver.codec
        self.connectivity = self._driver.connectivity
        self.inserts = Inserts(jobs)
        self.insert_batcher = InsertBatcher(self.inserts, in_place=in_place)
        self.schedules = Schedules(jobs, self.inserts, self.codec)
        self.queue = JobQueue(jobs, owner)
        self.outcomes = Outcomes(jobs, owner)
        self.stale_jobs = StaleJobs(jobs, owner, options.lock_timeout)
        self.finished = FinishedJobs(jobs)
        self.listing = JobListing(jobs)
        self.statistics = JobStatistics(jobs)
        self.management = Management(jobs)
        self._meta = meta = self._driver.collection(f"{options.collection_name}_meta")
        retention = options.job_retention
        self.indexes = IndexMaintenance(
            jobs, meta, retention=retention is not None and bool(retention.ages)
        )
        self.leases = Leases(meta)
        self.signals = ClusterSignals(
            self._driver.collection(f"{options.collection_name}_signals"),
            blocking=self._driver.is_blocking,
            socket_timeout=self._driver.socket_timeout,
        )
        self.streams_lag = False
        """Whether change streams may be seconds late; known after `prepare`."""
        self.changes = JobStreams(
            jobs,
            blocking=self._driver.is_blocking,
            socket_timeout=self._driver.socket_timeout,
        )

    @cached_property
    def tasks(self) -> TaskStore:
        """The store of reactive tasks; its modules are imported at the first use."""
        from monque_core.store.tasks.store import TaskStore  # noqa: PLC0415  # slow

        return TaskStore(self._driver, self._meta, self.leases, self._options)

    async def prepare(self) -> ServerTime:
        """Check the server, create the indexes, and read the server's clock."""
        try:
            # The first command opens the connection, which would falsify the reading of the clock.
            await self._driver.command("ping")
            hello, server_time = await self._hello()
            self.streams_lag = streams_lag(hello)
            for _ in range(_MORE_READINGS):
                # A reading may be off by half of the time that it took.
                if server_time.took_ns <= _QUICK_READING_NS:
                    break
                again = await self.read_clock()
                server_time = min(server_time, again, key=lambda reading: reading.took_ns)
            if hello["maxWireVersion"] < _MONGODB_6_0_WIRE_VERSION:
                version = (await self._driver.command("buildInfo"))["version"]
                raise MonqueConnectionError(
                    f"MongoDB 6.0 or newer is needed; this server is {version}"
                )
            if not self._options.skip_index_creation:
                await self.indexes.create()
        except PyMongoError as error:
            raise MonqueConnectionError(
                f"the collection {self._options.collection_name!r} cannot be prepared: {error}"
            ) from error
        return server_time

    def seats(self, holder: str) -> ListenerSeats:
        """Return the listeners' seats, as the holder of the instance's lease takes them."""
        return ListenerSeats(self._meta, self._options.scheduler_instance_id, holder)

    async def ping(self, seconds: float) -> None:
        """Raise `MonqueConnectionError` unless MongoDB answers within so many seconds."""
        try:
            await self._driver.ping(seconds)
        except PyMongoError as error:
            raise MonqueConnectionError(f"MongoDB does not answer a ping: {error}") from error

    async def read_clock(self) -> ServerTime:
        """Read the server's clock."""
        return (await self._hello())[1]

    async def _hello(self) -> tuple[Document, ServerTime]:
        asked_ns = time.monotonic_ns()
        hello = await self._driver.command("hello")
        return hello, ServerTime(hello["localTime"], asked_ns, time.monotonic_ns())

    @property
    def place(self) -> str:
        """Return the servers, the database and the collection, without any credentials."""
        return f"{self._driver.address}.{self._options.collection_name}"

    @property
    def fault(self) -> str | None:
        """Return why MongoDB could not be reached, None if it could."""
        return self._driver.fault

    async def dismiss_threads(self) -> None:
        """End the threads that a blocking handle has used."""
        await self._driver.dismiss_threads()
