"""``penstock pipestream``: the group that its subcommands join, each a file ``pipestream_NAME.py`` of its own."""

import typer

__all__ = ["commands", "register"]

commands = typer.Typer(
    name="pipestream", help="PipeStream over QUIC: a server that keeps what comes, and a sender.", no_args_is_help=True
)
"""Where ``pipestream_NAME.register`` adds its command."""


def register(app: typer.Typer) -> None:
    """Add ``penstock pipestream``."""
    app.add_typer(commands)
