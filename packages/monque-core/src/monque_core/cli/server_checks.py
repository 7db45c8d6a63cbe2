"""The checks of `monque doctor` for the MongoDB server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pymongo.errors import OperationFailure

from monque_core.cli.doctor import CheckResult, check, ok, problem, warning
from monque_core.cli.times import format_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monque_core.cli.doctor import Check, Database

_OLDEST_SERVER = [6, 0]
_SMALL_OFFSET = timedelta(seconds=2)


@check("server")
async def check_version(db: Database, _collection: str) -> list[CheckResult]:
    """Check the server version."""
    build = await db.command("buildInfo")
    version = f"MongoDB {build['version']}"
    if build["versionArray"][:2] < _OLDEST_SERVER:
        return [problem(version, "upgrade to MongoDB 6.0 or newer")]
    return [ok(version)]


@check("topology")
async def check_topology(db: Database, _collection: str) -> list[CheckResult]:
    """Check that there are change streams, transactions and a primary."""
    hello = await db.command("hello")
    if hello.get("msg") == "isdbgrid":
        return [ok("a sharded cluster")]
    if "setName" not in hello:
        advice = "convert it to a replica set, even with one member; see docs/production.md"
        message = "a standalone server: no change streams, so workers poll, and no transactions"
        return [warning(message, advice)]
    members = len(hello.get("hosts", []))
    message = f"the replica set {hello['setName']} with {members} member(s)"
    if not hello.get("isWritablePrimary"):
        advice = "remove directConnection from the URI, and list all members in it"
        return [problem(f"{message}, and this member is not the primary", advice)]
    return [ok(message)]


@check("write concern")
async def check_write_concern(db: Database, _collection: str) -> list[CheckResult]:
    """Check that a write survives the loss of the primary."""
    concern: dict[str, Any] = db.write_concern.document or await _default_write_concern(db)
    if not concern:
        return [ok("the server's default")]
    words = ", ".join(f"{key}: {value}" for key, value in concern.items())
    advice = "remove w from the URI, or set it to majority"
    if concern.get("w", "majority") == 1 and "setName" in await db.command("hello"):
        message = f"{words}: a failover can lose jobs and outcomes"
        return [warning(message, advice)]
    return [ok(words)]


async def _default_write_concern(db: Database) -> dict[str, Any]:
    """Return the default of the cluster; empty if it cannot be read."""
    try:
        defaults = await db.client.admin.command("getDefaultRWConcern")
    except OperationFailure:
        # A standalone server has none, and the user may lack the right to read it.
        return {}
    concern: dict[str, Any] = defaults.get("defaultWriteConcern") or {}
    return {key: value for key, value in concern.items() if key == "w"}


@check("clock")
async def check_clock(db: Database, _collection: str) -> list[CheckResult]:
    """Check that this machine and the server agree on the time."""
    asked = datetime.now(UTC)
    server: datetime = (await db.command("hello"))["localTime"]
    answered = datetime.now(UTC)
    offset = server.astimezone(UTC) - (asked + (answered - asked) / 2)
    which = "ahead of" if offset > timedelta() else "behind"
    message = f"the server is {format_duration(offset)} {which} this machine"
    if abs(offset) > _SMALL_OFFSET:
        advice = "monque uses the clock of the server; run NTP on both"
        return [warning(message, advice)]
    return [ok(message)]


SERVER_CHECKS: Final[Sequence[Check]] = (
    check_version,
    check_topology,
    check_write_concern,
    check_clock,
)
