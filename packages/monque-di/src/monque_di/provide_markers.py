"""The `Provide[…]` markers of dependency-injector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

from dependency_injector import providers, wiring

from monque_di.annotations import read_annotation

if TYPE_CHECKING:
    import inspect
    from collections.abc import Sequence

    from monque_di.provider_index import AnyContainer, AnyProvider

# Type checkers are told that these are values, not classes.
_PROVIDE: Any = wiring.Provide
_CLOSING: Any = wiring.Closing


def marker_of(parameter: inspect.Parameter, function: object) -> Any:
    """Give the marker of a parameter, from its default or its `Annotated`; None without one."""
    annotation = read_annotation(parameter.annotation, function)
    candidates = [parameter.default]
    if get_origin(annotation) is Annotated:
        candidates += get_args(annotation)[1:]
    for candidate in candidates:
        if getattr(candidate, "__IS_MARKER__", False) is True:
            return candidate
    return None


def resolve_marker(marker: Any, within: Sequence[AnyContainer]) -> AnyProvider:
    """Give the provider that a marker names in the first of some containers that has it.

    Whether the module is wired does not matter. Raises `LookupError` that says why there is none.
    """
    if isinstance(marker, _CLOSING):
        reason = "Closing would end it before the job runs: make it a RunScoped"
        raise LookupError(reason)  # noqa: TRY004  # it is found, and of no use
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
        # It knows no providers that were added to an instance.
        return None
    return known.resolve_provider(marker.provider, marker.modifier)
