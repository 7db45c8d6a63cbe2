"""What `monque doctor` asks the server about itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pymongo.errors import OperationFailure

from monque_core.cli.findings import OK, PROBLEM, WARNING, Finding, check
from monque_core.cli.times import brief

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monque_core.cli.findings import Check, Database

_OLDEST_SERVER = [6, 0]
_SMALL_OFFSET = timedelta(seconds=2)


@check("server")
async def check_version(db: Database, _collection: str) -> list[Finding]:
    """Ask whether the server is new enough."""
    build = await db.command("buildInfo")
    version = f"MongoDB {build['version']}"
    if build["versionArray"][:2] < _OLDEST_SERVER:
        return [Finding(PROBLEM, "server", version, "upgrade to MongoDB 6.0 or newer")]
    return [Finding(OK, "server", version)]


@check("topology")
async def check_topology(db: Database, _collection: str) -> list[Finding]:
    """Ask whether there are change streams and transactions, and a primary."""
    hello = await db.command("hello")
    if hello.get("msg") == "isdbgrid":
        return [Finding(OK, "topology", "a sharded cluster")]
    if "setName" not in hello:
        advice = "make it a replica set, of one member if need be: see docs/production.md"
        message = "a standalone server: workers poll, and there are no transactions"
        return [Finding(WARNING, "topology", message, advice)]
    members = len(hello.get("hosts", []))
    message = f"the replica set {hello['setName']} with {members} member(s)"
    if not hello.get("isWritablePrimary"):
        advice = "leave directConnection out of the URI, and name all members in it"
        return [Finding(PROBLEM, "topology", f"{message}, and this one is no primary", advice)]
    return [Finding(OK, "topology", message)]


@check("write concern")
async def check_write_concern(db: Database, _collection: str) -> list[Finding]:
    """Ask whether a write survives the loss of the primary."""
    concern: dict[str, Any] = db.write_concern.document or await _default_write_concern(db)
    if not concern:
        return [Finding(OK, "write concern", "the server's default")]
    words = ", ".join(f"{key}: {value}" for key, value in concern.items())
    advice = "leave w out of the URI, or make it majority"
    if concern.get("w", "majority") == 1 and "setName" in await db.command("hello"):
        message = f"{words}: a failover can lose jobs and outcomes"
        return [Finding(WARNING, "write concern", message, advice)]
    return [Finding(OK, "write concern", words)]


async def _default_write_concern(db: Database) -> dict[str, Any]:
    """Give the cluster's default, or nothing where it cannot be asked for."""
    try:
        defaults = await db.client.admin.command("getDefaultRWConcern")
    except OperationFailure:
        # A standalone server has none, and not every user may ask.
        return {}
    concern: dict[str, Any] = defaults.get("defaultWriteConcern") or {}
    return {key: value for key, value in concern.items() if key == "w"}


@check("clock")
async def check_clock(db: Database, _collection: str) -> list[Finding]:
    """Ask whether this machine and the server agree on the time."""
    asked = datetime.now(UTC)
    server: datetime = (await db.command("hello"))["localTime"]
    answered = datetime.now(UTC)
    offset = server.astimezone(UTC) - (asked + (answered - asked) / 2)
    which = "ahead of" if offset > timedelta() else "behind"
    message = f"the server is {brief(offset)} {which} this machine"
    if abs(offset) > _SMALL_OFFSET:
        advice = "Monque goes by the server's clock; keep NTP running on both"
        return [Finding(WARNING, "clock", message, advice)]
    return [Finding(OK, "clock", message)]


SERVER_CHECKS: Final[Sequence[Check]] = (
    check_version,
    check_topology,
    check_write_concern,
    check_clock,
)
