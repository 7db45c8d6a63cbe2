"""Custom dependency-injector providers of `MonqueContainer`."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from dependency_injector import containers, providers

from monque_core import MonqueConnectionError, MonqueError
from monque_di.provider_index import AnyProvider

if TYPE_CHECKING:
    from collections.abc import Iterator

    from monque_di.provider_index import AnyContainer


class ConnectionProvider(providers.Dependency[Any]):
    """The provider of the connection; refuses values that dependency-injector would deep-copy."""

    def override(self, provider: Any) -> Any:
        """Accept a provider, or a value that is safe to copy."""
        is_safe = provider is None or isinstance(provider, (str, type, providers.Provider))
        if not is_safe and not inspect.isfunction(provider):
            kind = f"{type(provider).__module__}.{type(provider).__qualname__}"
            raise MonqueConnectionError(
                f"connection= got a {kind}, which dependency-injector would copy: pass "
                "connection=providers.Object(…)"
            )
        return super().override(provider)


class PackagesProvider(providers.Object[Any]):
    """The provider of the packages; keeps modules out of deep copies.

    dependency-injector deep-copies the arguments of a nested container, after the container
    itself and with the same memo. Python cannot copy a module.
    """

    def __deepcopy__(self, memo: dict[Any, Any] | None = None) -> Any:
        memo = {} if memo is None else memo
        for source in self.overridden:
            given = getattr(source, "provides", None)
            packages = given if isinstance(given, (list, tuple, set, frozenset)) else [given]
            memo.update({id(each): each for each in packages if inspect.ismodule(each)})
        return super().__deepcopy__(memo)


class MonqueResource(providers.Resource[Any]):
    """A resource that starts after all other resources and shuts down before them.

    dependency-injector initializes all resources at once, and first shuts down those that no other
    resource is related to. So this one is related to every resource that its jobs may use.
    """

    container: Any = None
    """The `MonqueContainer` of this resource; the container sets it."""
    dependencies: tuple[providers.BaseResource[Any], ...] = ()

    @property
    def related(self) -> Iterator[AnyProvider]:
        """Yield the providers that this one depends on."""
        yield from super().related
        yield from self.dependencies

    def _provide(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
        if self.container is None:
            raise MonqueError(
                "MonqueResource works only in a MonqueContainer: nest providers.Container("
                "MonqueContainer, …), or subclass MonqueContainer"
            )
        given = {**kwargs, "container": self.container}
        return super()._provide(args, given)  # type: ignore[misc]  # missing in the stubs

    def find_dependencies(
        self, application: AnyContainer
    ) -> tuple[providers.BaseResource[Any], ...]:
        """Record and return the resources that must start first: all that do not depend on this."""
        self.dependencies = ()
        self.dependencies = tuple(
            resource
            for resource in application.traverse(types=[providers.BaseResource])
            if not isinstance(resource, (MonqueResource, providers.ContextLocalResource))
            and self not in set[AnyProvider](resource.traverse())
        )
        return self.dependencies


class MonqueContainerInstance(containers.DynamicContainer):
    """The instance type of `MonqueContainer`; tells its resource which container it is in."""

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, MonqueResource):
            value.container = self
        super().__setattr__(name, value)


def depends_on_monque(provider: AnyProvider) -> bool:
    """Whether a provider depends on the monque resource."""
    graph = set[AnyProvider]([provider, *provider.traverse()])
    return any(isinstance(each, MonqueResource) for each in graph)
