"""`monque doctor`: whether everything is as it should be."""

import typer
from pymongo.errors import OperationFailure

from monque_core.cli import options
from monque_core.cli.connection import Settings, connected, run
from monque_core.cli.examples import examples
from monque_core.cli.exit_codes import REFUSED
from monque_core.cli.findings import PROBLEM, WARNING, Finding
from monque_core.cli.output import coloured, print_json
from monque_core.display import escape
from monque_core.errors import MonqueConnectionError


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=examples("monque doctor", "monque doctor --json"))(doctor)


def doctor(context: typer.Context, as_json: options.Json = False) -> None:
    """Check the server, the indexes, jobs and reactive tasks.

    It changes nothing. The exit code is 1 if there is a problem; a warning is none.
    """
    findings = run(_examine(Settings.of(context)))
    if as_json:
        print_json([finding.record for finding in findings])
    else:
        for finding in findings:
            _tell(finding)
        problems = sum(finding.level == PROBLEM for finding in findings)
        warnings = sum(finding.level == WARNING for finding in findings)
        typer.echo(f"\n{problems} problem(s), {warnings} warning(s)")
    if any(finding.level == PROBLEM for finding in findings):
        raise typer.Exit(REFUSED)


async def _examine(settings: Settings) -> list[Finding]:
    from monque_core.cli.collection_checks import COLLECTION_CHECKS  # noqa: PLC0415  # doctor's own
    from monque_core.cli.reactive_checks import REACTIVE_CHECKS  # noqa: PLC0415  # doctor's own
    from monque_core.cli.server_checks import SERVER_CHECKS  # noqa: PLC0415  # doctor's own

    async with connected(settings) as connection:
        # Before all else, for without an answer there is nothing to check.
        try:
            await connection.db.command("ping")
        except OperationFailure as error:
            raise MonqueConnectionError(f"the server refuses this user: {error}") from error
        return [
            finding
            for check in (*SERVER_CHECKS, *COLLECTION_CHECKS, *REACTIVE_CHECKS)
            for finding in await check(connection.db, settings.collection)
        ]


def _tell(finding: Finding) -> None:
    level = coloured(finding.level, finding.level.ljust(len(PROBLEM)))
    typer.echo(f"{level}  {escape(f'{finding.subject}: {finding.message}')}")
    if finding.advice:
        typer.echo(f"{' ' * len(PROBLEM)}  → {escape(finding.advice)}")
