"""Deciding how a class is built, and building it."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dependency_injector import providers

from monque_di.annotations import read_annotation
from monque_di.inspection import VARIADIC, Inspection, labelled
from monque_di.provide_markers import marker_of, resolve_marker
from monque_di.resource import needs_monque
from monque_di.task_context import is_pending, shielded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from monque_di.provider_index import AnyProvider, Provided, ProviderIndex


@dataclass(slots=True)
class Plan:
    """How to make one call: which provider gives which argument."""

    call: Callable[..., Any]
    args: list[AnyProvider] = field(default_factory=list)
    kwargs: dict[str, AnyProvider] = field(default_factory=dict)

    async def build(self) -> Any:
        """Ask every provider, as it is at this moment, and make the call."""
        args = [await given(provider) for provider in self.args]
        kwargs = {name: await given(provider) for name, provider in self.kwargs.items()}
        return await _settled(self.call(*args, **kwargs))


async def given(provider: AnyProvider) -> Any:
    """Give what a provider provides, async or not."""
    return await _settled(provider())


async def _settled(value: Any) -> Any:
    if asyncio.isfuture(value):
        # To cancel a promise of dependency-injector's would make its callbacks fail.
        return await shielded(value)
    return await value if is_pending(value) else value


class Planner:
    """Plans the building of classes from a catalogue, and notes what cannot be built."""

    def __init__(self, catalogue: ProviderIndex) -> None:
        self._catalogue = catalogue
        self._inspection = Inspection()

    @property
    def problems(self) -> list[str]:
        """Give every mistake found so far."""
        return self._inspection.problems

    def plan_class(self, target: type, *, is_singleton: bool) -> Plan:
        """Plan how to build a class; `is_singleton` tells that it outlives a run."""
        label = target.__qualname__
        keeper = f"the singleton {label}" if is_singleton else None
        made = self._catalogue.providing(target)
        if len(made) > 1:
            self.problems.append(f"{label} → {len(made)} providers make it: {_listed(made)}")
        if made:
            self._inspection.look(made[0].provider, label, keeper)
            if is_singleton and needs_monque(made[0].provider):
                self.problems.append(f"{label} → needs Monque, whose start waits for {keeper}")
            return Plan(made[0].provider)
        if inspect.isabstract(target):
            missing = ", ".join(sorted(vars(target)["__abstractmethods__"]))
            self.problems.append(f"{label} → is abstract, and cannot be built: {missing}")
        return self._plan(target, _parameters(target), _constructor(target), label, keeper)

    def plan_handler(self, label: str, function: Callable[..., Any]) -> Plan:
        """Plan what a handler is given beside its job: what it has markers for."""
        parameters = [
            parameter
            for parameter in inspect.signature(function).parameters.values()
            if marker_of(parameter, function) is not None
        ]
        for parameter in parameters:
            if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
                self.problems.append(
                    f"{label} → {parameter.name} → a marker must not be before a /"
                )
        return self._plan(dict, parameters, function, label, None)

    def _plan(
        self,
        call: Callable[..., Any],
        parameters: Iterable[inspect.Parameter],
        function: object,
        label: str,
        keeper: str | None,
    ) -> Plan:
        plan = Plan(call)
        for parameter in parameters:
            if parameter.kind in VARIADIC:
                continue
            path = f"{label} → {labelled(parameter, function)}"
            provider = self._provider_for(parameter, function, path)
            if provider is not None:
                self._inspection.look(provider, path, keeper)
                if keeper is not None and needs_monque(provider):
                    self.problems.append(f"{path} → needs Monque, whose start waits for {keeper}")
            if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
                # One that is left out would make room for the next.
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
                return resolve_marker(marker, self._catalogue.containers)
            except LookupError as error:
                self.problems.append(f"{path} → {error}")
                return None
        annotation = read_annotation(parameter.annotation, function)
        offers = [] if annotation is parameter.empty else self._catalogue.of_type(annotation)
        if len(offers) > 1:
            namesakes = [offer for offer in offers if offer.name == parameter.name]
            if len(namesakes) != 1:
                self.problems.append(f"{path} → {len(offers)} providers: {_listed(offers)}")
                return None
            offers = namesakes
        offers = offers or self._catalogue.called(parameter.name, annotation)
        if len(offers) > 1:
            self.problems.append(f"{path} → {len(offers)} providers: {_listed(offers)}")
        elif not offers and parameter.default is parameter.empty:
            self.problems.append(f"{path} → no provider")
        if not offers:
            return None
        provider = offers[0].provider
        # A delegated one is given as it is, as dependency-injector does.
        return providers.Object(provider) if providers.is_delegated(provider) else provider


def _parameters(target: type) -> Iterable[inspect.Parameter]:
    try:
        return inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        # Built-in classes need not tell.
        return ()


def _constructor(target: Any) -> object:
    """Give the function whose module knows the names in the annotations."""
    return target.__init__


def _listed(offers: list[Provided]) -> str:
    return ", ".join(sorted(str(offer) for offer in offers))
