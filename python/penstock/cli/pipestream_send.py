"""``penstock pipestream send``: split documents and send their parts to a server."""

import json
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from penstock._pipestream_limits import Limits
from penstock.cli._bar import Bar, progress
from penstock.cli._header_key import HeaderKeyOption, header_key
from penstock.cli._interrupt import interruptible
from penstock.cli._limits import limited
from penstock.cli._storage import StorageOption, folder, storage_options
from penstock.cli._trust import (
    CaOption,
    CertOption,
    FingerprintOption,
    KeyOption,
    MtuOption,
    ServerArgument,
    SystemCaOption,
    trust,
)
from penstock.cli.pipestream import commands

if TYPE_CHECKING:
    from penstock._previous import EarlierReceipts
    from penstock._send_state import SendState
    from penstock._staged_receipts import StagedReceipts
    from penstock.documents import DocumentResult, DocumentSender, Privacy, SentDocument
    from penstock.pipestream import CompletionPolicy, OwnershipContext, Session

__all__ = ["register"]

_PadChildren = Annotated[
    int, typer.Option(min=0, max=1000, metavar="N", help="Pad each container's children to a multiple of N.")
]
_OpaqueTypes = Annotated[bool, typer.Option("--opaque-types", help="Send every part as application/octet-stream.")]
_PseudonymKeyFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="File with the key for pseudonyms, which replace names and paths; default: send them as they are.",
    ),
]
_ByReference = Annotated[
    str | None,
    typer.Option(metavar="URL", help="With --no-dehydrate: send references below this URL, not bytes."),
]

_Receipts = Annotated[
    str | None,
    typer.Option(
        metavar="DIR|URI", callback=folder, help="Where to write receipts (KEY.json) at the end; default: none."
    ),
]
_Previous = Annotated[
    str | None,
    typer.Option(
        metavar="DIR|URI",
        callback=folder,
        help="Directory or URI of earlier receipts from the same sink; what they list is not sent again.",
    ),
]
_DocId = Annotated[
    str | None,
    typer.Option(metavar="UUID", help="ID of the document, if only one is sent; default: derived from its key."),
]
_Owner = Annotated[str | None, typer.Option(metavar="ID", help="Owner of the documents.")]
_Group = Annotated[str | None, typer.Option(metavar="ID", help="Group of the documents.")]
_AccessScope = Annotated[
    list[str] | None, typer.Option(metavar="SCOPE", help="Scope that may see the documents; repeatable.")
]

_IN_FLIGHT = 8
_SHORTEST_KEY = 16


def _policy(value: str | None) -> str | None:
    """Check a policy."""
    if value is not None:
        from penstock.pipestream import CompletionPolicy

        try:
            CompletionPolicy.parse(value)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
    return value


_Layers = Annotated[
    int | None, typer.Option(min=0, max=2, help="Highest protocol layer; default 1, or 2 if another option needs it.")
]
_Survive = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=86_400,
        metavar="S",
        help="Seconds to try to reconnect and resume after a lost connection; default 0, or 300 with --state.",
    ),
]
_StatusInterval = Annotated[
    float | None,
    typer.Option(
        min=0.001, max=10, metavar="S", help="Seconds between writes to the control stream, 1,152 bytes each."
    ),
]
_State = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        file_okay=False,
        help="Directory for the session state, so that a restarted command resumes and sends nothing twice.",
    ),
]
_Policy = Annotated[
    str | None,
    typer.Option(
        metavar="POLICY",
        help="How to handle parts that fail: strict, lenient, best-effort or quorum:RATIO; then, after commas, "
        "on-failure=fail|skip|retry|defer, on-timeout=..., max-retries=N, retry-delay=S, timeout=S. "
        "Default: every part counts.",
        callback=_policy,
    ),
]


