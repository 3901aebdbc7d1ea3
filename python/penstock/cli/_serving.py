"""What every server takes: where it listens, where its metrics are."""

import resource
from contextlib import suppress
from typing import Annotated

import typer

from penstock._addresses import check_address

__all__ = ["MetricsOption", "allow_many_files", "listening"]


def listening(value: str | None) -> str | None:
    """Check an address to listen on; port 0 picks one."""
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
        help="Where to serve metrics for Prometheus, and /healthz; the log names a port that was picked.",
        callback=listening,
    ),
]


def allow_many_files() -> None:
    """Take as many sockets as the system lets us: shells begin with a thousand."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some systems have no number for "as many as you like".
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
