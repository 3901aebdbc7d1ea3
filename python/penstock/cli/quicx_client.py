"""``penstock quicx stop``, ``status``, ``submit`` and ``dead``: requests to a daemon."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli._quicx import DEFAULT, ConnectOption, SocketOption, SpoolOption, reach
from penstock.cli._stop import Stop
from penstock.cli._storage import StorageOption, storage_options
from penstock.cli._trust import CaOption, CertOption, FingerprintOption, KeyOption, SystemCaOption
from penstock.cli.quicx import commands
from penstock.errors import QuicxError

if TYPE_CHECKING:
    from penstock.quicx import DeadTask, Producer, Stats

__all__ = ["register"]

_NOT_THERE = 2

_Json = Annotated[bool, typer.Option("--json", help="Print JSON lines.")]
_Id = Annotated[int, typer.Argument(metavar="ID", min=1, max=2**32 - 1, help="Task ID.")]


def _producer(
    connect: str,
    socket: Path | None,
    fingerprint: str | None,
    ca: Path | None,
    system_ca: bool,
    cert: Path | None,
    key: Path | None,
    **others: Any,
) -> "Producer":
    options = reach(connect, socket, fingerprint, ca, system_ca, cert, key)
    from penstock.quicx import Producer

    return Producer(**options, **others)


def _stop(
    connect: ConnectOption = DEFAULT,
    socket: SocketOption = None,
    fingerprint: FingerprintOption = None,
    ca: CaOption = None,
    system_ca: SystemCaOption = False,
    cert: CertOption = None,
    key: KeyOption = None,
) -> None:
    """Stop a daemon: reject new tasks, finish running ones."""
    with _producer(connect, socket, fingerprint, ca, system_ca, cert, key) as producer:
        producer.stop_daemon()


def _status(
    watch: Annotated[bool, typer.Option("--watch", help="Refresh every second until interrupted.")] = False,
    as_json: _Json = False,
    connect: ConnectOption = DEFAULT,
    socket: SocketOption = None,
    fingerprint: FingerprintOption = None,
    ca: CaOption = None,
    system_ca: SystemCaOption = False,
    cert: CertOption = None,
    key: KeyOption = None,
) -> None:
    """Show queue and worker statistics."""
    stop = Stop()
    with _producer(connect, socket, fingerprint, ca, system_ca, cert, key) as producer:
        _show(producer.stats(), as_json, over=False)
        while watch and not stop.wait(1.0):
            _show(producer.stats(), as_json, over=sys.stdout.isatty())


def _show(stats: "Stats", as_json: bool, *, over: bool) -> None:
    fields = dataclasses.asdict(stats)
    if as_json:
        typer.echo(json.dumps(fields))
        return
    if over:
        # Move the cursor up to the first line of the table.
        typer.echo(f"\x1b[{len(fields)}A", nl=False)
    for name, value in fields.items():
        typer.echo(f"{name:<17}{value:>16,}")
    sys.stdout.flush()


def _submit(
    type: Annotated[str, typer.Argument(metavar="TYPE", help="Task type.")],  # noqa: A002
    payload: Annotated[str, typer.Argument(metavar="PAYLOAD", help="Task payload; - reads standard input.")],
    spool: SpoolOption = None,
    storage: StorageOption = None,
    connect: ConnectOption = DEFAULT,
    socket: SocketOption = None,
    fingerprint: FingerprintOption = None,
    ca: CaOption = None,
    system_ca: SystemCaOption = False,
    cert: CertOption = None,
    key: KeyOption = None,
) -> None:
    """Submit a task, and print its ID."""
    data = sys.stdin.buffer.read() if payload == "-" else payload.encode("utf-8", "surrogateescape")
    others = {"spool": spool, "storage": storage_options(storage, spool)}
    with _producer(connect, socket, fingerprint, ca, system_ca, cert, key, **others) as producer:
        typer.echo(producer.submit(type, data))


_dead = typer.Typer(name="dead", help="Dead tasks, which failed at every attempt.", no_args_is_help=True)


@_dead.command("list")
def _list(
    as_json: _Json = False,
    connect: ConnectOption = DEFAULT,
    socket: SocketOption = None,
    fingerprint: FingerprintOption = None,
    ca: CaOption = None,
    system_ca: SystemCaOption = False,
    cert: CertOption = None,
    key: KeyOption = None,
) -> None:
    """List dead tasks."""
    with _producer(connect, socket, fingerprint, ca, system_ca, cert, key) as producer:
        for task in producer.dead():
            if as_json:
                typer.echo(json.dumps(dataclasses.asdict(task), ensure_ascii=False))
            else:
                typer.echo(f"{task.id:>10}  {task.type}  {task.attempts} attempts  {' '.join(task.reason.split())}")


@_dead.command("requeue")
def _requeue(
    id: _Id,  # noqa: A002
    connect: ConnectOption = DEFAULT,
    socket: SocketOption = None,
    fingerprint: FingerprintOption = None,
    ca: CaOption = None,
    system_ca: SystemCaOption = False,
    cert: CertOption = None,
    key: KeyOption = None,
) -> None:
    """Queue a dead task again, with its full number of attempts."""
    with _producer(connect, socket, fingerprint, ca, system_ca, cert, key) as producer:
        producer.requeue(id)


@_dead.command("drop")
def _drop(
    id: _Id,  # noqa: A002
    connect: ConnectOption = DEFAULT,
    socket: SocketOption = None,
    fingerprint: FingerprintOption = None,
    ca: CaOption = None,
    system_ca: SystemCaOption = False,
    cert: CertOption = None,
    key: KeyOption = None,
) -> None:
    """Delete a dead task."""
    with _producer(connect, socket, fingerprint, ca, system_ca, cert, key) as producer:
        producer.drop(id)


@_dead.command("purge")
def _purge(
    spool: SpoolOption = None,
    older_than: Annotated[
        float,
        typer.Option(
            min=0, help="Age in days above which payloads are removed; more than the longest time that any task waits."
        ),
    ] = 7.0,
    storage: StorageOption = None,
    connect: ConnectOption = DEFAULT,
    socket: SocketOption = None,
    fingerprint: FingerprintOption = None,
    ca: CaOption = None,
    system_ca: SystemCaOption = False,
    cert: CertOption = None,
    key: KeyOption = None,
) -> None:
    """Delete all dead tasks, and remove old payloads from the spool."""
    options = storage_options(storage, spool)
    with _producer(connect, socket, fingerprint, ca, system_ca, cert, key) as producer:
        dropped = sum(_drop_all(producer, dead) for dead in iter(producer.dead, []))
    typer.echo(f"deleted {dropped} dead tasks")
    if spool is not None:
        from penstock.quicx import purge_spool

        typer.echo(f"removed {purge_spool(spool, older_than * 86_400, storage=options)} payloads")


def _drop_all(producer: "Producer", dead: "list[DeadTask]") -> int:
    dropped = 0
    for task in dead:
        try:
            producer.drop(task.id)
            dropped += 1
        except QuicxError as error:
            # Another client has requeued or dropped it meanwhile.
            if error.code != _NOT_THERE:
                raise
    return dropped


def register(_app: typer.Typer) -> None:
    """Add ``penstock quicx stop``, ``status``, ``submit`` and ``dead``."""
    commands.command("stop")(_stop)
    commands.command("status")(_status)
    commands.command("submit")(_submit)
    commands.add_typer(_dead)
