"""``penstock quicx stop``, ``status``, ``submit`` and ``dead``: what asks a daemon."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._quicx import ConnectOption, SocketOption, reach
from penstock.cli._stop import Stop
from penstock.cli._trust import CaOption, CertOption, FingerprintOption, KeyOption, SystemCaOption
from penstock.cli.quicx import commands

if TYPE_CHECKING:
    from penstock.quicx import Producer, Stats

__all__ = ["register"]

_DEFAULT = "127.0.0.1:16381"

_Json = Annotated[bool, typer.Option("--json", help="Lines of JSON.")]
_Id = Annotated[int, typer.Argument(metavar="ID", min=1, max=2**32 - 1, help="The task.")]


def _producer(
    connect: str,
    socket: Path | None,
    fingerprint: str | None,
    ca: Path | None,
    system_ca: bool,
    cert: Path | None,
    key: Path | None,
) -> "Producer":
    options = reach(connect, socket, fingerprint, ca, system_ca, cert, key)
    from penstock.quicx import Producer

    return Producer(**options)


def _stop(
    connect: ConnectOption = _DEFAULT,
    socket: SocketOption = None,
    fingerprint: FingerprintOption = None,
    ca: CaOption = None,
    system_ca: SystemCaOption = False,
    cert: CertOption = None,
    key: KeyOption = None,
) -> None:
    """Have a daemon stop: no more submits, running tasks are finished."""
    with _producer(connect, socket, fingerprint, ca, system_ca, cert, key) as producer:
        producer.stop_daemon()


def _status(
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it again every second, until it is interrupted.")
    ] = False,
    as_json: _Json = False,
    connect: ConnectOption = _DEFAULT,
    socket: SocketOption = None,
    fingerprint: FingerprintOption = None,
    ca: CaOption = None,
    system_ca: SystemCaOption = False,
    cert: CertOption = None,
    key: KeyOption = None,
) -> None:
    """Show a daemon's numbers."""
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
        # Back to the first line of the table.
        typer.echo(f"\x1b[{len(fields)}A", nl=False)
    for name, value in fields.items():
        typer.echo(f"{name:<17}{value:>16,}")
    sys.stdout.flush()


def _submit(
    type: Annotated[str, typer.Argument(metavar="TYPE", help="The task's type.")],  # noqa: A002
    payload: Annotated[str, typer.Argument(metavar="PAYLOAD", help="What it is; - is standard input.")],
    connect: ConnectOption = _DEFAULT,
    socket: SocketOption = None,
    fingerprint: FingerprintOption = None,
    ca: CaOption = None,
    system_ca: SystemCaOption = False,
    cert: CertOption = None,
    key: KeyOption = None,
) -> None:
    """Submit a task, and print its ID."""
    octets = sys.stdin.buffer.read() if payload == "-" else payload.encode("utf-8", "surrogateescape")
    with _producer(connect, socket, fingerprint, ca, system_ca, cert, key) as producer:
        typer.echo(producer.submit(type, octets))


_dead = typer.Typer(name="dead", help="Tasks that no attempt has settled.", no_args_is_help=True)


@_dead.command("list")
def _list(
    as_json: _Json = False,
    connect: ConnectOption = _DEFAULT,
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
    connect: ConnectOption = _DEFAULT,
    socket: SocketOption = None,
    fingerprint: FingerprintOption = None,
    ca: CaOption = None,
    system_ca: SystemCaOption = False,
    cert: CertOption = None,
    key: KeyOption = None,
) -> None:
    """Queue a dead task again, with all its attempts."""
    with _producer(connect, socket, fingerprint, ca, system_ca, cert, key) as producer:
        producer.requeue(id)


@_dead.command("drop")
def _drop(
    id: _Id,  # noqa: A002
    connect: ConnectOption = _DEFAULT,
    socket: SocketOption = None,
    fingerprint: FingerprintOption = None,
    ca: CaOption = None,
    system_ca: SystemCaOption = False,
    cert: CertOption = None,
    key: KeyOption = None,
) -> None:
    """Forget a dead task."""
    with _producer(connect, socket, fingerprint, ca, system_ca, cert, key) as producer:
        producer.drop(id)


def register(_app: typer.Typer) -> None:
    """Add ``penstock quicx stop``, ``status``, ``submit`` and ``dead``."""
    commands.command("stop")(_stop)
    commands.command("status")(_status)
    commands.command("submit")(_submit)
    commands.add_typer(_dead)
