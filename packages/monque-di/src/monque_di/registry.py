"""Which jobs a set of classes declares."""

from __future__ import annotations

import inspect
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from types import FunctionType
from typing import TYPE_CHECKING, Any

from monque_core import MonqueError, next_cron_run
from monque_di.metadata import ClassMarks, ControllerMark, CronMark, JobMark
from monque_di.methods import JobMethod
from monque_di.provide_markers import marker_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


_WRAPPERS = (FunctionType, classmethod, staticmethod)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredJob:
    """One job of an application, as its class declares it."""

    name: str
    owner: type
    method: str
    function: Callable[..., Any]
    mark: JobMark | None
    crons: tuple[CronMark, ...]
    is_singleton: bool

    @property
    def label(self) -> str:
        """Name the handler as problems name it."""
        return f"{self.owner.__qualname__}.{self.method}"

    @property
    def is_async(self) -> bool:
        """Tell whether the handler runs on the event loop."""
        return inspect.iscoroutinefunction(self.function) or inspect.iscoroutinefunction(
            getattr(self.function, "__call__", None)  # noqa: B004  # asked for its kind
        )

    @property
    def replaces(self) -> bool:
        """Tell whether it takes the place of another job of its name."""
        return self.mark is not None and self.mark.replace


class Registry:
    """The jobs that classes declare, and what is wrong with them."""

    def __init__(self, classes: Iterable[type]) -> None:
        self.problems: list[str] = []
        declared = [job for target in classes for job in self._declared_by(target)]
        for job in declared:
            self._check_handler(job)
        self.jobs = self._one_of_each_name(declared)
        self._check_crons()

    def _declared_by(self, target: type) -> Iterator[DeclaredJob]:
        marks = ClassMarks.of(target) or ClassMarks()
        methods = dict(_job_methods(target))
        label = target.__qualname__
        for attribute in _hidden_job_methods(target):
            self.problems.append(f"{label}.{attribute} → @job or @cron must be above the others")
        if marks.controller is None:
            if methods:
                self.problems.append(f"{label} → has jobs among its methods: add @job_controller")
            function = getattr(target, "handle", None)
            if not callable(function):
                self.problems.append(f"{label} → no handler: it needs a method handle(self, job)")
                return
            handler = JobMethod(function, marks.job, marks.crons)
            yield from self._job_of(target, "handle", handler, None)
            return
        if marks.job is not None or marks.crons:
            self.problems.append(f"{label} → is a controller: @job and @cron go on its methods")
        if not methods:
            self.problems.append(f"{label} → no handler: none of its methods has @job or @cron")
        for attribute, method in methods.items():
            if method.job is not None and method.job.scope is not None:
                self.problems.append(f"{label}.{attribute} → scope= goes on its @job_controller")
            yield from self._job_of(target, attribute, method, marks.controller)

    def _job_of(
        self,
        target: type,
        attribute: str,
        method: JobMethod[Any, Any, Any],
        controller: ControllerMark | None,
    ) -> Iterator[DeclaredJob]:
        names = {mark.name for mark in (method.job, *method.crons) if mark and mark.name}
        if len(names) != 1:
            found = f"has the names {', '.join(sorted(names))}" if names else "has no name"
            self.problems.append(f"{target.__qualname__}.{attribute} → {found}: @job gives it one")
            return
        name = names.pop()
        lifetime = controller or method.job
        yield DeclaredJob(
            name=name if controller is None else controller.full_name(name),
            owner=target,
            method=attribute,
            function=method.function,
            mark=method.job,
            crons=method.crons,
            is_singleton=lifetime is not None and lifetime.scope == "singleton",
        )

    def _one_of_each_name(self, declared: list[DeclaredJob]) -> list[DeclaredJob]:
        by_name: dict[str, list[DeclaredJob]] = defaultdict(list)
        for job in declared:
            by_name[job.name].append(job)
        for name, namesakes in by_name.items():
            chosen = [job for job in namesakes if job.replaces]
            if len(namesakes) > 1 and len(chosen) != 1:
                places = ", ".join(f"{job.owner.__module__}.{job.label}" for job in namesakes)
                self.problems.append(f"{name!r} → {len(namesakes)} jobs have this name: {places}")
        return [next((job for job in jobs if job.replaces), jobs[0]) for jobs in by_name.values()]

    def _check_handler(self, job: DeclaredJob) -> None:
        """See that a handler can be called with a job and nothing else."""
        if inspect.isgeneratorfunction(job.function) or inspect.isasyncgenfunction(job.function):
            self.problems.append(f"{job.label} → is a generator, which would never run")
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
            for mark in job.crons:
                try:
                    next_cron_run(mark.expression, now, mark.timezone)
                except (MonqueError, ValueError, TypeError) as error:
                    self.problems.append(f"{job.label} → {error}")
                key = (job.name, job.name if mark.unique_key is None else mark.unique_key)
                if key in keys:
                    self.problems.append(
                        f"{job.label} → two @cron have the key {key[1]!r}: give each its unique_key"
                    )
                keys.add(key)


def _job_methods(target: type) -> Iterator[tuple[str, JobMethod[Any, Any, Any]]]:
    """Give the marked methods of a class and its bases, unless they are overridden unmarked."""
    for attribute in dir(target):
        member = inspect.getattr_static(target, attribute, None)
        if isinstance(member, JobMethod):
            yield attribute, member


def _hidden_job_methods(target: type) -> Iterator[str]:
    """Give the methods whose marks lie under another decorator, where they count for nothing."""
    for attribute in dir(target):
        member = inspect.getattr_static(target, attribute, None)
        while isinstance(member, _WRAPPERS):
            member = getattr(member, "__wrapped__", None)
            if isinstance(member, JobMethod):
                yield attribute
