"""The versions of installed distributions, which only their metadata contains."""

from __future__ import annotations

import importlib.metadata


def installed_version(distribution: str) -> str:
    """Return the version of a distribution."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "of a source tree that is not installed"


__version__ = installed_version("monque-core")
