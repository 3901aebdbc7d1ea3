"""``penstock cert``: certificates for development."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["register"]


def _cert(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", file_okay=False, help="Output directory; created if missing.")
    ],
) -> None:
    """Write ca.pem, cert.pem and key.pem for localhost, 127.0.0.1 and ::1; existing files are never overwritten."""
    from penstock.tls import write_certificates

    typer.echo(f"fingerprint {write_certificates(directory)}")


def register(app: typer.Typer) -> None:
    """Add ``penstock cert``."""
    app.command("cert")(_cert)
