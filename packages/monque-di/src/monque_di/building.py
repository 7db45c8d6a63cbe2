"""Build plans: which provider supplies which constructor argument."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dependency_injector import providers

from monque_di.annotations import read_annotation
from monque_di.inspection import VARIADIC, Inspection, parameter_label
from monque_di.provide_markers import marker_of, resolve_marker
from monque_di.resource import depends_on_monque
from monque_di.task_context import is_async_result, shielded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from monque_di.provider_index import AnyProvider, ProviderEntry, ProviderIndex


@dataclass(slots=True)
class BuildPlan:
    """One call, and the provider of each of its arguments."""

    call: Callable[..., Any]
    args: list[AnyProvider] = field(default_factory=list)
    kwargs: dict[str, AnyProvider] = field(default_factory=dict)

    async def build(self) -> Any:
        """Call every provider, overrides included, and then the call itself."""
        args = [await provide(provider) for provider in self.args]
        kwargs = {name: await provide(provider) for name, provider in self.kwargs.items()}
        return await _awaited(self.call(*args, **kwargs))


async def provide(provider: AnyProvider) -> Any:
    """Return what a provider provides, awaited if it is async."""
    return await _awaited(provider())


async def _awaited(value: Any) -> Any:
    if asyncio.isfuture(value):
        # Cancelling a future of dependency-injector makes its callbacks fail.
        return await shielded(value)
    return await value if is_async_result(value) else value


class BuildPlanner:
    """Plans how to build classes from the indexed providers, and collects the problems."""

    def __init__(self, index: ProviderIndex) -> None:
        self._index = index
        self._inspection = Inspection()

    @property
    def problems(self) -> list[str]:
        """Return every problem found so far."""
        return self._inspection.problems

    def plan_class(self, target: type, *, is_singleton: bool) -> BuildPlan:
        """Return the plan for a class; a singleton outlives runs."""
        label = target.__qualname__
        holder = f"the singleton {label}" if is_singleton else None
        builders = self._index.for_class(target)
        if len(builders) > 1:
            self.problems.append(
                f"{label} → {len(builders)} providers build this class: {_joined(builders)}"
            )
        if builders:
            self._inspection.check(builders[0].provider, label, holder)
            if is_singleton and depends_on_monque(builders[0].provider):
                self.problems.append(
                    f"{label} → depends on Monque, which cannot start before {holder}"
                )
            return BuildPlan(builders[0].provider)
        if inspect.isabstract(target):
            missing = ", ".join(sorted(vars(target)["__abstractmethods__"]))
            self.problems.append(f"{label} → is abstract: implement {missing}")
        return self._plan(target, _parameters(target), _constructor(target), label, holder)

    def plan_handler(self, label: str, function: Callable[..., Any]) -> BuildPlan:
        """Return the plan for the `Provide` arguments of a handler."""
        parameters = [
            parameter
            for parameter in inspect.signature(function).parameters.values()
            if marker_of(parameter, function) is not None
        ]
        for parameter in parameters:
            if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
                self.problems.append(
                    f"{label} → {parameter.name} → a Provide marker cannot fill a "
                    "positional-only parameter"
                )
        return self._plan(dict, parameters, function, label, None)

    def _plan(
        self,
        call: Callable[..., Any],
        parameters: Iterable[inspect.Parameter],
        function: object,
        label: str,
        holder: str | None,
    ) -> BuildPlan:
        plan = BuildPlan(call)
        for parameter in parameters:
            if parameter.kind in VARIADIC:
                continue
            path = f"{label} → {parameter_label(parameter, function)}"
            provider = self._provider_for(parameter, function, path)
            if provider is not None:
                self._inspection.check(provider, path, holder)
                if holder is not None and depends_on_monque(provider):
                    self.problems.append(
                        f"{path} → depends on Monque, which cannot start before {holder}"
                    )
            if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
                # Without a placeholder, the next argument would take its position.
                plan.args.append(provider or providers.Object(parameter.default))
            elif provider is not None:
                plan.kwargs[parameter.name] = provider
        return plan

    def _provider_for(
        self, parameter: inspect.Parameter, function: object, path: str
    ) -> AnyProvider | None:
        marker = marker_of(parameter, function)
        if marker is not None:
            try:
                return resolve_marker(marker, self._index.containers)
            except LookupError as error:
                self.problems.append(f"{path} → {error}")
                return None
        annotation = read_annotation(parameter.annotation, function)
        entries = [] if annotation is parameter.empty else self._index.by_type(annotation)
        if len(entries) > 1:
            namesakes = [entry for entry in entries if entry.name == parameter.name]
            if len(namesakes) != 1:
                self.problems.append(f"{path} → {len(entries)} providers: {_joined(entries)}")
                return None
            entries = namesakes
        entries = entries or self._index.by_name(parameter.name, annotation)
        if len(entries) > 1:
            self.problems.append(f"{path} → {len(entries)} providers: {_joined(entries)}")
        elif not entries and parameter.default is parameter.empty:
            self.problems.append(f"{path} → no provider")
        if not entries:
            return None
        provider = entries[0].provider
        # A delegated provider is injected itself, as dependency-injector does.
        return providers.Object(provider) if providers.is_delegated(provider) else provider


def _parameters(target: type) -> Iterable[inspect.Parameter]:
    try:
        return inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        # Some built-in classes have no signature.
        return ()


def _constructor(target: Any) -> object:
    """Return the function whose globals resolve the annotations."""
    return target.__init__


def _joined(entries: list[ProviderEntry]) -> str:
    return ", ".join(sorted(str(entry) for entry in entries))
