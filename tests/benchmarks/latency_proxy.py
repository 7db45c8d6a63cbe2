"""A proxy that adds latency: `python -m tests.benchmarks.latency_proxy …`."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_CHUNK_BYTES = 1 << 16


@asynccontextmanager
async def with_latency(uri: str, seconds: float) -> AsyncIterator[str]:
    """Yield a connection string to the same server with this much added to each round trip.

    The proxy runs in its own process, so that its CPU time is not counted as the client's.
    """
    address = urlsplit(uri)
    arguments = ("-m", "tests.benchmarks.latency_proxy", address.hostname, address.port, seconds)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *map(str, arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        port = int(await process.stdout.readline())
        yield f"mongodb://127.0.0.1:{port}/?directConnection=true"
    finally:
        process.stdin.close()
        await process.wait()


async def _main(host: str, port: int, seconds: float) -> None:
    links: set[asyncio.Task[None]] = set()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection(host, port)
        await asyncio.gather(
            _pass_on(reader, server_writer, seconds / 2),
            _pass_on(server_reader, writer, seconds / 2),
        )

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = asyncio.create_task(connect(reader, writer))
        links.add(link)
        link.add_done_callback(links.discard)

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as listener:
        print(listener.sockets[0].getsockname()[1], flush=True)
        # Until the process that started it closes the pipe or ends.
        await asyncio.to_thread(sys.stdin.read)
    if links:
        await asyncio.wait(links)


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float
) -> None:
    """Forward every chunk after a delay, without limiting what is in flight."""
    loop = asyncio.get_running_loop()
    while chunk := await reader.read(_CHUNK_BYTES):
        # Timers of equal delay fire in the order in which they were set.
        loop.call_later(seconds, writer.write, chunk)
    loop.call_later(seconds, writer.close)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
