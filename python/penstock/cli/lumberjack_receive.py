"""``penstock lumberjack receive``: a receiver that prints events or keeps them in a spool."""

import json
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal

import typer

from penstock.cli._logging import LogFormatOption, LogLevelOption, configure
from penstock.cli._read_key import read_key
from penstock.cli._serving import MaxConnectionsPerAddressOption, MetricsOption, listening
from penstock.cli._stop import Stop
from penstock.cli._storage import folder
from penstock.cli.lumberjack import commands
from penstock.errors import LumberjackError

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.lumberjack import Receiver

__all__ = ["register"]

# The seconds in which writers can still receive acknowledgements at the end.
_GRACE = 5.0


_Listen = Annotated[
    str,
    typer.Option(metavar="HOST:PORT", help="Address to listen on; port 0 picks a free port.", callback=listening),
]
_Stdout = Annotated[
    bool, typer.Option("--stdout", help="Print each event as a JSON line, and acknowledge it once printed.")
]
_Spool = Annotated[
    str | None,
    typer.Option(
        metavar="DIR|URI", callback=folder, help="Store events in this directory, or at this object-store URI."
    ),
]
_SpoolBytes = Annotated[
    int | None,
    typer.Option(
        min=1 << 20, help="With --spool: maximum bytes to store, default 10 GiB; beyond it, senders wait for readers."
    ),
]
_Ack = Annotated[
    Literal["spool", "commit"] | None,
    typer.Option(
        help="With --spool: acknowledge events when stored (the default) or when every named reader has committed them."
    ),
]
_Dedup = Annotated[
    bool | None,
    typer.Option(
        "--dedup/--no-dedup",
        help="With --spool: drop events that are sent again after a broken connection; default: --dedup.",
    ),
]
_ReadListen = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="With --spool: address to serve it to readers on, over TLS; default: none.",
        callback=listening,
    ),
]
_ReadKeyFile = Annotated[
    Path | None,
    typer.Option(dir_okay=False, help="File with the key that readers must have; default: $PENSTOCK_KEY."),
]
_Tls = Annotated[
    bool | None,
    typer.Option(
        "--tls/--no-tls", help="Use TLS; default: yes, unless listening on this machine only, without --cert."
    ),
]
_Cert = Annotated[
    Path | None,
    typer.Option(dir_okay=False, help="Server certificate (PEM); default: a generated development certificate."),
]
_Key = Annotated[Path | None, typer.Option(dir_okay=False, help="Private key for --cert (PEM).")]
_ClientCa = Annotated[
    Path | None, typer.Option(dir_okay=False, help="Accept only clients with a certificate signed by this CA (PEM).")
]
_ClientCertificates = Annotated[
    Literal["required", "optional"] | None,
    typer.Option(help="With --client-ca: whether a client must present a certificate; default: required."),
]
_MaxConnections = Annotated[int, typer.Option(min=1, help="Maximum concurrent connections.")]
_MaxBytes = Annotated[
    int, typer.Option(min=1 << 20, help="Maximum bytes of unacknowledged events; beyond it, senders wait.")
]
_MaxAge = Annotated[
    float | None,
    typer.Option(min=0.001, help="Seconds after which a connection is closed, at the end of a window; default: never."),
]
_IdleTimeout = Annotated[
    float, typer.Option(min=0, help="Seconds that a sender may be silent between frames; 0: no limit.")
]
_MaxWindow = Annotated[int, typer.Option(min=1, max=2**32 - 1, help="Maximum events per window.")]


def _receive(
    listen: _Listen,
    stdout: _Stdout = False,
    spool: _Spool = None,
    spool_bytes: _SpoolBytes = None,
    ack: _Ack = None,
    dedup: _Dedup = None,
    read_listen: _ReadListen = None,
    read_key_file: _ReadKeyFile = None,
    tls: _Tls = None,
    cert: _Cert = None,
    key: _Key = None,
    client_ca: _ClientCa = None,
    client_certificates: _ClientCertificates = None,
    max_connections: _MaxConnections = 16_384,
    max_connections_per_address: MaxConnectionsPerAddressOption = None,
    max_bytes: _MaxBytes = 256 << 20,
    max_age: _MaxAge = None,
    idle_timeout: _IdleTimeout = 900.0,
    max_window: _MaxWindow = 65_536,
    metrics: MetricsOption = None,
    log_level: LogLevelOption = "info",
    log_format: LogFormatOption = "text",
) -> None:
    """Receive events from Filebeat and other shippers, and acknowledge each once it is stored or printed."""
    _check_trust(tls, cert, key, client_ca, client_certificates)
    of_spool = {"--read-listen": read_listen, "--ack": ack, "--spool-bytes": spool_bytes, "--dedup": dedup}
    _check_destination(stdout, spool, of_spool)
    secret = "" if read_listen is None else _read_key(read_key_file)
    # Before anything else: a signal that comes early must end this as cleanly as one that comes late.
    stop = Stop()
    from penstock.lumberjack import Limits, Receiver

    configure(log_level, log_format)
    kept = None if spool is None else _Kept(spool, spool_bytes or 10 << 30, ack or "spool", dedup is not False)
    receiver = Receiver(
        listen,
        spool=None if kept is None else kept.spool,
        tls=tls,
        cert=cert,
        key=key,
        client_ca=client_ca,
        client_certificates=client_certificates or "required",
        max_connections=max_connections,
        max_connections_per_address=max_connections_per_address,
        max_bytes=max_bytes,
        max_age=max_age,
        idle_timeout=idle_timeout or None,
        limits=Limits(window=max_window),
        metrics=metrics,
    )
    # Before the line that reports the address, so that an error is printed instead of it.
    reading = None if kept is None or read_listen is None else kept.serve(read_listen, secret, cert, key)
    _run(receiver, kept, reading, stop)


