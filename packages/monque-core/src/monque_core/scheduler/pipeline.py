"""Everything that runs the work of one source, from claim to outcome."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, Generic

from monque_core.scheduler.backlog import Backlog
from monque_core.scheduler.backup import Backup
from monque_core.scheduler.claimer import Claimer
from monque_core.scheduler.dispatcher import Dispatcher
from monque_core.scheduler.heartbeat import Heartbeat
from monque_core.scheduler.lookahead import Lookahead
from monque_core.scheduler.overflow import Overflow
from monque_core.scheduler.runner import Runner
from monque_core.scheduler.runs import Runs
from monque_core.scheduler.settler import Settler
from monque_core.scheduler.slots import Slots
from monque_core.scheduler.source import C, W

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from monque_core.clock import Clock
    from monque_core.scheduler.cluster import Cluster
    from monque_core.scheduler.event_publisher import EventPublisher
    from monque_core.scheduler.loop import Loop
    from monque_core.scheduler.slots import InstanceSlots
    from monque_core.scheduler.source import Source
    from monque_core.scheduler.wakeups import Wakeups
    from monque_core.scheduler.workers import Middleware
    from monque_core.threads import ThreadPool


_OVERDUE: Final = timedelta(seconds=1)
"""Longer than any listener that works takes, shorter than what a user puts up with."""


class Pipeline(Generic[W, C]):
    """Dispatcher, settler and heartbeat of one source."""

    def __init__(
        self,
        source: Source[W, C],
        wakeups: Wakeups,
        clock: Clock,
        instance_slots: InstanceSlots,
        cluster: Cluster,
        middleware: Sequence[Middleware],
        threads: ThreadPool,
        publisher: EventPublisher,
    ) -> None:
        self.source = source
        self.wakeups = wakeups
        self.runs = runs = Runs[W]()
        self.slots = slots = Slots(source.workers, instance_slots, wakeups.poke)
        backlog = Backlog[W](slots)
        settler = Settler(source, clock, runs, publisher)
        self.dispatcher = Dispatcher(
            source=source,
            claimer=Claimer(source, clock),
            runner=Runner(source, middleware, threads),
            settler=settler,
            slots=slots,
            backlog=backlog,
            runs=runs,
            wakeups=wakeups,
            lookahead=Lookahead(source, wakeups, clock),
            clock=clock,
            publisher=publisher,
        )
        heartbeat = Heartbeat(source, clock, runs, backlog, wakeups, publisher)
        self.backup = Backup(source.queue, wakeups, clock, cluster.missed, publisher.errored)
        tracker = self.dispatcher.idle_tracker
        overflow = Overflow(source, slots, wakeups, tracker, cluster, clock, publisher.errored)
        self.loops: Sequence[Loop] = [settler, heartbeat, self.dispatcher, self.backup, overflow]
        self._cluster = cluster
        self._clock = clock
        wakeups.rank, wakeups.back_up = self._rank, self.backup.expect
        wakeups.overdue = self._overdue

    def running(self, name: str) -> int:
        """Return how many runs of a name are under way."""
        return sum(run.work.name == name and run.stage == "running" for run in self.runs)

    def _rank(self, name: str, at: datetime) -> int | None:
        """Return how many instances come before this one for what is due at a time."""
        return None if self._cluster.is_standby else self._cluster.rank(f"{name} {at}")

    def _overdue(self, due_at: datetime) -> None:
        """Replace the listeners if they should have started this long ago."""
        if self._clock.now() - due_at > _OVERDUE:
            self._cluster.found_overdue(due_at)

    async def is_idle(self, now: datetime) -> bool:
        """Whether nothing is due or running; if something is due, look at the queue now."""
        dispatcher = self.dispatcher
        await self.runs.wait_until_none()
        names = [name for name in self.source.workers.names if not dispatcher.is_paused(name)]
        claims_before = dispatcher.claims
        due = bool(names) and await self.source.queue.has_due(names, now)
        is_quiet = not self.runs and not dispatcher.is_claiming
        if due and not dispatcher.is_claiming:
            dispatcher.look_now()
        return not due and is_quiet and dispatcher.claims == claims_before
