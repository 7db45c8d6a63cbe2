"""Forming a replica set of nodes."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError

from monque_core.errors import MonqueConnectionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monque_core.local.node import Node

NAME = "monque"

_READY_SECONDS = 60.0
_LOOK_SECONDS = 0.02
_ALREADY_INITIALIZED = 23
_NOT_YET_INITIALIZED = 94


def form(nodes: Sequence[Node]) -> None:
    """Form a replica set; return when one node is a writable primary and the others secondaries.

    Nodes that were members before keep their data, also if their ports have changed.
    """
    with ExitStack() as stack:
        clients = [stack.enter_context(_connect(node)) for node in nodes]
        _configure(clients[0], [node.address for node in nodes])
        _wait_until_ready(clients)


def _connect(node: Node) -> MongoClient[dict[str, Any]]:
    return MongoClient(
        node.address,
        directConnection=True,
        serverSelectionTimeoutMS=5000,
        socketTimeoutMS=30000,
    )


def _configure(client: MongoClient[dict[str, Any]], addresses: list[str]) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while True:
        try:
            stored = _stored_config(client)
            if stored is None:
                client.admin.command("replSetInitiate", _config(addresses, version=1))
            elif [member["host"] for member in stored["members"]] != addresses:
                # No majority of the old addresses exists, so the change must be forced.
                config = _config(addresses, version=stored["version"] + 1)
                client.admin.command("replSetReconfig", config, force=True)
        except OperationFailure as error:
            # A server that is still loading its configuration returns both errors in turn.
            loading = error.code in (_ALREADY_INITIALIZED, _NOT_YET_INITIALIZED)
            if not loading or time.monotonic() > deadline:
                raise MonqueConnectionError(
                    f"cannot form a replica set of {', '.join(addresses)}: {error}"
                ) from error
            time.sleep(_LOOK_SECONDS)
        else:
            return


def _stored_config(client: MongoClient[dict[str, Any]]) -> dict[str, Any] | None:
    try:
        config: dict[str, Any] = client.admin.command("replSetGetConfig")["config"]
    except OperationFailure as error:
        if error.code != _NOT_YET_INITIALIZED:
            raise
        return None
    return config


def _config(addresses: list[str], version: int) -> dict[str, Any]:
    config: dict[str, Any] = {
        "_id": NAME,
        "version": version,
        "members": [{"_id": i, "host": address} for i, address in enumerate(addresses)],
    }
    if len(addresses) > 1:
        config["settings"] = {"electionTimeoutMillis": 1000, "heartbeatIntervalMillis": 250}
    return config


def _wait_until_ready(clients: Sequence[MongoClient[dict[str, Any]]]) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while True:
        roles = [_role(client) for client in clients]
        if sorted(roles) == ["primary", *["secondary"] * (len(roles) - 1)]:
            return
        if time.monotonic() > deadline:
            raise MonqueConnectionError(
                f"the replica set is not ready after {_READY_SECONDS:.0f} s; "
                f"its nodes are {', '.join(roles)}"
            )
        time.sleep(_LOOK_SECONDS)


def _role(client: MongoClient[dict[str, Any]]) -> str:
    try:
        hello = client.admin.command("hello")
    except PyMongoError as error:
        return f"unreachable ({error})"
    if hello["isWritablePrimary"]:
        return "primary"
    return "secondary" if hello.get("secondary") else "not ready"
