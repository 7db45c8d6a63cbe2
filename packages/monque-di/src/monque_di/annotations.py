"""What annotations say, as far as they can be read."""

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

_SEEN_THROUGH = ("Annotated", "Any", "Callable", "Literal", "Optional", "Self", "Type", "Union")
# Any number of providers may give one: only its name can tell what a value means.
_MODULES_OF_VALUES = {
    *("_collections_abc", "builtins", "collections", "collections.abc", "contextlib", "datetime"),
    *("decimal", "enum", "fractions", "numbers", "pathlib", "types", "typing", "uuid"),
}
_PROMISES = (abc.Awaitable, abc.Coroutine)
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


class Unseen(type):
    """A class that stands for a name which is only imported for type checkers."""

    def __getattr__(cls, name: str) -> Unseen:
        if name.startswith("_"):
            raise AttributeError(name)
        return _unseen(name)

    def __getitem__(cls, arguments: object) -> Unseen:
        return cls


class _Names(dict[str, Any]):
    """The names of a module; one that it lacks is looked for where annotations come from."""

    def __missing__(self, name: str) -> Any:
        if hasattr(sys.modules["builtins"], name):
            raise KeyError(name)
        if name in _SEEN_THROUGH:
            return getattr(typing, name)
        known = {kind.__name__: kind for kind in (*_PROMISES, *_MANAGERS)}
        return known.get(name) or _unseen(name)


def _unseen(name: str) -> Unseen:
    return Unseen(name, (), {})


def read_annotation(annotation: object, function: object) -> object:
    """Give what an annotation means; as it is written, if it is no annotation at all."""
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
    except Exception:  # noqa: BLE001  # an annotation may hold any expression at all
        return annotation


def forms_in(annotation: object) -> tuple[object, ...]:
    """Give the classes that an annotation admits, with their arguments if it tells them.

    There are none in what says nothing of a class, or only of a kind of value, like `str`.
    """
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in {Union, types.UnionType}:
        return tuple(form for member in get_args(annotation) for form in forms_in(member))
    if get_origin(annotation) in {type, abc.Callable}:
        return ()
    kind = class_of(annotation)
    return () if kind is None or kind.__module__ in _MODULES_OF_VALUES else (annotation,)


def class_of(form: object) -> type | None:
    """Give the class of a form, which is a class or a generic one with its arguments."""
    kind = get_origin(form) or form
    return kind if isinstance(kind, type) and kind is not Any else None


def admits(wanted: object, offered: object, *, exactly: bool) -> bool:
    """Tell whether a form is what is wanted, or a subclass of it."""
    wanted_class, offered_class = class_of(wanted), class_of(offered)
    if (
        wanted_class is None
        or offered_class is None
        or offered_class.__module__ in _MODULES_OF_VALUES
    ):
        return False
    bases = [offered_class] if exactly else offered_class.__mro__[:-1]
    if isinstance(wanted_class, Unseen) or isinstance(offered_class, Unseen):
        return wanted_class.__name__ in {base.__name__ for base in bases}
    if exactly and wanted_class is not offered_class:
        return False
    try:
        is_one = issubclass(offered_class, wanted_class)
    except TypeError:
        # A protocol that is not for run time: only names can match.
        return False
    return is_one and _same_arguments(wanted, offered)


def _same_arguments(wanted: object, offered: object) -> bool:
    """Tell whether two forms of a generic class can be the same, where both tell."""
    expected, known = get_args(wanted), _arguments(offered, class_of(wanted))
    if not expected or known is None or len(expected) != len(known):
        return True
    return all(_same_argument(one, other) for one, other in zip(expected, known, strict=True))


def _same_argument(one: object, other: object) -> bool:
    if any(argument is Any or isinstance(argument, typing.TypeVar) for argument in (one, other)):
        return True
    if isinstance(one, Unseen) or isinstance(other, Unseen):
        return getattr(one, "__name__", None) == getattr(other, "__name__", None)
    return one == other


def _arguments(form: object, generic: type | None) -> tuple[object, ...] | None:
    """Give the arguments that a form has for a generic class it is made from, if it tells."""
    if get_origin(form) is generic:
        return get_args(form)
    for base in getattr(class_of(form), "__mro__", ()):
        for origin in vars(base).get("__orig_bases__", ()):
            arguments = get_args(origin)
            if get_origin(origin) is generic:
                return arguments
    return None


def returned_form(function: Any, *, is_manager: bool) -> object | None:
    """Give what a function returns, or what its context manager gives; None if it tells not."""
    if isinstance(function, functools.partial):
        return returned_form(function.func, is_manager=is_manager)
    kind = class_of(function)
    if kind is not None:
        return _entered_form(kind) if is_manager else function
    written = inspect.unwrap(function)
    if "return" not in getattr(written, "__annotations__", {}):
        return None
    annotation = read_annotation(written.__annotations__["return"], written)
    return _form_of(annotation, function, is_manager=is_manager)


def _entered_form(kind: type) -> object | None:
    """Give what a class gives that is a context manager, or a resource."""
    is_resource = issubclass(kind, (resources.Resource, resources.AsyncResource))
    for name in ["init"] if is_resource else ["__aenter__", "__enter__"]:
        method = getattr(kind, name, None)
        if inspect.isfunction(method):
            annotation = method.__annotations__.get("return")
            if annotation is None and not is_resource:
                return kind
            return _form_of(read_annotation(annotation, method), kind, is_manager=False)
    return kind


def _form_of(annotation: object, function: object, *, is_manager: bool) -> object | None:
    if annotation is typing.Self:
        owner = getattr(function, "__self__", function)
        return owner if isinstance(owner, type) else None
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _form_of(arguments[0], function, is_manager=is_manager)
    if origin in _PROMISES and arguments:
        return _form_of(arguments[-1], function, is_manager=is_manager)
    if is_manager and origin in _MANAGERS and arguments:
        return _form_of(arguments[0], function, is_manager=False)
    if origin in {Union, types.UnionType}:
        some = [member for member in arguments if member is not types.NoneType]
        if len(some) == 1:
            return _form_of(some[0], function, is_manager=is_manager)
    return annotation if class_of(annotation) is not None else None


def shown(annotation: object) -> str:
    """Give an annotation as the code has it, without the modules of its names."""
    if annotation is inspect.Parameter.empty:
        return ""
    if isinstance(annotation, str):
        return annotation
    if get_origin(annotation) is Annotated:
        return shown(get_args(annotation)[0])
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation.__qualname__.rpartition("<locals>.")[2]
    return re.sub(r"(\w+\.|<locals>\.)+(?=\w)", "", str(annotation))
