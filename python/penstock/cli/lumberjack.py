"""``penstock lumberjack``: the group of the subcommands in the files ``lumberjack_NAME.py``."""

import typer

__all__ = ["commands", "register"]

commands = typer.Typer(
    name="lumberjack",
    help="Lumberjack: receive events from Filebeat and other shippers, or send log lines.",
    no_args_is_help=True,
)
"""The group to which each ``lumberjack_NAME.register`` adds its command."""


def register(app: typer.Typer) -> None:
    """Add ``penstock lumberjack``."""
    app.add_typer(commands)