@limited(server=False)
def _send(
    address: ServerArgument,
    paths: Annotated[list[Path], typer.Argument(metavar="PATH", exists=True, help="Files, or directories of files.")],
    dehydrate: Annotated[
        bool, typer.Option("--dehydrate/--no-dehydrate", help="Split documents into parts, or send each as one entity.")
    ] = True,
    receipts: _Receipts = None,
    previous: _Previous = None,
    storage: StorageOption = None,
    pad_children: _PadChildren = 0,
    opaque_types: _OpaqueTypes = False,
    pseudonym_key_file: _PseudonymKeyFile = None,
    by_reference: _ByReference = None,
    doc_id: _DocId = None,
    owner: _Owner = None,
    group: _Group = None,
    access_scope: _AccessScope = None,
    header_key_file: HeaderKeyOption = None,
    layers: _Layers = None,
    policy: _Policy = None,
    survive: _Survive = None,
    state: _State = None,
    status_interval: _StatusInterval = None,
    fingerprint: FingerprintOption = None,
    ca: CaOption = None,
    system_ca: SystemCaOption = False,
    cert: CertOption = None,
    key: KeyOption = None,
    mtu: MtuOption = None,
    json_lines: Annotated[bool, typer.Option("--json", help="Print one JSON object per document.")] = False,
    *,
    limits: Limits,
) -> None:
    """Send documents, and wait until every part has arrived; exit with 1 if one has not."""
    options = {**trust(fingerprint, ca, system_ca, cert, key), "mtu": mtu, "survive": survive}
    options["limits"] = limits
    options["status_interval"] = status_interval
    options["layers"] = _layers(layers, policy, previous, survive, state, _named_session(address, state))
    options["header_key"] = header_key(header_key_file)
    where = _Where(receipts, previous, storage_options(storage, receipts, previous), state)
    manner = {
        "privacy": _privacy(pad_children, opaque_types, pseudonym_key_file, by_reference, layers),
        "by_reference": _prefix(by_reference, dehydrate),
        "policy": _parsed(policy, pad_children),
        "owner": _owned(owner, group, access_scope),
    }
    with interruptible():
        from penstock._folders import list_documents

        documents = [(name, Path(found)) for path in paths for name, found in list_documents(str(path))]
        if not documents:
            typer.echo("penstock: no files found", err=True)
            raise typer.Exit(1)
        if doc_id is not None and len(documents) != 1:
            raise typer.BadParameter(f"--doc-id requires exactly one document, not {len(documents)}")
        sent = _Sending(address, options, documents, {**manner, "dehydrate": dehydrate}, _uuid(doc_id))
        _deliver(sent, where, json_lines=json_lines)


def _uuid(doc_id: str | None) -> str | None:
    """Return a document ID in its canonical form."""
    try:
        return None if doc_id is None else str(UUID(doc_id))
    except ValueError:
        raise typer.BadParameter(f"--doc-id must be a UUID, not {doc_id!r}") from None


def _owned(owner: str | None, group: str | None, access_scopes: list[str] | None) -> "OwnershipContext | None":
    """Check and return the documents' owner."""
    if owner is None and group is None and not access_scopes:
        return None
    from penstock import PipeStreamError
    from penstock.pipestream import OwnershipContext, PipeDoc

    ownership = OwnershipContext(owner_id=owner, group_id=group, scopes=access_scopes or ())
    try:
        PipeDoc(doc_id="-", entity_id=1, ownership=ownership).encode()
    except PipeStreamError as error:
        raise typer.BadParameter(f"--owner, --group, --access-scope: {error.message}") from None
    return ownership


def _named_session(address: str, state: Path | None) -> bool:
    """Return whether the address is a URI with a session ID; reject a URI that is not a valid destination."""
    from penstock import PipeStreamError
    from penstock.pipestream._connect import destination

    try:
        _, session = destination(address)
    except PipeStreamError as error:
        raise typer.BadParameter(error.message) from None
    if session is not None and state is not None:
        raise typer.BadParameter("--state determines the session: use HOST:PORT, without a session ID")
    return session is not None


