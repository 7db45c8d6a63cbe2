"""`monque doctor`: health checks."""

import typer
from pymongo.errors import OperationFailure

from monque_core.cli import options
from monque_core.cli.checks import PROBLEM, WARNING, CheckResult
from monque_core.cli.connection import GlobalOptions, connected, run
from monque_core.cli.main import REFUSED
from monque_core.cli.options import examples
from monque_core.cli.output import colored, print_json
from monque_core.display import escape
from monque_core.errors import MonqueConnectionError


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=examples("monque doctor", "monque doctor --json"))(doctor)


def doctor(context: typer.Context, as_json: options.Json = False) -> None:
    """Check the server, indexes, jobs and reactive tasks.

    Changes nothing. The exit code is 1 if there is a problem, and 0 if there are only warnings.
    """
    results = run(_run_checks(GlobalOptions.of(context)))
    if as_json:
        print_json([result.record for result in results])
    else:
        for result in results:
            _print_result(result)
        problems = sum(result.level == PROBLEM for result in results)
        warnings = sum(result.level == WARNING for result in results)
        typer.echo(f"\n{problems} problem(s), {warnings} warning(s)")
    if any(result.level == PROBLEM for result in results):
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
            for check in (*SERVER_CHECKS, *JOB_CHECKS, *REACTIVE_CHECKS)
            for result in await check(connection.db, settings.collection)
        ]


def _print_result(result: CheckResult) -> None:
    level = colored(result.level, result.level.ljust(len(PROBLEM)))
    typer.echo(f"{level}  {escape(f'{result.subject}: {result.message}')}")
    if result.advice:
        typer.echo(f"{' ' * len(PROBLEM)}  → {escape(result.advice)}")
