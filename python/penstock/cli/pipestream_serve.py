"""``penstock pipestream serve``: a server that keeps what comes."""

import os
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli._logging import LogFormatOption, LogLevelOption, configure
from penstock.cli._serving import MetricsOption, listening
from penstock.cli._stop import Stop
from penstock.cli._storage import StorageOption, folder, storage_options
from penstock.cli._trust import MtuOption
from penstock.cli.pipestream import commands

__all__ = ["register"]

# Seconds that open sessions have to come to their ends; what has arrived by then is kept.
_GRACE = 5.0


_Sink = Annotated[
    str,
    typer.Option(
        metavar="DIR", callback=folder, help="For what comes: a folder, made if need be, or a URI of a store."
    ),
]
_ReadKeyFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="Let whoever has the key in this file read the sink; PENSTOCK_KEY does the same.",
    ),
]


def _serve(
    listen: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="Where to listen; port 0 picks a free one.", callback=listening),
    ],
    sink: _Sink,
    storage: StorageOption = None,
    events: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Append every event to this file, a line of JSON for each.")
    ] = None,
    layers: Annotated[int, typer.Option(min=0, max=1, help="The highest protocol layer.")] = 1,
    window: Annotated[
        int | None,
        typer.Option(min=1, max=2_147_483_646, help="Unresolved entities of a scope, at most; by default 65,536."),
    ] = None,
    mtu: MtuOption = None,
    max_payload: Annotated[
        int | None, typer.Option(min=0, max=2**64 - 1, help="Octets of a payload, at most; by default 16 GiB.")
    ] = None,
    cert: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="Our certificate (PEM); without it a development certificate is made."),
    ] = None,
    key: Annotated[Path | None, typer.Option(dir_okay=False, help="The certificate's private key (PEM).")] = None,
    client_ca: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Take only clients with a certificate that this CA has signed.")
    ] = None,
    read_key_file: _ReadKeyFile = None,
    metrics: MetricsOption = None,
    log_level: LogLevelOption = "info",
    log_format: LogFormatOption = "text",
) -> None:
    """Take entities and keep each whole one in a folder or an object store."""
    read_key = _check_secrets(cert, key, read_key_file)
    options = storage_options(storage, sink)
    # Before anything else: a signal that comes early must end this as cleanly as one that comes late.
    stop = Stop()
    from penstock.pipestream import Server

    configure(log_level, log_format)
    server = Server(
        listen,
        sink=sink,
        storage=options,
        cert=cert,
        key=key,
        client_ca=client_ca,
        layers=layers,
        window=window,
        mtu=mtu,
        max_payload=max_payload,
        events=events,
        read_key=read_key,
        metrics=metrics,
    )
    typer.echo(f"listening {server.address} fingerprint {server.fingerprint}")
    stop.wait()
    server.close(_GRACE)


def _check_secrets(cert: Path | None, key: Path | None, read_key_file: Path | None) -> str | None:
    """Check what goes together, and give the read key: from its file or the environment, never from an argument."""
    if (cert is None) != (key is None):
        raise typer.BadParameter("--cert and --key go together")
    return _read_key(read_key_file)


def _read_key(file: Path | None) -> str | None:
    try:
        key = os.environ.get("PENSTOCK_KEY") if file is None else file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"--read-key-file {file}: {error}") from None
    if file is not None and not key:
        raise typer.BadParameter(f"--read-key-file {file}: it is empty")
    if key and len(key.encode()) < 16:
        raise typer.BadParameter("the read key must have at least 16 octets")
    return key or None


def register(_app: typer.Typer) -> None:
    """Add ``penstock pipestream serve``."""
    commands.command("serve")(_serve)
