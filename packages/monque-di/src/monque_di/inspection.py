"""Static checks of a provider graph, before any provider is called."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from dependency_injector import providers

from monque_di.annotations import format_annotation, read_annotation
from monque_di.provider_index import CALLABLE_PROVIDERS, provided_type
from monque_di.resource import MonqueResource
from monque_di.scope import RunScoped, current_job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from monque_di.provider_index import AnyProvider

_ABSTRACT = (
    providers.AbstractCallable,
    providers.AbstractCoroutine,
    providers.AbstractFactory,
    providers.AbstractSingleton,
)
_CONFIGURATION = (providers.Configuration, providers.ConfigurationOption)
_PER_CONTEXT = (providers.ContextLocalResource, providers.ContextLocalSingleton)
VARIADIC = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}


class Inspection:
    """Collects the problems in a provider graph, each with the path that leads to it."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._seen: set[tuple[AnyProvider, bool]] = set()
        self._path: list[AnyProvider] = []

    def check(self, provider: AnyProvider, path: str, holder: str | None = None) -> None:
        """Check a provider and its dependencies; `holder` names an owner that outlives runs."""
        provider = _overriding(provider)
        if provider in self._path:
            self.problems.append(f"{path} → depends on itself")
            return
        if (provider, holder is not None) in self._seen:
            return
        self._seen.add((provider, holder is not None))
        if isinstance(provider, providers.Delegate) or providers.is_delegated(provider):
            # Injected as a provider: the caller may pass more arguments.
            return
        if (provider, holder is None) not in self._seen:
            self._check_provider(provider, path)
        if holder is not None and _is_run_scoped(provider):
            self.problems.append(f"{path} → is run-scoped, but {holder} outlives the run")
        if _outlives_runs(provider):
            holder = f"the {type(provider).__name__} of {path}"
        self._path.append(provider)
        for label, dependency in _dependencies(provider):
            self.check(dependency, f"{path} → {label}" if label else path, holder)
        self._path.pop()

    def _check_provider(self, provider: AnyProvider, path: str) -> None:
        if isinstance(provider, providers.Dependency) and not provider.is_defined:
            self.problems.append(f"{path} → its Dependency has no provider")
        if isinstance(provider, _ABSTRACT):
            self.problems.append(f"{path} → its {type(provider).__name__} is not overridden")
        elif isinstance(provider, CALLABLE_PROVIDERS) and not isinstance(provider, MonqueResource):
            self._check_call(provider, path)

    def _check_call(self, provider: Any, path: str) -> None:
        """Check that a call gets every argument that it requires, and no other."""
        try:
            signature = inspect.signature(provider.provides)
        except (TypeError, ValueError):
            return
        try:
            signature.bind_partial(*provider.args, **provider.kwargs)
        except TypeError as error:
            self.problems.append(
                f"{path} → {error} in the arguments of its {type(provider).__name__}"
            )
        placed = len(provider.args)
        for parameter in signature.parameters.values():
            if parameter.kind in VARIADIC:
                continue
            if placed and parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
                placed -= 1
            elif parameter.name not in provider.kwargs and parameter.default is parameter.empty:
                label = parameter_label(parameter, provider.provides)
                kind = type(provider).__name__
                self.problems.append(f"{path} → {label} → missing in the arguments of its {kind}")


def parameter_label(parameter: inspect.Parameter, function: object) -> str:
    """Return a parameter as `name: Type`."""
    annotation = parameter.annotation
    if not isinstance(annotation, str):
        annotation = format_annotation(read_annotation(annotation, function))
    return f"{parameter.name}: {annotation}" if annotation else parameter.name


def _overriding(provider: AnyProvider) -> AnyProvider:
    while provider.last_overriding is not None:
        provider = provider.last_overriding
    return provider


def _is_run_scoped(provider: Any) -> bool:
    if isinstance(provider, providers.Callable):
        return provider.provides is current_job
    return isinstance(provider, RunScoped)


def _outlives_runs(provider: AnyProvider) -> bool:
    kinds = (providers.BaseResource, providers.BaseSingleton)
    return isinstance(provider, kinds) and not isinstance(provider, _PER_CONTEXT)


def _dependencies(provider: Any) -> Iterator[tuple[str, AnyProvider]]:
    """Yield the providers that a provider depends on, each with its parameter name."""
    if isinstance(provider, _CONFIGURATION):
        # Every attribute is an option, which refers back to its configuration.
        return
    if not isinstance(provider, CALLABLE_PROVIDERS):
        yield from (("", related) for related in provider.related)
        return
    named = [("", argument) for argument in provider.args]
    named += [*provider.kwargs.items(), *getattr(provider, "attributes", {}).items()]
    for name, argument in named:
        if isinstance(argument, providers.Provider):
            form = provided_type(argument)
            known = [name] if name else []
            known += [format_annotation(form)] if form is not None else []
            yield ": ".join(known), argument
