"""``penstock quicx``: the group that its subcommands join, each a file ``quicx_NAME.py`` of its own."""

import typer

__all__ = ["commands", "register"]

commands = typer.Typer(name="quicx", help="Quicx: a task queue in fixed memory.", no_args_is_help=True)
"""Where ``quicx_NAME.register`` adds its command."""


def register(app: typer.Typer) -> None:
    """Add ``penstock quicx``."""
    app.add_typer(commands)
