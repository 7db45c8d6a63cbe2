"""The outcomes of a reactive task's run, and which one follows a failure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from datetime import datetime

    from monque_core.tasks.definition import Definition
    from monque_core.tasks.record import TaskRecord


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The run has succeeded."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """The document no longer matches, so there is nothing to do."""


@dataclass(frozen=True, slots=True)
class Retrying:
    """The run has failed and another one follows."""

    reason: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Failed:
    """The run has failed and none is left."""

    reason: str


@dataclass(frozen=True, slots=True)
class Deferred:
    """The handler has asked to run again later."""

    at: datetime
    reason: str | None = None
    """Why the handler failed after that; None if it did not."""


@dataclass(frozen=True, slots=True)
class Released:
    """The claim is undone, as if it had never been made."""


Outcome: TypeAlias = Succeeded | Skipped | Retrying | Failed | Deferred | Released

SUCCEEDED = Succeeded()
SKIPPED = Skipped()
RELEASED = Released()


def after_failure(
    definition: Definition, record: TaskRecord, reason: str, now: datetime
) -> Retrying | Failed:
    """Return the outcome of a failed run; the attempts of the record include it."""
    retry, first_error_at = definition.retry, record.first_error_at or now
    if retry.is_spent(record.attempts, first_error_at, now):
        return Failed(reason)
    return Retrying(reason, retry.next_run(record.attempts, now))
