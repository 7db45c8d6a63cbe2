"""The record of a task, and the status values that are stored in it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import get_args

import pytest
from bson import ObjectId

from monque_core.tasks.record import (
    ExecutionStatus,
    ExecutionStatusName,
    TaskRecord,
    TaskStatus,
    TaskStatusName,
)

NOW = datetime(2025, 6, 1, tzinfo=UTC)


def make_record(status: TaskStatusName) -> TaskRecord:
    return TaskRecord(
        id=ObjectId(),
        task="invoice",
        source_id=7,
        status=status,
        created_at=NOW,
        updated_at=NOW,
        values={"total": 5},
    )


def test_every_word_of_the_types_is_known() -> None:
    assert get_args(TaskStatusName) == TaskStatus.ALL
    assert get_args(ExecutionStatusName) == ExecutionStatus.ALL


def test_a_record_is_work_like_a_job() -> None:
    record = make_record("pending")
    assert (record.name, record.data) == ("invoice", {"total": 5})


@pytest.mark.parametrize("status", TaskStatus.ALL)
def test_only_claimed_records_run(status: TaskStatusName) -> None:
    assert make_record(status).is_running == status.startswith("processing")


def test_running_records_are_active_and_finished_ones_are_not() -> None:
    assert set(TaskStatus.RUNNING) < set(TaskStatus.ACTIVE) < set(TaskStatus.ALL)
    assert set(TaskStatus.ALL) - set(TaskStatus.ACTIVE) == {"completed", "failed"}
