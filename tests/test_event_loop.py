"""The event loop of monque's own programs."""

from __future__ import annotations

import asyncio
import sys

import pytest

from monque_core import event_loop


async def kind() -> str:
    return type(asyncio.get_running_loop()).__module__.split(".")[0]


def test_is_uvloop_if_it_is_installed() -> None:
    pytest.importorskip("uvloop")
    assert event_loop.run(kind()) == "uvloop"


def test_is_asyncio_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert event_loop.run(kind()) == "asyncio"


def test_an_error_of_the_program_has_nothing_to_do_with_a_missing_uvloop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail() -> None:
        raise ValueError("of the program")

    monkeypatch.setitem(sys.modules, "uvloop", None)
    with pytest.raises(ValueError, match="of the program") as raised:
        event_loop.run(fail())

    assert raised.value.__context__ is None
