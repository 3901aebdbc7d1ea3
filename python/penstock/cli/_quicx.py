"""The options of every client of a Quicx daemon: its address and the trust in it."""

from pathlib import Path
from typing import Annotated, Any

import typer

from penstock._addresses import check_address
from penstock.cli._storage import folder

__all__ = ["DEFAULT", "ConnectOption", "SocketOption", "SpoolOption", "reach"]

DEFAULT = "127.0.0.1:16381"
"""The default address of a daemon."""


def _address(value: str) -> str:
    try:
        return check_address(value)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


ConnectOption = Annotated[
    str, typer.Option("--connect", metavar="HOST:PORT", help="Daemon address.", callback=_address)
]
SocketOption = Annotated[
    Path | None, typer.Option("--socket", metavar="PATH", help="Unix socket of the daemon, instead of --connect.")
]
SpoolOption = Annotated[
    str | None,
    typer.Option(
        "--spool",
        metavar="DIR|URI",
        help="Directory or object-store URI for large payloads, shared by producers and workers; default: none.",
        callback=folder,
    ),
]


def reach(
    connect: str,
    socket: Path | None,
    fingerprint: str | None,
    ca: Path | None,
    system_ca: bool,
    cert: Path | None,
    key: Path | None,
) -> dict[str, Any]:
    """Check the options, and return them as keyword arguments of ``Producer`` and ``Worker``."""
    from penstock._addresses import is_local

    if (cert is None) != (key is None):
        raise typer.BadParameter("--cert and --key must be used together")
    given = (fingerprint is not None) + (ca is not None) + system_ca
    if socket is not None:
        if connect != DEFAULT:
            raise typer.BadParameter("--connect and --socket are mutually exclusive")
        if given or cert is not None:
            raise typer.BadParameter("--socket cannot be combined with TLS options")
    elif given > 1 or (given == 0 and (cert is not None or not is_local(connect))):
        raise typer.BadParameter(
            "TLS, which other machines require, needs exactly one of --fingerprint HEX (the daemon prints it when it "
            "starts), --ca FILE and --system-ca"
        )
    trust = {"fingerprint": fingerprint, "ca": ca, "system_ca": system_ca, "cert": cert, "key": key}
    return {"address": connect, "socket": socket, **trust}
