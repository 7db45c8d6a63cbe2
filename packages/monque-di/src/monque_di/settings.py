"""The `options` of a `MonqueContainer`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from monque_core import JobRetention, MonqueOptions
from monque_core.validation import check_flag, unknown_option

_OWN = ("enabled", "process_jobs")


@dataclass(frozen=True, slots=True)
class Settings:
    """The container's own options, and the options that it passes to `Monque`."""

    enabled: bool = True
    process_jobs: bool = True
    options: MonqueOptions = field(default_factory=MonqueOptions)

    @classmethod
    def parse(cls, given: object) -> Settings:
        """Check all names and our own values; `Monque` checks the rest."""
        if given is None:
            given = {}
        if not isinstance(given, Mapping):
            raise TypeError(
                f"options must be a dict or a Configuration provider, not {type(given).__name__}"
            )
        known = [*_OWN, *MonqueOptions.__annotations__]
        for name in given:
            if name not in known:
                raise unknown_option(name, known)
        options: dict[str, Any] = {name: given[name] for name in given if name not in _OWN}
        if isinstance(options.get("job_retention"), Mapping):
            options["job_retention"] = JobRetention(**options["job_retention"])
        enabled, process_jobs = (check_flag(name, given.get(name, True)) for name in _OWN)
        return cls(enabled, process_jobs, cast("MonqueOptions", options))
