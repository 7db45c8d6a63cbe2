"""From free slots to running work."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Generic

from monque_core.scheduler.claimer import Demand
from monque_core.scheduler.idleness import Idleness
from monque_core.scheduler.loop import Loop
from monque_core.scheduler.runs import Run
from monque_core.scheduler.source import C, W
from monque_core.scheduler.wakeups import MANY, seconds_until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from monque_core.clock import Clock
    from monque_core.scheduler.announcer import Announcer
    from monque_core.scheduler.backlog import Backlog
    from monque_core.scheduler.claimer import Claimer, Harvest
    from monque_core.scheduler.pace import Pace
    from monque_core.scheduler.probation import Probation
    from monque_core.scheduler.runner import Runner
    from monque_core.scheduler.runs import Runs
    from monque_core.scheduler.settler import Settler
    from monque_core.scheduler.slots import Slots
    from monque_core.scheduler.source import Ending, Source
    from monque_core.scheduler.wakeups import Wakeups

_LONGEST_WAIT_AHEAD = 1.0
_LONGEST_PLAN = timedelta(seconds=120)
_SHORTEST_PLAN = timedelta(milliseconds=100)
_UPCOMING_LIMIT = 1000
_NAMES_PER_FAIR_LOOK = 20
_PAUSE_AFTER_FAULT = 0.2


class Dispatcher(Loop, Generic[W, C]):
    """Keeps slots filled: asks the claimer for work and the runner to run it."""

    def __init__(
        self,
        *,
        source: Source[W, C],
        claimer: Claimer[W, C],
        runner: Runner[W, C],
        settler: Settler[W, C],
        slots: Slots,
        backlog: Backlog[W],
        runs: Runs[W],
        wakeups: Wakeups,
        pace: Pace,
        probation: Probation,
        clock: Clock,
        announcer: Announcer,
    ) -> None:
        super().__init__(announcer.errored)
        self._source = source
        self._queue = source.queue
        self._workers = source.workers
        self._claimer = claimer
        self._runner = runner
        self._settler = settler
        self._slots = slots
        self._backlog = backlog
        self._runs = runs
        self._wakeups = wakeups
        self._pace = pace
        self._probation = probation
        self._clock = clock
        self._next_poll = 0.0
        self._next_plan = 0.0
        self._plan_span = _LONGEST_PLAN
        self._held_back: set[str] = set()
        self._awaiting_trial: set[str] = set()
        self._low_water: dict[str, int] = {}
        self._paused: dict[str, float] = {}
        self._contenders = 0
        self._is_closing = False
        self.is_claiming = False
        self.claims = 0
        """How many claims were made so far."""
        self.idleness = Idleness()

    def look_now(self) -> None:
        """Look at the queue for every worker as soon as can be."""
        self._next_poll = 0.0
        self._wakeups.poke()

    def replan(self) -> None:
        """Ask anew what becomes due, as after a worker was added."""
        self._next_plan = 0.0
        self.look_now()

    def pause(self, name: str, until: datetime) -> None:
        """Start nothing of a name before that time, and hand back what waits of it."""
        seconds = seconds_until(until, self._clock.now())
        self._paused[name] = asyncio.get_running_loop().time() + seconds
        for run in self._backlog.pop_all(name):
            self._release(run)
        self._wakeups.hint(name)
        self._slots.poke_others()

    def claimable(self) -> list[str]:
        """Give the names of which something could be claimed if there were a slot."""
        names = [name for name in self._workers.names if self._wakeups.expected(name)]
        if self._paused:
            names = [name for name in names if not self.is_paused(name)]
        if self._is_trying():
            names = [name for name in names if name not in self._awaiting_trial]
        return names

    def is_paused(self, name: str) -> bool:
        """Tell whether nothing of a name may start for now."""
        if name not in self._paused:
            return False
        if asyncio.get_running_loop().time() < self._paused[name]:
            return True
        del self._paused[name]
        return False

    async def close(self) -> None:
        """Claim nothing more, and let a claim under way finish."""
        self._is_closing = True
        self._wakeups.poke()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def hand_back(self) -> None:
        """Return the claims that have no slot, those included whose reply has not come."""
        for run in self._backlog.pop_overdue(float("inf")):
            self._release(run)
        await self._claimer.resolve_doubts(self._hold_unless_held, for_the_last_time=True)

    async def _run(self) -> None:
        while not self._is_closing:
            self._wakeups.reset()
            try:
                await self._turn()
                self._went_well()
            except Exception as error:  # noqa: BLE001  # no fault may end the dispatcher
                self._complain(error)
                self.look_now()
                await asyncio.sleep(_PAUSE_AFTER_FAULT)

    async def _turn(self) -> None:
        """Claim if there is anything to claim, else wait for something to change."""
        loop = asyncio.get_running_loop()
        await self._claimer.resolve_doubts(self._hold_unless_held)
        self._release_overdue(loop.time())
        self._start_what_can()
        await self._plan(loop.time())
        self._wakeups.ring(self._clock.now())
        if loop.time() >= self._next_poll:
            self._next_poll = loop.time() + self._source.polling.gap()
            for name in self._workers.names:
                self._wakeups.hint(name)
        demands = self._demands()
        if demands:
            await self._claim(demands)
        else:
            await self._wait(loop.time())

    async def _wait(self, now: float) -> None:
        if self._slots.free_in_all() and not self._backlog:
            self.idleness.begin()
        until_due = seconds_until(self._wakeups.next_at(), self._clock.now())
        next_event = min(
            self._next_poll,
            self._next_plan,
            self._next_overdue(),
            _or_never(self._probation.ends_at(now)),
            _or_never(self._claimer.next_doubt()),
            min(self._paused.values(), default=float("inf")),
        )
        await self._wakeups.wait(max(0.0, min(until_due, next_event - now)))

    async def _plan(self, now: float) -> None:
        """Ask what becomes due in the next while, so that it starts on time."""
        names = self._workers.names
        if now < self._next_plan:
            return
        if not names:
            self._next_plan = float("inf")
            return
        current = self._clock.now()
        # Nothing may become due unseen between the old horizon and now.
        begin = min(current, self._wakeups.horizon or current)
        horizon = current + self._plan_span
        # Whoever asks for another plan meanwhile sets this back.
        self._next_plan = float("inf")
        upcoming = await self._queue.upcoming(names, begin, horizon, _UPCOMING_LIMIT)
        if len(upcoming) == _UPCOMING_LIMIT:
            horizon = upcoming[-1][1]
            self._plan_span = max(_SHORTEST_PLAN, 2 * (horizon - current))
            next_plan = now + seconds_until(horizon, current)
        else:
            self._plan_span = min(_LONGEST_PLAN, 2 * self._plan_span)
            next_plan = now + seconds_until(horizon, current) / 2
        self._next_plan = min(self._next_plan, next_plan)
        self._wakeups.extend(upcoming, horizon)
        if len(upcoming) == _UPCOMING_LIMIT:
            # More may become due at the last instant than were told.
            for name in names:
                self._wakeups.hint_at(name, horizon, MANY)

    def _demands(self) -> list[Demand]:
        names = self.claimable()
        self._contenders = len(names)
        if self._claimer.is_crowded and len(names) > _NAMES_PER_FAIR_LOOK:
            names = self._claimer.longest_waiting(names, _NAMES_PER_FAIR_LOOK)
        demands = []
        for name in names:
            free, waiting = self._slots.free(name), self._backlog.count(name)
            goal = free + self._ahead(name)
            room = goal - waiting
            self._low_water[name] = goal // 2
            # With work at hand, wait until a claim is worth its round trip.
            if room > 0 and (not waiting or 2 * room >= goal):
                expected = self._wakeups.expected(name)
                demands.append(Demand(name, expected, room, max(0, free - waiting)))
        return demands

    def _is_trying(self) -> bool:
        return self._probation.ends_at(asyncio.get_running_loop().time()) is not None

    def _ahead(self, name: str) -> int:
        """Tell how much of a name may be held beyond its free slots."""
        if name in self._held_back:
            return 0
        own = self._pace.ahead(name, self._slots.limit(name))
        if self._slots.instance_limit is None:
            return own
        in_all = self._pace.ahead_in_all(self._slots.instance_limit)
        if not in_all:
            return 0
        # Names that want the same slots share what is held ahead of them, so that the one whose
        # runs are short does not hand each slot to itself; and each has at least one in line.
        return max(1, min(own, -(-in_all // max(1, self._contenders))))

    async def _claim(self, demands: Sequence[Demand]) -> None:
        total = min(self._pace.largest_claim(), self._room_in_all(demands))
        for demand in demands:
            self._wakeups.take(demand.name)
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        self.is_claiming = True
        try:
            harvest = await self._claimer.claim(
                demands, total, self._hold, may_try=not self._is_trying()
            )
        except Exception:
            for demand in demands:
                self._wakeups.hint(demand.name)
            raise
        else:
            self._take_note(demands, harvest, loop.time() - asked_at)
            if harvest.fault is not None:
                raise harvest.fault
        finally:
            self.is_claiming = False
            if not self._is_closing:
                self._start_what_can()
            self._slots.poke_others()

    def _room_in_all(self, demands: Sequence[Demand]) -> int:
        room = sum(demand.ask for demand in demands)
        limit = self._slots.instance_limit
        if limit is not None:
            ahead = max(len(demands), self._pace.ahead_in_all(limit))
            room = min(room, self._slots.free_in_all() + ahead - len(self._backlog))
        return max(1, room)

    def _take_note(self, demands: Sequence[Demand], harvest: Harvest, seconds: float) -> None:
        if harvest.count:
            self._pace.claimed(harvest.count, seconds)
        now = asyncio.get_running_loop().time()
        next_poll = now + self._source.polling.took(harvest.count)
        self._next_poll = min(self._next_poll, next_poll)
        self._held_back -= {demand.name for demand in demands}
        self._held_back |= harvest.held_back
        self._awaiting_trial -= {demand.name for demand in demands}
        self._awaiting_trial |= harvest.awaiting_trial
        for name, count in harvest.more.items():
            self._wakeups.hint(name, count)

    def _hold_unless_held(self, works: Sequence[W]) -> None:
        held = {(run.work.id, run.work.claim_token) for run in self._runs}
        self._hold([work for work in works if (work.id, work.claim_token) not in held])

    def _hold(self, works: Sequence[W]) -> None:
        """Keep claims alive from now on, and let them wait for a slot."""
        now = asyncio.get_running_loop().time()
        runs = [Run(work, now) for work in works]
        self.claims += len(runs)
        self._runs.add(runs)
        if runs:
            self.idleness.end()
        for run in runs:
            if self._is_closing or (self._paused and self.is_paused(run.work.name)):
                self._release(run)
                continue
            self._backlog.add(run)
            if self._source.is_on_trial(run.work):
                self._probation.begin(run, now)

    def _start_what_can(self) -> None:
        if not self._backlog:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        while (run := self._backlog.pop_startable()) is not None:
            name = run.work.name
            self._ask_for_more(name)
            self._slots.take(name)
            run.stage = "running"
            run.started_at = now
            run.task = loop.create_task(self._runner.execute(run, self._ended))

    def _ended(self, run: Run[W], ending: Ending[W] | None) -> None:
        name = run.work.name
        self._slots.give_back(name)
        if self._probation.end(run):
            self._wakeups.poke()
        self._pace.ran(name, asyncio.get_running_loop().time() - run.started_at)
        if ending is None:
            self._runs.discard(run)
        else:
            self._settler.put(ending)
        if self._is_closing:
            return
        self._start_what_can()
        self._ask_for_more(name)
        if not (self.is_claiming or self._wakeups.is_expecting or self._backlog):
            self.idleness.begin()

    def _ask_for_more(self, name: str) -> None:
        """Wake the dispatcher when what is held of a name runs low."""
        if self._wakeups.is_expecting and self._backlog.count(name) <= self._low_water.get(name, 0):
            self._wakeups.poke()

    def _release(self, run: Run[W]) -> None:
        self._settler.put(self._source.hand_back(run))

    def _release_overdue(self, now: float) -> None:
        for run in self._backlog.pop_overdue(now - _LONGEST_WAIT_AHEAD):
            self._pace.slowed(run.work.name)
            self._release(run)

    def _next_overdue(self) -> float:
        return _or_never(self._backlog.oldest()) + _LONGEST_WAIT_AHEAD


def _or_never(time: float | None) -> float:
    return float("inf") if time is None else time
