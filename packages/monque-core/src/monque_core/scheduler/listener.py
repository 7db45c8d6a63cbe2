"""Reading the change stream while it is worth its cost."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from monque_core.scheduler.loop import Loop, end, finish
from monque_core.store.change_stream import ChangeStreamUnavailableError
from monque_core.waiting import ExponentialPause

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monque_core.clock import Clock
    from monque_core.scheduler.cluster import Cluster
    from monque_core.scheduler.event_publisher import EventPublisher
    from monque_core.scheduler.pipeline import Pipeline
    from monque_core.scheduler.polling import SteadyPolling
    from monque_core.scheduler.workers import Workers
    from monque_core.store.job_stream import JobChange, JobStream, JobStreams

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 10.0
_BUSY_SECONDS = 1.0
_OWN_WRITES = 10_000


class Listener(Loop):
    """Turns changes of the collection into wake-ups; without a stream, polling takes over."""

    def __init__(
        self,
        changes: JobStreams,
        clock: Clock,
        workers: Workers,
        pipeline: Pipeline[Any, Any],
        polling: SteadyPolling,
        cluster: Cluster,
        publisher: EventPublisher,
    ) -> None:
        super().__init__(publisher.errored)
        self._changes = changes
        self._clock = clock
        self._workers = workers
        self._wakeups = pipeline.wakeups
        self._dispatcher = pipeline.dispatcher
        self._polling = polling
        self._cluster = cluster
        self._publisher = publisher
        self._own: OrderedDict[str, None] = OrderedDict()
        self._reader: asyncio.Task[None] | None = None
        self._is_connected = False
        self._pause = ExponentialPause(_FIRST_PAUSE, _LONGEST_PAUSE)

    def ignore(self, job_ids: Sequence[object]) -> None:
        """Ignore the inserts of these jobs, which were made here."""
        self._own.update(dict.fromkeys(map(str, job_ids[-_OWN_WRITES:])))
        while len(self._own) > _OWN_WRITES:
            self._own.popitem(last=False)

    def follow_new_names(self) -> None:
        """Reopen the stream for the current workers."""
        if self._reader is not None:
            self._reader.cancel()

    async def stop(self) -> None:
        """Close the stream and end."""
        await super().stop()
        self._disconnect()

    async def _run(self) -> None:
        while True:
            await self._dispatcher.idle_tracker.wait_until_idle()
            try:
                if not await self._cluster.take_seat():
                    self._disconnect()
                    await self._cluster.wait_for_chance()
                    continue
                await self._follow()
                await self._cluster.leave_seat()
            except ChangeStreamUnavailableError as error:
                await self._cluster.leave_seat()
                self._publisher.stream_unavailable(str(error))
                return
            except Exception as error:  # noqa: BLE001  # whatever broke the stream, open a new one
                self._publisher.stream_failed(error)
                self._disconnect()
                await self._pause.sleep()

    async def _follow(self) -> None:
        """Read one stream until it is not worth its cost, the workers change, or it breaks.

        While every slot is busy, nothing that the stream reports could start, yet the server
        examines every write for it.
        """
        names = self._workers.names
        if not names:
            # There are reactive tasks only.
            await self._cluster.wait_until_seat_is_lost()
            return
        stream = await self._changes.open(names)
        self._pause.reset()
        self._reader = reader = asyncio.create_task(self._read(stream), name="monque-stream")
        if names != self._workers.names:
            # A worker was added while the stream was being opened.
            reader.cancel()
        tracker = self._dispatcher.idle_tracker
        busy = asyncio.create_task(tracker.wait_until_busy_for(_BUSY_SECONDS), name="monque-busy")
        unseated = asyncio.create_task(self._cluster.wait_until_seat_is_lost(), name="monque-seat")
        try:
            await asyncio.wait([reader, busy, unseated], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._reader = None
            self._set_connected(connected=False)
            # A second cancellation must not leave the reader behind.
            await finish(_close(stream, busy, unseated, reader))
        if not reader.cancelled():
            reader.result()

    async def _read(self, stream: JobStream) -> None:
        if not self._is_connected:
            self._is_connected = True
            self._publisher.stream_connected()
        # Only a look finds what was stored before the stream was open.
        self._set_connected(connected=True)
        while True:
            await self._dispatcher.idle_tracker.wait_until_idle()
            change = await stream.next()
            if change is not None:
                self._take(change)

    def _set_connected(self, *, connected: bool) -> None:
        """Poll rarely or often, and look at once: only a look finds what no stream reported."""
        self._polling.sees_changes = connected
        self._dispatcher.look_ahead_again()

    def _take(self, change: JobChange) -> None:
        if change.is_insert and change.job_id in self._own:
            del self._own[change.job_id]
        elif change.due_at <= self._clock.now():
            self._wakeups.arrived(change.name, change.due_at)
        else:
            self._wakeups.hint_at(change.name, change.due_at)

    def _disconnect(self) -> None:
        if self._is_connected:
            self._is_connected = False
            self._publisher.stream_closed()


async def _close(stream: JobStream, *tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        await end(task)
    await stream.close()
