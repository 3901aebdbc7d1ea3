"""``penstock verify``: compare receipts with a sink."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from penstock.cli._storage import StorageOption, existing, existing_folder, storage_options

__all__ = ["register"]


def _uri(value: str | None) -> str | None:
    """Check a ``pipestream://`` URI."""
    if value is not None:
        from penstock import PipeStreamError
        from penstock.pipestream import PipeStreamURI

        try:
            PipeStreamURI.parse(value)
        except PipeStreamError as error:
            raise typer.BadParameter(error.message) from None
    return value


def _no_uri(value: str) -> str:
    """Reject a ``pipestream://`` URI as the place of files."""
    if value.lower().startswith("pipestream://"):
        raise typer.BadParameter(
            f"{value} is a pipestream:// URI, but receipts and the sink are read as files: use their paths here, and "
            "the URI with --uri"
        )
    return value


def _receipt(value: str) -> str:
    return existing(_no_uri(value))


def _folder(value: str) -> str:
    return existing_folder(_no_uri(value))


def _verify(
    receipt: Annotated[
        str,
        typer.Argument(
            metavar="RECEIPT", callback=_receipt, help="Receipt, or directory of receipts (*.json); a path or a URI."
        ),
    ],
    folder: Annotated[
        str, typer.Argument(metavar="FOLDER", callback=_folder, help="Directory of the sink; a path or a URI.")
    ],
    uri: Annotated[
        str | None,
        typer.Option(
            "--uri",
            metavar="URI",
            callback=_uri,
            help="Verify only what this pipestream:// URI names: the documents of a session, or one document.",
        ),
    ] = None,
    storage: StorageOption = None,
    json_lines: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per difference, instead of text.")
    ] = False,
) -> None:
    """Compare receipts with the bytes in a sink; list every difference, and exit with 1 if there are any."""
    from penstock import receipts

    verified = differing = 0
    options = storage_options(storage, receipt, folder)
    for path, differences in receipts.verify_all(receipt, folder, storage=options, uri=uri):
        verified += 1
        differs = False
        for difference in differences:
            differs = True
            if json_lines:
                typer.echo(json.dumps({"receipt": str(path), **asdict(difference)}, default=str))
            else:
                typer.echo(f"{path.name}: {difference.text}")
        differing += differs
    if not verified:
        typer.echo(f"penstock: no receipt in {receipt} matches {uri}", err=True)
        raise typer.Exit(1)
    if differing:
        typer.echo(f"penstock: {differing} of {verified} receipts differ from the sink {folder}", err=True)
        raise typer.Exit(1)
    if not json_lines:
        typer.echo(f"{verified} receipt{'s' if verified != 1 else ''} verified: no differences")


def register(app: typer.Typer) -> None:
    """Add ``penstock verify``."""
    app.command("verify")(_verify)
