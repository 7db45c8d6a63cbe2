"""The version of an installed distribution."""

from __future__ import annotations

import importlib.metadata


def installed_version(distribution: str) -> str:
    """Return the version of a distribution, which only its metadata holds."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "of a source tree that is not installed"
