"""Resolve whatever an application connects with to a native PyMongo database."""

from __future__ import annotations

import inspect
import re
import sys
from typing import TYPE_CHECKING, Any, TypeAlias

from dependency_injector import providers
from pymongo import AsyncMongoClient, MongoClient
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.database import Database
from pymongo.errors import ConfigurationError, PyMongoError

from monque_core import MonqueConnectionError
from monque_di.task_context import is_async_result

if TYPE_CHECKING:
    from types import ModuleType

NativeDatabase: TypeAlias = AsyncDatabase[Any] | Database[Any]

_EXPECTED = (
    "expected one of: a PyMongo Database or AsyncDatabase; a client and the name of a "
    'database, as (client, "shop"); MongoEngine by an alias, by mongoengine.connection or by a '
    "Document class; a Motor database; an initialized Beanie Document; or a provider or function "
    "that returns one of these"
)
_DATABASE_ATTRIBUTES = ("db", "database", "delegate")
_MAX_STEPS = 5


async def resolve_database(source: object) -> NativeDatabase:
    """Return the native PyMongo database of a handle, an ODM, a provider or a factory.

    Raise `MonqueConnectionError` if there is none. The connection of the application is used as it
    is and never closed.
    """
    found = source
    for _ in range(_MAX_STEPS):
        if isinstance(found, (Database, AsyncDatabase)):
            return found
        try:
            found = await _step(found)
        except PyMongoError as error:
            raise MonqueConnectionError(
                f"the connection {_describe(source)} cannot be used: {_without_secrets(error)}"
            ) from error
    raise MonqueConnectionError(
        f"the connection {_describe(source)} does not lead to a database; {_EXPECTED}"
    )


async def _step(source: Any) -> object:
    """Return the database of a source, or an object one step closer to it."""
    if source is None:
        raise MonqueConnectionError(f"no connection was given; {_EXPECTED}")
    if isinstance(source, str):
        return _of_alias(source)
    if isinstance(source, providers.Dependency):
        return source.last_overriding or source.default
    if isinstance(source, providers.Object):
        return source.provides
    if isinstance(source, (tuple, list)):
        return _of_sequence(source)
    if inspect.ismodule(source):
        return _of_module(source)
    if _is_client(source):
        return _default_database(source)
    if isinstance(source, type):
        return _of_class(source)
    if isinstance(source, providers.Provider) or inspect.isroutine(source):
        return await _call(source)
    exposed = _database_attribute(source)
    if exposed is not None:
        return exposed
    if callable(source):
        return await _call(source)
    raise MonqueConnectionError(f"{_describe(source)} is not a connection to MongoDB; {_EXPECTED}")


async def _call(make: Any) -> object:
    """Call a provider or factory, and await the result if it is async."""
    if inspect.isgeneratorfunction(make) or inspect.isasyncgenfunction(make):
        raise MonqueConnectionError(
            f"{_describe(make)} is a generator function, and nothing would close what it opens: "
            "pass "
            f"connection=providers.Resource({make.__name__})"
        )
    try:
        made = make()
        if is_async_result(made) or inspect.isawaitable(made):
            made = await made
    except MonqueConnectionError:
        raise
    except Exception as error:
        raise MonqueConnectionError(
            f"{_describe(make)} raised an error instead of returning a connection: "
            f"{_without_secrets(error)}"
        ) from error
    if made is None:
        raise MonqueConnectionError(
            f"{_describe(make)} returned None, not a connection; {_EXPECTED}"
        )
    return made


def _of_alias(alias: str) -> object:
    if "://" in alias:
        raise MonqueConnectionError(
            "connection= got a connection string: pass a client, for example "
            "connection=providers.Singleton(AsyncMongoClient, uri)"
        )
    try:
        from mongoengine import connection  # noqa: PLC0415  # an extra
    except ImportError as error:
        raise MonqueConnectionError(
            f"the connection {alias!r} names an alias of MongoEngine, which is not installed: "
            f"pip install 'monque-di[mongoengine]'; {_EXPECTED}"
        ) from error
    try:
        return connection.get_db(alias)
    except connection.ConnectionFailure as error:
        raise MonqueConnectionError(
            f"MongoEngine has no connection with the alias {alias!r}: call "
            f"mongoengine.connect(…, alias={alias!r}) before Monque starts"
        ) from error


def _of_sequence(sources: tuple[Any, ...] | list[Any]) -> object:
    match sources:
        case [client, str(name)] if _is_client(client):
            return client[name]
        case []:
            raise MonqueConnectionError(f"no connection was given; {_EXPECTED}")
    descriptions = ", ".join(_describe(source) for source in sources)
    raise MonqueConnectionError(
        f"expected one connection, got {len(sources)}: {descriptions}; {_EXPECTED}"
    )


def _of_module(module: ModuleType) -> object:
    if module.__name__ in {"mongoengine", "mongoengine.connection"}:
        return _of_alias("default")
    raise MonqueConnectionError(f"{_describe(module)} is not a connection to MongoDB; {_EXPECTED}")


def _of_class(kind: Any) -> object:
    """Return the database of a document class of MongoEngine or Beanie."""
    for getter in ("get_pymongo_collection", "get_motor_collection"):
        if hasattr(kind, getter):
            try:
                return getattr(kind, getter)().database
            except Exception as error:
                raise MonqueConnectionError(
                    f"the Beanie document {_describe(kind)} is not initialized: await "
                    "init_beanie(…) before Monque starts"
                ) from error
    engine = sys.modules.get("mongoengine")
    if engine is not None and issubclass(kind, (engine.Document, engine.DynamicDocument)):
        return _of_alias(kind._meta.get("db_alias", "default"))
    exposed = _database_attribute(kind)
    if exposed is not None:
        return exposed
    raise MonqueConnectionError(f"{_describe(kind)} is not a connection to MongoDB; {_EXPECTED}")


def _database_attribute(source: object) -> object:
    """Return the database attribute of an ODM object, if it has one."""
    for attribute in _DATABASE_ATTRIBUTES:
        try:
            exposed = getattr(source, attribute, None)
        except Exception as error:
            raise MonqueConnectionError(
                f"{_describe(source)} has no usable .{attribute}: {_without_secrets(error)}"
            ) from error
        if isinstance(exposed, (Database, AsyncDatabase)) or _is_client(exposed):
            return exposed
        if type(exposed).__module__.startswith("motor."):
            return getattr(exposed, "delegate", None)
    return None


def _is_client(source: object) -> bool:
    if isinstance(source, (MongoClient, AsyncMongoClient)):
        return True
    module = type(source).__module__
    return module.startswith("motor.") and type(source).__name__.endswith("Client")


def _default_database(client: Any) -> object:
    try:
        return client.get_default_database()
    except ConfigurationError as error:
        raise MonqueConnectionError(
            f"{_describe(client)} has no default database: name one in the URI, or pass (client, "
            '"shop")'
        ) from error


def _describe(source: object) -> str:
    """Return a description of a source without secrets."""
    if isinstance(source, str):
        return "a connection string" if "://" in source else repr(source)
    if isinstance(source, type) or inspect.isroutine(source):
        return f"{source.__module__}.{source.__qualname__}"
    if inspect.ismodule(source):
        return f"the module {source.__name__}"
    return f"a {type(source).__module__}.{type(source).__qualname__}"


def _without_secrets(error: Exception) -> str:
    """Return the text of an error without the credentials of a URI in it."""
    text = re.sub(r"://\S+@", "://…@", str(error))
    return f"{type(error).__name__}: {text}"
