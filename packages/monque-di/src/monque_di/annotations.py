"""Resolve type annotations and compare them with the types that providers return."""

from __future__ import annotations

import functools
import inspect
import re
import sys
import types
import typing
from collections import abc
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Annotated, Any, Union, get_args, get_origin

from dependency_injector import resources

_TYPING_NAMES = ("Annotated", "Any", "Callable", "Literal", "Optional", "Self", "Type", "Union")
# Types of plain values: several providers may return a `str`, so only the name can choose one.
_VALUE_MODULES = {
    *("_collections_abc", "builtins", "collections", "collections.abc", "contextlib", "datetime"),
    *("decimal", "enum", "fractions", "numbers", "pathlib", "types", "typing", "uuid"),
}
_AWAITABLES = (abc.Awaitable, abc.Coroutine)
_MANAGERS = (
    abc.Iterator,
    abc.Iterable,
    abc.Generator,
    abc.AsyncIterator,
    abc.AsyncIterable,
    abc.AsyncGenerator,
    AbstractContextManager,
    AbstractAsyncContextManager,
)


class TypeCheckingOnly(type):
    """The metaclass of placeholders for names that are imported under `TYPE_CHECKING` only."""

    def __getattr__(cls, name: str) -> TypeCheckingOnly:
        if name.startswith("_"):
            raise AttributeError(name)
        return _type_checking_only(name)

    def __getitem__(cls, arguments: object) -> TypeCheckingOnly:
        return cls


class _Names(dict[str, Any]):
    """The names of a module; a missing name resolves to a typing name or a placeholder."""

    def __missing__(self, name: str) -> Any:
        if hasattr(sys.modules["builtins"], name):
            raise KeyError(name)
        if name in _TYPING_NAMES:
            return getattr(typing, name)
        known = {kind.__name__: kind for kind in (*_AWAITABLES, *_MANAGERS)}
        return known.get(name) or _type_checking_only(name)


def _type_checking_only(name: str) -> TypeCheckingOnly:
    return TypeCheckingOnly(name, (), {})


def read_annotation(annotation: object, function: object) -> object:
    """Return a resolved annotation, or the annotation unchanged if it cannot be resolved."""
    if annotation is inspect.Parameter.empty:
        return annotation
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function) if callable(function) else function
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    names = _Names(vars(module) if module is not None else {})
    names |= getattr(function, "__globals__", {})
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        return typing.get_type_hints(holder, {}, names, include_extras=True)["it"]
    except Exception:  # noqa: BLE001  # an annotation may be any expression
        return annotation


def types_in(annotation: object) -> tuple[object, ...]:
    """Return the classes that an annotation accepts, with their type arguments if present.

    The result is empty for an annotation without a class, and for value types such as `str`.
    """
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in {Union, types.UnionType}:
        return tuple(form for member in get_args(annotation) for form in types_in(member))
    if get_origin(annotation) in {type, abc.Callable}:
        return ()
    kind = class_of(annotation)
    return () if kind is None or kind.__module__ in _VALUE_MODULES else (annotation,)


def class_of(form: object) -> type | None:
    """Return the class behind a type, which is a class or a parametrized generic."""
    kind = get_origin(form) or form
    return kind if isinstance(kind, type) and kind is not Any else None


def matches(wanted: object, provided: object, *, exactly: bool) -> bool:
    """Whether a provided type is the wanted one or, unless `exactly`, a subclass of it."""
    wanted_class, provided_class = class_of(wanted), class_of(provided)
    if (
        wanted_class is None
        or provided_class is None
        or provided_class.__module__ in _VALUE_MODULES
    ):
        return False
    bases = [provided_class] if exactly else provided_class.__mro__[:-1]
    if isinstance(wanted_class, TypeCheckingOnly) or isinstance(provided_class, TypeCheckingOnly):
        return wanted_class.__name__ in {base.__name__ for base in bases}
    if exactly and wanted_class is not provided_class:
        return False
    try:
        is_match = issubclass(provided_class, wanted_class)
    except TypeError:
        # A protocol without `runtime_checkable`: only names can match.
        return False
    return is_match and _same_arguments(wanted, provided)


def _same_arguments(wanted: object, provided: object) -> bool:
    """Whether the type arguments of two generics are compatible; unknown ones are."""
    expected, known = get_args(wanted), _arguments(provided, class_of(wanted))
    if not expected or known is None or len(expected) != len(known):
        return True
    return all(_same_argument(one, other) for one, other in zip(expected, known, strict=True))


def _same_argument(one: object, other: object) -> bool:
    if any(argument is Any or isinstance(argument, typing.TypeVar) for argument in (one, other)):
        return True
    if isinstance(one, TypeCheckingOnly) or isinstance(other, TypeCheckingOnly):
        return getattr(one, "__name__", None) == getattr(other, "__name__", None)
    return one == other


def _arguments(form: object, generic: type | None) -> tuple[object, ...] | None:
    """Return the type arguments with which a type parametrizes a generic base, if known."""
    if get_origin(form) is generic:
        return get_args(form)
    for base in getattr(class_of(form), "__mro__", ()):
        for origin in vars(base).get("__orig_bases__", ()):
            arguments = get_args(origin)
            if get_origin(origin) is generic:
                return arguments
    return None


def returned_type(function: Any, *, is_manager: bool) -> object | None:
    """Return what a function returns, or what its context manager yields; None if not annotated."""
    if isinstance(function, functools.partial):
        return returned_type(function.func, is_manager=is_manager)
    kind = class_of(function)
    if kind is not None:
        return _entered_type(kind) if is_manager else function
    written = inspect.unwrap(function)
    if "return" not in getattr(written, "__annotations__", {}):
        return None
    annotation = read_annotation(written.__annotations__["return"], written)
    return _type_of(annotation, function, is_manager=is_manager)


def _entered_type(kind: type) -> object | None:
    """Return the type that entering a context manager class, or a resource class, yields."""
    is_resource = issubclass(kind, (resources.Resource, resources.AsyncResource))
    for name in ["init"] if is_resource else ["__aenter__", "__enter__"]:
        method = getattr(kind, name, None)
        if inspect.isfunction(method):
            annotation = method.__annotations__.get("return")
            if annotation is None and not is_resource:
                return kind
            return _type_of(read_annotation(annotation, method), kind, is_manager=False)
    return kind


def _type_of(annotation: object, function: object, *, is_manager: bool) -> object | None:
    if annotation is typing.Self:
        owner = getattr(function, "__self__", function)
        return owner if isinstance(owner, type) else None
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type_of(arguments[0], function, is_manager=is_manager)
    if origin in _AWAITABLES and arguments:
        return _type_of(arguments[-1], function, is_manager=is_manager)
    if is_manager and origin in _MANAGERS and arguments:
        return _type_of(arguments[0], function, is_manager=False)
    if origin in {Union, types.UnionType}:
        some = [member for member in arguments if member is not types.NoneType]
        if len(some) == 1:
            return _type_of(some[0], function, is_manager=is_manager)
    return annotation if class_of(annotation) is not None else None


def format_annotation(annotation: object) -> str:
    """Return an annotation as written in code, without module names."""
    if annotation is inspect.Parameter.empty:
        return ""
    if isinstance(annotation, str):
        return annotation
    if get_origin(annotation) is Annotated:
        return format_annotation(get_args(annotation)[0])
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation.__qualname__.rpartition("<locals>.")[2]
    return re.sub(r"(\w+\.|<locals>\.)+(?=\w)", "", str(annotation))
