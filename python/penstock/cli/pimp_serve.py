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
    str, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0 picks a free one.", callback=listening)
]
_Store = Annotated[
    str,
    typer.Option(metavar="DIR|memory:|redis://...", help="Where jobs are kept: a folder, made if need be, or as said."),
]
_BehindProxy = Annotated[
    bool, typer.Option("--behind-proxy", help="Speak plain HTTP, on loopback: what is in front of it speaks TLS.")
]
_JwtSecret = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", exists=True, dir_okay=False, help="Take JWTs that are signed with this file as keys (HS256)."
    ),
]
_AllowOrigin = Annotated[
    str | None, typer.Option(metavar="ORIGIN", help="The origin whose pages may ask, or *; by default none.")
]
_Cert = Annotated[
    Path | None,
    typer.Option(dir_okay=False, help="Our certificate (PEM); without it a development certificate is made."),
]
_Key = Annotated[Path | None, typer.Option(dir_okay=False, help="The certificate's private key (PEM).")]
_ClientCa = Annotated[
    Path | None, typer.Option(dir_okay=False, help="Take only clients with a certificate that this CA has signed.")
]
_Ttl = Annotated[
    float,
    typer.Option(
        min=0.001, max=31_536_000, metavar="S", help="Seconds that a job lives, and the most that may be asked for."
    ),
]
_MaxJobBytes = Annotated[
    int,
    typer.Option(min=128 << 10, metavar="N", help="Bytes of a job's values, the last 64 KiB for its final chunk only."),
]
_MaxChunks = Annotated[
    int, typer.Option(min=2, max=2**32 - 1, metavar="N", help="Chunks of a job, chunk 0 and the final one included.")
]
_MaxConnections = Annotated[int, typer.Option(min=1, help="Connections at once; others wait.")]


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
    """Keep jobs between those who write them and those who poll for them, until it is told to stop."""
    if (cert is None) != (key is None):
        raise typer.BadParameter("--cert and --key go together")
    if behind_proxy and (cert is not None or client_ca is not None):
        raise typer.BadParameter("--cert, --key and --client-ca are for TLS, which --behind-proxy leaves to the proxy")
    # Before anything else: a signal that comes early must end this as cleanly as one that comes late.
    stop = Stop()
    from penstock._addresses import is_local
    from penstock.pimp import Buffer, Limits

    if behind_proxy and not is_local(listen):
        raise typer.BadParameter("--behind-proxy is plain HTTP, so --listen must be on loopback")
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
        raise typer.BadParameter(f"--jwt-secret {file}: it is empty")
    return secret


def register(_app: typer.Typer) -> None:
    """Add ``penstock pimp serve``."""
    commands.command("serve")(_serve)
