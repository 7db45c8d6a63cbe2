"""A proxy in front of MongoDB that disturbs the messages that a test selects."""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, Self
from urllib.parse import urlsplit

import bson

from tests.support.patience import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    Test = Callable[[Mapping[str, Any]], bool]
    Treatment = Literal["lose reply", "hold reply", "hold request", "deliver late"]

_HEADER = struct.Struct("<iiii")
_OP_MSG = 2013


class Fault:
    """A disturbance of the first command that passes the test."""

    def __init__(self, treatment: Treatment, test: Test) -> None:
        self.treatment = treatment
        self.test = test
        self._struck = asyncio.Event()
        self._released = asyncio.Event()
        self._over = asyncio.Event()

    @property
    def has_struck(self) -> bool:
        """Return whether the command has arrived."""
        return self._struck.is_set()

    async def strikes(self, seconds: float = PATIENCE) -> None:
        """Wait until the command has arrived, or its reply if that is what is disturbed."""
        async with asyncio.timeout(seconds):
            await self._struck.wait()

    def release(self) -> None:
        """Release what is held."""
        self._released.set()

    async def is_over(self, seconds: float = PATIENCE) -> None:
        """Wait until a command that is delivered late has been executed."""
        async with asyncio.timeout(seconds):
            await self._over.wait()


class Proxy:
    """Forwards messages between clients and one server.

    The disturbances are: the reply is dropped and the connection closed ("lose reply"); the reply
    is held until it is released ("hold reply"); the command reaches the server only when it is
    released ("hold request"); and the client is disconnected at once, and the command reaches the
    server when it is released ("deliver late").
    """

    def __init__(self, server_uri: str) -> None:
        address = urlsplit(server_uri)
        assert address.hostname is not None
        assert address.port is not None
        self._server = (address.hostname, address.port)
        self._listener: asyncio.Server | None = None
        self._faults: list[Fault] = []
        self._links: set[asyncio.Task[None]] = set()

    @property
    def uri(self) -> str:
        """Return the connection string that leads through the proxy."""
        assert self._listener is not None
        host, port = self._listener.sockets[0].getsockname()[:2]
        return f"mongodb://{host}:{port}/?directConnection=true"

    def strike(self, treatment: Treatment, test: Test) -> Fault:
        """Disturb the next command that passes the test."""
        fault = Fault(treatment, test)
        self._faults.append(fault)
        return fault

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._listener is not None
        self._listener.close()
        for link in self._links:
            link.cancel()
        if self._links:
            await asyncio.wait(self._links)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = asyncio.create_task(self._link(reader, writer))
        self._links.add(link)
        link.add_done_callback(self._links.discard)
        # A task that is cancelled before its first step closes nothing by itself.
        link.add_done_callback(lambda _: writer.close())

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection(*self._server)
        suffering: dict[int, Fault] = {}
        pumps = [
            asyncio.create_task(self._pass_commands(reader, writer, server_writer, suffering)),
            asyncio.create_task(self._pass_replies(server_reader, writer, suffering)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            writer.close()
            server_writer.close()
            for pump in pumps:
                pump.cancel()
            await asyncio.wait(pumps)
            with suppress(OSError):
                await writer.wait_closed()
                await server_writer.wait_closed()

    async def _pass_commands(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        server: asyncio.StreamWriter,
        suffering: dict[int, Fault],
    ) -> None:
        while (message := await _read_message(reader)) is not None:
            fault = self._fault_for(message)
            if fault is not None:
                if fault.treatment in ("lose reply", "hold reply", "deliver late"):
                    suffering[_request_id(message)] = fault
                if fault.treatment in ("hold request", "deliver late"):
                    fault._struck.set()
                    if fault.treatment == "deliver late":
                        writer.close()
                    await fault._released.wait()
            server.write(message)
            if fault is not None and fault.treatment == "deliver late":
                await fault._over.wait()

    async def _pass_replies(
        self,
        server: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        suffering: dict[int, Fault],
    ) -> None:
        while (message := await _read_message(server)) is not None:
            fault = suffering.pop(_answers(message), None)
            if fault is not None:
                fault._struck.set()
                if fault.treatment == "hold reply":
                    await fault._released.wait()
                else:
                    fault._over.set()
                    return
            writer.write(message)

    def _fault_for(self, message: bytes) -> Fault | None:
        command = _command(message) if self._faults else None
        if command is None:
            return None
        for fault in self._faults:
            if fault.test(command):
                self._faults.remove(fault)
                return fault
        return None


async def _read_message(reader: asyncio.StreamReader) -> bytes | None:
    try:
        header = await reader.readexactly(_HEADER.size)
        length = _HEADER.unpack(header)[0]
        return header + await reader.readexactly(length - _HEADER.size)
    except (asyncio.IncompleteReadError, OSError):
        return None


def _request_id(message: bytes) -> int:
    return int(_HEADER.unpack_from(message)[1])


def _answers(message: bytes) -> int:
    return int(_HEADER.unpack_from(message)[2])


def _command(message: bytes) -> dict[str, Any] | None:
    """Decode an OP_MSG: one document, and sequences of documents."""
    if _HEADER.unpack_from(message)[3] != _OP_MSG:
        return None
    command: dict[str, Any] = {}
    position = _HEADER.size + 4
    while position < len(message):
        kind, (size,) = message[position], struct.unpack_from("<i", message, position + 1)
        section = message[position + 1 : position + 1 + size]
        if kind == 0:
            command = bson.decode(section) | command
        else:
            name, _, documents = section[4:].partition(b"\0")
            command[name.decode()] = bson.decode_all(documents)
        position += 1 + size
    return command
