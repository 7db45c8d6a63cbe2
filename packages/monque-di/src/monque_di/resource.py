"""What Monque and its connection are to dependency-injector."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from dependency_injector import containers, providers

from monque_core import MonqueConnectionError, MonqueError
from monque_di.provider_index import AnyProvider

if TYPE_CHECKING:
    from collections.abc import Iterator

    from monque_di.provider_index import AnyContainer


class ConnectionSource(providers.Dependency[Any]):
    """The place of the connection, which takes nothing that would be copied on its way."""

    def override(self, provider: Any) -> Any:
        """Take a provider, or a value that is safe without one."""
        is_safe = provider is None or isinstance(provider, (str, type, providers.Provider))
        if not is_safe and not inspect.isfunction(provider):
            kind = f"{type(provider).__module__}.{type(provider).__qualname__}"
            raise MonqueConnectionError(
                f"connection= was given a {kind} as it is, and dependency-injector would copy "
                "it: write connection=providers.Object(…) around it"
            )
        return super().override(provider)


class PackageSource(providers.Object[Any]):
    """The place of the packages, whose modules are kept as they are when a container is copied.

    dependency-injector deep-copies the arguments of a nested container, after the container
    itself and with the same memo; Python cannot copy a module.
    """

    def __deepcopy__(self, memo: dict[Any, Any] | None = None) -> Any:
        memo = {} if memo is None else memo
        for source in self.overridden:
            given = getattr(source, "provides", None)
            packages = given if isinstance(given, (list, tuple, set, frozenset)) else [given]
            memo.update({id(each): each for each in packages if inspect.ismodule(each)})
        return super().__deepcopy__(memo)


class MonqueResource(providers.Resource[Any]):
    """A resource that starts after the others of its application and is shut down before them.

    dependency-injector starts all resources at once, and shuts down first what no other one is
    directly related to; so this one is related to every resource that its jobs may need.
    """

    container: Any = None
    """The container that this is the resource of, which makes itself known."""
    needs: tuple[providers.BaseResource[Any], ...] = ()

    @property
    def related(self) -> Iterator[AnyProvider]:
        """Give the providers that this one draws from."""
        yield from super().related
        yield from self.needs

    def _provide(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
        if self.container is None:
            raise MonqueError(
                "this Monque is in no MonqueContainer: nest one, providers.Container("
                "MonqueContainer, …), or subclass it"
            )
        given = {**kwargs, "container": self.container}
        return super()._provide(args, given)  # type: ignore[misc]  # how custom providers are made

    def find_needs(self, application: AnyContainer) -> tuple[providers.BaseResource[Any], ...]:
        """Note the resources of an application, but for those that themselves need this one."""
        self.needs = ()
        self.needs = tuple(
            resource
            for resource in application.traverse(types=[providers.BaseResource])
            if not isinstance(resource, (MonqueResource, providers.ContextLocalResource))
            and self not in set[AnyProvider](resource.traverse())
        )
        return self.needs


class MonqueContainerInstance(containers.DynamicContainer):
    """What an instance of `MonqueContainer`, and each copy of one, is made of."""

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, MonqueResource):
            value.container = self
        super().__setattr__(name, value)


def needs_monque(provider: AnyProvider) -> bool:
    """Tell whether a provider draws from the resource, which has to start before it."""
    behind = set[AnyProvider]([provider, *provider.traverse()])
    return any(isinstance(each, MonqueResource) for each in behind)
