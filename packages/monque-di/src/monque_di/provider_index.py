"""The providers of a container, found by type and by name."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from dependency_injector import containers, providers

from monque_core import Job
from monque_di.annotations import format_annotation, matches, returned_type, types_in
from monque_di.scope import RunScoped, current_job

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

AnyProvider: TypeAlias = providers.Provider[Any]
AnyContainer: TypeAlias = containers.Container

CALLABLE_PROVIDERS = (
    providers.BaseResource,
    providers.BaseSingleton,
    providers.Callable,
    providers.Factory,
    RunScoped,
)
_MANAGING = (providers.BaseResource, RunScoped)


@dataclass(frozen=True, slots=True)
class ProviderEntry:
    """One provider, with its dotted path from the application container."""

    path: str
    provider: AnyProvider
    type: object | None
    """The type that it provides, if known without a call."""
    is_ours: bool = False
    """Whether monque added it, and not the application."""

    @property
    def name(self) -> str:
        """Return the last part of the path."""
        return self.path.rpartition(".")[2]

    def __str__(self) -> str:
        return self.path if self.type is None else f"{self.path} ({format_annotation(self.type)})"


class ProviderIndex:
    """Every provider of an application, those of nested containers included."""

    def __init__(self, container: AnyContainer) -> None:
        chain = container_chain(container)
        self.root = chain[-1]
        # `Provide` markers name providers of the application, not of our nested container.
        self.containers = [each for each in chain if not _is_ours(each)] or chain
        self._job = ProviderEntry("job", providers.Callable(current_job), Job)
        self._entries = _without_aliases(
            ProviderEntry(path, found, provided_type(found), is_ours)
            for path, found, is_ours in _providers(self.root, "")
        )

    def for_class(self, target: type) -> list[ProviderEntry]:
        """Return the providers that build exactly this class."""
        return [
            entry
            for entry in self._entries
            if isinstance(entry.provider, CALLABLE_PROVIDERS) and entry.provider.provides is target
        ]

    def by_type(self, annotation: object) -> list[ProviderEntry]:
        """Return the providers of a type; if there are none, those of its subclasses."""
        wanted = types_in(annotation)
        for exactly in (True, False):
            found = [
                entry
                for entry in (self._job, *self._entries)
                if any(matches(form, entry.type, exactly=exactly) for form in wanted)
            ]
            if found:
                return found
        return []

    def by_name(self, name: str, annotation: object) -> list[ProviderEntry]:
        """Return the providers of a name, those nearest to the application container only."""
        found = [entry for entry in self._entries if entry.name == name and not entry.is_ours]
        if not found and annotation in {inspect.Parameter.empty, Any}:
            # Our own providers are injected by name only into parameters without a type.
            found = [entry for entry in (self._job, *self._entries) if entry.name == name]
        depth = min(map(_by_depth, found), default=0)
        return [entry for entry in found if _by_depth(entry) == depth]


def _without_aliases(entries: Iterable[ProviderEntry]) -> list[ProviderEntry]:
    """Return the entries without those that one container only passes on to another."""
    kept: dict[AnyProvider, ProviderEntry] = {}
    for entry in sorted(entries, key=_by_depth):
        origin = _origin(entry.provider)
        if origin not in kept or entry.provider is origin:
            kept[origin] = entry
    return list(kept.values())


def _by_depth(entry: ProviderEntry) -> int:
    return entry.path.count(".")


def _origin(provider: AnyProvider) -> AnyProvider:
    """Return the provider that fills a `Dependency`, or the provider itself."""
    while isinstance(provider, providers.Dependency):
        behind: AnyProvider | None = provider.last_overriding or provider.default
        if behind is None:
            break
        provider = behind
    return provider


def container_chain(container: Any) -> list[AnyContainer]:
    """Return a container and its parents, up to the application container."""
    if isinstance(container, providers.Container):
        container = container.container
    if not isinstance(container, containers.DynamicContainer):
        raise TypeError(
            f"expected an instance of a container, not {container!r}; call the container class"
        )
    found: list[AnyContainer] = []
    while container is not None:
        if isinstance(container, containers.DynamicContainer):
            found.append(container)
        container = container.parent
    return found


def root_container(container: Any) -> AnyContainer:
    """Return the application container of a container."""
    return container_chain(container)[-1]


def provided_type(provider: Any) -> object | None:
    """Return the type that a provider provides, if known without a call."""
    if isinstance(provider, providers.Dependency):
        if provider.instance_of is not object:
            return provider.instance_of
        behind: AnyProvider | None = provider.last_overriding or provider.default
        return None if behind is None else provided_type(behind)
    if isinstance(provider, providers.Object):
        return type(provider.provides)
    if not isinstance(provider, CALLABLE_PROVIDERS) or providers.is_delegated(provider):
        return None
    return returned_type(provider.provides, is_manager=isinstance(provider, _MANAGING))


def _providers(container: Any, path: str) -> Iterator[tuple[str, AnyProvider, bool]]:
    for name, provider, is_ours in _injectable_providers(container):
        if isinstance(provider, providers.Container):
            yield from _providers(provider.container, f"{path}{name}.")
        elif isinstance(provider, providers.DependenciesContainer):
            yield from _providers(provider, f"{path}{name}.")
        elif not isinstance(provider, providers.Self):
            yield f"{path}{name}", provider, is_ours


def _is_ours(container: Any) -> bool:
    return hasattr(container.declarative_parent, "internal_providers")


def _injectable_providers(container: Any) -> Iterator[tuple[str, AnyProvider, bool]]:
    """Yield the injectable providers of a container; ours hides its internal ones."""
    kind = getattr(container, "declarative_parent", None)
    internal = getattr(kind, "internal_providers", ())
    for name, provider in container.providers.items():
        if name not in internal:
            yield name, provider, False
    for name, inner in getattr(kind, "injectable_providers", {}).items():
        yield name, container.providers[inner], True
