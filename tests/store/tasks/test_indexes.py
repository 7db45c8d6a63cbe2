"""The indexes of a collection of records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pymongo.errors import DuplicateKeyError

from tests.support.task_bench import NOW, after

if TYPE_CHECKING:
    from tests.support.task_bench import TaskBench


async def test_are_made_once(bench: TaskBench) -> None:
    await bench.prepare()
    assert set(await bench.records.index_information()) == {
        "_id_",
        "monque_py_tasks_source",
        "monque_py_tasks_due",
        "monque_py_tasks_unmatched",
        "monque_py_tasks_status",
    }


async def test_allow_one_record_for_a_task_and_a_document(bench: TaskBench) -> None:
    await bench.records.insert_one({"task": "a", "sourceDocId": 1})
    await bench.records.insert_many(
        [{"task": "b", "sourceDocId": 1}, {"task": "a", "sourceDocId": 2}]
    )
    with pytest.raises(DuplicateKeyError):
        await bench.records.insert_one({"task": "a", "sourceDocId": 1.0})


async def test_hold_only_what_they_are_asked_for(bench: TaskBench) -> None:
    await bench.records.insert_many(
        [
            {"task": "a", "sourceDocId": 1, "nextRunAt": NOW},
            {"task": "a", "sourceDocId": 2, "nextRunAt": None, "unmatchedAt": after(1)},
            {"task": "a", "sourceDocId": 3},
        ]
    )
    for index, found in (("monque_py_tasks_due", [1]), ("monque_py_tasks_unmatched", [2])):
        documents = await bench.records.find({"task": "a"}).hint(index).to_list()
        assert [document["sourceDocId"] for document in documents] == found
