"""A network between one process and the servers, which can be cut, slowed and stalled."""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import bson

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

_HEADER = struct.Struct("<iiii")
_OP_REPLY, _OP_MSG = 1, 2013
_BODY_OF_REPLY = 36
_BODY_OF_MESSAGE = 21


class Network:
    """A proxy for each node of a replica set.

    Servers report the addresses of all members to their clients: these are replaced with the
    addresses of the proxies, so that no connection bypasses this network.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses
        self._doors: dict[str, str] = {}
        self._servers: list[asyncio.Server] = []
        self._links: set[asyncio.Task[None]] = set()
        self._open = asyncio.Event()
        self._open.set()
        self._is_cut = False
        self._delay = 0.0

    @property
    def uri(self) -> str:
        """Return the connection string of the replica set through the proxies."""
        return f"mongodb://{','.join(self._doors.values())}/?replicaSet=monque"

    def cut(self) -> None:
        """Close every connection, and refuse new ones."""
        self._is_cut = True
        self._drop_links()

    def slow(self, seconds: float) -> None:
        """Delay everything by this much, each way."""
        self._delay = seconds

    def stall(self) -> None:
        """Keep connections open but forward nothing, like a broken router."""
        self._open.clear()

    def heal(self, *, forget: bool = False) -> None:
        """Forward everything again, or drop all connections like a restarted router."""
        self._is_cut = False
        self._delay = 0.0
        if forget:
            self._drop_links()
        self._open.set()

    async def __aenter__(self) -> Self:
        for address in self._addresses:
            server = await asyncio.start_server(partial(self._accept, address), "127.0.0.1", 0)
            self._servers.append(server)
            host, port = server.sockets[0].getsockname()[:2]
            self._doors[address] = f"{host}:{port}"
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for server in self._servers:
            server.close()
        self._drop_links()
        if self._links:
            await asyncio.wait(self._links)

    def _drop_links(self) -> None:
        for link in self._links:
            link.cancel()

    async def _accept(
        self, address: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        link = asyncio.create_task(self._link(address, reader, writer))
        self._links.add(link)
        link.add_done_callback(self._links.discard)
        # A task that is cancelled before its first step closes nothing by itself.
        link.add_done_callback(lambda _: writer.transport.abort())

    async def _link(
        self, address: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        host, port = address.split(":")
        try:
            server_reader, server_writer = await asyncio.open_connection(host, int(port))
        except (OSError, asyncio.CancelledError):
            writer.transport.abort()
            return
        pumps = [
            asyncio.create_task(self._pass_on(reader, server_writer)),
            asyncio.create_task(self._pass_back(server_reader, writer)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            pass
        finally:
            writer.transport.abort()
            server_writer.transport.abort()
            for pump in pumps:
                pump.cancel()
            await asyncio.wait(pumps)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                await self._hold()
                writer.write(data)
                await writer.drain()

    async def _pass_back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                header = await reader.readexactly(_HEADER.size)
                length, _, _, _ = _HEADER.unpack(header)
                message = header + await reader.readexactly(length - _HEADER.size)
                await self._hold()
                writer.write(self._readdressed(message))
                await writer.drain()

    async def _hold(self) -> None:
        if self._delay:
            await asyncio.sleep(self._delay)
        await self._open.wait()

    def _readdressed(self, message: bytes) -> bytes:
        """Replace the addresses in a server's description of its replica set."""
        if b"\x04hosts\x00" not in message:
            return message
        _, request, answers, code = _HEADER.unpack_from(message)
        start = {_OP_REPLY: _BODY_OF_REPLY, _OP_MSG: _BODY_OF_MESSAGE}[code]
        reply: dict[str, Any] = bson.decode(message[start:])
        if "setName" not in reply:
            return message
        for field in ("hosts", "passives", "arbiters"):
            if field in reply:
                reply[field] = [self._doors[address] for address in reply[field]]
        for field in ("me", "primary"):
            if field in reply:
                reply[field] = self._doors[reply[field]]
        body = message[_HEADER.size : start] + bson.encode(reply)
        return _HEADER.pack(_HEADER.size + len(body), request, answers, code) + body