def _layers(
    layers: int | None,
    policy: str | None,
    previous: str | None,
    survive: float | None,
    state: Path | None,
    named: bool,
) -> int:
    """Return the highest layer to offer: 2 if an option needs it, or to redeem deferred parts of ``--previous``."""
    if state is not None and survive == 0:
        raise typer.BadParameter("--state cannot be combined with --survive 0")
    asked = {
        "--policy": policy is not None and _needs_layer_two(policy),
        "--state": state is not None,
        "--survive": bool(survive),
        "a session ID": named,
    }
    needs = next((option for option, given in asked.items() if given), None)
    if needs is not None and layers is not None and layers < 2:
        raise typer.BadParameter(f"{needs} requires layer 2: remove --layers {layers}")
    if layers is not None:
        return layers
    return 1 if needs is None and previous is None else 2


def _needs_layer_two(policy: str) -> bool:
    from penstock.pipestream import CompletionPolicy

    return CompletionPolicy.parse(policy).needs_layer_two


def _parsed(policy: str | None, pad_children: int) -> "CompletionPolicy | None":
    if policy is None:
        return None
    from penstock.pipestream import CompletionMode, CompletionPolicy

    parsed = CompletionPolicy.parse(policy)
    if pad_children > 1 and parsed.mode is not CompletionMode.STRICT:
        raise typer.BadParameter("--pad-children requires the policy strict, because padding counts as COMPLETE")
    return parsed


def _privacy(
    pad_children: int, opaque_types: bool, key_file: Path | None, by_reference: str | None, layers: int | None
) -> "Privacy | None":
    from penstock.documents import Privacy

    if pad_children > 1 and layers == 0:
        raise typer.BadParameter("--pad-children requires layer 1 or 2")
    privacy = Privacy(pad_children=pad_children, opaque_types=opaque_types, pseudonym_key_file=key_file)
    if privacy == Privacy():
        return None
    if by_reference is not None:
        raise typer.BadParameter("--by-reference reveals names and types: it cannot be combined with privacy options")
    if key_file is not None and len(key_file.read_bytes().rstrip(b"\r\n")) < _SHORTEST_KEY:
        raise typer.BadParameter(f"--pseudonym-key-file {key_file}: the key must have at least {_SHORTEST_KEY} bytes")
    return privacy


def _prefix(url: str | None, dehydrate: bool) -> str | None:
    if url is None:
        return None
    from penstock import PipeStreamError
    from penstock.pipestream import FileStorageReference

    if dehydrate:
        raise typer.BadParameter("--by-reference requires --no-dehydrate")
    try:
        FileStorageReference.of_url(url)
    except PipeStreamError as error:
        raise typer.BadParameter(f"--by-reference: {error.message}") from None
    return url


@dataclass(frozen=True)
class _Where:
    """The folders or URIs of new and earlier receipts, and the folder of the session."""

    receipts: str | None
    previous: str | None
    storage: Mapping[str, str]
    state: Path | None


def _deliver(sending: "_Sending", where: "_Where", *, json_lines: bool) -> None:
    from penstock._previous import EarlierReceipts
    from penstock._send_state import SendState
    from penstock._staged_receipts import StagedReceipts

    documents = sending.documents
    earlier = None if where.previous is None else EarlierReceipts(where.previous, where.storage)
    if earlier is not None:
        earlier.prepare()
    with nullcontext() if where.state is None else SendState(where.state) as state:
        staging = None if state is None else state.receipts
        with StagedReceipts(where.receipts, where.storage, staging=staging) as receipts:
            run = _Run(receipts, earlier, state, json_lines)
            if state is not None and not state.unfinished:
                state.ended(where.storage)
                documents = run.remaining(documents)
                if not documents:
                    _conclude(run, None, "nothing left to send")
                    return
            session, incoming = _send_all(replace(sending, documents=documents), run, where)
            if state is None:
                receipts.publish()
            else:
                state.ended(where.storage)
    written = "" if where.receipts is None else f"; receipts in {where.receipts}"
    _conclude(run, incoming, f"session {session}{written}")


@dataclass(frozen=True)
class _Sending:
    """The documents to send, the destination and the options."""

    address: str
    options: Mapping[str, Any]
    documents: list[tuple[str, Path]]
    manner: Mapping[str, Any]
    doc_id: str | None
    """The ID of the document, if there is only one."""


