"""Resolve `MODULE:ATTRIBUTE` to a Monque."""

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
"""The entry points of packages that support more kinds of target.

Each is a function that returns an async context manager of a running `Monque` for a target that it
supports, and None for any other object.
"""
_EXPECTED = (
    "a Monque, a SyncMonque, with monque-di a container or a MonqueService, or a function without "
    "arguments that returns one of these"
)


class WorkerTargetError(MonqueError):
    """The object that `MODULE:ATTRIBUTE` names is missing or not a valid target."""


async def open_target(target: str, stack: AsyncExitStack) -> AnyMonque:
    """Return the Monque that a target names, or that the named factory returns.

    A factory may be a coroutine function or a context manager, which is exited with the stack. A
    target of another package is already running, and is shut down with the stack.
    """
    found = _find(target)
    adapted = _adapt(found)
    try:
        if adapted is None and not isinstance(found, _KINDS) and callable(found):
            found = await _call_factory(found, stack)
            adapted = _adapt(found)
    except MonqueConnectionError:
        raise
    except Exception as error:
        raise WorkerTargetError(f"{target} raised an error:\n{_user_traceback(error)}") from error
    if adapted is not None:
        return await _start(target, adapted, stack)
    if not isinstance(found, _KINDS):
        raise WorkerTargetError(f"{target} is of type {type(found).__name__}; expected {_EXPECTED}")
    return found


def _adapt(found: object) -> AbstractAsyncContextManager[Monque] | None:
    """Return the context manager of a target of another package; None if none supports it."""
    if isinstance(found, _KINDS):
        return None
    for entry_point in importlib.metadata.entry_points(group=_ADAPTERS):
        adapted: AbstractAsyncContextManager[Monque] | None = entry_point.load()(found)
        if adapted is not None:
            return adapted
    return None


async def _start(
    target: str, application: AbstractAsyncContextManager[Monque], stack: AsyncExitStack
) -> Monque:
    """Start an application that is shut down with the stack."""
    try:
        return await stack.enter_async_context(application)
    except MonqueError:
        # The message describes the problem without a traceback.
        raise
    except Exception as error:
        raise WorkerTargetError(f"{target} cannot be started:\n{_user_traceback(error)}") from error


async def _call_factory(factory: Callable[[], object], stack: AsyncExitStack) -> object:
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
        raise WorkerTargetError(
            f"{target!r} is not a target; expected MODULE:ATTRIBUTE, such as shop.jobs:monque"
        )
    found: object = _module(module_name)
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            close = difflib.get_close_matches(name, dir(found), n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise WorkerTargetError(f"{module_name} has no attribute {name!r}{hint}") from None
    return found


def _module(name: str) -> object:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise WorkerTargetError(
                f"there is no module {error.name!r} in {here} or among the installed packages"
            ) from None
        raise _import_error(name, error) from error
    except Exception as error:
        raise _import_error(name, error) from error


def _import_error(name: str, error: Exception) -> WorkerTargetError:
    return WorkerTargetError(f"{name} cannot be imported:\n{_user_traceback(error)}")


def _user_traceback(error: Exception) -> str:
    """Return the traceback without the frames of this module and of importlib."""
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
