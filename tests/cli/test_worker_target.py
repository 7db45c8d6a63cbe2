"""Finding what `MODULE:ATTRIBUTE` names."""

from __future__ import annotations

import importlib
from contextlib import AsyncExitStack
from textwrap import dedent
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from monque_core import Monque
from monque_core.cli.worker_target import WorkerTargetError, open_target

if TYPE_CHECKING:
    from pathlib import Path

    from pymongo.asynchronous.database import AsyncDatabase

SHOP = """
    from contextlib import asynccontextmanager, contextmanager

    from monque_core import Monque

    monque = Monque(DB)
    closed = []


    class Parts:
        inner = monque


    def make():
        return monque


    async def make_async():
        return monque


    @contextmanager
    def make_and_close():
        yield monque
        closed.append("blocking")


    @asynccontextmanager
    async def make_and_close_async():
        yield monque
        closed.append("async")


    def number():
        return 7


    def needs(argument):
        return monque


    def fail():
        raise RuntimeError("no configuration")
"""


@pytest.fixture
def module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, db: AsyncDatabase[dict[str, Any]]
) -> str:
    """Return the name of a new module in the current directory."""
    name = f"shop_{uuid4().hex}"
    (tmp_path / f"{name}.py").write_text(dedent(SHOP), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("builtins.DB", db, raising=False)
    return name


@pytest.mark.parametrize(
    "attribute",
    ["monque", "Parts.inner", "make", "make_async", "make_and_close", "make_and_close_async"],
)
async def test_a_monque_or_what_gives_one_is_found(attribute: str, module: str) -> None:
    async with AsyncExitStack() as stack:
        assert isinstance(await open_target(f"{module}:{attribute}", stack), Monque)


@pytest.mark.parametrize(("suffix", "kind"), [("", "blocking"), ("_async", "async")])
async def test_a_context_manager_is_left_with_the_stack(
    suffix: str, kind: str, module: str
) -> None:

    async with AsyncExitStack() as stack:
        await open_target(f"{module}:make_and_close{suffix}", stack)
        shop = importlib.import_module(module)
        assert shop.closed == []

    assert shop.closed == [kind]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("{}", "expected MODULE:ATTRIBUTE"),
        (":monque", "expected MODULE:ATTRIBUTE"),
        ("{}:", "expected MODULE:ATTRIBUTE"),
        ("{}_x:monque", "there is no module"),
        ("{}.jobs:monque", "there is no module"),
        ("{}:monqeu", "did you mean 'monque'?"),
        ("{}:Parts.outer", "no attribute 'outer'"),
        ("{}:closed", "is of type list"),
        ("{}:number", "is of type int"),
        ("{}:needs", "missing 1 required positional argument"),
        ("{}:fail", "no configuration"),
    ],
)
async def test_anything_else_is_refused_and_reported(
    target: str, expected: str, module: str
) -> None:
    async with AsyncExitStack() as stack:
        with pytest.raises(WorkerTargetError) as refusal:
            await open_target(target.format(module), stack)

    assert expected in str(refusal.value)
