"""Injects the faults of production systems at random, and repairs them."""

from __future__ import annotations

import asyncio
import signal
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Self

from pymongo.errors import OperationFailure, PyMongoError

from monque_core import MonqueError
from tests.faults.lab.active_fault import ActiveFault
from tests.faults.lab.fault_timeline import ALL_PROCESSES, JOBS_COLLECTION
from tests.faults.lab.garbage import garbage
from tests.faults.lab.recorder import true_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from random import Random
    from types import TracebackType

    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import LocalMongo, Monque
    from monque_core.local.node import Node
    from tests.faults.lab.network import Network
    from tests.faults.lab.process_supervisor import ManagedProcess, ProcessSupervisor
    from tests.faults.lab.recorder import Recorder

_AT_ONCE = 3
_STOPS_MIDWAY = 0.2
_PROBE_GAP = 0.25
_PICKED_UP_SECONDS = 120.0
_LOOK_GAP = 0.05
_INDEX_NOT_FOUND = 27
_DROPPABLE = ("monque_py_claim", "monque_py_processing", "monque_py_name", "monque_py_recurring")


class FaultInjector:
    """Injects faults, and records the kind, target, beginning and end of each."""

    def __init__(
        self,
        processes: ProcessSupervisor,
        mongo: LocalMongo,
        monque: Monque,
        db: AsyncDatabase[dict[str, Any]],
        random: Random,
        recorder: Recorder,
        *,
        heartbeat: float,
        outage: float,
    ) -> None:
        self._processes = processes
        self._mongo = mongo
        self._db = db
        self._random = random
        self._recorder = recorder
        self._heartbeat = heartbeat
        self._outage = outage
        self._monque = monque
        self._database = asyncio.Lock()
        self.kinds: dict[str, Callable[[ActiveFault], Awaitable[None]]] = {
            "kill": self._kill,
            "freeze": self._freeze,
            "kill producer": self._kill_producer,
            "freeze producer": self._freeze_producer,
            "stop": self._stop,
            "cut": self._cut,
            "slow": self._slow,
            "half-open": self._half_open,
            "kill primary": self._kill_primary,
            "step down": self._step_down,
            "restart primary": self._restart_primary,
            "freeze primary": self._freeze_primary,
            "all down": self._all_down,
            "blocked loop": self._block_a_loop,
            "poison": self._poison,
            "garbage": self._garbage,
            "drop indexes": self._drop_indexes,
        }

    async def __aenter__(self) -> Self:
        self._watching = asyncio.create_task(self._watch_database())
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._watching.cancel()
        await asyncio.wait([self._watching])
        await self._monque.stop()

    async def inject_randomly(self, seconds: float, kinds: Sequence[str] | None = None) -> None:
        """Inject faults for this long, some concurrently; return when all are repaired."""
        deadline = asyncio.get_running_loop().time() + seconds
        names = list(kinds or self.kinds)
        under_way: set[asyncio.Task[None]] = set()
        # Each kind at least once if time allows, then at random.
        queue = self._random.sample(names, len(names))
        while asyncio.get_running_loop().time() < deadline:
            under_way = {task for task in under_way if not task.done()}
            if len(under_way) < _AT_ONCE:
                kind = queue.pop() if queue else self._random.choice(names)
                stop_midway = self._random.random() < _STOPS_MIDWAY
                under_way.add(asyncio.create_task(self.inject(kind, stop_midway=stop_midway)))
            await asyncio.sleep(self._random.uniform(0.2, 1.2))
        if under_way:
            await asyncio.gather(*under_way)

    async def inject(self, kind: str, *, stop_midway: bool = False) -> None:
        """Inject one fault and repair it; optionally stop a worker while it is active."""
        active = ActiveFault()
        stopping = asyncio.create_task(self._stop_during(kind, active)) if stop_midway else None
        await self.kinds[kind](active)
        active.end()
        if stopping is not None:
            await stopping

    async def _stop_during(self, kind: str, active: ActiveFault) -> None:
        """Stop a worker while a fault is active, if possible the one that it hits."""
        if not await active.wait_until_active():
            return
        await asyncio.sleep(self._random.uniform(0, active.min_seconds / 2))
        affected_process = active.affected_process
        if affected_process is None or affected_process not in self._processes.workers:
            workers = [member for member in self._processes.workers if member.can_be_stopped]
            up = [member for member in workers if self._processes.has_recorded(member.name, "up")]
            if not workers:
                return
            affected_process = self._random.choice(up or workers)
        await self._processes.stop(affected_process, during=kind)

    async def _watch_database(self) -> None:
        """Record when the database was slow or away without an injected fault."""
        while True:
            began = true_time()
            try:
                async with asyncio.timeout(self._heartbeat / 4):
                    await self._probe()
            except (PyMongoError, TimeoutError):
                await self._wait_for_database()
                self._note("slow database", ALL_PROCESSES, began)
            # The networks of the other processes run in this process, too.
            began = true_time()
            await asyncio.sleep(_PROBE_GAP)
            if (true_time() - began) / 1e9 > _PROBE_GAP + self._heartbeat / 10:
                self._note("starved", ALL_PROCESSES, began)

    async def _kill(self, active: ActiveFault) -> None:
        await self._kill_one_of(self._processes.workers, "kill", active)

    async def _kill_producer(self, active: ActiveFault) -> None:
        await self._kill_one_of(self._processes.producers, "kill producer", active)

    async def _kill_one_of(
        self, members: Sequence[ManagedProcess], kind: str, active: ActiveFault
    ) -> None:
        async with self._free_process(members) as member:
            if member is not None:
                self._recorder.note("fault", kind=kind, target=member.name, for_ever=True)
                member.signal(signal.SIGKILL)
                active.begin(min_seconds=self._heartbeat)

    async def _freeze(self, active: ActiveFault) -> None:
        # Longer than its claims last.
        seconds = self._heartbeat * self._random.uniform(4, 6)
        await self._freeze_one_of(self._processes.workers, "freeze", seconds, active)

    async def _freeze_producer(self, active: ActiveFault) -> None:
        seconds = self._heartbeat * self._random.uniform(1, 3)
        await self._freeze_one_of(self._processes.producers, "freeze producer", seconds, active)

    async def _freeze_one_of(
        self, members: Sequence[ManagedProcess], kind: str, seconds: float, active: ActiveFault
    ) -> None:
        async with self._free_process(members) as member:
            if member is None:
                return
            async with self._fault(kind, member.name):
                member.signal(signal.SIGSTOP)
                active.begin(seconds, member)
                await asyncio.sleep(seconds)
                member.signal(signal.SIGCONT)

    async def _stop(self, active: ActiveFault) -> None:
        async with self._free_process(self._processes.workers) as member:
            if member is not None:
                active.begin(min_seconds=0)
                await self._processes.stop(member)

    async def _cut(self, active: ActiveFault) -> None:
        seconds = self._random.uniform(0.1, 4) * self._heartbeat
        async with self._network_fault("cut", seconds, active) as network:
            if network is not None:
                network.cut()

    async def _slow(self, active: ActiveFault) -> None:
        seconds = self._random.uniform(1, 3) * self._heartbeat
        async with self._network_fault("slow", seconds, active) as network:
            if network is not None:
                network.slow(self._random.uniform(0.02, 0.5))

    async def _half_open(self, active: ActiveFault) -> None:
        seconds = self._random.uniform(1, 5) * self._heartbeat
        forget = self._random.random() < 0.5
        async with self._network_fault("half-open", seconds, active, forget=forget) as network:
            if network is not None:
                network.stall()

    async def _kill_primary(self, active: ActiveFault) -> None:
        async with self._database_fault("kill primary") as primary:
            if primary is not None:
                await asyncio.to_thread(primary.kill)
                seconds = self._random.uniform(0.5, 3)
                active.begin(seconds)
                await asyncio.sleep(seconds)
                await asyncio.to_thread(primary.start)

    async def _restart_primary(self, active: ActiveFault) -> None:
        async with self._database_fault("restart primary") as primary:
            if primary is not None:
                active.begin(min_seconds=0.5)
                await asyncio.to_thread(primary.stop)
                await asyncio.to_thread(primary.start)

    async def _freeze_primary(self, active: ActiveFault) -> None:
        async with self._database_fault("freeze primary") as primary:
            if primary is not None:
                await asyncio.to_thread(primary.suspend)
                seconds = self._random.uniform(0.5, 4)
                active.begin(seconds)
                await asyncio.sleep(seconds)
                await asyncio.to_thread(primary.resume)

    async def _step_down(self, active: ActiveFault) -> None:
        async with self._database_fault("step down") as primary:
            if primary is not None:
                active.begin(min_seconds=0.2)
                with suppress(PyMongoError):
                    await self._db.client.admin.command(
                        "replSetStepDown", 3, secondaryCatchUpPeriodSecs=2
                    )

    async def _all_down(self, active: ActiveFault) -> None:
        async with self._database_fault("all down"):
            nodes = self._mongo.nodes
            await asyncio.gather(*(asyncio.to_thread(node.kill) for node in nodes))
            active.begin(self._outage)
            await asyncio.sleep(self._outage)
            await asyncio.gather(*(asyncio.to_thread(node.start) for node in nodes))

    async def _block_a_loop(self, active: ActiveFault) -> None:
        job = await self._enqueue("blocks-loop")
        member = None if job is None else await self._worker_of(job)
        if member is not None:
            active.begin(4 * self._heartbeat, member)

    async def _poison(self, active: ActiveFault) -> None:
        job = await self._enqueue("poison")
        if job is not None and await self._worker_of(job) is not None:
            # One worker is dead, and its claims wait for recovery by the others.
            active.begin(self._heartbeat)

    async def _garbage(self, active: ActiveFault) -> None:
        documents = self._random.sample(garbage(), 4)
        if await self._harm_the_collection("garbage", self._db.monque_jobs.insert_many(documents)):
            active.begin(min_seconds=0.1)

    async def _drop_indexes(self, active: ActiveFault) -> None:
        names = self._random.sample(_DROPPABLE, len(_DROPPABLE))
        for name in names:
            dropping = self._db.monque_jobs.drop_index(name)
            if await self._harm_the_collection("drop indexes", dropping):
                active.begin(self._heartbeat)
                return

    async def _harm_the_collection(self, kind: str, doing: Awaitable[object]) -> bool:
        """Record a fault in the collection, or that MongoDB was not available for it."""
        try:
            await doing
        except (PyMongoError, MonqueError) as error:
            is_gone = isinstance(error, OperationFailure) and error.code == _INDEX_NOT_FOUND
            if not is_gone:
                self._recorder.note("fault skipped", kind=kind, text=str(error)[:300])
            return False
        self._note(kind, JOBS_COLLECTION, true_time())
        return True

    async def _enqueue(self, name: str) -> str | None:
        """Store a job that harms the process that runs it."""
        try:
            return str((await self._monque.enqueue(name, {}, max_retries=2)).id)
        except (PyMongoError, MonqueError) as error:
            self._recorder.note("fault skipped", kind=name, text=str(error)[:300])
            return None

    async def _worker_of(self, job: str) -> ManagedProcess | None:
        """Wait until a worker has started a job, and return the worker."""
        seen: dict[str, ManagedProcess] = {}
        with suppress(TimeoutError):
            async with asyncio.timeout(_PICKED_UP_SECONDS):
                while True:
                    # Including those that the job has killed by now.
                    seen |= {member.name: member for member in self._processes.workers}
                    for name, member in seen.items():
                        if self._processes.has_recorded(name, "run started", job):
                            return member
                    await asyncio.sleep(_LOOK_GAP)
        return None

    @asynccontextmanager
    async def _free_process(
        self, members: Sequence[ManagedProcess]
    ) -> AsyncIterator[ManagedProcess | None]:
        """Yield a random process without an active fault, or None."""
        free = [member for member in members if member.is_alive and not member.has_fault]
        if not free:
            yield None
            return
        member = self._random.choice(free)
        member.has_fault = True
        try:
            yield member
        finally:
            member.has_fault = False

    @asynccontextmanager
    async def _fault(self, kind: str, target: str) -> AsyncIterator[None]:
        began = true_time()
        try:
            yield
        finally:
            self._note(kind, target, began)

    def _note(self, kind: str, target: str, began: int) -> None:
        self._recorder.note("fault", kind=kind, target=target, began=began)

    @asynccontextmanager
    async def _network_fault(
        self, kind: str, seconds: float, active: ActiveFault, *, forget: bool = False
    ) -> AsyncIterator[Network | None]:
        """Yield the network of a process, and repair it after this many seconds."""
        async with self._free_process(
            [*self._processes.workers, *self._processes.producers]
        ) as member:
            if member is None or member.network is None:
                yield None
                return
            async with self._fault(kind, member.name):
                yield member.network
                active.begin(seconds, member)
                await asyncio.sleep(seconds)
                member.network.heal(forget=forget)

    @asynccontextmanager
    async def _database_fault(self, kind: str) -> AsyncIterator[Node | None]:
        """Yield the primary, for one database fault at a time; wait for its recovery."""
        async with self._database:
            await self._wait_for_database()
            address = await self._db.client.primary
            primaries = [node for node in self._mongo.nodes if address and node.port == address[1]]
            async with self._fault(kind, ALL_PROCESSES):
                yield primaries[0] if primaries else None
                await self._wait_for_database()

    async def _wait_for_database(self) -> None:
        while True:
            try:
                async with asyncio.timeout(2):
                    await self._probe()
                    return
            except (PyMongoError, TimeoutError):
                await asyncio.sleep(0.05)

    async def _probe(self) -> None:
        await self._db.probe.update_one({"_id": 1}, {"$inc": {"n": 1}}, upsert=True)
        # It writes nothing, but would wait for a lock on the collection.
        await self._db.monque_jobs.update_one({"_id": "probe"}, {"$set": {"n": 1}})
