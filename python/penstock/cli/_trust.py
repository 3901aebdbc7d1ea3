"""The options of every client of a TLS server: the server's address and the trust in it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock._addresses import check_server, fingerprint_digits

__all__ = [
    "CaOption",
    "CertOption",
    "FingerprintOption",
    "KeyOption",
    "MtuOption",
    "ServerArgument",
    "SystemCaOption",
    "trust",
]


def _checked(check: Callable[[str], str]) -> Callable[[str | None], str | None]:
    def callback(value: str | None) -> str | None:
        try:
            return None if value is None else check(value)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    return callback


ServerArgument = Annotated[
    str,
    typer.Argument(
        metavar="HOST:PORT",
        help="Server address, or a pipestream://HOST:PORT/SESSION URI.",
        callback=_checked(check_server),
    ),
]
FingerprintOption = Annotated[
    str | None,
    typer.Option(
        metavar="HEX",
        help="Trust the server whose certificate has this SHA-256 fingerprint.",
        callback=_checked(fingerprint_digits),
    ),
]
CaOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", exists=True, dir_okay=False, help="Trust servers with a certificate signed by this CA (PEM)."
    ),
]
SystemCaOption = Annotated[bool, typer.Option("--system-ca", help="Use the operating system's CA certificates.")]
CertOption = Annotated[
    Path | None, typer.Option(metavar="FILE", exists=True, dir_okay=False, help="Client certificate (PEM).")
]
KeyOption = Annotated[
    Path | None, typer.Option(metavar="FILE", exists=True, dir_okay=False, help="Private key for --cert (PEM).")
]


MtuOption = Annotated[
    int | None,
    typer.Option(
        min=1_200,
        max=9_000,
        help="Largest UDP payload to probe, in bytes; default 6,500 on this machine, else 1,452.",
    ),
]


def trust(
    fingerprint: str | None, ca: Path | None, system_ca: bool, cert: Path | None, key: Path | None
) -> Mapping[str, Any]:
    """Check the options, and return them as keyword arguments of ``connect``."""
    if (cert is None) != (key is None):
        raise typer.BadParameter("--cert and --key must be used together")
    given = (fingerprint is not None) + (ca is not None) + system_ca
    if given != 1:
        raise typer.BadParameter(
            "the connection always uses TLS, and needs exactly one of --fingerprint HEX (the server prints it when it "
            "starts), --ca FILE and --system-ca"
        )
    return {"fingerprint": fingerprint, "ca": ca, "system_ca": system_ca, "cert": cert, "key": key}
