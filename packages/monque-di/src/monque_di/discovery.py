"""Find the decorated classes of an application."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import TYPE_CHECKING, Any

from monque_di.metadata import ClassMetadata

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import ModuleType


class Discovery:
    """The decorated classes of `jobs=` and `packages=`, without duplicates, `jobs=` first."""

    def __init__(self, jobs: object, packages: object) -> None:
        self.problems: list[str] = []
        listed = [target for target in self._values("jobs", jobs) if self._is_job(target)]
        found = [
            target
            for package in self._values("packages", packages)
            for module in self._modules(package)
            for target in _decorated_in(module)
        ]
        self.classes: list[type] = list(dict.fromkeys([*listed, *found]))

    def _values(self, option: str, values: object) -> Iterable[Any]:
        if values is None:
            return ()
        if isinstance(values, (list, tuple, set, frozenset)):
            return values
        self.problems.append(f"{option} → expected a list, not {values!r}")
        return ()

    def _is_job(self, target: object) -> bool:
        if isinstance(target, type) and ClassMetadata.of(target) is not None:
            return True
        self.problems.append(f"jobs → {_explain(target)}")
        return False

    def _modules(self, package: object) -> Iterator[ModuleType]:
        """Import a package and everything in it."""
        if inspect.ismodule(package):
            yield from self._with_inner(package)
        elif isinstance(package, str):
            yield from self._with_inner(self._imported(package))
        else:
            self.problems.append(f"packages → {package!r} is neither a package nor a package name")

    def _with_inner(self, module: ModuleType | None) -> Iterator[ModuleType]:
        if module is None:
            return
        yield module
        for found in pkgutil.iter_modules(getattr(module, "__path__", ())):
            # Importing a `__main__` module runs it.
            if found.name != "__main__":
                yield from self._with_inner(self._imported(f"{module.__name__}.{found.name}"))

    def _imported(self, name: str) -> ModuleType | None:
        try:
            return importlib.import_module(name)
        except (Exception, SystemExit) as error:  # noqa: BLE001  # a module may raise anything
            reason = f"{type(error).__name__}: {error}"
            self.problems.append(f"packages → {name} cannot be imported: {reason}")
            return None


def _decorated_in(module: ModuleType) -> list[type]:
    """Return the decorated classes that a module defines itself."""
    return [
        member
        for member in list(vars(module).values())
        if isinstance(member, type)
        and member.__module__ == module.__name__
        and ClassMetadata.of(member) is not None
    ]


def _explain(target: object) -> str:
    if not isinstance(target, type):
        return f"{target!r} is not a class"
    for base in target.__mro__[1:]:
        if ClassMetadata.of(base) is not None:
            return (
                f"{target.__qualname__} is not decorated, only its base {base.__qualname__} is: "
                "decorate it too, or list the base"
            )
    return f"{target.__qualname__} has neither @job nor @job_controller"
