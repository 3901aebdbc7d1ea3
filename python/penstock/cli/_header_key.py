"""The option ``--header-key-file``."""

from pathlib import Path
from typing import Annotated

import typer

from penstock import _header_key

__all__ = ["HeaderKeyOption", "header_key"]

HeaderKeyOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="File with the key that seals metadata and types in headers; default: $PENSTOCK_HEADER_KEY, if set.",
    ),
]


def header_key(file: Path | None) -> str | None:
    """Return the keys in the file of ``--header-key-file``, else those in ``PENSTOCK_HEADER_KEY``, if any."""
    try:
        return _header_key.header_key(file)
    except ValueError as error:
        raise typer.BadParameter(f"--header-key-file: {error}" if file is not None else str(error)) from None
