"""The selection of task records for a page or a bulk action."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import bson
from bson import Code, Regex

from monque_core.display import brief_message
from monque_core.jobs.outcome import LONGEST_REASON
from monque_core.tasks.record import TaskStatus, TaskStatusName
from monque_core.validation import check_choice, check_name, has_surrogates, is_text, refusal

if TYPE_CHECKING:
    from collections.abc import Collection

    from bson.codec_options import CodecOptions

    TaskStatuses: TypeAlias = TaskStatusName | Collection[TaskStatusName]


@dataclass(frozen=True, kw_only=True)
class TaskSelector:
    """Records by task, source, status and error. None selects all."""

    name: str | None = None
    database: str | None = None
    collection: str | None = None
    """The source collection."""
    status: TaskStatuses | None = None
    source_id: Any = None
    """The `_id` of the source document."""
    error: str | None = None
    """A part of the last error, verbatim."""

    def __post_init__(self) -> None:
        """Check the values."""
        if self.name is not None:
            check_name(self.name)
        _check_statuses(self.status)
        for option in ("database", "collection", "error"):
            _check_text(option, getattr(self, option))
        _check_source_id(self.source_id)

    @property
    def statuses(self) -> tuple[TaskStatusName, ...] | None:
        """Return the selected statuses, None for all."""
        return _check_statuses(self.status)

    @property
    def identity(self) -> str:
        """Return a text that is the same for equal selectors."""
        place = (self.name, self.database, self.collection)
        return repr((*place, self.statuses, self.source_id, self.error))


def _check_statuses(status: object) -> tuple[TaskStatusName, ...] | None:
    if status is None:
        return None
    given = [status] if isinstance(status, str) else status
    if not isinstance(given, (list, tuple, set, frozenset)) or not given:
        raise refusal("status", status, f"one or more of {', '.join(map(repr, TaskStatus.ALL))}")
    chosen = {check_choice("status", one, TaskStatus.ALL) for one in given}
    return tuple(name for name in TaskStatus.ALL if name in chosen)


def _check_text(option: str, value: object) -> None:
    if value is None:
        return
    if not is_text(value) or not value:
        raise refusal(option, value, "a text that is not empty, or None")
    if has_surrogates(value):
        raise refusal(option, value, "a text without surrogates, which UTF-8 cannot hold")
    if len(value) > LONGEST_REASON:
        allowed = f"a text of at most {LONGEST_REASON} characters, as no stored text is longer"
        raise refusal(option, value, allowed)


def _check_source_id(value: object) -> None:
    if isinstance(value, (Code, Regex, re.Pattern, list, tuple)):
        allowed = "the _id of a document, and not a list, a regular expression or JavaScript code"
        raise refusal("source_id", value, allowed)


def check_storable_id(source_id: object, codec: CodecOptions[Any]) -> None:
    """Raise `ValueError` for a `source_id` that BSON cannot hold."""
    try:
        bson.encode({"_id": source_id}, codec_options=codec)
    except Exception as error:
        # BSON errors contain the repr of a value, which may raise anything.
        allowed = f"the _id of a document, but BSON cannot hold it: {brief_message(error)}"
        raise refusal("source_id", source_id, allowed) from error
