"""Which step in the lifecycle of a job a command takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def claims(command: Mapping[str, Any]) -> bool:
    """Return whether a command claims jobs."""
    return any(
        condition.get("status") == "pending" and "claimedBy" in condition
        for condition, _ in _writes(command)
    )


def claims_together(command: Mapping[str, Any]) -> bool:
    """Return whether a command claims several jobs."""
    return "updates" in command and claims(command)


def renews(command: Mapping[str, Any]) -> bool:
    """Return whether a command renews claims."""
    return any(
        "lastHeartbeat" in changes and "status" not in changes for _, changes in _writes(command)
    )


def settles(command: Mapping[str, Any]) -> bool:
    """Return whether a command writes outcomes."""
    return any(
        changes.get("status") in ("completed", "failed", "pending") and "claimToken" in condition
        for condition, changes in _writes(command)
    )


def releases(command: Mapping[str, Any]) -> bool:
    """Return whether a command hands claims back."""
    return any(
        changes.get("status") == "pending"
        and "nextRunAt" not in changes
        and "claimToken" in condition
        for condition, changes in _writes(command)
    )


def _writes(command: Mapping[str, Any]) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Return the filter and the new values of each update in a command."""
    pairs = [(one["q"], one["u"]) for one in command.get("updates", ())]
    if "findAndModify" in command and "update" in command:
        pairs.append((command["query"], command["update"]))
    return [
        (condition, change[0]["$set"] if isinstance(change, list) else change.get("$set", {}))
        for condition, change in pairs
    ]
