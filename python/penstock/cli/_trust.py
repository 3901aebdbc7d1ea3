"""The options by which every client of a TLS server says whom it trusts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["CaOption", "CertOption", "FingerprintOption", "KeyOption", "SystemCaOption", "trust"]

FingerprintOption = Annotated[
    str | None, typer.Option(metavar="HEX", help="Trust the server whose certificate has this SHA-256.")
]
CaOption = Annotated[
    Path | None, typer.Option(metavar="FILE", dir_okay=False, help="Trust servers that this CA (PEM) has signed.")
]
SystemCaOption = Annotated[bool, typer.Option("--system-ca", help="Trust what the system trusts.")]
CertOption = Annotated[Path | None, typer.Option(metavar="FILE", dir_okay=False, help="Our own certificate (PEM).")]
KeyOption = Annotated[Path | None, typer.Option(metavar="FILE", dir_okay=False, help="Its private key (PEM).")]


def trust(
    fingerprint: str | None, ca: Path | None, system_ca: bool, cert: Path | None, key: Path | None
) -> Mapping[str, Any]:
    """Check the options, and give them as the keyword arguments of ``connect``."""
    if (cert is None) != (key is None):
        raise typer.BadParameter("--cert and --key go together")
    given = (fingerprint is not None) + (ca is not None) + system_ca
    if given != 1:
        raise typer.BadParameter(
            "the connection is always encrypted, so say whom to trust, by exactly one of --fingerprint HEX (the server "
            "prints it when it starts), --ca FILE and --system-ca"
        )
    return {"fingerprint": fingerprint, "ca": ca, "system_ca": system_ca, "cert": cert, "key": key}
