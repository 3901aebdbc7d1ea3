"""``penstock pimp``: the group that its subcommands join, each a file ``pimp_NAME.py`` of its own."""

import typer

__all__ = ["commands", "register"]

commands = typer.Typer(name="pimp", help="PIMP: results to whoever can only poll.", no_args_is_help=True)
"""Where ``pimp_NAME.register`` adds its command."""


def register(app: typer.Typer) -> None:
    """Add ``penstock pimp``."""
    app.add_typer(commands)
