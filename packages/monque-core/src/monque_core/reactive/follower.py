"""Following the changes of one database, and handing them to the planner."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from monque_core.durations import to_timedelta
from monque_core.errors import LeadershipLostError
from monque_core.reactive.change_buffer import ChangeBuffer
from monque_core.scheduler.loop import end, finish
from monque_core.store.change_stream import ChangeStreamUnavailableError
from monque_core.store.tasks.source_collections import HistoryLostError
from monque_core.waiting import ExponentialPause, wait_for_event

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from monque_core.clock import Clock
    from monque_core.options import ReactiveOptions
    from monque_core.reactive.event_publisher import TaskEventPublisher
    from monque_core.reactive.leader import Leadership
    from monque_core.reactive.planner import Planner
    from monque_core.reactive.reconciler import Reconciler
    from monque_core.reactive.task_set import TaskSet
    from monque_core.store.tasks.source_collections import SourceStream
    from monque_core.store.tasks.store import TaskStore

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 10.0
_SAVE_GAP = timedelta(seconds=10)
_UNWATCHED_GAP = 10.0
_HURRIED_AWAIT = timedelta(milliseconds=20)


class Follower:
    """Reads one change stream; while one batch is planned, the next one gathers."""

    def __init__(
        self,
        database: str,
        store: TaskStore,
        agenda: TaskSet,
        planner: Planner,
        reconciler: Reconciler,
        leadership: Leadership,
        clock: Clock,
        options: ReactiveOptions,
        publisher: TaskEventPublisher,
    ) -> None:
        self._database = database
        self._store = store
        self._task_set = agenda
        self._planner = planner
        self._reconciler = reconciler
        self._leadership = leadership
        self._clock = clock
        self._flush_size = options.flush_size
        self._longest_linger = to_timedelta(options.flush_interval).total_seconds()
        self._publisher = publisher
        self._reading: asyncio.Task[None] | None = None
        self._is_asked_anew = asyncio.Event()
        self._is_token_useless = False
        self._is_over = False
        self._pause = ExponentialPause(_FIRST_PAUSE, _LONGEST_PAUSE)
        self._catching_up: list[asyncio.Event] = []
        self._nearly_caught_up: list[asyncio.Event] = []
        self.collections: set[str] = set()
        """The collections that are followed, or about to be."""

    def follow_anew(self) -> None:
        """Open the stream again, for the collections that are watched now."""
        self._is_asked_anew.set()
        if self._reading is not None:
            self._reading.cancel()

    async def catch_up(self) -> None:
        """Wait until everything that was written before this call is planned."""
        if self._is_over:
            return
        caught_up = asyncio.Event()
        self._catching_up.append(caught_up)
        self.follow_anew()
        await caught_up.wait()

    def give_up(self) -> None:
        """Let nobody wait for a follower that has ended."""
        self._is_over = True
        for caught_up in self._catching_up:
            caught_up.set()

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            try:
                await self._follow()
            except ChangeStreamUnavailableError as error:
                self._publisher.unwatched(str(error))
                await self._do_without()
            except LeadershipLostError:
                raise
            except Exception as error:  # noqa: BLE001  # whatever broke the stream, open a new one
                self._publisher.stream_failed(error)
                await self._pause.sleep()

    async def _follow(self) -> None:
        """Follow one stream until the watched collections change, or it ends."""
        self.collections = collections = self._task_set.places.get(self._database, set())
        # Who asks later may have written what the end of this stream does not include.
        self._nearly_caught_up = list(self._catching_up)
        stream = await self._open(collections)
        try:
            # From here on nothing is missed, so that scans may begin.
            self._task_set.followed(self._database, collections)
            self._reconciler.poke()
            if self._catching_up == self._nearly_caught_up:
                await self._read_and_flush(stream)
        except HistoryLostError:
            # The token opens a stream, which then cannot go on: it would be the same again.
            self._is_token_useless = True
            raise
        finally:
            await stream.close()

    async def _open(self, collections: Iterable[str]) -> SourceStream:
        """Go on where the last flush ended; where that is not known, examine everything."""
        progress, sources = self._store.progress, self._store.sources
        hurried = _HURRIED_AWAIT if self._nearly_caught_up else None
        watched = sorted(collections)
        token = await progress.load_token(self._database)
        if token is not None and not self._is_token_useless:
            try:
                return await sources.open(self._database, watched, token, longest_wait=hurried)
            except HistoryLostError as error:
                self._publisher.errored(error)
        stream = await sources.open(self._database, watched, longest_wait=hurried)
        try:
            if token is None:
                await self._examine_everything(but=await self._waiting(at_beginning=True))
            else:
                await self._examine_everything("the history of changes is lost")
            if stream.token:
                await self._save(stream.token)
                self._is_token_useless = False
        except BaseException:
            await stream.close()
            raise
        return stream

    async def _read_and_flush(self, stream: SourceStream) -> None:
        gathering = ChangeBuffer(self._flush_size, self._store.planning.key)
        self._reading = reading = asyncio.create_task(
            self._read(stream, gathering), name="monque-follow"
        )
        flushing = asyncio.create_task(self._flush(gathering), name="monque-flush")
        try:
            await asyncio.wait([reading, flushing], return_when=asyncio.FIRST_COMPLETED)
            self._reading = None
            await end(reading)
            # What is being planned must arrive before anything that is planned after it. What
            # only gathered will be read again, for its token is not saved.
            gathering.close()
            await asyncio.wait([flushing])
        finally:
            self._reading = None
            await finish(_end_both(reading, flushing))
        for task in (reading, flushing):
            if not task.cancelled():
                task.result()

    async def _read(self, stream: SourceStream, gathering: ChangeBuffer) -> None:
        while True:
            try:
                change = await stream.next()
            except EOFError:
                # The database was dropped. What was read of it must not be read again and again.
                await gathering.drain()
                return
            await gathering.put(change, stream.token)

    async def _flush(self, gathering: ChangeBuffer) -> None:
        saved: Mapping[str, Any] | None = None
        while True:
            gap = _HURRIED_AWAIT if self._nearly_caught_up else _SAVE_GAP
            await gathering.wait(gap, self._linger())
            if gathering.is_closed:
                return
            batch, token = gathering.take()
            if batch:
                await self._planner.flush(self._database, batch)
                if batch.replaced or self._task_set.broken:
                    self._reconciler.poke()
            if token is not None and token != saved:
                await self._save(token)
                saved = token
                self._pause.reset()
            gathering.planned()
            if self._nearly_caught_up and gathering.is_at_end and gathering.is_empty:
                self._tell_caught_up()
                # With a longer await from now on.
                self.follow_anew()

    def _tell_caught_up(self) -> None:
        for caught_up in self._nearly_caught_up:
            caught_up.set()
            self._catching_up.remove(caught_up)
        self._nearly_caught_up = []

    def _linger(self) -> float:
        """Tell for how many seconds changes may gather: less than they are debounced anyway."""
        debounce = self._task_set.shortest_debounce(self._database)
        if debounce is None:
            return self._longest_linger
        # Without debounce not at all: what comes while a flush is under way gathers anyway.
        return min(self._longest_linger, debounce.total_seconds() / 2)

    async def _save(self, token: Any) -> None:
        await self._store.progress.save_token(
            self._database, token, self._clock.now(), self._leadership.term
        )

    async def _examine_everything(
        self, reason: str = "it is not known what happened before", but: Collection[str] = ()
    ) -> None:
        """Ask for a reconciliation of every task here."""
        for declaration in self._task_set.in_database(self._database):
            if declaration.name not in but:
                now = self._clock.now()
                await self._store.progress.ask_reconcile(declaration.name, reason, now)
        self._reconciler.poke()

    async def _waiting(self, *, at_beginning: bool = False) -> set[str]:
        """Tell which tasks will be examined anyway, all of them or those not begun yet."""
        declared = await self._store.progress.declarations(self._clock.now())
        return {
            task.declaration.name
            for task in declared
            if (asked := task.reconciliation) is not None
            and not (at_beginning and (asked.phase != "scan" or asked.after is not None))
        }

    async def _do_without(self) -> None:
        """Examine everything again and again: this server tells of no changes."""
        while True:
            collections = self._task_set.places.get(self._database, set())
            self._task_set.followed(self._database, collections)
            self._is_asked_anew.clear()
            self._nearly_caught_up = list(self._catching_up)
            # A scan that is under way is not begun again: a long one would never end.
            reason = "this server has no change streams"
            await self._examine_everything(reason, but=await self._waiting())
            self._tell_caught_up()
            await wait_for_event(self._is_asked_anew, _UNWATCHED_GAP)


async def _end_both(reading: asyncio.Task[None], flushing: asyncio.Task[None]) -> None:
    await end(reading)
    await end(flushing)
