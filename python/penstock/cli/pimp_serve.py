"""``penstock pimp serve``: a buffer in the foreground."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli._logging import LogFormatOption, LogLevelOption, configure
from penstock.cli._serving import MaxConnectionsPerAddressOption, MetricsOption, listening
from penstock.cli._stop import Stop
from penstock.cli.pimp import commands

__all__ = ["register"]

_Listen = Annotated[
    str, typer.Option(metavar="HOST:PORT", help="Address to listen on; port 0 picks a free port.", callback=listening)
]
_Store = Annotated[
    str,
    typer.Option(
        metavar="DIR|memory:|redis://...", help="Job store: a directory (created if missing), memory: or a Redis URL."
    ),
]
_BehindProxy = Annotated[
    bool, typer.Option("--behind-proxy", help="Serve plain HTTP on loopback, behind a proxy that terminates TLS.")
]
_JwtSecret = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="Accept as keys JWTs (HS256) that are signed with the content of this file.",
    ),
]
_AllowOrigin = Annotated[
    str | None, typer.Option(metavar="ORIGIN", help="Origin whose pages may send requests, or *; default: none.")
]
_Cert = Annotated[
    Path | None,
    typer.Option(dir_okay=False, help="Server certificate (PEM); default: a generated development certificate."),
]
_Key = Annotated[Path | None, typer.Option(dir_okay=False, help="Private key for --cert (PEM).")]
_ClientCa = Annotated[
    Path | None, typer.Option(dir_okay=False, help="Accept only clients with a certificate signed by this CA (PEM).")
]
_Ttl = Annotated[
    float,
    typer.Option(
        min=0.001,
        max=31_536_000,
        metavar="S",
        help="Lifetime of a job in seconds, and the maximum that a producer may request.",
    ),
]
_MaxJobBytes = Annotated[
    int,
    typer.Option(
        min=128 << 10,
        metavar="N",
        help="Maximum bytes of a job's values; the last 64 KiB are reserved for its final chunk.",
    ),
]
_MaxChunks = Annotated[
    int,
    typer.Option(
        min=2, max=2**32 - 1, metavar="N", help="Maximum chunks per job, including chunk 0 and the final one."
    ),
]
_MaxConnections = Annotated[int, typer.Option(min=1, help="Maximum concurrent connections; further ones wait.")]


def _serve(
    listen: _Listen,
    store: _Store,
    behind_proxy: _BehindProxy = False,
    jwt_secret: _JwtSecret = None,
    allow_origin: _AllowOrigin = None,
    cert: _Cert = None,
    key: _Key = None,
    client_ca: _ClientCa = None,
    ttl: _Ttl = 300.0,
    max_job_bytes: _MaxJobBytes = 50 << 20,
    max_chunks: _MaxChunks = 4_096,
    max_connections: _MaxConnections = 16_384,
    max_connections_per_address: MaxConnectionsPerAddressOption = None,
    metrics: MetricsOption = None,
    log_level: LogLevelOption = "info",
    log_format: LogFormatOption = "text",
) -> None:
    """Run a buffer: store jobs from producers until consumers poll for them."""
    if (cert is None) != (key is None):
        raise typer.BadParameter("--cert and --key must be used together")
    if behind_proxy and (cert is not None or client_ca is not None):
        raise typer.BadParameter("--behind-proxy cannot be combined with --cert, --key or --client-ca")
    # Before anything else: a signal that comes early must end this as cleanly as one that comes late.
    stop = Stop()
    from penstock._addresses import is_local
    from penstock.pimp import Buffer, Limits

    if behind_proxy and not is_local(listen):
        raise typer.BadParameter("--behind-proxy serves plain HTTP and requires a loopback address for --listen")
    configure(log_level, log_format)
    buffer = Buffer(
        listen,
        store=store,
        behind_proxy=behind_proxy,
        jwt_secret=None if jwt_secret is None else _secret(jwt_secret),
        allow_origin=allow_origin,
        cert=cert,
        key=key,
        client_ca=client_ca,
        limits=Limits(job=max_job_bytes, chunks=max_chunks, ttl_ms=round(ttl * 1_000)),
        max_connections=max_connections,
        max_connections_per_address=max_connections_per_address,
        metrics=metrics,
    )
    fingerprint = "" if buffer.fingerprint is None else f" fingerprint {buffer.fingerprint}"
    typer.echo(f"listening {buffer.address}{fingerprint}")
    stop.wait()
    buffer.close()


def _secret(file: Path) -> bytes:
    """Return the file's bytes without the last newline."""
    secret = file.read_bytes().removesuffix(b"\n")
    if not secret:
        raise typer.BadParameter(f"--jwt-secret {file}: the file is empty")
    return secret


def register(_app: typer.Typer) -> None:
    """Add ``penstock pimp serve``."""
    commands.command("serve")(_serve)
