"""Everything that goes wrong in production, at random, and put right again."""

from __future__ import annotations

import asyncio
import signal
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Self

from pymongo.errors import OperationFailure, PyMongoError

from monque_core import MonqueError
from tests.faults.lab.disturbances import EVERYBODY, THE_QUEUE
from tests.faults.lab.effect import Effect
from tests.faults.lab.garbage import garbage
from tests.faults.lab.recorder import true_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from random import Random
    from types import TracebackType

    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import LocalMongo, Monque
    from monque_core.local.node import Node
    from tests.faults.lab.fleet import Fleet, Member
    from tests.faults.lab.network import Network
    from tests.faults.lab.recorder import Recorder

_AT_ONCE = 3
_STOPS_MIDWAY = 0.2
_PROBE_GAP = 0.25
_PICKED_UP_SECONDS = 120.0
_LOOK_GAP = 0.05
_INDEX_NOT_FOUND = 27
_DROPPABLE = ("monque_py_claim", "monque_py_processing", "monque_py_name", "monque_py_recurring")


class Adversary:
    """Does harm, and writes down what it did to whom, from when until when."""

    def __init__(
        self,
        fleet: Fleet,
        mongo: LocalMongo,
        monque: Monque,
        db: AsyncDatabase[dict[str, Any]],
        random: Random,
        recorder: Recorder,
        *,
        heartbeat: float,
        outage: float,
    ) -> None:
        self._fleet = fleet
        self._mongo = mongo
        self._db = db
        self._random = random
        self._recorder = recorder
        self._heartbeat = heartbeat
        self._outage = outage
        self._monque = monque
        self._database = asyncio.Lock()
        self.kinds: dict[str, Callable[[Effect], Awaitable[None]]] = {
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

    async def act(self, seconds: float, kinds: Sequence[str] | None = None) -> None:
        """Do harm of these kinds for so long, some of it at once; return when all is well."""
        deadline = asyncio.get_running_loop().time() + seconds
        names = list(kinds or self.kinds)
        under_way: set[asyncio.Task[None]] = set()
        # Each at least once if there is time, then at random.
        queue = self._random.sample(names, len(names))
        while asyncio.get_running_loop().time() < deadline:
            under_way = {task for task in under_way if not task.done()}
            if len(under_way) < _AT_ONCE:
                kind = queue.pop() if queue else self._random.choice(names)
                stop_midway = self._random.random() < _STOPS_MIDWAY
                under_way.add(asyncio.create_task(self.do(kind, stop_midway=stop_midway)))
            await asyncio.sleep(self._random.uniform(0.2, 1.2))
        if under_way:
            await asyncio.gather(*under_way)

    async def do(self, kind: str, *, stop_midway: bool = False) -> None:
        """Do harm of one kind, and put it right; tell a worker to stop meanwhile if asked to."""
        effect = Effect()
        stopping = asyncio.create_task(self._stop_during(kind, effect)) if stop_midway else None
        await self.kinds[kind](effect)
        effect.end()
        if stopping is not None:
            await stopping

    async def _stop_during(self, kind: str, effect: Effect) -> None:
        """Tell a worker to stop while a fault is on, the one that it is at work on if any."""
        if not await effect.until_on():
            return
        await asyncio.sleep(self._random.uniform(0, effect.shortest / 2))
        victim = effect.victim
        if victim is None or victim not in self._fleet.workers:
            workers = [member for member in self._fleet.workers if member.is_fit]
            up = [member for member in workers if self._fleet.has_noted(member.name, "up")]
            if not workers:
                return
            victim = self._random.choice(up or workers)
        await self._fleet.stop(victim, during=kind)

    async def _watch_database(self) -> None:
        """Write down when the database was slow or away for reasons of its own."""
        while True:
            began = true_time()
            try:
                async with asyncio.timeout(self._heartbeat / 4):
                    await self._probe()
            except (PyMongoError, TimeoutError):
                await self._wait_for_database()
                self._note("slow database", EVERYBODY, began)
            # The networks of the others go through this process, too.
            began = true_time()
            await asyncio.sleep(_PROBE_GAP)
            if (true_time() - began) / 1e9 > _PROBE_GAP + self._heartbeat / 10:
                self._note("starved", EVERYBODY, began)

    async def _kill(self, effect: Effect) -> None:
        await self._kill_one_of(self._fleet.workers, "kill", effect)

    async def _kill_producer(self, effect: Effect) -> None:
        await self._kill_one_of(self._fleet.producers, "kill producer", effect)

    async def _kill_one_of(self, members: Sequence[Member], kind: str, effect: Effect) -> None:
        async with self._victim(members) as member:
            if member is not None:
                self._recorder.note("fault", kind=kind, target=member.name, for_ever=True)
                member.signal(signal.SIGKILL)
                effect.begin(shortest=self._heartbeat)

    async def _freeze(self, effect: Effect) -> None:
        # For longer than its claims last.
        seconds = self._heartbeat * self._random.uniform(4, 6)
        await self._freeze_one_of(self._fleet.workers, "freeze", seconds, effect)

    async def _freeze_producer(self, effect: Effect) -> None:
        seconds = self._heartbeat * self._random.uniform(1, 3)
        await self._freeze_one_of(self._fleet.producers, "freeze producer", seconds, effect)

    async def _freeze_one_of(
        self, members: Sequence[Member], kind: str, seconds: float, effect: Effect
    ) -> None:
        async with self._victim(members) as member:
            if member is None:
                return
            async with self._fault(kind, member.name):
                member.signal(signal.SIGSTOP)
                effect.begin(seconds, member)
                await asyncio.sleep(seconds)
                member.signal(signal.SIGCONT)

    async def _stop(self, effect: Effect) -> None:
        async with self._victim(self._fleet.workers) as member:
            if member is not None:
                effect.begin(shortest=0)
                await self._fleet.stop(member)

    async def _cut(self, effect: Effect) -> None:
        seconds = self._random.uniform(0.1, 4) * self._heartbeat
        async with self._network_fault("cut", seconds, effect) as network:
            if network is not None:
                network.cut()

    async def _slow(self, effect: Effect) -> None:
        seconds = self._random.uniform(1, 3) * self._heartbeat
        async with self._network_fault("slow", seconds, effect) as network:
            if network is not None:
                network.slow(self._random.uniform(0.02, 0.5))

    async def _half_open(self, effect: Effect) -> None:
        seconds = self._random.uniform(1, 5) * self._heartbeat
        forget = self._random.random() < 0.5
        async with self._network_fault("half-open", seconds, effect, forget=forget) as network:
            if network is not None:
                network.stall()

    async def _kill_primary(self, effect: Effect) -> None:
        async with self._database_fault("kill primary") as primary:
            if primary is not None:
                await asyncio.to_thread(primary.kill)
                seconds = self._random.uniform(0.5, 3)
                effect.begin(seconds)
                await asyncio.sleep(seconds)
                await asyncio.to_thread(primary.start)

    async def _restart_primary(self, effect: Effect) -> None:
        async with self._database_fault("restart primary") as primary:
            if primary is not None:
                effect.begin(shortest=0.5)
                await asyncio.to_thread(primary.stop)
                await asyncio.to_thread(primary.start)

    async def _freeze_primary(self, effect: Effect) -> None:
        async with self._database_fault("freeze primary") as primary:
            if primary is not None:
                await asyncio.to_thread(primary.suspend)
                seconds = self._random.uniform(0.5, 4)
                effect.begin(seconds)
                await asyncio.sleep(seconds)
                await asyncio.to_thread(primary.resume)

    async def _step_down(self, effect: Effect) -> None:
        async with self._database_fault("step down") as primary:
            if primary is not None:
                effect.begin(shortest=0.2)
                with suppress(PyMongoError):
                    await self._db.client.admin.command(
                        "replSetStepDown", 3, secondaryCatchUpPeriodSecs=2
                    )

    async def _all_down(self, effect: Effect) -> None:
        async with self._database_fault("all down"):
            nodes = self._mongo.nodes
            await asyncio.gather(*(asyncio.to_thread(node.kill) for node in nodes))
            effect.begin(self._outage)
            await asyncio.sleep(self._outage)
            await asyncio.gather(*(asyncio.to_thread(node.start) for node in nodes))

    async def _block_a_loop(self, effect: Effect) -> None:
        job = await self._enqueue("rude")
        member = None if job is None else await self._who_runs(job)
        if member is not None:
            effect.begin(4 * self._heartbeat, member)

    async def _poison(self, effect: Effect) -> None:
        job = await self._enqueue("poison")
        if job is not None and await self._who_runs(job) is not None:
            # One is dead, and what it had claimed waits for the others to notice.
            effect.begin(self._heartbeat)

    async def _garbage(self, effect: Effect) -> None:
        documents = self._random.sample(garbage(), 4)
        if await self._do_to_the_queue("garbage", self._db.monque_jobs.insert_many(documents)):
            effect.begin(shortest=0.1)

    async def _drop_indexes(self, effect: Effect) -> None:
        names = self._random.sample(_DROPPABLE, len(_DROPPABLE))
        for name in names:
            dropping = self._db.monque_jobs.drop_index(name)
            if await self._do_to_the_queue("drop indexes", dropping):
                effect.begin(self._heartbeat)
                return

    async def _do_to_the_queue(self, kind: str, doing: Awaitable[object]) -> bool:
        """Write down what is done to the queue, or that MongoDB was not there to do it."""
        try:
            await doing
        except (PyMongoError, MonqueError) as error:
            is_gone = isinstance(error, OperationFailure) and error.code == _INDEX_NOT_FOUND
            if not is_gone:
                self._recorder.note("spared", kind=kind, text=str(error)[:300])
            return False
        self._note(kind, THE_QUEUE, true_time())
        return True

    async def _enqueue(self, name: str) -> str | None:
        """Store a job that does harm to who runs it."""
        try:
            return str((await self._monque.enqueue(name, {}, max_retries=2)).id)
        except (PyMongoError, MonqueError) as error:
            self._recorder.note("spared", kind=name, text=str(error)[:300])
            return None

    async def _who_runs(self, job: str) -> Member | None:
        """Wait until a worker has begun with a job, and give it."""
        seen: dict[str, Member] = {}
        with suppress(TimeoutError):
            async with asyncio.timeout(_PICKED_UP_SECONDS):
                while True:
                    # Also those that have died of it by now.
                    seen |= {member.name: member for member in self._fleet.workers}
                    for name, member in seen.items():
                        if self._fleet.has_noted(name, "run", job):
                            return member
                    await asyncio.sleep(_LOOK_GAP)
        return None

    @asynccontextmanager
    async def _victim(self, members: Sequence[Member]) -> AsyncIterator[Member | None]:
        """Give a process that no fault is at work on, if there is any."""
        free = [member for member in members if member.is_alive and not member.is_busy]
        if not free:
            yield None
            return
        member = self._random.choice(free)
        member.is_busy = True
        try:
            yield member
        finally:
            member.is_busy = False

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
        self, kind: str, seconds: float, effect: Effect, *, forget: bool = False
    ) -> AsyncIterator[Network | None]:
        """Give the network of a process, and heal it after so many seconds."""
        async with self._victim([*self._fleet.workers, *self._fleet.producers]) as member:
            if member is None or member.network is None:
                yield None
                return
            async with self._fault(kind, member.name):
                yield member.network
                effect.begin(seconds, member)
                await asyncio.sleep(seconds)
                member.network.heal(forget=forget)

    @asynccontextmanager
    async def _database_fault(self, kind: str) -> AsyncIterator[Node | None]:
        """Give the primary, one fault of the database at a time; wait until it is well again."""
        async with self._database:
            await self._wait_for_database()
            address = await self._db.client.primary
            primaries = [node for node in self._mongo.nodes if address and node.port == address[1]]
            async with self._fault(kind, EVERYBODY):
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
        # Nothing is there to be written, but a lock on the jobs would make it wait.
        await self._db.monque_jobs.update_one({"_id": "probe"}, {"$set": {"n": 1}})
