"""``penstock quicx start``: a daemon in the foreground."""

import threading
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli._logging import LogFormatOption, LogLevelOption, configure
from penstock.cli._pidfile import pidfile as held_pidfile
from penstock.cli._serving import MaxConnectionsPerAddressOption, MetricsOption, listening
from penstock.cli._stop import Stop
from penstock.cli.quicx import commands

__all__ = ["register"]

# The seconds between checks whether the thread that waits for STOP is still needed.
_LOOK = 0.1

_Config = Annotated[
    Path | None, typer.Option(metavar="FILE", help="TOML file with these options, and policies per task type.")
]
_Listen = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Address to listen on in plain text; default: 127.0.0.1:16381, or none with --tls-listen.",
        callback=listening,
    ),
]
_TlsListen = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Address to listen on with TLS; default: none.", callback=listening),
]
_Cert = Annotated[
    Path | None,
    typer.Option(dir_okay=False, help="Server certificate (PEM); default: a generated development certificate."),
]
_Key = Annotated[Path | None, typer.Option(dir_okay=False, help="Private key for --cert (PEM).")]
_ClientCa = Annotated[
    Path | None, typer.Option(dir_okay=False, help="Accept only clients with a certificate signed by this CA (PEM).")
]
_Socket = Annotated[Path | None, typer.Option(metavar="PATH", help="Unix socket to listen on as well.")]
_Pidfile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="File for the process ID, locked while the daemon runs.")
]
_PoolBytes = Annotated[int | None, typer.Option(min=1, help="Size of the memory pool in bytes; default 64 MiB.")]
_Journal = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        file_okay=False,
        help="Directory for tasks on disk, restored after a restart; default: memory only.",
    ),
]
_Drain = Annotated[
    float | None,
    typer.Option(min=0, help="Seconds that workers have to finish their tasks when the daemon stops; default 30."),
]
_TaskTimeout = Annotated[
    float | None,
    typer.Option(min=0, help="Seconds that a worker may hold a task without a heartbeat; 0: no limit; default 60."),
]
_MaxAttempts = Annotated[
    int | None, typer.Option(min=1, max=65_535, help="Deliveries before a task is dead; default 5.")
]
_HeartbeatInterval = Annotated[
    float | None, typer.Option(min=0, help="Seconds between heartbeats to idle workers and producers; default: none.")
]
_IdleTimeout = Annotated[
    float | None,
    typer.Option(
        min=0,
        help="Seconds that a connection may be silent that neither submits nor takes tasks; 0: no limit; default 900.",
    ),
]
_MaxConnections = Annotated[int | None, typer.Option(min=1, help="Maximum concurrent connections; default 16,384.")]


def _start(
    config: _Config = None,
    listen: _Listen = None,
    tls_listen: _TlsListen = None,
    cert: _Cert = None,
    key: _Key = None,
    client_ca: _ClientCa = None,
    socket: _Socket = None,
    pidfile: _Pidfile = None,
    pool_bytes: _PoolBytes = None,
    journal: _Journal = None,
    drain: _Drain = None,
    task_timeout: _TaskTimeout = None,
    max_attempts: _MaxAttempts = None,
    heartbeat_interval: _HeartbeatInterval = None,
    max_connections: _MaxConnections = None,
    max_connections_per_address: MaxConnectionsPerAddressOption = None,
    idle_timeout: _IdleTimeout = None,
    metrics: MetricsOption = None,
    log_level: LogLevelOption = "info",
    log_format: LogFormatOption = "text",
) -> None:
    """Run a task queue daemon in the foreground."""
    # The names of the arguments are those of `Daemon`.
    given = dict(locals())
    # Before anything else: a signal that comes early must end this as cleanly as one that comes late.
    stop = Stop()
    for ours in ("config", "log_level", "log_format"):
        del given[ours]
    options = _options(config, {name: value for name, value in given.items() if value is not None})
    from penstock.quicx import Daemon

    configure(log_level, log_format)
    grace, file = options.pop("drain", 30.0), options.pop("pidfile", None)
    with held_pidfile(None if file is None else Path(file)):
        daemon = Daemon(**options)
        asked = threading.Thread(target=_tell, args=(daemon, stop), name="penstock-asked", daemon=True)
        asked.start()
        try:
            typer.echo(_line(daemon, options.get("socket")))
            stop.wait()
            daemon.close(grace)
        finally:
            # At the end of the interpreter, no thread may return to it from the core.
            stop.tell()
            asked.join()


def _options(config: Path | None, given: dict[str, Any]) -> dict[str, Any]:
    """Merge the options of the file with those of the command line, which take precedence."""
    from penstock.errors import QuicxError
    from penstock.quicx._options import DEFAULT_ADDRESS, read_config

    try:
        options = {} if config is None else read_config(config)
    except QuicxError as error:
        raise typer.BadParameter(str(error)) from None
    options |= given
    if "listen" not in options:
        # The well-known port, unless there is a port with TLS already.
        options["listen"] = None if "tls_listen" in options else DEFAULT_ADDRESS
    if ("cert" in options) != ("key" in options):
        raise typer.BadParameter("--cert and --key must be used together")
    if "tls_listen" not in options and ("cert" in options or "client_ca" in options):
        raise typer.BadParameter("--cert, --key and --client-ca require --tls-listen")
    return options


def _line(daemon: Any, socket: object) -> str:
    line = f"listening {daemon.address or f'unix:{socket}'}"
    if daemon.fingerprint is not None:
        where = "" if daemon.address == daemon.tls_address else f" tls {daemon.tls_address}"
        line += f"{where} fingerprint {daemon.fingerprint}"
    return line


def _tell(daemon: Any, stop: Stop) -> None:
    """Stop the daemon on a STOP request, like on a signal."""
    while not stop.is_set:
        if daemon.wait_for_stop(_LOOK):
            stop.tell()


def register(_app: typer.Typer) -> None:
    """Add ``penstock quicx start``."""
    commands.command("start")(_start)
