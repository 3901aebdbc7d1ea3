"""``penstock verify``: does the sink have what a receipt says?"""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from penstock.cli._storage import StorageOption, existing, existing_folder, storage_options

__all__ = ["register"]


def _verify(
    receipt: Annotated[
        str,
        typer.Argument(
            metavar="RECEIPT", callback=existing, help="A receipt, or a folder of receipts (*.json); a path or a URI."
        ),
    ],
    folder: Annotated[
        str, typer.Argument(metavar="FOLDER", callback=existing_folder, help="The sink's folder; a path or a URI.")
    ],
    storage: StorageOption = None,
    json_lines: Annotated[
        bool, typer.Option("--json", help="One JSON object for each difference, instead of text.")
    ] = False,
) -> None:
    """Compare receipts with the octets that a sink has; exit 1 names every difference."""
    from penstock import receipts

    verified = differing = 0
    for path, differences in receipts.verify_all(receipt, folder, storage=storage_options(storage, receipt, folder)):
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
