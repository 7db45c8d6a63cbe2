"""One run of a reactive task, as its handler sees it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from monque_core.clock import truncate
from monque_core.display import brief_repr
from monque_core.durations import to_timedelta

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future

    from bson import ObjectId

    from monque_core.durations import Duration
    from monque_core.tasks.record import TaskRecord


class NoLongerMatches(BaseException):  # it ends a run, and is no error
    """The document is gone or has left the filter, so there is nothing to do.

    No `Exception`, so that a handler which catches those does not go on without its document.
    """


class TaskBackend(Protocol):
    """What the engine does for a run while its handler is at work."""

    def now(self) -> datetime:
        """Give the current time of the server."""
        ...

    async def document(
        self, record: TaskRecord, session: object, projection: Mapping[str, Any] | None
    ) -> dict[str, Any] | None:
        """Read the source document, if it still matches."""
        ...

    async def complete(self, record: TaskRecord, session: object) -> None:
        """Finish the record inside the caller's transaction."""
        ...

    def pause(self, name: str, until: datetime) -> None:
        """Start no run of a task on this instance before that time."""
        ...


class BaseReactiveTask:
    """What the runs of coroutines and of functions have in common."""

    def __init__(self, record: TaskRecord, desk: TaskBackend) -> None:
        self._record = record
        self._desk = desk
        self.deferred_until: datetime | None = None
        """When the handler has asked to run again, None if it has not."""
        self.session: object = None
        """What the handler has completed this run with, in a transaction that may be over."""

    @property
    def is_in_transaction(self) -> bool:
        """Tell whether an open transaction of the handler's is about to finish this run."""
        return bool(getattr(self.session, "in_transaction", False))

    @property
    def id(self) -> ObjectId:
        """Give the id of the record."""
        return self._record.id

    @property
    def name(self) -> str:
        """Give the name of the task."""
        return self._record.task

    @property
    def data(self) -> Any:
        """Give the snapshot, as `values` does: what a job's data is to a job."""
        return self._record.values

    @property
    def source_id(self) -> Any:
        """Give the `_id` of the source document."""
        return self._record.source_id

    @property
    def values(self) -> Any:
        """Give the watched values this run is for, as they were planned."""
        return self._record.values

    @property
    def attempts(self) -> int:
        """Tell how many runs were started for this state, this one included."""
        return self._record.attempts

    def defer(self, until: Duration | datetime) -> None:
        """Run again after so many seconds, or at that time, instead of being done."""
        self.deferred_until = self._instant("defer", until)

    def throttle(self, until: Duration | datetime) -> None:
        """Start no run of this task on this instance for so many seconds, or before that time."""
        self._desk.pause(self.name, self._instant("throttle", until))

    def _instant(self, action: str, until: Duration | datetime) -> datetime:
        if isinstance(until, datetime):
            if until.utcoffset() is None:
                raise ValueError(
                    f"{action}({until!r}) has no time zone; make it aware, for example "
                    f"{until!r}.replace(tzinfo=timezone.utc)"
                )
            return truncate(until.astimezone(UTC))
        try:
            delay = to_timedelta(until)
        except ValueError as error:
            raise ValueError(f"{action}({brief_repr(until)}): {error}") from None
        if delay.total_seconds() < 0:
            raise ValueError(f"{action}({brief_repr(until)}) is negative")
        return truncate(self._desk.now() + delay)


class ReactiveTask(BaseReactiveTask):
    """One run of a reactive task, for an `async def` handler."""

    async def document(
        self, session: object = None, projection: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Read the source document as it is now.

        Ends the run quietly if it is gone or no longer matches the filter.
        """
        return _found(await self._desk.document(self._record, session, projection))

    async def complete(self, session: object) -> None:
        """Finish this run as part of the caller's transaction.

        Raises `OwnershipLostError`, which must abort it, if another instance has taken over.
        """
        self.session = session
        await self._desk.complete(self._record, session)


class SyncReactiveTask(BaseReactiveTask):
    """One run of a reactive task, for a `def` handler, which runs in a thread."""

    def __init__(self, record: TaskRecord, desk: TaskBackend) -> None:
        super().__init__(record, desk)
        self._loop = asyncio.get_running_loop()

    def document(
        self, session: object = None, projection: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Read the source document as it is now.

        Ends the run quietly if it is gone or no longer matches the filter.
        """
        return _found(self._wait(self._desk.document(self._record, session, projection)))

    def complete(self, session: object) -> None:
        """Finish this run as part of the caller's transaction.

        Raises `OwnershipLostError`, which must abort it, if another instance has taken over.
        """
        self.session = session
        self._wait(self._desk.complete(self._record, session))

    def throttle(self, until: Duration | datetime) -> None:
        """Start no run of this task on this instance for so many seconds, or before that time."""
        instant = self._instant("throttle", until)
        self._loop.call_soon_threadsafe(self._desk.pause, self.name, instant)

    def _wait(self, work: Any) -> Any:
        """Wait in the handler's thread for what is done on the event loop."""
        try:
            is_on_loop = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_on_loop = False
        if is_on_loop:
            work.close()
            raise RuntimeError("a SyncReactiveTask is for its handler's thread, not the event loop")
        future: Future[Any] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result()


def _found(document: dict[str, Any] | None) -> dict[str, Any]:
    if document is None:
        raise NoLongerMatches
    return document
