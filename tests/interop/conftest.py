"""Fixtures for Node: its packages and its workers."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.interop.node_worker import NodeWorker
from tests.support.pages import ROOT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    StartNodeWorker = Callable[..., Awaitable[NodeWorker]]

_SOURCES = Path(__file__).with_name("node")
_OLDEST_NODE = (20, 19)
_LONGEST_INSTALL = 200


@pytest.fixture(scope="session")
def node_modules() -> Path:
    """Return the directory with the packages of the Node side, installed once per lock file."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("node and npm are not installed")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < _OLDEST_NODE:
        pytest.skip(f"the driver needs Node 20.19 or newer, and this is {version.strip()}")
    lock_file = (_SOURCES / "package-lock.json").read_bytes()
    place = ROOT / "build" / f"interop-{hashlib.sha256(lock_file).hexdigest()[:16]}"
    place.mkdir(parents=True, exist_ok=True)
    # One of the test processes installs, and the others wait for it.
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        in_vain = place / f"in-vain-{os.environ.get('PYTEST_XDIST_TESTRUNUID', os.getpid())}"
        if not (place / "installed").exists() and not in_vain.exists():
            problem = _install(npm, place)
            (in_vain if problem else place / "installed").write_text(problem, encoding="utf-8")
        if in_vain.exists():
            pytest.skip(f"npm cannot install the driver: {in_vain.read_text(encoding='utf-8')}")
    return place / "node_modules"


def _install(npm: str, place: Path) -> str:
    """Install what the lock file names; return the error output if this fails."""
    for name in ("package.json", "package-lock.json"):
        shutil.copy(_SOURCES / name, place)
    try:
        done = subprocess.run(
            [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1"],
            cwd=place,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_LONGEST_INSTALL,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return str(error)
    return done.stdout[-300:] if done.returncode else ""


@pytest.fixture
async def start_node_worker(
    node_modules: Path, uri: str, database_name: str
) -> AsyncIterator[StartNodeWorker]:
    """Yield a function that starts workers in Node, which end with the test."""
    async with AsyncExitStack() as workers:

        async def start(**options: Any) -> NodeWorker:
            node_worker = NodeWorker(node_modules, uri, database_name, **options)
            return await workers.enter_async_context(node_worker)

        yield start


@pytest.fixture
async def node_worker(start_node_worker: StartNodeWorker) -> NodeWorker:
    """Yield a Node worker with default options."""
    return await start_node_worker()
