"""Going through what a provider draws from, before anything is called."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from dependency_injector import providers

from monque_di.annotations import read_annotation, shown
from monque_di.provider_index import CALLING, provided_form
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
    """The mistakes in a graph of providers, each told with the way that leads to it."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._seen: set[tuple[AnyProvider, bool]] = set()
        self._way: list[AnyProvider] = []

    def look(self, provider: AnyProvider, path: str, keeper: str | None = None) -> None:
        """Look at a provider and everything behind it; `keeper` outlives a run and holds it."""
        provider = _in_force(provider)
        if provider in self._way:
            self.problems.append(f"{path} → leads back to itself")
            return
        if (provider, keeper is not None) in self._seen:
            return
        self._seen.add((provider, keeper is not None))
        if isinstance(provider, providers.Delegate) or providers.is_delegated(provider):
            # Given as a provider: whoever calls it may add arguments.
            return
        if (provider, keeper is None) not in self._seen:
            self._look_at(provider, path)
        if keeper is not None and _lives_in_a_run(provider):
            self.problems.append(f"{path} → lives as long as one run, but {keeper} outlives it")
        if _outlives_runs(provider):
            keeper = f"the {type(provider).__name__} of {path}"
        self._way.append(provider)
        for label, behind in _behind(provider):
            self.look(behind, f"{path} → {label}" if label else path, keeper)
        self._way.pop()

    def _look_at(self, provider: AnyProvider, path: str) -> None:
        if isinstance(provider, providers.Dependency) and not provider.is_defined:
            self.problems.append(f"{path} → its Dependency is not defined")
        if isinstance(provider, _ABSTRACT):
            self.problems.append(f"{path} → its {type(provider).__name__} is not overridden")
        elif isinstance(provider, CALLING) and not isinstance(provider, MonqueResource):
            self._look_at_call(provider, path)

    def _look_at_call(self, provider: Any, path: str) -> None:
        """See that everything a call needs is given to it, and nothing else."""
        try:
            signature = inspect.signature(provider.provides)
        except (TypeError, ValueError):
            return
        try:
            signature.bind_partial(*provider.args, **provider.kwargs)
        except TypeError as error:
            self.problems.append(f"{path} → {error}, given to its {type(provider).__name__}")
        placed = len(provider.args)
        for parameter in signature.parameters.values():
            if parameter.kind in VARIADIC:
                continue
            if placed and parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
                placed -= 1
            elif parameter.name not in provider.kwargs and parameter.default is parameter.empty:
                label = labelled(parameter, provider.provides)
                kind = type(provider).__name__
                self.problems.append(f"{path} → {label} → not given to its {kind}")


def labelled(parameter: inspect.Parameter, function: object) -> str:
    """Give a parameter as `name: Type`."""
    annotation = parameter.annotation
    if not isinstance(annotation, str):
        annotation = shown(read_annotation(annotation, function))
    return f"{parameter.name}: {annotation}" if annotation else parameter.name


def _in_force(provider: AnyProvider) -> AnyProvider:
    while provider.last_overriding is not None:
        provider = provider.last_overriding
    return provider


def _lives_in_a_run(provider: Any) -> bool:
    if isinstance(provider, providers.Callable):
        return provider.provides is current_job
    return isinstance(provider, RunScoped)


def _outlives_runs(provider: AnyProvider) -> bool:
    keepers = (providers.BaseResource, providers.BaseSingleton)
    return isinstance(provider, keepers) and not isinstance(provider, _PER_CONTEXT)


def _behind(provider: Any) -> Iterator[tuple[str, AnyProvider]]:
    """Give the providers that one draws from, with the name of the parameter each is for."""
    if isinstance(provider, _CONFIGURATION):
        # Every attribute of theirs is an option, which is related to it in turn.
        return
    if not isinstance(provider, CALLING):
        yield from (("", related) for related in provider.related)
        return
    named = [("", argument) for argument in provider.args]
    named += [*provider.kwargs.items(), *getattr(provider, "attributes", {}).items()]
    for name, argument in named:
        if isinstance(argument, providers.Provider):
            form = provided_form(argument)
            known = [name] if name else []
            known += [shown(form)] if form is not None else []
            yield ": ".join(known), argument
