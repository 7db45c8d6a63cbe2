"""What the `__init__` of a package exports at the first use only: names, and its version."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def lazy_exports(
    package: str, names: Mapping[str, Sequence[str]], *, distribution: str | None = None
) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package.

    `names` are the names to take from each module. With a `distribution`, the package has its
    `__version__`, too, for which reading the metadata takes some milliseconds.
    """
    modules = {name: module for module, exported in names.items() for name in exported}

    def find_name(name: str) -> Any:
        if name == "__version__" and distribution is not None:
            value: Any = _installed_version(distribution)
        elif name in modules:
            value = getattr(importlib.import_module(modules[name]), name)
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        # The next use finds the name in the package itself.
        setattr(sys.modules[package], name, value)
        return value

    return find_name


def _installed_version(distribution: str) -> str:
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415  # slow

    try:
        return version(distribution)
    except PackageNotFoundError:
        return "of a source tree that is not installed"
