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
        typer.Argument(metavar="HOST:PORT...", help="Receivers: the next one where one fails.", callback=_hosts),
    ],
    file: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", dir_okay=False, help="Send its lines; else standard input."),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what is appended, over rotations.")] = False,
    positions: Annotated[
        Path | None,
        typer.Option(metavar="FILE", dir_okay=False, help="Where --follow keeps how far it has come, across runs."),
    ] = None,
    frames: Annotated[Literal["json", "map"], typer.Option(help="JSON objects, or pairs of strings.")] = "json",
    window: Annotated[int, typer.Option(min=1, max=2**32 - 1, help="Events of a window, at most.")] = 2_048,
    compress: Annotated[int, typer.Option(min=0, max=9, help="zlib's level; 0 for none.")] = 3,
    protocol: Annotated[int, typer.Option(min=1, max=2, help="The version of the frames.")] = 1,
    sequence: Annotated[
        Literal["window", "continue"], typer.Option(help="Whether numbers begin at 1 in every window.")
    ] = "window",
    balance: Annotated[bool, typer.Option("--balance", help="Use all receivers at once.")] = False,
    retry: Annotated[
        float | None,
        typer.Option(min=0, help="Seconds to try while nothing is acknowledged: 60; with --follow for ever."),
    ] = None,
    fingerprint: FingerprintOption = None,
    ca: CaOption = None,
    system_ca: SystemCaOption = False,
    cert: CertOption = None,
    key: KeyOption = None,
) -> None:
    """Send lines, and wait until all are acknowledged; exit 1 if they are not."""
    files = file or []
    if follow and not files:
        raise typer.BadParameter("--follow wants --file: standard input ends when it ends")
    if positions is not None and not follow:
        raise typer.BadParameter("--positions goes with --follow")
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
            typer.echo(f"penstock: interrupted; {sent} events are acknowledged", err=True)
            raise typer.Exit(1)


def _trust(
    hosts: list[str], fingerprint: str | None, ca: Path | None, system_ca: bool, cert: Path | None, key: Path | None
) -> dict[str, Any]:
    from penstock._addresses import is_local

    if (cert is None) != (key is None):
        raise typer.BadParameter("--cert and --key go together")
    given = (fingerprint is not None) + (ca is not None) + system_ca
    if given > 1 or (given == 0 and (cert is not None or not all(map(is_local, hosts)))):
        raise typer.BadParameter(
            "to another machine it is always encrypted, so say whom to trust, by exactly one of --fingerprint HEX (the "
            "receiver prints it when it starts), --ca FILE and --system-ca"
        )
    return {"fingerprint": fingerprint, "ca": ca, "system_ca": system_ca, "cert": cert, "key": key}


def register(_app: typer.Typer) -> None:
    """Add ``penstock lumberjack send``."""
    commands.command("send")(_send)
