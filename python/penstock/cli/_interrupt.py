"""The handling of signals in commands that run a job."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import typer

__all__ = ["interruptible"]


@contextmanager
def interruptible() -> Iterator[None]:
    """Make SIGINT and SIGTERM a failure of the job: abort it, print one line and exit with code 1."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("penstock: interrupted", err=True)
        raise typer.Exit(1) from None
