"""The Typer application with all commands."""

from typing import Annotated

import typer

from monque_core import __version__
from monque_core.cli import doctor, jobs, local, reactive, schedules, stats, top, worker
from monque_core.cli.connection import GlobalOptions
from monque_core.cli.options import examples

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:  # as typer calls it
    if wanted:
        typer.echo(f"monque {__version__}")
        raise typer.Exit


@app.callback(
    epilog=examples(
        "export MONQUE_URI='mongodb://localhost/shop?replicaSet=rs0'",
        "monque worker shop.jobs:monque --processes 4",
        "monque jobs list --status failed",
        "monque top",
        heading="Start with",
    )
)
def begin(
    context: typer.Context,
    uri: Annotated[
        str | None,
        typer.Option(envvar="MONQUE_URI", show_envvar=True, help="Connection string of MongoDB."),
    ] = None,
    database: Annotated[
        str | None,
        typer.Option(
            envvar="MONQUE_DATABASE", help="Database name; by default the one in the URI."
        ),
    ] = None,
    collection: Annotated[
        str, typer.Option(envvar="MONQUE_COLLECTION", help="Collection of the jobs.")
    ] = "monque_jobs",
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Run, watch and manage monque jobs.

    Exit codes: 0 success, 1 not found or not possible, 2 wrong usage, 3 no connection to MongoDB.
    """
    context.obj = GlobalOptions(uri, database, collection)


app.add_typer(jobs.app, name="jobs")
app.add_typer(reactive.app, name="reactive")
for module in (worker, schedules, stats, top, doctor, local):
    module.add_to(app)
