"""`monque local`: a MongoDB server for development."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from monque_core.cli.connection import GlobalOptions
from monque_core.cli.options import examples
from monque_core.cli.output import print_notice
from monque_core.local import LocalMongo
from monque_core.process import stop_requests


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog=examples(
            "monque local --port 27017 --path mongo-data",
            "export MONQUE_URI='mongodb://127.0.0.1:27017/monque?replicaSet=monque'",
        )
    )(local)


def local(
    context: typer.Context,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="First port; 0 picks a free one.")
    ] = 0,
    path: Annotated[
        Path | None,
        typer.Option(show_default=False, help="Data directory; temporary by default."),
    ] = None,
    replicas: Annotated[int, typer.Option(min=1, max=7, help="Number of replica set members.")] = 1,
) -> None:
    """Run a MongoDB for development until Ctrl-C.

    Prints its URI. Needs a mongod executable: from MONQUE_MONGOD, from PATH, or from the extra
    monque-core[local].
    """
    try:
        mongo = LocalMongo(replicas, path, port)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    asyncio.run(_serve(mongo, GlobalOptions.of(context).database or "monque"))


async def _serve(mongo: LocalMongo, database: str) -> None:
    with stop_requests() as stop_requested:
        async with mongo:
            typer.echo(mongo.uri.replace("/?", f"/{database}?"))
            print_notice("MongoDB is running; press Ctrl-C to stop it")
            await stop_requested.wait()
