"""Everything that goes wrong in production, at random, and put right again."""

from __future__ import annotations

import asyncio
import signal
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

import bson
from bson import ObjectId
from pymongo.errors import PyMongoError

from monque_core import MonqueError
from tests.faults.lab.recorder import true_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from random import Random
    from types import TracebackType

    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import LocalMongo, Monque
    from monque_core.local.node import Node
    from tests.faults.lab.fleet import Fleet, Member
    from tests.faults.lab.recorder import Recorder

_AT_ONCE = 3
_STOPS_MIDWAY = 0.2
_PROBE_GAP = 0.25
_LARGEST_DOCUMENT = 16 << 20
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
        self.kinds: dict[str, Callable[[], Awaitable[None]]] = {
            "kill": self._kill,
            "freeze": self._freeze,
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
        stopping = asyncio.create_task(self._stop_soon()) if stop_midway else None
        await self.kinds[kind]()
        if stopping is not None:
            await stopping

    async def _stop_soon(self) -> None:
        """Tell a worker to stop, one that a fault is at work on if there is any."""
        await asyncio.sleep(self._random.uniform(0.1, 0.8))
        workers = [member for member in self._fleet.workers if member.is_alive]
        hit = [member for member in workers if member.is_busy]
        if workers:
            await self._fleet.stop(self._random.choice(hit or workers))

    async def _watch_database(self) -> None:
        """Write down when the database was slow or away for reasons of its own."""
        while True:
            began = true_time()
            try:
                async with asyncio.timeout(self._heartbeat / 2):
                    await self._probe()
            except (PyMongoError, TimeoutError):
                await self._wait_for_database()
                self._recorder.note("fault", kind="slow database", target="*", began=began)
            await asyncio.sleep(_PROBE_GAP)

    async def _kill(self) -> None:
        async with self._victim() as member:
            if member is not None:
                self._recorder.note("fault", kind="kill", target=member.name, for_ever=True)
                member.signal(signal.SIGKILL)

    async def _freeze(self) -> None:
        async with self._victim() as member:
            if member is None:
                return
            async with self._fault("freeze", member.name):
                member.signal(signal.SIGSTOP)
                await asyncio.sleep(self._heartbeat * self._random.uniform(4, 6))
                member.signal(signal.SIGCONT)

    async def _stop(self) -> None:
        async with self._victim() as member:
            if member is not None:
                await self._fleet.stop(member)

    async def _cut(self) -> None:
        async with self._victim(with_producers=True) as member:
            if member is None or member.network is None:
                return
            async with self._fault("cut", member.name):
                member.network.cut()
                await asyncio.sleep(self._random.uniform(0.1, 4) * self._heartbeat)
                member.network.heal()

    async def _slow(self) -> None:
        async with self._victim(with_producers=True) as member:
            if member is None or member.network is None:
                return
            async with self._fault("slow", member.name):
                member.network.slow(self._random.uniform(0.02, 0.5))
                await asyncio.sleep(self._random.uniform(1, 3) * self._heartbeat)
                member.network.heal()

    async def _half_open(self) -> None:
        async with self._victim(with_producers=True) as member:
            if member is None or member.network is None:
                return
            async with self._fault("half-open", member.name):
                member.network.stall()
                await asyncio.sleep(self._random.uniform(1, 5) * self._heartbeat)
                member.network.heal(forget=self._random.random() < 0.5)

    async def _kill_primary(self) -> None:
        async with self._database_fault("kill primary") as primary:
            if primary is not None:
                await asyncio.to_thread(primary.kill)
                await asyncio.sleep(self._random.uniform(0.5, 3))
                await asyncio.to_thread(primary.start)

    async def _restart_primary(self) -> None:
        async with self._database_fault("restart primary") as primary:
            if primary is not None:
                await asyncio.to_thread(primary.stop)
                await asyncio.to_thread(primary.start)

    async def _freeze_primary(self) -> None:
        async with self._database_fault("freeze primary") as primary:
            if primary is not None:
                await asyncio.to_thread(primary.suspend)
                await asyncio.sleep(self._random.uniform(0.5, 4))
                await asyncio.to_thread(primary.resume)

    async def _step_down(self) -> None:
        async with self._database_fault("step down") as primary:
            if primary is not None:
                with suppress(PyMongoError):
                    await self._db.client.admin.command(
                        "replSetStepDown", 3, secondaryCatchUpPeriodSecs=2
                    )

    async def _all_down(self) -> None:
        async with self._database_fault("all down"):
            nodes = self._mongo.nodes
            await asyncio.gather(*(asyncio.to_thread(node.kill) for node in nodes))
            await asyncio.sleep(self._outage)
            await asyncio.gather(*(asyncio.to_thread(node.start) for node in nodes))

    async def _block_a_loop(self) -> None:
        await self._enqueue("rude")

    async def _poison(self) -> None:
        await self._enqueue("poison")

    async def _garbage(self) -> None:
        long_ago = datetime.now(UTC) - timedelta(days=1)
        job = {
            "name": "quick",
            "data": {},
            "status": "pending",
            "nextRunAt": long_ago,
            "failCount": 0,
            "createdAt": long_ago,
            "updatedAt": long_ago,
        }
        claimed = {**job, "status": "processing"}
        documents: list[dict[str, Any]] = [
            {"hello": "world"},
            {**job, "failCount": "many", "unreadable": True},
            {**job, "createdAt": "2020-01-01", "unreadable": True},
            {**job, "timeoutMs": {"a": 1}, "unreadable": True},
            {**job, "name": ["quick"], "unreadable": True},
            {**job, "nextRunAt": "2020-01-01"},
            {**job, "status": 7},
            {**claimed, "failCount": -1, "unreadable": True},
            {**claimed, "lockedAt": "2020-01-01", "claims": 1.5, "unreadable": True},
            # With no room for a claim.
            {**job, "data": {"filling": ""}, "unreadable": True},
        ]
        for document in documents:
            document |= {"_id": ObjectId(), "garbage": True}
        documents[-1]["data"]["filling"] = "x" * (_LARGEST_DOCUMENT - _size(documents[-1]) - 50)
        with suppress(PyMongoError):
            await self._db.monque_jobs.insert_many(self._random.sample(documents, 4))

    async def _drop_indexes(self) -> None:
        with suppress(PyMongoError):
            await self._db.monque_jobs.drop_index(self._random.choice(_DROPPABLE))

    async def _enqueue(self, name: str) -> None:
        with suppress(PyMongoError, MonqueError):
            await self._monque.enqueue(name, {}, max_retries=2)

    @asynccontextmanager
    async def _victim(self, *, with_producers: bool = False) -> AsyncIterator[Member | None]:
        members = [*self._fleet.workers, *(self._fleet.producers if with_producers else [])]
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
            self._recorder.note("fault", kind=kind, target=target, began=began)

    @asynccontextmanager
    async def _database_fault(self, kind: str) -> AsyncIterator[Node | None]:
        """Give the primary, one fault of the database at a time; wait until it is well again."""
        async with self._database:
            await self._wait_for_database()
            address = await self._db.client.primary
            primaries = [node for node in self._mongo.nodes if address and node.port == address[1]]
            async with self._fault(kind, "*"):
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


def _size(document: dict[str, Any]) -> int:
    return len(bson.encode(document))
