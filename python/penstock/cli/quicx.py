"""``penstock quicx``: the group of the subcommands in the files ``quicx_NAME.py``."""

import typer

__all__ = ["commands", "register"]

commands = typer.Typer(
    name="quicx", help="Quicx: a task queue that uses a fixed amount of memory.", no_args_is_help=True
)
"""The group to which each ``quicx_NAME.register`` adds its command."""


def register(app: typer.Typer) -> None:
    """Add ``penstock quicx``."""
    app.add_typer(commands)
