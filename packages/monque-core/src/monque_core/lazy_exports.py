"""Public names of a package whose modules are imported at the first use of a name."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def lazy_exports(package: str, names: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package; `names` are the names to take from each module."""
    modules = {name: module for module, exported in names.items() for name in exported}

    def import_name(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(modules[name]), name)
        # The next use finds the name in the package itself.
        setattr(sys.modules[package], name, value)
        return value

    return import_name
