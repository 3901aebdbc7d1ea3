"""``penstock pipestream``: the group of the subcommands in the files ``pipestream_NAME.py``."""

import typer

__all__ = ["commands", "register"]

commands = typer.Typer(
    name="pipestream",
    help="PipeStream over QUIC: receive documents, send them, list claim checks.",
    no_args_is_help=True,
)
"""The group to which each ``pipestream_NAME.register`` adds its command."""


def register(app: typer.Typer) -> None:
    """Add ``penstock pipestream``."""
    app.add_typer(commands)
