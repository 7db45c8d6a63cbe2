"""`LocalMongo`, a MongoDB that applications and tests start and stop."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from pathlib import Path
from typing import Self

from monque_core.display import brief_repr
from monque_core.errors import MonqueConnectionError, MonqueError
from monque_core.local import replica_set
from monque_core.local.binary import find_mongod
from monque_core.local.guard import Guard
from monque_core.local.node import Node, PortTakenError, free_port

_MAX_REPLICAS = 7
_MAX_PORT = 65535
_PORT_ATTEMPTS = 5


class LocalMongo:
    """Real `mongod` processes on loopback, as a replica set, for development and tests.

    Use it as a context manager, with or without asyncio:

        async with LocalMongo() as mongo:
            client = AsyncMongoClient(mongo.uri)

        with LocalMongo(replicas=3) as mongo:
            client = MongoClient(mongo.uri)

    The processes never outlive their owner, even if it is killed. Without a `path`, the data is in
    a temporary directory that is removed at the end. With a `path`, the data is kept there, and the
    next start on the same path uses it. The replicas listen on `port` and the ports after it; 0
    means any free ports. `standalone=True` starts a server without a replica set: it has no change
    streams and no transactions.
    """

    def __init__(
        self,
        replicas: int = 1,
        path: str | os.PathLike[str] | None = None,
        port: int = 0,
        *,
        standalone: bool = False,
    ) -> None:
        _check_integer("replicas", replicas, 1, _MAX_REPLICAS)
        _check_integer("port", port, 0, _MAX_PORT - replicas + 1)
        if standalone and replicas != 1:
            raise ValueError(
                f"replicas={replicas} with standalone=True: a standalone server has one replica"
            )
        if path is not None and not isinstance(path, str | os.PathLike):
            raise TypeError(f"path must be a path or None, not {brief_repr(path)}")
        self._replicas = replicas
        self._path = None if path is None else Path(path).expanduser().absolute()
        self._port = port
        self._replica_set = None if standalone else replica_set.NAME
        self._lock = threading.Lock()
        self._nodes: tuple[Node, ...] = ()
        self._finalizer: weakref.finalize[[], LocalMongo] | None = None

    def __repr__(self) -> str:
        return f"<LocalMongo {self.uri}>" if self._nodes else "<LocalMongo, not running>"

    @property
    def uri(self) -> str:
        """The connection string for a client."""
        addresses = ",".join(node.address for node in self.nodes)
        suffix = f"?replicaSet={self._replica_set}" if self._replica_set else ""
        return f"mongodb://{addresses}/{suffix}"

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The processes, each of which can be stopped, killed, suspended and started."""
        nodes = self._nodes
        if not nodes:
            raise MonqueError(
                "this LocalMongo is not running; use it in a `with` or `async with` block, "
                "or call start()"
            )
        return nodes

    def start(self) -> None:
        """Start the processes, and return when the database is writable on every replica."""
        with self._lock:
            if self._nodes:
                raise MonqueError(f"{self!r} is running already")
            binary = find_mongod()
            self._check_path()
            guard = Guard(self._path)
            try:
                nodes = self._start_nodes(guard, binary)
                if self._replica_set:
                    replica_set.form(nodes)
            except BaseException:
                guard.close()
                raise
            self._nodes = nodes
            self._finalizer = weakref.finalize(self, guard.close)

    def stop(self) -> None:
        """End the processes and remove a temporary directory; does nothing if it is not running."""
        with self._lock:
            if self._finalizer:
                self._finalizer()
            self._finalizer = None
            self._nodes = ()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        try:
            await asyncio.to_thread(self.start)
        except asyncio.CancelledError:
            # The thread continues to start; stop() waits for it.
            await asyncio.shield(asyncio.to_thread(self.stop))
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.stop)

    def _check_path(self) -> None:
        if self._path is None:
            return
        try:
            self._path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise MonqueConnectionError(
                f"{self._path} cannot hold the data: {error}; give the path of a directory"
            ) from error
        present = sum(1 for _ in self._path.glob("node-*/"))
        if present not in (0, self._replicas):
            raise MonqueConnectionError(
                f"{self._path} holds the data of {present} replica(s), not {self._replicas}; "
                f"start it with replicas={present}, or give another path"
            )

    def _start_nodes(self, guard: Guard, binary: Path) -> tuple[Node, ...]:
        nodes = tuple(
            Node(guard, binary, f"node-{i}", self._port and self._port + i, self._replica_set)
            for i in range(self._replicas)
        )
        for node in nodes:
            if not self._port:
                node.port = free_port()
            node.launch()
        for node in nodes:
            self._wait_for(node)
        return nodes

    def _wait_for(self, node: Node) -> None:
        for _ in range(_PORT_ATTEMPTS - 1):
            try:
                return node.wait_until_listening()
            except PortTakenError:
                if self._port:
                    raise
                # Another program took the port before the server could.
                node.port = free_port()
                node.launch()
        return node.wait_until_listening()


def _check_integer(name: str, value: object, lowest: int, highest: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, not {brief_repr(value)}")
    if not lowest <= value <= highest:
        raise ValueError(f"{name} must be between {lowest} and {highest}, not {value}")
