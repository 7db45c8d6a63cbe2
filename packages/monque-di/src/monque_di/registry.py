"""The jobs that a set of classes declares."""

from __future__ import annotations

import inspect
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from types import FunctionType
from typing import TYPE_CHECKING, Any

from monque_core import MonqueError, next_cron_run
from monque_di.metadata import ClassMetadata, ControllerMetadata, CronMetadata, JobMetadata
from monque_di.methods import JobMethod
from monque_di.provide_markers import marker_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


_WRAPPERS = (FunctionType, classmethod, staticmethod)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredJob:
    """One job as declared by its class."""

    name: str
    owner: type
    method: str
    function: Callable[..., Any]
    metadata: JobMetadata | None
    crons: tuple[CronMetadata, ...]
    is_singleton: bool

    @property
    def label(self) -> str:
        """Return the name of the handler for problem reports."""
        return f"{self.owner.__qualname__}.{self.method}"

    @property
    def is_async(self) -> bool:
        """Whether the handler runs on the event loop."""
        return inspect.iscoroutinefunction(self.function) or inspect.iscoroutinefunction(
            getattr(self.function, "__call__", None)  # noqa: B004  # not a check for callability
        )

    @property
    def replaces(self) -> bool:
        """Whether it replaces another job with the same name."""
        return self.metadata is not None and self.metadata.replace


class Registry:
    """The jobs that classes declare, and the problems in their declarations."""

    def __init__(self, classes: Iterable[type]) -> None:
        self.problems: list[str] = []
        declared = [job for target in classes for job in self._declared_by(target)]
        for job in declared:
            self._check_handler(job)
        self.jobs = self._one_of_each_name(declared)
        self._check_crons()

    def _declared_by(self, target: type) -> Iterator[DeclaredJob]:
        metadata = ClassMetadata.of(target) or ClassMetadata()
        methods = dict(_job_methods(target))
        label = target.__qualname__
        for attribute in _hidden_job_methods(target):
            self.problems.append(
                f"{label}.{attribute} → @job and @cron must be the outermost decorators"
            )
        if metadata.controller is None:
            if methods:
                self.problems.append(
                    f"{label} → has methods with @job or @cron: add @job_controller to the class"
                )
            function = getattr(target, "handle", None)
            if not callable(function):
                self.problems.append(f"{label} → no handler: it needs a method handle(self, job)")
                return
            handler = JobMethod(function, metadata.job, metadata.crons)
            yield from self._job_of(target, "handle", handler, None)
            return
        if metadata.job is not None or metadata.crons:
            self.problems.append(f"{label} → is a controller: put @job and @cron on its methods")
        if not methods:
            self.problems.append(f"{label} → no handler: none of its methods has @job or @cron")
        for attribute, method in methods.items():
            if method.job is not None and method.job.scope is not None:
                self.problems.append(
                    f"{label}.{attribute} → scope= belongs in @job_controller of its class"
                )
            yield from self._job_of(target, attribute, method, metadata.controller)

    def _job_of(
        self,
        target: type,
        attribute: str,
        method: JobMethod[Any, Any, Any],
        controller: ControllerMetadata | None,
    ) -> Iterator[DeclaredJob]:
        names = {each.name for each in (method.job, *method.crons) if each and each.name}
        if len(names) != 1:
            found = f"has several names, {', '.join(sorted(names))}" if names else "has no name"
            self.problems.append(
                f"{target.__qualname__}.{attribute} → {found}: name it in one @job"
            )
            return
        name = names.pop()
        lifetime = controller or method.job
        yield DeclaredJob(
            name=name if controller is None else controller.full_name(name),
            owner=target,
            method=attribute,
            function=method.function,
            metadata=method.job,
            crons=method.crons,
            is_singleton=lifetime is not None and lifetime.scope == "singleton",
        )

    def _one_of_each_name(self, declared: list[DeclaredJob]) -> list[DeclaredJob]:
        by_name: dict[str, list[DeclaredJob]] = defaultdict(list)
        for job in declared:
            by_name[job.name].append(job)
        for name, same_name in by_name.items():
            chosen = [job for job in same_name if job.replaces]
            if len(same_name) > 1 and len(chosen) != 1:
                places = ", ".join(f"{job.owner.__module__}.{job.label}" for job in same_name)
                self.problems.append(f"{name!r} → {len(same_name)} jobs have this name: {places}")
        return [next((job for job in jobs if job.replaces), jobs[0]) for jobs in by_name.values()]

    def _check_handler(self, job: DeclaredJob) -> None:
        """Check that a handler can be called with a job and nothing else."""
        if inspect.isgeneratorfunction(job.function) or inspect.isasyncgenfunction(job.function):
            self.problems.append(
                f"{job.label} → is a generator function, whose body would never run"
            )
            return
        signature = inspect.signature(job.function)
        parameters = [
            parameter
            for parameter in signature.parameters.values()
            if marker_of(parameter, job.function) is None
        ]
        written = inspect.getattr_static(job.owner, job.method)
        is_bound = isinstance(written, (classmethod, staticmethod)) or not hasattr(
            written, "__get__"
        )
        try:
            signature.replace(parameters=parameters).bind(*([None] if is_bound else [None, None]))
        except TypeError as error:
            self.problems.append(f"{job.label}{signature} → cannot be called with a job: {error}")

    def _check_crons(self) -> None:
        now = datetime.now(UTC)
        keys: set[tuple[str, object]] = set()
        for job in self.jobs:
            for schedule in job.crons:
                try:
                    next_cron_run(schedule.expression, now, schedule.timezone)
                except (MonqueError, ValueError, TypeError) as error:
                    self.problems.append(f"{job.label} → {error}")
                key = (job.name, job.name if schedule.unique_key is None else schedule.unique_key)
                if key in keys:
                    self.problems.append(
                        f"{job.label} → two @cron have the key {key[1]!r}: set a unique_key"
                    )
                keys.add(key)


def _job_methods(target: type) -> Iterator[tuple[str, JobMethod[Any, Any, Any]]]:
    """Yield the decorated methods of a class, inherited ones included."""
    for attribute in dir(target):
        member = inspect.getattr_static(target, attribute, None)
        if isinstance(member, JobMethod):
            yield attribute, member


def _hidden_job_methods(target: type) -> Iterator[str]:
    """Yield the methods whose `@job` or `@cron` is hidden below another decorator."""
    for attribute in dir(target):
        member = inspect.getattr_static(target, attribute, None)
        while isinstance(member, _WRAPPERS):
            member = getattr(member, "__wrapped__", None)
            if isinstance(member, JobMethod):
                yield attribute
