"""``penstock lumberjack``: the group that its subcommands join, each a file ``lumberjack_NAME.py`` of its own."""

import typer

__all__ = ["commands", "register"]

commands = typer.Typer(
    name="lumberjack", help="Lumberjack: events from Filebeat and its relatives, and to them.", no_args_is_help=True
)
"""Where ``lumberjack_NAME.register`` adds its command."""


def register(app: typer.Typer) -> None:
    """Add ``penstock lumberjack``."""
    app.add_typer(commands)
