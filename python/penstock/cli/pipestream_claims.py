"""``penstock pipestream claims``: list the deferred entities of a server."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._interrupt import interruptible
from penstock.cli._read_key import read_key
from penstock.cli._trust import (
    CaOption,
    CertOption,
    FingerprintOption,
    KeyOption,
    ServerArgument,
    SystemCaOption,
    trust,
)
from penstock.cli.pipestream import commands

if TYPE_CHECKING:
    from penstock.pipestream import PipeStreamURI, SetAside

__all__ = ["register"]


def _claims(
    address: ServerArgument,
    read_key_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", exists=True, dir_okay=False, help="File with the server's read key; default: $PENSTOCK_KEY."
        ),
    ] = None,
    fingerprint: FingerprintOption = None,
    ca: CaOption = None,
    system_ca: SystemCaOption = False,
    cert: CertOption = None,
    key: KeyOption = None,
    json_lines: Annotated[bool, typer.Option("--json", help="Print one JSON object per claim check.")] = False,
) -> None:
    """List the claim checks of a server: what it has deferred, with the current status.

    A pipestream:// URI names a session, a scope or an entity: only what was deferred there is listed.
    """
    options = trust(fingerprint, ca, system_ca, cert, key)
    secret = read_key(read_key_file)
    if secret is None:
        raise typer.BadParameter("missing read key: use --read-key-file FILE, or set PENSTOCK_KEY")
    with interruptible():
        from penstock.pipestream import SinkReader, Status

        server, uri = _parts(address)
        found = SinkReader.connect(server, read_key=secret, **options).claims()
        found = [each for each in found if uri is None or _is_of(each, uri)]
        for each in found:
            typer.echo(json.dumps(each.to_dict()) if json_lines else _line(each))
        if not json_lines:
            left = sum(each.claim.status is Status.DEFERRED for each in found)
            typer.echo(f"{len(found)} claim check{'' if len(found) == 1 else 's'}, {left} open")


def _parts(address: str) -> "tuple[str, PipeStreamURI | None]":
    """Return the server's address, and the URI if there is one."""
    if not address.lower().startswith("pipestream://"):
        return address, None
    from penstock.pipestream import PipeStreamURI

    uri = PipeStreamURI.parse(address)
    return uri.address or uri.authority, uri


def _is_of(each: "SetAside", uri: "PipeStreamURI") -> bool:
    """Return whether an entity was deferred in the session or scope, or is the entity, that a URI names."""
    scope = uri.scope_path[-1] if uri.scope_path else None if uri.entity_id is None else 0
    return (
        each.claim.session == uri.session_id
        and scope in (None, each.claim.scope)
        and uri.entity_id in (None, each.claim.entity)
    )


def _line(each: "SetAside") -> str:
    claim = each.claim
    expires = "" if claim.expires is None else f" until {claim.expires:%Y-%m-%d %H:%M} UTC"
    named = " / ".join([each.document or f"scope {claim.scope}, entity {claim.entity}", *(each.path or ())])
    about = ", ".join(
        text for text in (each.type, None if each.bytes is None else f"{each.bytes} bytes", each.reason) if text
    )
    line = f"{claim.hex} {claim.status.name}{expires}  {named}" + (f" ({about})" if about else "")
    # Names are untrusted, and must not break the line.
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in line)


def register(_app: typer.Typer) -> None:
    """Add ``penstock pipestream claims``."""
    commands.command("claims")(_claims)
