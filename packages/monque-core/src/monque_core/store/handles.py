"""The kinds of database handles and sessions that users pass in."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.client_session import ClientSession
from pymongo.database import Database

if TYPE_CHECKING:
    from monque_core.store.driver import Document, Session


def unwrap_database(database: object) -> AsyncDatabase[Document] | Database[Document]:
    """Return PyMongo's database behind a PyMongo or Motor database."""
    if isinstance(database, (AsyncDatabase, Database)):
        return database
    with suppress(Exception):
        # Only of Motor's own classes: other objects may have any attribute, such as a child
        # collection named "delegate".
        if type(database).__module__.split(".")[0] == "motor":
            delegate = getattr(database, "delegate", None)
            if isinstance(delegate, Database):
                return delegate
    raise TypeError(
        "db must be a PyMongo AsyncDatabase, a PyMongo Database or a Motor database, "
        f"not {type(database).__module__}.{type(database).__qualname__}"
        + (
            "; call client['name'] or client.get_default_database() for a database"
            if "Client" in type(database).__name__
            else ""
        )
    )


def native_session(session: object) -> Session | None:
    """Return PyMongo's session behind a PyMongo or Motor session."""
    if session is None or isinstance(session, (AsyncClientSession, ClientSession)):
        return session
    delegate = getattr(session, "delegate", None)
    if isinstance(delegate, ClientSession):
        return delegate
    raise TypeError(
        f"session must be a PyMongo or Motor client session, not {type(session).__name__}"
    )
