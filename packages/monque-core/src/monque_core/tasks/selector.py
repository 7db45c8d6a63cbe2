"""Which records of reactive tasks a page or a bulk action is about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from monque_core.jobs.rules import check_name
from monque_core.tasks.record import TaskStatus, TaskStatusName
from monque_core.tasks.rules import check_choice, refusal

if TYPE_CHECKING:
    from collections.abc import Collection

    TaskStatuses: TypeAlias = TaskStatusName | Collection[TaskStatusName]


@dataclass(frozen=True, kw_only=True)
class TaskSelector:
    """Records by task, source, status and error; what is None does not narrow the choice."""

    name: str | None = None
    database: str | None = None
    collection: str | None = None
    """The source collection."""
    status: TaskStatuses | None = None
    source_id: Any = None
    """The `_id` of the source document."""
    error: str | None = None
    """A part of the last error, as it is written there."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant, before MongoDB is touched."""
        if self.name is not None:
            check_name(self.name)
        _check_statuses(self.status)
        for option in ("database", "collection", "error"):
            _check_text(option, getattr(self, option))

    @property
    def statuses(self) -> tuple[TaskStatusName, ...] | None:
        """Give the chosen statuses, None for all."""
        return _check_statuses(self.status)

    @property
    def identity(self) -> str:
        """Give a text that equal selectors share, however they were written."""
        place = (self.name, self.database, self.collection)
        return repr((*place, self.statuses, self.source_id, self.error))


def _check_statuses(status: object) -> tuple[TaskStatusName, ...] | None:
    if status is None:
        return None
    given = [status] if isinstance(status, str) else status
    if not isinstance(given, (list, tuple, set, frozenset)) or not given:
        raise refusal("status", status, f"one or some of {', '.join(map(repr, TaskStatus.ALL))}")
    chosen = {check_choice("status", one, TaskStatus.ALL) for one in given}
    return tuple(name for name in TaskStatus.ALL if name in chosen)


def _check_text(option: str, value: object) -> None:
    if value is not None and (not isinstance(value, str) or not value):
        raise refusal(option, value, "a text that is not empty, or None")
    if value is not None and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise refusal(option, value, "a text without surrogates, which UTF-8 cannot hold")
