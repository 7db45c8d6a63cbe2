"""The documented health endpoints of processes that only enqueue, from their first request on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.support.pages import blocks
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from monque_core import LocalMongo
    from monque_core.local.node import Node


def application(page: str, ends_before: str) -> dict[str, Any]:
    """Return the last application on a page, without the client code below it."""
    (*_, program) = (block for block in blocks("python") if block.page == page)
    code, marker, _ = program.code.partition(ends_before)
    assert marker, f"{page} has no {ends_before!r}"
    names: dict[str, Any] = {"__name__": "shop"}
    exec(compile(code, page, "exec", dont_inherit=True), names)
    return names


@pytest.fixture
def absent(frail_mongo: LocalMongo, node: Node, monkeypatch: pytest.MonkeyPatch) -> Node:
    """Yield the server that the pages connect to; it is not started yet."""
    monkeypatch.setenv("MONGODB_URI", frail_mongo.uri.replace("/?", "/shop?"))
    node.kill()
    return node


async def test_of_flask_follows_mongodb(absent: Node) -> None:
    shop = application("docs/howto/flask.md", "\nweb = ")
    web = shop["app"].test_client()

    async def status() -> int:
        code: int = (await asyncio.to_thread(web.get, "/health")).status_code
        return code

    await _follows(absent, status)
    shop["client"].close()


async def test_of_fastapi_follows_mongodb(absent: Node) -> None:
    app = application("docs/howto/fastapi.md", "\nasync def main")["app"]
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as http,
    ):

        async def status() -> int:
            return (await http.get("/health")).status_code

        await _follows(absent, status)


async def _follows(node: Node, status: Any) -> None:
    async def is_well() -> bool:
        code: int = await status()
        return code == 200

    assert await status() == 503
    await asyncio.to_thread(node.start)
    await eventually(is_well, seconds=40)
    await asyncio.to_thread(node.kill)
    assert await status() == 503
    await asyncio.to_thread(node.start)
    await eventually(is_well, seconds=40)
