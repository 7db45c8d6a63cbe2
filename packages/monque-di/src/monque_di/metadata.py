"""The metadata that decorators attach to classes and methods; the registry reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from datetime import timedelta

Lifetime: TypeAlias = Literal["run", "singleton"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMetadata:
    """The options of `@job`."""

    name: str
    concurrency: int | None
    timeout: float | timedelta | None
    replace: bool
    scope: Lifetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CronMetadata:
    """The options of `@cron`."""

    expression: str
    name: str | None
    data: object
    timezone: str
    unique_key: str | None
    priority: int


def declared_name(job: JobMetadata | None, crons: tuple[CronMetadata, ...]) -> str | None:
    """Return the job name: that of `@job`, else that of the first `@cron` with a name."""
    named = (each.name for each in (job, *crons) if each is not None and each.name is not None)
    return next(named, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerMetadata:
    """The options of `@job_controller`."""

    namespace: str | None
    scope: Lifetime | None

    def full_name(self, name: str) -> str:
        """Return the name of a job of this controller, with its namespace."""
        return name if self.namespace is None else f"{self.namespace}.{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassMetadata:
    """Everything that decorators attached to one class; bases do not count."""

    job: JobMetadata | None = None
    crons: tuple[CronMetadata, ...] = ()
    controller: ControllerMetadata | None = None

    @classmethod
    def of(cls, target: type) -> ClassMetadata | None:
        """Return the own metadata of a class: a subclass of a job is not a job."""
        metadata = vars(target).get("__monque__")
        return metadata if isinstance(metadata, cls) else None

    def attach_to(self, target: type) -> None:
        """Attach this metadata to a class."""
        target.__monque__ = self  # type: ignore[attr-defined]  # our own attribute
