"""The options of every server: addresses for listening and metrics, and limits on connections."""

from typing import Annotated

import typer

from penstock._addresses import check_address

__all__ = ["MaxConnectionsPerAddressOption", "MetricsOption", "listening"]


def listening(value: str | None) -> str | None:
    """Check an address to listen on; port 0 picks a free one."""
    if value is None:
        return None
    try:
        return check_address(value, lowest_port=0)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


MetricsOption = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Address for Prometheus metrics and /healthz; port 0 picks a free port and logs it; default: none.",
        callback=listening,
    ),
]


MaxConnectionsPerAddressOption = Annotated[
    int | None,
    typer.Option(
        min=1, help="Maximum concurrent connections per IPv4 address or IPv6 /64; default: 7/8 of all, at least 64."
    ),
]