def _run(receiver: "Receiver", kept: "_Kept | None", reading: str | None, stop: Stop) -> None:
    """Print the address, and run until a signal arrives."""
    where = f"listening {receiver.address}"
    line = where if receiver.fingerprint is None else f"{where} fingerprint {receiver.fingerprint}"
    typer.echo(line, err=kept is None)
    if kept is None:
        _print(receiver, stop)
        return
    if reading is not None:
        typer.echo(reading)
    stop.wait()
    receiver.close(_GRACE)
    kept.spool.close()


def _check_destination(stdout: bool, spool: str | None, of_spool: Mapping[str, object]) -> None:
    if stdout == (spool is not None):
        raise typer.BadParameter("give exactly one of --spool DIR and --stdout")
    for option, value in of_spool.items():
        if value is not None and spool is None:
            raise typer.BadParameter(f"{option} requires --spool")
    # sys.stdout is None if it was closed before Python started.
    if stdout and sys.stdout is None:
        raise LumberjackError("--stdout: standard output is closed", "io")


def _check_trust(
    tls: bool | None, cert: Path | None, key: Path | None, client_ca: Path | None, client_certificates: str | None
) -> None:
    if client_certificates is not None and client_ca is None:
        raise typer.BadParameter("--client-certificates requires --client-ca")
    if (cert is None) != (key is None):
        raise typer.BadParameter("--cert and --key must be used together")
    if tls is False and (cert is not None or client_ca is not None):
        raise typer.BadParameter("--no-tls cannot be combined with --cert or --client-ca")


def _print(receiver: "Receiver", stop: Stop) -> None:
    """Print events until the stop is requested."""
    printing = _Printing(receiver, sys.stdout.buffer, stop)
    printing.start()
    stop.wait()
    receiver.close(_GRACE)
    printing.join()
    if printing.failed is not None:
        raise printing.failed


def _read_key(file: Path | None) -> str:
    """Read the key that readers must have."""
    key = read_key(file)
    if key is None:
        raise typer.BadParameter("--read-listen requires a key: use --read-key-file, or set PENSTOCK_KEY")
    return key


class _Kept:
    """The spool of a receiver, which can be served to readers."""

    def __init__(self, place: str, max_bytes: int, ack: str, dedup: bool) -> None:
        from penstock.lumberjack import Spool

        self.spool = Spool(place, max_bytes=max_bytes, ack=ack, dedup=dedup)

    def serve(self, listen: str, read_key: str, cert: Path | None, key: Path | None) -> str:
        """Serve the spool to readers, and return the line that reports the address."""
        address, fingerprint = self.spool.serve(listen, read_key=read_key, cert=cert, key=key)
        return f"reading {address} fingerprint {fingerprint}"


class _Printing(threading.Thread):
    """Prints batches until the receiver is closed, and acknowledges each once it is flushed."""

    def __init__(self, receiver: "Receiver", out: BinaryIO, stop: Stop) -> None:
        super().__init__(name="penstock-stdout")
        self.failed: Exception | None = None
        self._receiver = receiver
        self._told = stop
        self._out = out

    def run(self) -> None:
        try:
            for batch in self._receiver:
                # JSON is UTF-8, whatever the terminal's encoding.
                self._out.write(_lines(batch.record_batch).encode("utf-8", "backslashreplace"))
                self._out.flush()
                batch.ack()
        except OSError as error:
            # The reader of standard output has gone, so no more events can be printed.
            self.failed = error
        except Exception as error:  # noqa: BLE001 - the receiver must not run without this thread
            self.failed = LumberjackError(f"cannot print an event: {error}", "misuse")
        if self.failed is not None:
            self._told.tell()


def _lines(batch: "pa.RecordBatch") -> str:
    names = ("peer", "sequence", "received", "event", "fields", "raw", "tags")
    columns: list[list[Any]] = [batch.column(name).to_pylist() for name in names]
    return "".join(_line(*row) for row in zip(*columns, strict=True))


def _line(peer: str, sequence: int, received: Any, event: str | None, fields: Any, raw: bytes | None, tags: Any) -> str:
    if event is None:
        from penstock.lumberjack._event import pairs_object

        content = pairs_object(fields) if fields is not None else (raw or b"").decode("utf-8", "backslashreplace")
        event = json.dumps(content, ensure_ascii=False)
    else:
        # In valid JSON, line breaks occur only between tokens, where they have no meaning.
        event = event.replace("\n", " ").replace("\r", " ")
    head = {
        "peer": peer,
        "sequence": sequence,
        "received": received.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "tags": tags or [],
    }
    return f'{json.dumps(head, ensure_ascii=False)[:-1]}, "event": {event}}}\n'


def register(_app: typer.Typer) -> None:
    """Add ``penstock lumberjack receive``."""
    commands.command("receive")(_receive)
