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
            help="A folder of documents (or one document); by default some are fetched through pip.", exists=True
        ),
    ] = None,
    logs: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Ship this log too; those of the sink and of Spark always are.", exists=True),
    ] = None,
    output: Annotated[Path, typer.Option(help="Where everything is written.", file_okay=False)] = Path("demo-output"),
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not have a browser show the composites.")] = False,
) -> None:
    """Take real documents apart on local Spark, send every part over QUIC to a sink, put them together, and verify.

    Exits with 0 only if every document is accounted for: every part has a status, and a reason unless it is COMPLETE,
    and every receipt agrees with the bytes in the sink.
    """
    from rich.console import Console

    try:
        from penstock._demo import run
    except ModuleNotFoundError as error:
        raise SparkError(f"the demo needs the package {error.name}: pip install 'penstock[spark]'") from error
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
