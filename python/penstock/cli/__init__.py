"""The command ``penstock``.

Every subcommand is a module of this package with a function ``register(app)`` that adds it; modules with a leading
underscore are helpers. Subcommands use only the public classes of penstock, and import heavy modules (Spark, the Rust
core) when they run, not when they are listed.

Exit codes: 0 success; 1 the job failed, with the reason in one line on stderr; 2 the command line is wrong.
"""

import sys
from importlib import import_module
from pkgutil import iter_modules
from typing import Annotated

import typer

from penstock.errors import Error

__all__ = ["app", "main"]

app = typer.Typer(
    name="penstock",
    help="Split documents on Spark, send the parts over QUIC, verify that all arrived.",
    no_args_is_help=True,
    add_completion=False,
    # A traceback means a bug in penstock, and is printed in Python's usual form.
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from penstock import __version__

        typer.echo(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass


for _module in iter_modules(__path__):
    if not _module.name.startswith("_"):
        import_module(f"{__name__}.{_module.name}").register(app)


def main() -> None:
    """Run the command line of this process and exit."""
    try:
        app()
    except (Error, OSError) as error:
        typer.echo(f"penstock: {' '.join(str(error).split())}", err=True)
        sys.exit(1)
