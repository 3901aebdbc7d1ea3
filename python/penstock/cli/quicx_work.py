"""``penstock quicx work``: run a command for each task."""

import shutil
import subprocess
from typing import Annotated

import typer

from penstock.cli._logging import LogFormatOption, LogLevelOption, configure
from penstock.cli._quicx import DEFAULT, ConnectOption, SocketOption, SpoolOption, reach
from penstock.cli._stop import Stop
from penstock.cli._storage import StorageOption, storage_options
from penstock.cli._trust import CaOption, CertOption, FingerprintOption, KeyOption, SystemCaOption
from penstock.cli.quicx import commands

__all__ = ["register"]

# The number of last bytes of standard error that become the reason.
_REASON = 1_024


def _work(
    type: Annotated[str, typer.Argument(metavar="TYPE", help="Type of the tasks to run.")],  # noqa: A002
    command: Annotated[
        list[str],
        typer.Argument(metavar="-- COMMAND", help="Command to run for each task, with the payload on standard input."),
    ],
    concurrency: Annotated[int, typer.Option(min=1, max=65_535, help="Maximum concurrent commands.")] = 1,
    heartbeat: Annotated[
        float,
        typer.Option(
            metavar="S",
            min=0.001,
            help="Seconds between heartbeats to the daemon; after three without an answer, reconnect.",
        ),
    ] = 15.0,
    spool: SpoolOption = None,
    storage: StorageOption = None,
    connect: ConnectOption = DEFAULT,
    socket: SocketOption = None,
    fingerprint: FingerprintOption = None,
    ca: CaOption = None,
    system_ca: SystemCaOption = False,
    cert: CertOption = None,
    key: KeyOption = None,
    log_level: LogLevelOption = "info",
    log_format: LogFormatOption = "text",
) -> None:
    """Run a command for each task: exit code 0 means DONE, any other FAILED with the end of standard error."""
    options = reach(connect, socket, fingerprint, ca, system_ca, cert, key)
    stored = storage_options(storage, spool)
    if shutil.which(command[0]) is None:
        raise typer.BadParameter(f"command not found or not executable: {command[0]}")
    stop = Stop()
    from penstock.quicx import TaskFailed, Worker

    configure(log_level, log_format)

    def run(payload: bytes) -> None:
        # In its own session, so that an interrupt from the terminal does not reach the command, which can finish.
        done = subprocess.run(command, input=payload, stderr=subprocess.PIPE, check=False, start_new_session=True)
        if done.returncode != 0:
            reason = done.stderr[-_REASON:].decode("utf-8", "backslashreplace")
            raise TaskFailed(reason or f"exit code {done.returncode}")

    worker = Worker(threads=concurrency, heartbeat=heartbeat, spool=spool, storage=stored, **options)
    worker.task(type)(run)
    worker.start()
    stop.wait()
    worker.close()


def register(_app: typer.Typer) -> None:
    """Add ``penstock quicx work``."""
    commands.command("work")(_work)
