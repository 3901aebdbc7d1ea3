"""``penstock pimp``: the group of the subcommands in the files ``pimp_NAME.py``."""

import typer

__all__ = ["commands", "register"]

commands = typer.Typer(name="pimp", help="PIMP: deliver results to clients that can only poll.", no_args_is_help=True)
"""The group to which each ``pimp_NAME.register`` adds its command."""


def register(app: typer.Typer) -> None:
    """Add ``penstock pimp``."""
    app.add_typer(commands)
