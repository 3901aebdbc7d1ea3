"""``penstock lumberjack``: the group of the subcommands in the files ``lumberjack_NAME.py``."""

import typer

__all__ = ["commands", "register"]

commands = typer.Typer(
    name="lumberjack", help="Lumberjack: events from Filebeat and its relatives, and to them.", no_args_is_help=True
)
"""The group to which each ``lumberjack_NAME.register`` adds its command."""


def register(app: typer.Typer) -> None:
    """Add ``penstock lumberjack``."""
    app.add_typer(commands)
