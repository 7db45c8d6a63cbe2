"""What the decorators write down about a class or method, for the registry to read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from datetime import timedelta

Lifetime: TypeAlias = Literal["run", "singleton"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMark:
    """The options of `@job`."""

    name: str
    concurrency: int | None
    timeout: float | timedelta | None
    replace: bool
    scope: Lifetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CronMark:
    """The options of `@cron`."""

    expression: str
    name: str | None
    data: object
    timezone: str
    unique_key: str | None
    priority: int


def name_in(job: JobMark | None, crons: tuple[CronMark, ...]) -> str | None:
    """Give the name that marks give a job: that of `@job`, else of the first `@cron` with one."""
    marks = (job, *crons)
    return next((mark.name for mark in marks if mark is not None and mark.name is not None), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerMark:
    """The options of `@job_controller`."""

    namespace: str | None
    scope: Lifetime | None

    def full_name(self, name: str) -> str:
        """Give the name of a job of this controller."""
        return name if self.namespace is None else f"{self.namespace}.{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassMarks:
    """Everything that the decorators wrote down about one class, and not about its bases."""

    job: JobMark | None = None
    crons: tuple[CronMark, ...] = ()
    controller: ControllerMark | None = None

    @classmethod
    def of(cls, target: type) -> ClassMarks | None:
        """Give a class's own marks: a subclass is no job by the mere fact of its base."""
        marks = vars(target).get("__monque__")
        return marks if isinstance(marks, cls) else None

    def put_on(self, target: type) -> None:
        """Write these marks down on a class."""
        target.__monque__ = self  # type: ignore[attr-defined]  # ours alone, by this name
