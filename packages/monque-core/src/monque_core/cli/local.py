"""`monque local`: a MongoDB of your own."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from monque_core.cli.connection import Settings
from monque_core.cli.examples import examples
from monque_core.cli.output import say
from monque_core.cli.stopping import stop_requests
from monque_core.local import LocalMongo


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
        int, typer.Option(min=0, max=65535, help="The first port; 0 takes a free one.")
    ] = 0,
    path: Annotated[
        Path | None,
        typer.Option(show_default=False, help="Where the data stays; else it is temporary."),
    ] = None,
    replicas: Annotated[int, typer.Option(min=1, max=7, help="How many servers.")] = 1,
) -> None:
    """Run a MongoDB for development until Ctrl-C, and print its URI.

    It needs a mongod: that of MONQUE_MONGOD, of PATH, or of the extra monque-core[local].
    """
    try:
        mongo = LocalMongo(replicas, path, port)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    asyncio.run(_serve(mongo, Settings.of(context).database or "monque"))


async def _serve(mongo: LocalMongo, database: str) -> None:
    with stop_requests() as stop_requested:
        async with mongo:
            typer.echo(mongo.uri.replace("/?", f"/{database}?"))
            say("MongoDB is running; Ctrl-C ends it")
            await stop_requested.wait()
