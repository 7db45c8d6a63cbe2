"""Faults that hit the listener of a job right before the job is stored."""

from __future__ import annotations

import asyncio
import itertools
import signal
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from monque_core.scheduler.ranking import rank
from tests.faults.lab.recorder import true_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.faults.lab.lab import Lab
    from tests.faults.lab.process_supervisor import ManagedProcess

NAME: Final = "lone"
"""The name of the jobs; its limit is one."""
SEATS: Final = 2
_LOOK_GAP = 0.02
_SETTLED_SECONDS = 0.5
_READY_SECONDS = 120.0
_GIVE_UP_SECONDS = 30.0
_BUSY_SECONDS = 20.0
_RUN_SECONDS = 0.2
"""Long enough that none is prefetched behind one that runs for long."""


class ListenerTrials:
    """Stores lone jobs, each while the listener that is to claim it is faulty."""

    def __init__(self, lab: Lab, workers: int) -> None:
        self._lab = lab
        self._workers = workers
        self._meta = lab.db.monque_jobs_meta

    async def run(self, kind: str) -> set[str]:
        """Store one job while its first listener has this fault; return who had the fault.

        The kinds are `none`, `kill`, `freeze`, `cut`, `half-open` and `busy`; `all killed` and `all
        busy` are faults of both listeners.
        """
        listeners = await self._wait_until_ready()
        is_for_all = kind.startswith("all ")
        first = self._lab.random.choice(sorted(listeners))
        affected = listeners if is_for_all else {first: listeners[first]}
        async with AsyncExitStack() as stack:
            if kind.endswith("busy"):
                affected = await self._fill(affected, listeners)
            due_at = _due_at(next(iter(affected)), listeners)
            for member in affected.values():
                await stack.enter_async_context(self._faulty(kind, member))
            (job,) = await self._lab.enqueue_many(NAME, [{"seconds": _RUN_SECONDS}], run_at=due_at)
            self._lab.recorder.note(
                "trial",
                kind=kind,
                job=job,
                affected=[] if kind == "none" else [one.name for one in affected.values()],
                first=listeners[next(iter(affected))].name,
            )
            await self._wait_until_claimed(job)
        return set(affected)

    async def wait_until_replaced(self, gone: set[str], seconds: float) -> None:
        """Record whether both seats are taken by processes that are alive, within so long."""
        deadline = asyncio.get_running_loop().time() + seconds
        while True:
            seated = await self._seated()
            alive = self._lab.processes.by_instance()
            if len(seated) == SEATS and not seated & gone and seated <= alive.keys():
                return
            if asyncio.get_running_loop().time() > deadline:
                self._lab.recorder.note("seats not taken", seconds=seconds)
                return
            await asyncio.sleep(_LOOK_GAP)

    async def _seated(self) -> set[str]:
        documents = await self._meta.find({"seat": {"$gte": 0}}).to_list()
        return {document["_id"].partition(":")[2] for document in documents}

    async def _wait_until_ready(self) -> dict[str, ManagedProcess]:
        """Wait until all workers are up, nothing is due and two have seats; return these."""
        before: set[str] = set()
        async with asyncio.timeout(_READY_SECONDS):
            while True:
                await self._lab.processes.wait_until_up(self._workers)
                await self._lab.wait_until_idle(_READY_SECONDS)
                seated = await self._seated()
                alive = self._lab.processes.by_instance()
                if len(seated) == SEATS and seated == before and seated <= alive.keys():
                    return {one: alive[one] for one in seated}
                before = seated
                await asyncio.sleep(_SETTLED_SECONDS)

    async def _fill(
        self, listeners: dict[str, ManagedProcess], seated: dict[str, ManagedProcess]
    ) -> dict[str, ManagedProcess]:
        """Occupy the only slot of so many instances; return which, preferably these."""
        alive = self._lab.processes.by_instance()
        jobs: list[str] = []
        for one in listeners:
            jobs += await self._lab.enqueue_many(
                NAME, [{"seconds": _BUSY_SECONDS}], run_at=_due_at(one, seated)
            )
            await self._lab.processes.wait_until_run(jobs, len(jobs))
        filled = {
            one: member
            for one, member in alive.items()
            if any(
                self._lab.processes.has_recorded(member.name, "run started", job) for job in jobs
            )
        }
        return {one: member for one, member in filled.items() if one in seated} or filled

    async def _wait_until_claimed(self, job: str) -> None:
        deadline = asyncio.get_running_loop().time() + _GIVE_UP_SECONDS
        while asyncio.get_running_loop().time() < deadline:
            if self._lab.processes.has_recorded("worker-*", "run started", job):
                return
            await asyncio.sleep(_LOOK_GAP)

    @asynccontextmanager
    async def _faulty(self, kind: str, member: ManagedProcess) -> AsyncIterator[None]:
        """Hit one process with a fault, and repair it at the end."""
        if kind == "none" or kind.endswith("busy"):
            yield
        elif kind.endswith("killed") or kind == "kill":
            self._lab.recorder.note("fault", kind="kill", target=member.name, for_ever=True)
            member.signal(signal.SIGKILL)
            yield
        else:
            began = true_time()
            self._begin(kind, member)
            try:
                yield
                # Long enough to be recognized as the cause of what it leads to.
                await asyncio.sleep(self._lab.random.uniform(1, 2))
            finally:
                self._end(kind, member)
                self._lab.recorder.note("fault", kind=kind, target=member.name, began=began)

    def _begin(self, kind: str, member: ManagedProcess) -> None:
        if kind == "freeze":
            member.signal(signal.SIGSTOP)
            return
        assert member.network is not None
        if kind == "cut":
            member.network.cut()
        else:
            member.network.stall()

    def _end(self, kind: str, member: ManagedProcess) -> None:
        if kind == "freeze":
            member.signal(signal.SIGCONT)
        elif member.network is not None:
            member.network.heal()


def _due_at(first: str, seated: dict[str, ManagedProcess]) -> datetime:
    """Return a time just past at which this listener is the first to claim a job."""
    now = datetime.now(UTC)
    now = now.replace(microsecond=now.microsecond // 1000 * 1000)
    for earlier in itertools.count():
        at = now - timedelta(milliseconds=earlier)
        if rank(f"{NAME} {at}", first, seated) == 0:
            return at
    raise AssertionError("one of a few times is the listener's")
