"""``penstock demo``: the whole pipeline on this machine, with real documents."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli._interrupt import interruptible
from penstock.errors import SparkError

__all__ = ["register"]

_PLAIN_WIDTH = 120


def _demo(
    documents: Annotated[
        Path | None,
        typer.Option(
            help="Directory of documents, or one document; default: samples downloaded with pip.", exists=True
        ),
    ] = None,
    logs: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Additional log file to ship, besides those of the sink and of Spark; repeatable.",
            exists=True,
        ),
    ] = None,
    output: Annotated[Path, typer.Option(help="Output directory.", file_okay=False)] = Path("demo-output"),
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open the composites in a browser.")] = False,
) -> None:
    """Split real documents on local Spark, send every part over QUIC to a sink, reassemble them, and verify.

    Exits with 0 only if every document is accounted for: every part has a status, and a reason unless it is COMPLETE,
    and every receipt matches the bytes in the sink.
    """
    from rich.console import Console

    try:
        from penstock._demo import run
    except ModuleNotFoundError as error:
        raise SparkError(f"the demo requires the package {error.name}: pip install 'penstock[spark]'") from error
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PLAIN_WIDTH)
    # The sink is a separate process, which must not outlive the command.
    with interruptible():
        outcome = run(documents, output, console, logs, opens=not no_open)
    if outcome.problems:
        more = f" (and {len(outcome.problems) - 1} more)" if len(outcome.problems) > 1 else ""
        typer.echo(f"penstock: not everything is accounted for: {outcome.problems[0]}{more}", err=True)
        raise typer.Exit(1)


def register(app: typer.Typer) -> None:
    """Add ``penstock demo``."""
    app.command("demo")(_demo)
