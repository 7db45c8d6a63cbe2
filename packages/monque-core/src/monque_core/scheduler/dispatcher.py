"""From free slots to running jobs."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

from monque_core.jobs.outcome import RELEASED
from monque_core.scheduler.claimer import Demand
from monque_core.scheduler.loop import Loop
from monque_core.scheduler.runner import Ending
from monque_core.scheduler.runs import Run
from monque_core.scheduler.wakeups import MANY, seconds_until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monque_core.clock import Clock
    from monque_core.jobs.job import AnyJob
    from monque_core.options import Options
    from monque_core.scheduler.announcer import Announcer
    from monque_core.scheduler.backlog import Backlog
    from monque_core.scheduler.claimer import Claimer, Harvest
    from monque_core.scheduler.pace import Pace
    from monque_core.scheduler.probation import Probation
    from monque_core.scheduler.runner import Runner
    from monque_core.scheduler.runs import Runs
    from monque_core.scheduler.settler import Settler
    from monque_core.scheduler.slots import Slots
    from monque_core.scheduler.wakeups import Wakeups
    from monque_core.scheduler.workers import Workers
    from monque_core.store.queue import Queue

_LARGEST_BATCH = 200
_LONGEST_WAIT_AHEAD = 1.0
_LONGEST_PLAN = timedelta(seconds=120)
_SHORTEST_PLAN = timedelta(milliseconds=100)
_UPCOMING_LIMIT = 1000
_NAMES_PER_FAIR_LOOK = 20
_PAUSE_AFTER_FAULT = 0.2


class Dispatcher(Loop):
    """Keeps slots filled: asks the claimer for jobs and the runner to run them."""

    def __init__(
        self,
        *,
        queue: Queue,
        claimer: Claimer,
        runner: Runner,
        settler: Settler,
        workers: Workers,
        slots: Slots,
        backlog: Backlog,
        runs: Runs,
        wakeups: Wakeups,
        pace: Pace,
        probation: Probation,
        clock: Clock,
        options: Options,
        announcer: Announcer,
    ) -> None:
        super().__init__(announcer.errored)
        self._queue = queue
        self._claimer = claimer
        self._runner = runner
        self._settler = settler
        self._workers = workers
        self._slots = slots
        self._backlog = backlog
        self._runs = runs
        self._wakeups = wakeups
        self._pace = pace
        self._probation = probation
        self._clock = clock
        self._poll_seconds = options.poll_interval.total_seconds()
        self._safety_poll_seconds = options.safety_poll_interval.total_seconds()
        self._sees_changes = False
        self._next_poll = 0.0
        self._next_plan = 0.0
        self._plan_span = _LONGEST_PLAN
        self._held_back: set[str] = set()
        self._awaiting_trial: set[str] = set()
        self._low_water: dict[str, int] = {}
        self._contenders = 0
        self._is_closing = False
        self.is_claiming = False
        self.claims = 0
        """How many jobs were claimed so far."""
        self.idle = asyncio.Event()
        """Set while slots are free and nothing is thought to be due."""

    def see_changes(self, *, connected: bool) -> None:
        """Take note whether a change stream tells of new jobs; without one, poll at once.

        What was stored before a stream was open, for now or for later, only a look shows.
        """
        self._sees_changes = connected
        self.replan()

    def look_now(self) -> None:
        """Look at the queue for every worker as soon as can be."""
        self._next_poll = 0.0
        self._wakeups.poke()

    def replan(self) -> None:
        """Ask anew what becomes due, as after a worker was added."""
        self._next_plan = 0.0
        self.look_now()

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
        await self._resolve_doubts()

    async def _run(self) -> None:
        while not self._is_closing:
            self._wakeups.reset()
            try:
                await self._turn()
            except Exception as error:  # noqa: BLE001  # no fault may end the dispatcher
                self._report(error)
                self.look_now()
                await asyncio.sleep(_PAUSE_AFTER_FAULT)

    async def _turn(self) -> None:
        """Claim if there is anything to claim, else wait for something to change."""
        loop = asyncio.get_running_loop()
        await self._resolve_doubts()
        self._release_overdue(loop.time())
        await self._plan(loop.time())
        self._wakeups.ring(self._clock.now())
        if loop.time() >= self._next_poll:
            gap = self._safety_poll_seconds if self._sees_changes else self._poll_seconds
            self._next_poll = loop.time() + gap
            for name in self._workers.names:
                self._wakeups.hint(name)
        demands = self._demands()
        if demands:
            self.idle.clear()
            await self._claim(demands)
        else:
            await self._wait(loop.time())

    async def _wait(self, now: float) -> None:
        if self._slots.free_in_all() and not self._backlog:
            self.idle.set()
        until_due = seconds_until(self._wakeups.next_at(), self._clock.now())
        next_event = min(
            self._next_poll,
            self._next_plan,
            self._next_overdue(),
            _or_never(self._probation.ends_at(now)),
            _or_never(self._claimer.next_doubt()),
        )
        await self._wakeups.wait(max(0.0, min(until_due, next_event - now)))

    async def _plan(self, now: float) -> None:
        """Ask which jobs become due in the next while, so that they start on time."""
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
        names = [name for name in self._workers.names if self._wakeups.expected(name)]
        if self._is_trying():
            names = [name for name in names if name not in self._awaiting_trial]
        self._contenders = len(names)
        if self._claimer.is_crowded and len(names) > _NAMES_PER_FAIR_LOOK:
            names = self._claimer.longest_waiting(names, _NAMES_PER_FAIR_LOOK)
        demands = []
        for name in names:
            free, waiting = self._slots.free(name), self._backlog.count(name)
            goal = free + self._ahead(name)
            room = goal - waiting
            self._low_water[name] = goal // 2
            # With jobs at hand, wait until a claim is worth its round trip.
            if room > 0 and (not waiting or 2 * room >= goal):
                expected = self._wakeups.expected(name)
                demands.append(Demand(name, expected, room, max(0, free - waiting)))
        return demands

    def _is_trying(self) -> bool:
        return self._probation.ends_at(asyncio.get_running_loop().time()) is not None

    def _ahead(self, name: str) -> int:
        """Tell how many jobs of a name may be held beyond its free slots."""
        if name in self._held_back:
            return 0
        own = self._pace.ahead(name, self._slots.limit(name))
        if self._slots.instance_limit is None:
            return own
        in_all = self._pace.ahead_in_all(self._slots.instance_limit)
        if not in_all:
            return 0
        # Names that want the same slots share what is held ahead of them, so that the one whose
        # jobs are short does not hand each slot to itself; and each has at least one in line.
        return max(1, min(own, -(-in_all // max(1, self._contenders))))

    async def _claim(self, demands: Sequence[Demand]) -> None:
        total = min(_LARGEST_BATCH, self._room_in_all(demands))
        for demand in demands:
            self._wakeups.take(demand.name)
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        self.is_claiming = True
        try:
            harvest = await self._claimer.claim(demands, total, may_try=not self._is_trying())
        except Exception:
            for demand in demands:
                self._wakeups.hint(demand.name)
            raise
        else:
            self._bring_in(demands, harvest, loop.time() - asked_at)
            if harvest.fault is not None:
                raise harvest.fault
        finally:
            self.is_claiming = False

    def _room_in_all(self, demands: Sequence[Demand]) -> int:
        room = sum(demand.ask for demand in demands)
        limit = self._slots.instance_limit
        if limit is not None:
            ahead = max(len(demands), self._pace.ahead_in_all(limit))
            room = min(room, self._slots.free_in_all() + ahead - len(self._backlog))
        return max(1, room)

    def _bring_in(self, demands: Sequence[Demand], harvest: Harvest, seconds: float) -> None:
        if harvest.jobs:
            self._pace.claimed(seconds)
        self._held_back -= {demand.name for demand in demands}
        self._held_back |= harvest.held_back
        self._awaiting_trial -= {demand.name for demand in demands}
        self._awaiting_trial |= harvest.awaiting_trial
        for name, count in harvest.more.items():
            self._wakeups.hint(name, count)
        self._accept(harvest.jobs)

    async def _resolve_doubts(self) -> None:
        if self._claimer.next_doubt() is None:
            return
        jobs = await self._claimer.resolve_doubts()
        held = {(run.job.id, run.job.claim_token) for run in self._runs}
        self._accept([job for job in jobs if (job.id, job.claim_token) not in held])

    def _accept(self, jobs: Sequence[AnyJob]) -> None:
        now = asyncio.get_running_loop().time()
        runs = [Run(job, now) for job in jobs]
        self.claims += len(runs)
        self._runs.add(runs)
        for run in runs:
            if self._is_closing:
                self._release(run)
                continue
            self._backlog.add(run)
            if self._claimer.is_on_trial(run.job):
                self._probation.begin(run, now)
        self._start_what_can()

    def _start_what_can(self) -> None:
        while (run := self._backlog.pop_startable()) is not None:
            self._ask_for_more(run.job.name)
            self._slots.take(run.job.name)
            run.stage = "running"
            run.started_at = asyncio.get_running_loop().time()
            run.task = asyncio.create_task(self._runner.execute(run, self._ended))

    def _ended(self, run: Run, ending: Ending | None) -> None:
        name = run.job.name
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
        if not self._wakeups.is_expecting and not self._backlog:
            self.idle.set()

    def _ask_for_more(self, name: str) -> None:
        """Wake the dispatcher when what is held of a name runs low."""
        if self._wakeups.is_expecting and self._backlog.count(name) <= self._low_water.get(name, 0):
            self._wakeups.poke()

    def _release(self, run: Run) -> None:
        self._settler.put(Ending(run, RELEASED))

    def _release_overdue(self, now: float) -> None:
        for run in self._backlog.pop_overdue(now - _LONGEST_WAIT_AHEAD):
            self._pace.slowed(run.job.name)
            self._release(run)

    def _next_overdue(self) -> float:
        return _or_never(self._backlog.oldest()) + _LONGEST_WAIT_AHEAD


def _or_never(time: float | None) -> float:
    return float("inf") if time is None else time
