"""``penstock lumberjack send``: send lines of files, or of standard input, to receivers."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from penstock._addresses import check_address
from penstock.cli._logging import configure
from penstock.cli._stop import Stop
from penstock.cli._trust import CaOption, CertOption, FingerprintOption, KeyOption, SystemCaOption
from penstock.cli.lumberjack import commands

__all__ = ["register"]


def _hosts(values: list[str]) -> list[str]:
    try:
        return [check_address(value) for value in values]
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _send(
    hosts: Annotated[
        list[str],
        typer.Argument(metavar="HOST:PORT", help="Receivers; if one fails, the next is used.", callback=_hosts),
    ],
    file: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", dir_okay=False, help="File whose lines are sent; repeatable; default: standard input."
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Keep sending lines that are appended, across log rotation.")
    ] = False,
    positions: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            dir_okay=False,
            help="File in which --follow stores its position between runs; default: in the state directory.",
        ),
    ] = None,
    frames: Annotated[
        Literal["json", "map"], typer.Option(help="Content of an event: a JSON object, or a map of strings.")
    ] = "json",
    window: Annotated[int, typer.Option(min=1, max=2**32 - 1, help="Maximum events per window.")] = 2_048,
    compress: Annotated[int, typer.Option(min=0, max=9, help="zlib compression level; 0: no compression.")] = 3,
    protocol: Annotated[int, typer.Option(min=1, max=2, help="Version of the Lumberjack frames.")] = 1,
    sequence: Annotated[
        Literal["window", "continue"], typer.Option(help="Sequence numbers: restart at 1 in every window, or continue.")
    ] = "window",
    balance: Annotated[
        bool, typer.Option("--balance", help="Distribute events across all receivers, instead of using one at a time.")
    ] = False,
    retry: Annotated[
        float | None,
        typer.Option(min=0, help="Seconds to retry while nothing is acknowledged; default 60, with --follow no limit."),
    ] = None,
    fingerprint: FingerprintOption = None,
    ca: CaOption = None,
    system_ca: SystemCaOption = False,
    cert: CertOption = None,
    key: KeyOption = None,
) -> None:
    """Send lines of files or standard input, and wait until all are acknowledged; exit with 1 if they are not."""
    files = file or []
    if follow and not files:
        raise typer.BadParameter("--follow requires --file")
    if positions is not None and not follow:
        raise typer.BadParameter("--positions requires --follow")
    trust = _trust(hosts, fingerprint, ca, system_ca, cert, key)
    stop = Stop()
    from penstock._positions import Positions
    from penstock._shipping import follow_files, send_files
    from penstock._state import state_dir
    from penstock.lumberjack import Sender

    patience = retry if retry is not None or follow else 60.0
    options: dict[str, Any] = {"window": window, "compress": compress, "protocol": protocol, "sequence": sequence}
    sender = Sender(hosts, frames=frames, balance=balance, retry=patience, **options, **trust)
    if follow:
        # A long run should log why nothing arrives.
        configure("warn", "text")
        kept = Positions(positions or state_dir() / "lumberjack" / "positions.json")
        follow_files(sender, files, kept, stop.wait)
    else:
        sent = send_files(sender, files, stop)
        if stop.is_set:
            typer.echo(f"penstock: interrupted; {sent} events were acknowledged", err=True)
            raise typer.Exit(1)


def _trust(
    hosts: list[str], fingerprint: str | None, ca: Path | None, system_ca: bool, cert: Path | None, key: Path | None
) -> dict[str, Any]:
    from penstock._addresses import is_local

    if (cert is None) != (key is None):
        raise typer.BadParameter("--cert and --key must be used together")
    given = (fingerprint is not None) + (ca is not None) + system_ca
    if given > 1 or (given == 0 and (cert is not None or not all(map(is_local, hosts)))):
        raise typer.BadParameter(
            "TLS, which other machines require, needs exactly one of --fingerprint HEX (the receiver prints it when it "
            "starts), --ca FILE and --system-ca"
        )
    return {"fingerprint": fingerprint, "ca": ca, "system_ca": system_ca, "cert": cert, "key": key}


def register(_app: typer.Typer) -> None:
    """Add ``penstock lumberjack send``."""
    commands.command("send")(_send)
