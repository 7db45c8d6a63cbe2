"""Group commit of enqueued jobs: calls that overlap share one insert."""

from __future__ import annotations

import asyncio
import contextvars
from copy import copy
from typing import TYPE_CHECKING

from pymongo import _csot

from monque_core.errors import MonqueConnectionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monque_core.jobs.job import AnyJob
    from monque_core.store.inserts import Inserts

_LARGEST_GROUP = 1000
_LONGEST_WAIT_SECONDS = 1.0


class InsertBatcher:
    """While one write is in progress, gathers the next jobs into one group.

    There is no delay: a job without others before it is written at once, by its own caller.
    """

    def __init__(self, inserts: Inserts, *, in_place: bool) -> None:
        self._inserts = inserts
        self._in_place = in_place
        self._batcher: _Batcher | None = None

    async def store(self, job: AnyJob) -> AnyJob:
        """Insert a job, or return the active one that has its key."""
        # A deadline set by `pymongo.timeout` applies to the job of its caller only. PyMongo has no
        # public way to read it.
        if self._in_place or _csot.get_timeout() is not None:
            return await self._inserts.put(job)
        loop = asyncio.get_running_loop()
        if self._batcher is None or self._batcher.loop is not loop:
            self._batcher = _Batcher(loop, self._inserts)
        return await self._batcher.store(job)


class _PendingInsert:
    """A job that is written in a group, and the future that its caller waits for."""

    __slots__ = ("group", "job", "stored")

    def __init__(self, job: AnyJob, stored: asyncio.Future[AnyJob]) -> None:
        self.job = job
        self.stored = stored
        self.group: _Group | None = None


class _Group:
    """Jobs that are written together, in a task of its own."""

    def __init__(self, inserts: Sequence[_PendingInsert]) -> None:
        self.inserts = inserts
        self.task: asyncio.Task[None] | None = None
        for one in inserts:
            one.group = self

    def is_abandoned(self) -> bool:
        return all(one.stored.done() for one in self.inserts)


class _Batcher:
    """The gathering of jobs in one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, inserts: Inserts) -> None:
        self.loop = loop
        self._inserts = inserts
        self._under_way: object | None = None
        """The write that later jobs wait for, of one job or of a group."""
        self._groups: set[_Group] = set()
        self._waiting: list[_PendingInsert] = []
        self._timer: asyncio.TimerHandle | None = None

    async def store(self, job: AnyJob) -> AnyJob:
        if self._under_way is not None:
            return await self._join(job)
        self._under_way = mine = object()
        try:
            return await self._inserts.put(job)
        except MonqueConnectionError as error:
            self._fail_waiting(mine, error)
            raise
        finally:
            self._ended(mine)

    async def _join(self, job: AnyJob) -> AnyJob:
        """Wait until a group is written; a cancelled caller does not affect the others."""
        insert = _PendingInsert(job, self.loop.create_future())
        self._waiting.append(insert)
        if self._timer is None:
            # A reply that never comes must not block the next group.
            self._timer = self.loop.call_later(_LONGEST_WAIT_SECONDS, self._next)
        try:
            return await insert.stored
        except asyncio.CancelledError:
            group = insert.group
            if group is not None and group.task is not None and group.is_abandoned():
                # Later: a task that is cancelled before its first step never runs its cleanup.
                self.loop.call_soon(group.task.cancel)
            raise

    def _ended(self, write: object) -> None:
        if self._under_way is write:
            self._next()

    def _next(self) -> None:
        """Write the jobs that have gathered."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting = [one for one in self._waiting if not one.stored.done()]
        batch, self._waiting = waiting[:_LARGEST_GROUP], waiting[_LARGEST_GROUP:]
        self._under_way = None
        if batch:
            self._under_way = group = _Group(batch)
            self._groups.add(group)
            # Without context variables of a caller, such as the deadline of `pymongo.timeout`.
            context = contextvars.Context()
            group.task = self.loop.create_task(
                self._write(group), name="monque-insert-batch", context=context
            )
        if self._waiting:
            self._timer = self.loop.call_later(_LONGEST_WAIT_SECONDS, self._next)

    async def _write(self, group: _Group) -> None:
        try:
            stored = await self._inserts.put_together([one.job for one in group.inserts])
            for one, result in zip(group.inserts, stored, strict=True):
                _resolve(one, result)
            await self._accumulate()
        except Exception as error:  # noqa: BLE001  # the callers get it
            for one in group.inserts:
                _resolve(one, error)
            if isinstance(error, MonqueConnectionError):
                self._fail_waiting(group, error)
        finally:
            for one in group.inserts:
                one.stored.cancel()
            self._groups.discard(group)
            self._ended(group)

    async def _accumulate(self) -> None:
        """Let callers that store one job after the other come back before the next write.

        Otherwise the first of them would be written alone while the others wait behind it. There
        is no timer: each iteration of the event loop that brings another job allows one more.
        """
        count = -1
        while count < len(self._waiting) < _LARGEST_GROUP:
            count = len(self._waiting)
            await asyncio.sleep(0)

    def _fail_waiting(self, write: object, error: MonqueConnectionError) -> None:
        """Fail the waiting jobs as well if MongoDB cannot be reached, instead of trying again."""
        if self._under_way is write:
            for one in self._waiting:
                _resolve(one, error)


def _resolve(insert: _PendingInsert, result: AnyJob | Exception) -> None:
    if insert.stored.done():
        return
    if isinstance(result, Exception):
        # A copy for each caller: raising an exception stores the traceback in it.
        error = copy(result)
        error.__cause__ = result.__cause__
        insert.stored.set_exception(error)
        # Mark it as retrieved: the caller may have been cancelled at this moment.
        insert.stored.exception()
    else:
        insert.stored.set_result(result)
