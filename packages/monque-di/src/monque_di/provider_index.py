"""What a container can provide, by type and by name."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from dependency_injector import containers, providers

from monque_core import Job
from monque_di.annotations import admits, forms_in, returned_form, shown
from monque_di.scope import RunScoped, current_job

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

AnyProvider: TypeAlias = providers.Provider[Any]
AnyContainer: TypeAlias = containers.Container

CALLING = (
    providers.BaseResource,
    providers.BaseSingleton,
    providers.Callable,
    providers.Factory,
    RunScoped,
)
_MANAGING = (providers.BaseResource, RunScoped)


@dataclass(frozen=True, slots=True)
class Provided:
    """One provider, under the name that leads to it from the application's container."""

    path: str
    provider: AnyProvider
    form: object | None
    """What it provides, as far as that can be told without calling it."""
    is_ours: bool = False

    @property
    def name(self) -> str:
        """Give the last part of the path."""
        return self.path.rpartition(".")[2]

    def __str__(self) -> str:
        return self.path if self.form is None else f"{self.path} ({shown(self.form)})"


class ProviderIndex:
    """Every provider of an application, its nested containers included."""

    def __init__(self, container: AnyContainer) -> None:
        chain = outwards(container)
        self.root = chain[-1]
        # A marker is written for the application; that ours is nested in it is our affair.
        self.containers = [each for each in chain if not _is_ours(each)] or chain
        self._job = Provided("job", providers.Callable(current_job), Job)
        self._offers = _each_once(
            Provided(path, found, provided_form(found), is_ours)
            for path, found, is_ours in _providers(self.root, "")
        )

    def providing(self, target: type) -> list[Provided]:
        """Give the providers that are made for this very class."""
        return [
            offer
            for offer in self._offers
            if isinstance(offer.provider, CALLING) and offer.provider.provides is target
        ]

    def of_type(self, annotation: object) -> list[Provided]:
        """Give the providers of a type or, without one, of its subclasses."""
        wanted = forms_in(annotation)
        for exactly in (True, False):
            found = [
                offer
                for offer in (self._job, *self._offers)
                if any(admits(form, offer.form, exactly=exactly) for form in wanted)
            ]
            if found:
                return found
        return []

    def called(self, name: str, annotation: object) -> list[Provided]:
        """Give the providers of a name, the outermost alone."""
        found = [offer for offer in self._offers if offer.name == name and not offer.is_ours]
        if not found and annotation in {inspect.Parameter.empty, Any}:
            # What is ours is given by its name only where nothing else could be meant.
            found = [offer for offer in (self._job, *self._offers) if offer.name == name]
        depth = min(map(_by_depth, found), default=0)
        return [offer for offer in found if _by_depth(offer) == depth]


def _each_once(offers: Iterable[Provided]) -> list[Provided]:
    """Leave out what one container only hands on to another."""
    kept: dict[AnyProvider, Provided] = {}
    for offer in sorted(offers, key=_by_depth):
        origin = _origin(offer.provider)
        if origin not in kept or offer.provider is origin:
            kept[origin] = offer
    return list(kept.values())


def _by_depth(offer: Provided) -> int:
    return offer.path.count(".")


def _origin(provider: AnyProvider) -> AnyProvider:
    """Give the provider that stands behind a dependency, if one does."""
    while isinstance(provider, providers.Dependency):
        behind: AnyProvider | None = provider.last_overriding or provider.default
        if behind is None:
            break
        provider = behind
    return provider


def outwards(container: Any) -> list[AnyContainer]:
    """Give a container and those that it is nested in, up to the application's own."""
    if isinstance(container, providers.Container):
        container = container.container
    if not isinstance(container, containers.DynamicContainer):
        raise TypeError(f"an instance of a container is expected, not {container!r}")
    found: list[AnyContainer] = []
    while container is not None:
        if isinstance(container, containers.DynamicContainer):
            found.append(container)
        container = container.parent
    return found


def outermost(container: Any) -> AnyContainer:
    """Give the application's container from any that is nested in it."""
    return outwards(container)[-1]


def provided_form(provider: Any) -> object | None:
    """Give what a provider provides, if that can be told without calling it."""
    if isinstance(provider, providers.Dependency):
        if provider.instance_of is not object:
            return provider.instance_of
        behind: AnyProvider | None = provider.last_overriding or provider.default
        return None if behind is None else provided_form(behind)
    if isinstance(provider, providers.Object):
        return type(provider.provides)
    if not isinstance(provider, CALLING) or providers.is_delegated(provider):
        return None
    return returned_form(provider.provides, is_manager=isinstance(provider, _MANAGING))


def _providers(container: Any, path: str) -> Iterator[tuple[str, AnyProvider, bool]]:
    for name, provider, is_ours in _shown_by(container):
        if isinstance(provider, providers.Container):
            yield from _providers(provider.container, f"{path}{name}.")
        elif isinstance(provider, providers.DependenciesContainer):
            yield from _providers(provider, f"{path}{name}.")
        elif not isinstance(provider, providers.Self):
            yield f"{path}{name}", provider, is_ours


def _is_ours(container: Any) -> bool:
    return hasattr(container.declarative_parent, "hidden")


def _shown_by(container: Any) -> Iterator[tuple[str, AnyProvider, bool]]:
    """Give what a container has to offer; one of ours keeps its inner workings to itself."""
    kind = getattr(container, "declarative_parent", None)
    hidden = getattr(kind, "hidden", ())
    for name, provider in container.providers.items():
        if name not in hidden:
            yield name, provider, False
    for name, inner in getattr(kind, "offered", {}).items():
        yield name, container.providers[inner], True
