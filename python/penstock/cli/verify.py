"""``penstock verify``: does the sink have what a receipt says?"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["register"]


def _verify(
    receipt: Annotated[
        Path, typer.Argument(metavar="RECEIPT", exists=True, help="A receipt, or a folder of receipts (*.json).")
    ],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", exists=True, file_okay=False, help="The sink's folder.")],
    json_lines: Annotated[
        bool, typer.Option("--json", help="One JSON object for each difference, instead of text.")
    ] = False,
) -> None:
    """Compare receipts with the octets that a sink has; exit 1 names every difference."""
    from penstock import receipts

    verified = differing = 0
    for path, differences in receipts.verify_all(receipt, folder):
        verified += 1
        differs = False
        for difference in differences:
            differs = True
            if json_lines:
                typer.echo(json.dumps({"receipt": str(path), **asdict(difference)}, default=str))
            else:
                typer.echo(f"{path.name}: {difference.text}")
        differing += differs
    if differing:
        typer.echo(f"penstock: {differing} of {verified} receipts differ from the sink {folder}", err=True)
        raise typer.Exit(1)
    if not json_lines:
        typer.echo(f"{verified} receipt{'s' if verified != 1 else ''} verified: no difference")


def register(app: typer.Typer) -> None:
    """Add ``penstock verify``."""
    app.command("verify")(_verify)
