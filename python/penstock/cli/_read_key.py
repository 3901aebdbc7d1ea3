"""The read key of a sink: from a file or the environment, never from an argument."""

import os
from pathlib import Path

import typer

__all__ = ["read_key"]


def read_key(file: Path | None) -> str | None:
    """Give the key in the file of ``--read-key-file``, else that of ``PENSTOCK_KEY``, if there is one."""
    try:
        key = os.environ.get("PENSTOCK_KEY") if file is None else file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"--read-key-file {file}: {error}") from None
    if file is not None and not key:
        raise typer.BadParameter(f"--read-key-file {file}: it is empty")
    if key and len(key.encode()) < 16:
        raise typer.BadParameter("the read key must have at least 16 octets")
    return key or None
