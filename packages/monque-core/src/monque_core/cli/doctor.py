"""`monque doctor`: health checks, and the results that they return."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import typer
from pymongo.errors import OperationFailure

from monque_core.cli import options
from monque_core.cli.connection import GlobalOptions, connected, run
from monque_core.cli.main import REFUSED
from monque_core.cli.output import colored, print_json
from monque_core.display import escape
from monque_core.errors import MonqueConnectionError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pymongo.asynchronous.database import AsyncDatabase

    Database: TypeAlias = AsyncDatabase[dict[str, Any]]

_WIDTH = len("problem")


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check: a level, a message, and advice for what to do."""

    level: Literal["ok", "warning", "problem"]
    message: str
    advice: str | None = None
    subject: str = ""
    """What was checked; `check` sets it."""

    @property
    def record(self) -> dict[str, str]:
        """Return it as a JSON object."""
        return {key: value for key, value in asdict(self).items() if value is not None}


Check: TypeAlias = "Callable[[Database, str], Awaitable[list[CheckResult]]]"


def ok(message: str) -> CheckResult:
    """Return the result of a check that found nothing."""
    return CheckResult("ok", message)


def warning(message: str, advice: str | None = None) -> CheckResult:
    """Return the result of a check that found what may become a problem."""
    return CheckResult("warning", message, advice)


def problem(message: str, advice: str) -> CheckResult:
    """Return the result of a check that found a problem."""
    return CheckResult("problem", message, advice)


def check(subject: str) -> Callable[[Check], Check]:
    """Name the subject of the results of a check.

    A permission error of the server becomes a warning, since the user may lack rights.
    """

    def wrap(run_check: Check) -> Check:
        @wraps(run_check)
        async def guarded(db: Database, collection: str) -> list[CheckResult]:
            try:
                results = await run_check(db, collection)
            except OperationFailure as error:
                reason = (error.details or {}).get("errmsg") or str(error)
                results = [warning(f"not checked, the server refused: {reason}")]
            return [replace(result, subject=subject) for result in results]

        return guarded

    return wrap


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=options.examples("monque doctor", "monque doctor --json"))(doctor)


def doctor(context: typer.Context, as_json: options.Json = False) -> None:
    """Check the server, indexes, jobs and reactive tasks.

    Changes nothing. The exit code is 1 if there is a problem, and 0 if there are only warnings.
    """
    results = run(_run_checks(GlobalOptions.of(context)))
    problems = sum(result.level == "problem" for result in results)
    warnings = sum(result.level == "warning" for result in results)
    if as_json:
        print_json([result.record for result in results])
    else:
        for result in results:
            _print_result(result)
        typer.echo(f"\n{problems} problem(s), {warnings} warning(s)")
    if problems:
        raise typer.Exit(REFUSED)


async def _run_checks(settings: GlobalOptions) -> list[CheckResult]:
    from monque_core.cli.job_checks import JOB_CHECKS  # noqa: PLC0415  # only for this command
    from monque_core.cli.reactive_checks import REACTIVE_CHECKS  # noqa: PLC0415  # only for this command
    from monque_core.cli.server_checks import SERVER_CHECKS  # noqa: PLC0415  # only for this command

    async with connected(settings) as connection:
        # Fail early if there is no connection.
        try:
            await connection.db.command("ping")
        except OperationFailure as error:
            raise MonqueConnectionError(f"the server rejected this user: {error}") from error
        return [
            result
            for run_check in (*SERVER_CHECKS, *JOB_CHECKS, *REACTIVE_CHECKS)
            for result in await run_check(connection.db, settings.collection)
        ]


def _print_result(result: CheckResult) -> None:
    level = colored(result.level, result.level.ljust(_WIDTH))
    typer.echo(f"{level}  {escape(f'{result.subject}: {result.message}')}")
    if result.advice:
        typer.echo(f"{' ' * _WIDTH}  → {escape(result.advice)}")
