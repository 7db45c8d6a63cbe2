"""Resolve the `Provide[…]` markers of dependency-injector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

from dependency_injector import providers, wiring

from monque_di.annotations import read_annotation

if TYPE_CHECKING:
    import inspect
    from collections.abc import Sequence

    from monque_di.provider_index import AnyContainer, AnyProvider

# The stubs declare these as values, not classes.
_PROVIDE: Any = wiring.Provide
_CLOSING: Any = wiring.Closing


def marker_of(parameter: inspect.Parameter, function: object) -> Any:
    """Return the marker in the default or the `Annotated` of a parameter; None without one."""
    annotation = read_annotation(parameter.annotation, function)
    candidates = [parameter.default]
    if get_origin(annotation) is Annotated:
        candidates += get_args(annotation)[1:]
    for candidate in candidates:
        if getattr(candidate, "__IS_MARKER__", False) is True:
            return candidate
    return None


def resolve_marker(marker: Any, within: Sequence[AnyContainer]) -> AnyProvider:
    """Return the provider that a marker names, from the first container that has it.

    The module need not be wired. Raise `LookupError` with the reason if there is none.
    """
    if isinstance(marker, _CLOSING):
        reason = "Closing would close the resource before the job runs: use RunScoped instead"
        raise LookupError(reason)  # noqa: TRY004  # the lookup failed, not a type check
    for container in within:
        found: Any = _resolved(marker, container)
        if isinstance(found, providers.Provider):
            return found if isinstance(marker, _PROVIDE) else found.provider
    raise LookupError(f"{marker!r} → no provider")


def _resolved(marker: Any, container: Any) -> object:
    if isinstance(marker.provider, str) and marker.modifier is None:
        found = container.__self__ if marker.provider == "<container>" else container
        for segment in marker.provider.split(".") if found is container else ():
            found = getattr(found, segment, None)
        return found
    try:
        known = wiring.ProvidersMap(container)
    except KeyError:
        # `ProvidersMap` does not know providers that were added to an instance.
        return None
    return known.resolve_provider(marker.provider, marker.modifier)
