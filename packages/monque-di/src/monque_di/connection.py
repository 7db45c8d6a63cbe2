"""Finding the native PyMongo database behind what an application has."""

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
from monque_di.task_context import is_pending

if TYPE_CHECKING:
    from types import ModuleType

NativeDatabase: TypeAlias = AsyncDatabase[Any] | Database[Any]

_EXPECTED = (
    "expected is one of: a PyMongo Database or AsyncDatabase; a client with the name of a "
    'database, as (client, "shop"); MongoEngine by an alias, by mongoengine.connection or by a '
    "Document class; a Motor database; an initialized Beanie Document; or a provider or function "
    "that gives one of these"
)
_DATABASE_ATTRIBUTES = ("db", "database", "delegate")
_LONGEST_WAY = 5


async def resolve_database(source: object) -> NativeDatabase:
    """Give the native PyMongo database behind a handle, an ODM, a provider or a factory.

    Raises `MonqueConnectionError` that tells what came and what would do. What the application
    connected is used as it is and never closed.
    """
    found = source
    for _ in range(_LONGEST_WAY):
        if isinstance(found, (Database, AsyncDatabase)):
            return found
        try:
            found = await _step(found)
        except PyMongoError as error:
            raise MonqueConnectionError(
                f"the connection {_shown(source)} cannot be used: {_without_secrets(error)}"
            ) from error
    raise MonqueConnectionError(
        f"the connection {_shown(source)} leads from one thing to the next and to no database; "
        f"{_EXPECTED}"
    )


async def _step(source: Any) -> object:
    """Go from a source to the database, or to what is nearer to it."""
    if source is None:
        raise MonqueConnectionError(f"no connection was given; {_EXPECTED}")
    if isinstance(source, str):
        return _of_alias(source)
    if isinstance(source, providers.Dependency):
        return source.last_overriding or source.default
    if isinstance(source, providers.Object):
        return source.provides
    if isinstance(source, (tuple, list)):
        return _of_several(source)
    if inspect.ismodule(source):
        return _of_module(source)
    if _is_client(source):
        return _default_database(source)
    if isinstance(source, type):
        return _of_class(source)
    if isinstance(source, providers.Provider) or inspect.isroutine(source):
        return await _made_by(source)
    exposed = _exposed_by(source)
    if exposed is not None:
        return exposed
    if callable(source):
        return await _made_by(source)
    raise MonqueConnectionError(f"{_shown(source)} is no connection to MongoDB; {_EXPECTED}")


async def _made_by(make: Any) -> object:
    """Call a provider or factory and wait for what it gives."""
    if inspect.isgeneratorfunction(make) or inspect.isasyncgenfunction(make):
        raise MonqueConnectionError(
            f"{_shown(make)} is a generator function, and who would close what it opens? write "
            "connection=providers.Resource(…) around it"
        )
    try:
        made = make()
        if is_pending(made) or inspect.isawaitable(made):
            made = await made
    except MonqueConnectionError:
        raise
    except Exception as error:
        raise MonqueConnectionError(
            f"the connection cannot be had from {_shown(make)}: {_without_secrets(error)}"
        ) from error
    if made is None:
        raise MonqueConnectionError(f"{_shown(make)} gave None for a connection; {_EXPECTED}")
    return made


def _of_alias(alias: str) -> object:
    if "://" in alias:
        raise MonqueConnectionError(
            "a connection string is no connection: make a client of it, for example "
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


def _of_several(sources: tuple[Any, ...] | list[Any]) -> object:
    match sources:
        case [client, str(name)] if _is_client(client):
            return client[name]
        case []:
            raise MonqueConnectionError(f"no connection was given; {_EXPECTED}")
    shown = ", ".join(_shown(source) for source in sources)
    raise MonqueConnectionError(
        f"one connection is expected and {len(sources)} came: {shown}; {_EXPECTED}"
    )


def _of_module(module: ModuleType) -> object:
    if module.__name__ in {"mongoengine", "mongoengine.connection"}:
        return _of_alias("default")
    raise MonqueConnectionError(f"{_shown(module)} is no connection to MongoDB; {_EXPECTED}")


def _of_class(kind: Any) -> object:
    """Ask a document class of MongoEngine or Beanie for its database."""
    for ask in ("get_pymongo_collection", "get_motor_collection"):
        if hasattr(kind, ask):
            try:
                return getattr(kind, ask)().database
            except Exception as error:
                raise MonqueConnectionError(
                    f"the Beanie document {_shown(kind)} is not initialized: await "
                    "init_beanie(…) before Monque starts"
                ) from error
    engine = sys.modules.get("mongoengine")
    if engine is not None and issubclass(kind, (engine.Document, engine.DynamicDocument)):
        return _of_alias(kind._meta.get("db_alias", "default"))
    exposed = _exposed_by(kind)
    if exposed is not None:
        return exposed
    raise MonqueConnectionError(f"{_shown(kind)} is no connection to MongoDB; {_EXPECTED}")


def _exposed_by(source: object) -> object:
    """Give the database that an object of some other ODM shows."""
    for attribute in _DATABASE_ATTRIBUTES:
        try:
            exposed = getattr(source, attribute, None)
        except Exception as error:
            raise MonqueConnectionError(
                f"{_shown(source)} does not give its .{attribute}: {_without_secrets(error)}"
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
            f'{_shown(client)} names no database: give one in its URI, or both, as (client, "shop")'
        ) from error


def _shown(source: object) -> str:
    """Name a source without a password that its text may hold."""
    if isinstance(source, str):
        return "a connection string" if "://" in source else repr(source)
    if isinstance(source, type) or inspect.isroutine(source):
        return f"{source.__module__}.{source.__qualname__}"
    if inspect.ismodule(source):
        return f"the module {source.__name__}"
    return f"a {type(source).__module__}.{type(source).__qualname__}"


def _without_secrets(error: Exception) -> str:
    """Give the text of an error without the user and password of a URI in it."""
    text = re.sub(r"://\S+@", "://…@", str(error))
    return f"{type(error).__name__}: {text}"