def _send_all(sending: _Sending, run: "_Run", where: "_Where") -> tuple[str, "_Incoming"]:
    """Send documents in a session until it has ended successfully; return its ID and what the server has sent."""
    from penstock import PipeStreamError
    from penstock.documents import DocumentSender

    session, documents = _begin(sending, run, where)
    sender = DocumentSender(session, in_flight=_IN_FLIGHT, **sending.manner)
    try:
        with (
            _left_as_it_is(where.state),
            session,
            progress(len(documents), run.json_lines) as run.progress,
        ):
            incoming = _Incoming(session)
            for name, path in documents:
                run.send(sender, name, path, sending.doc_id)
            run.finish()
            if (early := session.closed) is not None:
                raise early.error()
            run.settled(session.id, where.receipts)
    except PipeStreamError as error:
        run.unsettled()
        typer.echo(
            f"penstock: session {session.id} with {sending.address} ended early: {_one_line(error)}; "
            f"{run.documents} of {len(sending.documents)} documents were settled"
            + ("" if where.receipts is None else "; no receipts were written")
            + ("; run the same command again to resume it" if run.state is not None and run.state.unfinished else ""),
            err=True,
        )
        raise typer.Exit(1) from None
    incoming.join()
    return session.id, incoming


def _begin(sending: _Sending, run: "_Run", where: "_Where") -> tuple["Session", list[tuple[str, Path]]]:
    """Begin a session or continue that of an earlier run; return it with the documents to send in it."""
    from penstock.pipestream import Session

    state = run.state
    if state is None:
        return Session.connect(sending.address, **sending.options), sending.documents
    session = _connect(sending, state)
    if session.closing:
        # Every document of it is settled, otherwise the earlier run would not have closed it.
        session.close()
        session = _connect(sending, state)
    if session.resumed:
        state.goes_on(session.id, where.storage)
        return session, run.remaining(sending.documents)
    # The session in the folder, if there was one, has ended.
    state.ended(where.storage)
    documents = run.remaining(sending.documents)
    state.begin()
    return session, documents


def _connect(sending: _Sending, state: "SendState") -> "Session":
    from penstock import PipeStreamError
    from penstock.pipestream import ErrorCode, Session

    try:
        return Session.connect(sending.address, **sending.options, state=state.session)
    except PipeStreamError as error:
        if error.code != ErrorCode.CLAIM_NOT_FOUND:
            raise
        problem = "the server no longer has this session: remove the directory"
        typer.echo(f"penstock: {state.session}: {problem}, and run again to send the rest in a new session", err=True)
        raise typer.Exit(1) from None


@contextmanager
def _left_as_it_is(state: Path | None) -> Iterator[None]:
    """On an interrupt, report how the next run can continue a session that is kept in a state folder."""
    try:
        yield
    except KeyboardInterrupt:
        if state is None:
            raise
        typer.echo(f"penstock: interrupted; run the same command again to resume from {state}", err=True)
        raise typer.Exit(1) from None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


