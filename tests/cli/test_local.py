"""`monque local`."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.command_line import CommandLine


async def test_runs_until_ctrl_c_and_keeps_its_data(monque: CommandLine) -> None:
    async with monque.start("local", "--path", "data", MONQUE_DATABASE="") as local:
        (uri,) = await local.hear(r"(mongodb://127\.0\.0\.1:\d+/monque\?replicaSet=\S+)")
        added = await monque("enqueue", "x", MONQUE_URI=uri, MONQUE_DATABASE="")
        assert added.code == 0, added
        local.signal(signal.SIGINT)

        assert await local.end() == 0, local.output
    assert (monque.directory / "data").is_dir()


async def test_without_a_mongod_it_says_what_to_do(monque: CommandLine) -> None:
    result = await monque.process("local", MONQUE_MONGOD="/nowhere/mongod")

    assert result.code == 3
    assert "MONQUE_MONGOD is '/nowhere/mongod'" in result.err
