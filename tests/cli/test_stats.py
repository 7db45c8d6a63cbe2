"""`monque stats`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from monque_core import Monque
    from tests.support.command_line import CommandLine


async def test_counts_by_name_and_in_all(monque: CommandLine, queue: Monque) -> None:
    queue.worker("mail", lambda _: None)
    await queue.enqueue_many("mail", range(2))
    await queue.run_until_idle()
    await queue.enqueue_many("print", range(3))

    shown = (await monque("stats")).out.splitlines()
    counted = (await monque("stats", "--json")).json
    of_one = (await monque("stats", "--json", "--name", "print")).json

    assert shown[0].split()[:4] == ["NAME", "PENDING", "PROCESSING", "COMPLETED"]
    assert [line.split()[:4] for line in shown[1:]] == [
        ["mail", "0", "0", "2"],
        ["print", "3", "0", "0"],
        ["total", "3", "0", "2"],
    ]
    assert counted["queues"]["mail"]["completed"] == 2
    assert counted["queues"]["mail"]["average_duration"] >= 0
    assert counted["total"]["total"] == 5
    assert of_one["total"]["total"] == 3
    assert set(of_one["queues"]) == {"print"}


async def test_says_so_if_there_are_no_jobs(monque: CommandLine) -> None:
    result = await monque("stats")

    assert (result.code, result.out, result.err) == (0, "", "no jobs\n")