class _Run:
    """The documents that are being sent, and the account of those that have ended."""

    def __init__(
        self,
        receipts: "StagedReceipts",
        earlier: "EarlierReceipts | None",
        state: "SendState | None",
        json_lines: bool,
    ) -> None:
        self._receipts = receipts
        self._earlier = earlier
        self.state = state
        self._lines: list[dict[str, Any]] = []
        self._on_their_way: deque[SentDocument] = deque()
        self.progress: Bar | None = None
        self.json_lines = json_lines
        self.documents = 0
        self.before = 0
        self.parts = 0
        self.incomplete_parts = 0
        self.incomplete: list[str] = []

    def remaining(self, documents: list[tuple[str, Path]]) -> list[tuple[str, Path]]:
        """Return the documents that no earlier run has settled in their current form, and account for the others."""
        return [(name, path) for name, path in documents if not self._was_settled(name, path)]

    def _was_settled(self, name: str, path: Path) -> bool:
        line = None if self.state is None else self.state.settled(name, path)
        if line is None or not self._receipts.has(line["key"]):
            return False
        self.before += 1
        self._account(line)
        return True

    def send(self, sender: "DocumentSender", name: str, path: Path, doc_id: str | None) -> None:
        while len(self._on_their_way) >= _IN_FLIGHT:
            self._settle()
        previous = None if self._earlier is None else self._earlier.find(name)
        self._on_their_way.append(sender.send(name, path, previous=previous, doc_id=doc_id))

    def settled(self, session: str, receipts: str | None) -> None:
        """Record that every document is settled, so that the session may end."""
        if self.state is not None:
            self.state.ending(session, receipts, self._lines)

    def unsettled(self) -> None:
        """Discard the receipts of a session that has not ended successfully."""
        if self.state is not None:
            self.state.begin()

    def finish(self) -> None:
        while self._on_their_way:
            self._settle()

    def _settle(self) -> None:
        result = self._on_their_way.popleft().wait()
        line = _line(result, self._receipts.add(result))
        if self.state is not None:
            self._lines.append(line)
        self._account(line)
        if self.progress is not None:
            self.progress.advance(self.parts)

    def _account(self, line: dict[str, Any]) -> None:
        left = line["parts"] - line["complete"]
        self.documents += 1
        self.parts += line["parts"]
        self.incomplete_parts += left
        if line["status"] != "COMPLETE":
            self.incomplete.append(f"{line['document']}: {line['status']}, {line['reason']}")
        elif left:
            outcome = line["outcome"] or line["status"]
            self.incomplete.append(f"{line['document']}: {outcome}, {left} of {line['parts']} parts are not COMPLETE")
        if self.json_lines:
            typer.echo(json.dumps(line))


def _line(result: "DocumentResult", receipt: str | None) -> dict[str, Any]:
    return {
        "document": result.document,
        "key": result.key,
        "status": result.status,
        "reason": result.reason,
        "sha256": result.sha256,
        "bytes": result.bytes,
        "parts": result.parts,
        "complete": result.complete,
        "outcome": result.outcome,
        "content_root": result.content_root,
        "session": result.session,
        "root": result.root,
        "receipt": receipt,
        "doc_id": result.doc_id,
        "uri": result.uri,
    }


class _Incoming:
    """Receives and completes entities of the server: a session ends only when they have ended too."""

    def __init__(self, session: "Session") -> None:
        self.received = 0
        self.failures: list[str] = []
        self._thread = threading.Thread(target=self._receive, args=(session,), name="results", daemon=True)
        self._thread.start()

    def _receive(self, session: "Session") -> None:
        from penstock import PipeStreamError

        try:
            for entity in session:
                self.received += 1
                try:
                    for _ in entity:
                        pass
                    entity.complete()
                except PipeStreamError as error:
                    self.failures.append(str(error))
        except PipeStreamError as error:
            self.failures.append(str(error))

    def join(self) -> None:
        self._thread.join()


def _conclude(run: _Run, incoming: _Incoming | None, where: str) -> None:
    if not run.json_lines:
        account = f"{_count(run.documents, 'document')}, {_count(run.parts, 'part')}"
        if run.before:
            where = f"{run.before} by an earlier run; {where}"
        if run.incomplete:
            failed = f"{_count(len(run.incomplete), 'document')}, {_count(run.incomplete_parts, 'part')}"
            typer.echo(f"{account}; not COMPLETE: {failed}; {where}")
        else:
            typer.echo(f"{account}, all COMPLETE; {where}")
    failures = [] if incoming is None else incoming.failures
    problems = run.incomplete + [f"a result from the server: {failure}" for failure in failures]
    if problems:
        more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
        typer.echo(
            f"penstock: {len(run.incomplete)} of {run.documents} documents are not COMPLETE ({problems[0]}{more})",
            err=True,
        )
        raise typer.Exit(1)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def register(_app: typer.Typer) -> None:
    """Add ``penstock pipestream send``."""
    commands.command("send")(_send)
