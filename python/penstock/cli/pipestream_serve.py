"""``penstock pipestream serve``: a server that stores received entities in a sink."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock._pipestream_limits import Limits
from penstock._places import is_uri
from penstock.cli._header_key import HeaderKeyOption, header_key
from penstock.cli._limits import limited
from penstock.cli._logging import LogFormatOption, LogLevelOption, configure
from penstock.cli._read_key import read_key
from penstock.cli._serving import MaxConnectionsPerAddressOption, MetricsOption, listening
from penstock.cli._stop import Stop
from penstock.cli._storage import StorageOption, folder, storage_options
from penstock.cli._trust import MtuOption
from penstock.cli.pipestream import commands

if TYPE_CHECKING:
    from penstock.pipestream import References

__all__ = ["register"]

# The seconds in which open sessions can end; what has arrived by then is kept.
_GRACE = 5.0


_Sink = Annotated[
    str,
    typer.Option(
        metavar="DIR|URI",
        callback=folder,
        help="Where to store received entities: a directory (created if missing) or an object-store URI.",
    ),
]
_ReadKeyFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="File with the key that lets clients read the sink; default: $PENSTOCK_KEY, else no reading.",
    ),
]


_Listen = Annotated[
    str, typer.Option(metavar="HOST:PORT", help="Address to listen on; port 0 picks a free port.", callback=listening)
]
_FetchFrom = Annotated[
    list[str] | None,
    typer.Option(
        metavar="URL",
        help="URL prefix below which objects that entities refer to are fetched; repeatable; default: none.",
    ),
]
_ApproveKey = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PROVIDER[=KEY]",
        help="Accept references to objects encrypted with this provider's keys, or this key; repeatable.",
    ),
]


def _queue(value: str | None) -> str | None:
    """Check the URL of a queue."""
    if value is not None:
        from penstock import PipeStreamError
        from penstock.pipestream._hand_over import Queue

        try:
            Queue.parse(value)
        except PipeStreamError as error:
            raise typer.BadParameter(error.message) from None
    return value


_Events = Annotated[
    Path | None,
    typer.Option(dir_okay=False, help="File to which every event is appended as a JSON line; default: none."),
]
_Window = Annotated[
    int | None,
    typer.Option(min=1, max=2_147_483_646, help="Maximum unresolved entities per scope; default 65,536."),
]
_MaxPayload = Annotated[
    int | None, typer.Option(min=0, max=2**64 - 1, help="Maximum bytes of a payload; default 16 GiB.")
]
_DeferType = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TYPE", help="Defer parts of this type, such as image/png or image/*; repeatable; default: none."
    ),
]
_DeferTo = Annotated[
    str | None,
    typer.Option(
        metavar="quicx://HOST:PORT",
        help="Submit deferred parts to this task queue; the end of a task settles its claim check.",
        callback=_queue,
    ),
]
_Claims = Annotated[
    Path | None,
    typer.Option(metavar="DIR", file_okay=False, help="Directory for claim checks; default: in the sink."),
]
_IdleTimeout = Annotated[
    float,
    typer.Option(
        min=0,
        max=86_400,
        metavar="S",
        help="Seconds of silence after which a session with nothing open is closed; 0: never.",
    ),
]
_Survive = Annotated[
    float,
    typer.Option(
        min=0, max=86_400, metavar="S", help="Seconds that a session waits for its client to reconnect; 0: it ends."
    ),
]

_StatusInterval = Annotated[
    float | None,
    typer.Option(
        min=0.001,
        max=10,
        metavar="S",
        help="Seconds between writes to each control stream, of 1,152 bytes each; default: write at once.",
    ),
]

_State = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        file_okay=False,
        help="Directory for session state, so that a restarted server resumes its sessions; default: none.",
    ),
]

_Cert = Annotated[
    Path | None,
    typer.Option(dir_okay=False, help="Server certificate (PEM); default: a generated development certificate."),
]
_ClientCa = Annotated[
    Path | None, typer.Option(dir_okay=False, help="Accept only clients with a certificate signed by this CA (PEM).")
]
_Key = Annotated[Path | None, typer.Option(dir_okay=False, help="Private key for --cert (PEM).")]


@limited(server=True)
def _serve(
    listen: _Listen,
    sink: _Sink,
    storage: StorageOption = None,
    events: _Events = None,
    layers: Annotated[int, typer.Option(min=0, max=2, help="Highest protocol layer.")] = 2,
    defer_type: _DeferType = None,
    defer_to: _DeferTo = None,
    claims: _Claims = None,
    max_connections_per_address: MaxConnectionsPerAddressOption = None,
    idle_timeout: _IdleTimeout = 900.0,
    survive: _Survive = 300.0,
    state: _State = None,
    status_interval: _StatusInterval = None,
    window: _Window = None,
    mtu: MtuOption = None,
    max_payload: _MaxPayload = None,
    cert: _Cert = None,
    key: _Key = None,
    client_ca: _ClientCa = None,
    read_key_file: _ReadKeyFile = None,
    fetch_from: _FetchFrom = None,
    approve_key: _ApproveKey = None,
    header_key_file: HeaderKeyOption = None,
    metrics: MetricsOption = None,
    log_level: LogLevelOption = "info",
    log_format: LogFormatOption = "text",
    limits: Limits | None = None,
) -> None:
    """Receive entities, and store each complete one in a directory or an object store."""
    secret = _check_secrets(cert, key, read_key_file)
    _check_layers(layers, defer_type, defer_to, claims, state)
    _check_state(state, sink, survive)
    options = storage_options(storage, sink, *(fetch_from or ()))
    # Before anything else: a signal that comes early must end this as cleanly as one that comes late.
    stop = Stop()
    from penstock.pipestream import Server

    configure(log_level, log_format)
    server = Server(
        listen,
        sink=sink,
        storage=_options_of([sink], options),
        cert=cert,
        key=key,
        client_ca=client_ca,
        layers=layers,
        window=window,
        mtu=mtu,
        max_payload=max_payload,
        events=events,
        read_key=secret,
        defer_types=defer_type or (),
        defer_to=defer_to,
        claims=claims,
        max_connections_per_address=max_connections_per_address,
        idle_timeout=idle_timeout,
        survive=survive,
        status_interval=status_interval,
        state=state,
        metrics=metrics,
        references=_references(fetch_from, approve_key, options),
        limits=limits,
        header_key=header_key(header_key_file),
    )
    typer.echo(f"listening {server.address} fingerprint {server.fingerprint}")
    stop.wait()
    server.close(_GRACE)


def _references(fetch_from: list[str] | None, approved: list[str] | None, options: dict[str, str]) -> "References":
    from penstock.pipestream import References

    prefixes = fetch_from or []
    storage = _options_of(prefixes, options)
    return References(fetch_from=prefixes, approved_key_providers=approved, storage=storage)


def _options_of(places: list[str], options: dict[str, str]) -> dict[str, str]:
    """Return the options of stores if one of the places is in a store."""
    return options if any(map(is_uri, places)) else {}


def _check_layers(layers: int, *needing: object) -> None:
    """Reject options that need layer 2 if ``--layers`` is lower."""
    if layers < 2 and any(needing):
        raise typer.BadParameter("--defer-type, --defer-to, --claims and --state require layer 2: remove --layers")


def _check_state(state: Path | None, sink: str, survive: float) -> None:
    """Reject ``--state`` if no session survives, or if the sink is not a local folder."""
    if state is not None and survive == 0:
        raise typer.BadParameter("--state cannot be combined with --survive 0")
    if state is not None and is_uri(sink):
        raise typer.BadParameter("--state requires a sink that is a directory")


def _check_secrets(cert: Path | None, key: Path | None, read_key_file: Path | None) -> str | None:
    """Check the certificate options, and return the read key from its file or the environment."""
    if (cert is None) != (key is None):
        raise typer.BadParameter("--cert and --key must be used together")
    return read_key(read_key_file)


def register(_app: typer.Typer) -> None:
    """Add ``penstock pipestream serve``."""
    commands.command("serve")(_serve)
