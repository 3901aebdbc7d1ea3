"""The option ``--read-key-file``."""

from pathlib import Path

import typer

from penstock import _read_key

__all__ = ["read_key"]


def read_key(file: Path | None) -> str | None:
    """Return the key in the file of ``--read-key-file``, else the one in ``PENSTOCK_KEY``, if any."""
    try:
        return _read_key.read_key(file)
    except ValueError as error:
        raise typer.BadParameter(f"--read-key-file: {error}" if file is not None else str(error)) from None
