"""Finding the Monque that `MODULE:ATTRIBUTE` names."""

from __future__ import annotations

import difflib
import importlib
import importlib.metadata
import inspect
import sys
import traceback
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from monque_core.errors import MonqueConnectionError, MonqueError
from monque_core.monque import Monque
from monque_core.sync.monque import SyncMonque

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AsyncExitStack

AnyMonque: TypeAlias = Monque | SyncMonque
_KINDS = (Monque, SyncMonque)
_ADAPTERS: Final = "monque.worker_targets"
"""The entry points of packages that teach the command further kinds of target.

Each is a function that returns an async context manager of a running `Monque` for what it knows,
and None for anything else.
"""
_EXPECTED = (
    "a Monque, a SyncMonque, with monque-di a container or a MonqueService, or a function without "
    "arguments that gives one of these"
)


class TargetError(MonqueError):
    """What `MODULE:ATTRIBUTE` names cannot be run."""


async def open_target(target: str, stack: AsyncExitStack) -> AnyMonque:
    """Return the Monque that is named, or that the factory named gives.

    A factory may be a coroutine function or a context manager; the latter is left with the stack.
    An application of another package's kind is running when this returns, and is shut down with
    the stack.
    """
    found = _find(target)
    adapted = _adapted(found)
    try:
        if adapted is None and not isinstance(found, _KINDS) and callable(found):
            found = await _made_by(found, stack)
            adapted = _adapted(found)
    except MonqueConnectionError:
        raise
    except Exception as error:
        raise TargetError(f"{target} raised an error:\n{_users_part(error)}") from error
    if adapted is not None:
        return await _started(target, adapted, stack)
    if not isinstance(found, _KINDS):
        raise TargetError(f"{target} is of type {type(found).__name__}: {_EXPECTED} is expected")
    return found


def _adapted(found: object) -> AbstractAsyncContextManager[Monque] | None:
    """Return what runs a target of another package's kind; None if no package knows it."""
    if isinstance(found, _KINDS):
        return None
    for entry_point in importlib.metadata.entry_points(group=_ADAPTERS):
        adapted: AbstractAsyncContextManager[Monque] | None = entry_point.load()(found)
        if adapted is not None:
            return adapted
    return None


async def _started(
    target: str, application: AbstractAsyncContextManager[Monque], stack: AsyncExitStack
) -> Monque:
    """Start an application that is shut down with the stack."""
    try:
        return await stack.enter_async_context(application)
    except MonqueError:
        # Its message is about the application, and needs no traceback.
        raise
    except Exception as error:
        raise TargetError(f"{target} cannot be started:\n{_users_part(error)}") from error


async def _made_by(factory: Callable[[], object], stack: AsyncExitStack) -> object:
    made = factory()
    if inspect.isawaitable(made):
        made = await made
    if isinstance(made, _KINDS):
        return made
    if isinstance(made, AbstractAsyncContextManager):
        return await stack.enter_async_context(made)
    if isinstance(made, AbstractContextManager):
        return stack.enter_context(made)
    return made


def _find(target: str) -> object:
    module_name, _, path = target.partition(":")
    if not module_name or not path:
        raise TargetError(
            f"{target!r} names nothing: MODULE:ATTRIBUTE is expected, as in shop.jobs:monque"
        )
    found: object = _module(module_name)
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            close = difflib.get_close_matches(name, dir(found), n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise TargetError(f"{module_name} has no attribute {name!r}{hint}") from None
    return found


def _module(name: str) -> object:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise TargetError(
                f"there is no module {error.name!r} in {here} or among what is installed"
            ) from None
        raise _broken(name, error) from error
    except Exception as error:
        raise _broken(name, error) from error


def _broken(name: str, error: Exception) -> TargetError:
    return TargetError(f"{name} cannot be imported:\n{_users_part(error)}")


def _users_part(error: Exception) -> str:
    """Give the traceback without the frames of this module and of the import machinery."""
    report = traceback.TracebackException.from_exception(error)
    report.stack = traceback.StackSummary.from_list(
        [
            frame
            for frame in report.stack
            if frame.filename not in {__file__, importlib.__file__}
            and not frame.filename.startswith("<frozen importlib")
        ]
    )
    return "".join(report.format()).rstrip()
