"""Documents sent into a session; `penstock.documents` shows the classes."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock import _core
from penstock._previous import KeptScopes, keep_outcome
from penstock._privacy import Privacy, manner_of
from penstock.errors import DocumentsError

if TYPE_CHECKING:
    from penstock.documents import Limits, Source
    from penstock.pipestream import CompletionPolicy, OwnershipContext
    from penstock.pipestream._session import SessionState

__all__ = [
    "CLAIM_SCHEMA",
    "PART_SCHEMA",
    "PLACED_SCHEMA",
    "DocumentResult",
    "DocumentSender",
    "SentDocument",
    "document_name",
]

PART_SCHEMA: pa.Schema = _core.part_schema()
"""The columns of a part; rows are the document's own first, then its parts depth first."""

CLAIM_SCHEMA: pa.Schema = _core.part_schema(claims=True)
"""Those and the claim check under which a part was set aside, 16 hex digits: rows of documents sent under a policy."""

PLACED_SCHEMA: pa.Schema = _core.part_schema(placed=True)
"""All of those and what a receipt needs: which child of its container a part is or lies in, its number, session, file,
and the digest of its own scope."""

_MAX_ROWS = 65_536
_MAX_BATCH = 8 << 20
# Offsets of Arrow's strings are 32 bits wide, and Spark takes no others.
_MAX_TEXT = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What the core is told of a document: which one it is, and whose."""

    doc_id: str | None
    owner: "OwnershipContext | None"


def document_name(path: str | os.PathLike[str], folder: str | os.PathLike[str] | None = None) -> str:
    r"""Name a document for receipts: relative to ``folder`` with ``/``, or the base name of a file named itself.

    Bytes that are not UTF-8 are written ``\xhh``.

    >>> document_name("/data/in/b/c.zip", "/data/in"), document_name("/data/in/b/c.zip")
    ('b/c.zip', 'c.zip')
    """
    name = os.path.basename(path) if folder is None else os.path.relpath(path, folder)  # noqa: PTH119
    return os.fsencode(name.replace(os.sep, "/")).decode("utf-8", "backslashreplace")


class DocumentSender:
    """Takes documents apart and sends their parts into a session, without a step of Python for any part.

    >>> from tempfile import TemporaryDirectory
    >>> from penstock import receipts
    >>> from penstock.pipestream import Server, Session
    >>> with TemporaryDirectory() as folder, Server(sink=folder + "/sink", state_dir=folder) as server:
    ...     with Session.connect(server.address, fingerprint=server.fingerprint) as session:
    ...         result = DocumentSender(session).send("note.txt", b"A line of text.").wait()
    ...     receipt = receipts.write(result, folder + "/receipts")
    ...     differences = receipts.verify(receipt, folder + "/sink")
    >>> result.status, result.parts, differences
    ('COMPLETE', 0, [])
    """

    def __init__(
        self,
        session: "SessionState",
        *,
        dehydrate: bool = True,
        limits: "Limits | None" = None,
        in_flight: int = 8,
        text: bool = True,
        max_content: int = 0,
        privacy: Privacy | None = None,
        by_reference: str | None = None,
        policy: "CompletionPolicy | None" = None,
        owner: "OwnershipContext | None" = None,
    ) -> None:
        """Send into ``session``.

        ``dehydrate=False`` sends each document as one entity. At layer 0 a document has one level of parts: containers
        inside it are sent whole. ``limits`` are the defaults of `penstock.documents.Limits` unless given. ``in_flight``
        documents may be on their way at once; `send` waits for the oldest when there are more. Rows of results have the
        texts of parts; with ``text=False`` only those of parts of mails, whose charset the content would not tell. They
        have the content of parts of at most ``max_content`` bytes; that of larger ones is null, and in the sink.
        ``privacy`` says what headers do not tell; ``by_reference``, with ``dehydrate=False``, sends instead of each
        document a reference to it below this URL, where it lies under its name.
        ``policy`` holds for each container of a document: what becomes of parts that fail, and of the container then.
        By default it is that of `Session.connect`, if there is one.
        ``owner`` says whose documents are that come without an owner of their own: see `send`.
        Where the session has a ``state``, parts have labels made of the document's name, its bytes and their place in
        it: a process that sends the same documents in the same order goes on with what an earlier one has announced.
        Raises :class:`penstock.PipeStreamError` if the session is over, or has no layer 2 for a policy, ``OSError`` if
        a key cannot be read.
        """
        from penstock.documents import Limits

        manner = manner_of(privacy, by_reference)
        # Otherwise the session would give it to the documents themselves, and no receipt would tell.
        policy = session._policy if policy is None else session._told(policy)
        self._native = _core.DocumentSender(
            session._native,
            dehydrate,
            limits or Limits(),
            in_flight,
            text,
            max_content,
            manner,
            policy,
            session._authority,
        )
        self._owner = owner

    def _identity(self, doc_id: str | None, owner: "OwnershipContext | None") -> "Identity":
        return Identity(doc_id=doc_id, owner=self._owner if owner is None else owner)

    def send(
        self,
        name: str,
        source: "Source",
        *,
        previous: Mapping[str, Any] | None = None,
        doc_id: str | None = None,
        owner: "OwnershipContext | None" = None,
    ) -> "SentDocument":
        """Take one document apart and send it; return when its last part was announced and handed over.

        ``name`` stands in the headers of all parts and in the receipt. A document that cannot be read is announced as
        FAILED with the reason. If the session is lost on the way, the result accounts for every part all the same; a
        session that is over before raises :class:`penstock.PipeStreamError`.

        ``previous`` is an earlier receipt of the document, as `penstock.receipts.load` gives it, of whatever version:
        parts that are COMPLETE there and still the same stay where they are and are not sent again. The new receipt
        names the session of each part. Parts that are DEFERRED there come again under their claim checks, which are
        redeemed, where the session has layer 2.

        ``doc_id`` is the document's identifier (section 7.1), a UUID in lower case; by default it is made from the
        receipt's key. It travels with the document's root entity in a `penstock.pipestream.PipeDoc`, with its
        ``owner`` if it has one. A document that had others in ``previous`` announces its root entity again.

        Raises ``ValueError`` for a ``doc_id`` that is no UUID, and for an owner beyond the limits of its class.
        """
        text = None if previous is None else json.dumps(previous)
        return SentDocument(self._native.send(name, source, text, self._identity(doc_id, owner)), previous)

    def send_some(
        self,
        name: str,
        source: "Source",
        some: "_core._Selected",
        *,
        previous: Mapping[str, Any] | None = None,
        doc_id: str | None = None,
        owner: "OwnershipContext | None" = None,
    ) -> "SentDocument":
        """Send some children of a container in a document, below an entity that stands for the container.

        A plan that works on parts apart does it. `DocumentResult.group` tells how it went.
        """
        text = None if previous is None else json.dumps(previous)
        return SentDocument(self._native.send_some(name, source, some, text, self._identity(doc_id, owner)))

    def send_containers(
        self,
        name: str,
        chain: "Sequence[_core._Container]",
        children: int,
        incomplete: int,
        *,
        previous: Mapping[str, Any] | None = None,
        doc_id: str | None = None,
        owner: "OwnershipContext | None" = None,
    ) -> "SentDocument":
        """Send the containers of a document whose innermost one has its children in other sessions.

        There are ``children`` of them, and ``incomplete`` are not COMPLETE, which makes the containers FAILED.
        """
        text = None if previous is None else json.dumps(previous)
        identity = self._identity(doc_id, owner)
        return SentDocument(self._native.send_containers(name, chain, children, incomplete, text, identity))

    def stop(self) -> None:
        """End what other threads are sending: their `send` raises, and no other begins."""
        self._native.stop()


class SentDocument:
    """A document whose parts are on their way, or there: what :meth:`DocumentSender.send` gives."""

    def __init__(self, native: "_core.SentDocument", previous: Mapping[str, Any] | None = None) -> None:
        """Made by :meth:`DocumentSender.send`."""
        self._native = native
        self._previous = previous

    def done(self) -> bool:
        """Whether every part has ended, so that :meth:`wait` would return at once."""
        return self._native.wait(0) is not None

    def wait(self, timeout: float | None = None) -> "DocumentResult":
        """Wait until every part has ended, at most ``timeout`` seconds.

        Raises :class:`penstock.DocumentsError` of kind "deadline" when the time is over; wait again if you like.
        """
        outcome = self._native.wait(timeout)
        if outcome is None:
            raise DocumentsError(f"not every part has ended within {timeout} s", "deadline")
        return DocumentResult(outcome, self._previous)


class DocumentResult:
    """How a document and each of its parts ended: what :meth:`SentDocument.wait` gives."""

    def __init__(self, native: "_core.DocumentOutcome", previous: Mapping[str, Any] | None = None) -> None:
        """Made by :meth:`SentDocument.wait`."""
        self._native = native
        self._previous = previous

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The receipt without its scopes and parts."""
        summary: dict[str, Any] = json.loads(self._native.receipt(False))
        return keep_outcome(summary, self._previous, lambda: self._whole()["parts"])

    def _whole(self) -> dict[str, Any]:
        receipt: dict[str, Any] = json.loads(self._native.receipt(True))
        return receipt

    def receipt(self) -> dict[str, Any]:
        """Give the receipt, in the form that `penstock.receipts` writes and verifies."""
        whole = self._whole()
        receipt = keep_outcome(whole, self._previous, lambda: whole["parts"])
        if self._previous is not None:
            kept = KeptScopes(self._previous)
            kept.add_document(receipt)
            for part in receipt["parts"]:
                kept.add(part)
            receipt["scopes"] = [*receipt["scopes"], *kept.scopes()]
        return receipt

    @property
    def document(self) -> str:
        """The document's name."""
        return str(self.summary["document"])

    @property
    def key(self) -> str:
        """The document's key, 32 hex digits; it names the receipt."""
        return self._native.key

    @property
    def sha256(self) -> str | None:
        """The document's SHA-256 in hex; ``None`` if it could not be read."""
        value: str | None = self.summary["sha256"]
        return value

    @property
    def bytes(self) -> int | None:
        """The document's bytes; ``None`` if it could not be read."""
        value: int | None = self.summary["bytes"]
        return value

    @property
    def status(self) -> str:
        """The document's status: COMPLETE if every part is, or if its policy is content with those that are."""
        return str(self.summary["status"])

    @property
    def outcome(self) -> str | None:
        """What the policy made of the document: RESOLVED, PARTIAL or FAILED; ``None`` without a policy."""
        value: str | None = self.summary.get("outcome")
        return value

    @property
    def reason(self) -> str | None:
        """Why the status is not COMPLETE."""
        value: str | None = self.summary["reason"]
        return value

    @property
    def content_root(self) -> str:
        """The digest over paths, bytes and statuses of all parts, in hex."""
        return self._native.content_root

    @property
    def session(self) -> str:
        """The session's ID."""
        return str(self.summary["session"])

    @property
    def doc_id(self) -> str:
        """The document's identifier, a UUID."""
        return str(self.summary["doc_id"])

    @property
    def owner(self) -> "OwnershipContext | None":
        """Whose document it is; ``None`` where nobody has said so."""
        from penstock.pipestream import OwnershipContext

        owner = self.summary.get("owner")
        return None if owner is None else OwnershipContext(**owner)

    @property
    def uri(self) -> str | None:
        """The ``pipestream://`` URI of its root entity; ``None`` without one, or where the server has no name."""
        value: str | None = self.summary.get("uri")
        return value

    @property
    def root(self) -> tuple[int, int] | None:
        """Scope and entity of the document itself; ``None`` if the session was lost before."""
        root = self.summary["root"]
        return None if root is None else (root[0], root[1])

    @property
    def file(self) -> str | None:
        """Where the document's own bytes lie in the sink; ``None`` if its parts stand for them, or it failed."""
        value: str | None = self.summary["file"]
        return value

    @property
    def parts(self) -> int:
        """How many parts there are, at any depth."""
        return self._native.counts()[0]

    @property
    def complete(self) -> int:
        """How many of the parts are COMPLETE."""
        return self._native.counts()[1]

    def group(self) -> dict[str, Any]:
        """Tell how the children ended that :meth:`DocumentSender.send_some` has sent.

        ``children``, ``incomplete`` of them, the bytes ``inflated`` for them, their ``scope`` as a receipt has it, and
        why the container is ``missing``, if it is.
        """
        group: dict[str, Any] = json.loads(self._native.group())
        return group

    def placed_batches(self, start: int = 0) -> Iterator[pa.RecordBatch]:
        """Give the rows of `PLACED_SCHEMA` from one on, in batches like those of :meth:`batches`."""
        at: int | None = start
        while at is not None:
            batch, at = self._native.rows(at, _MAX_ROWS, _MAX_BATCH, True, True)
            yield batch

    def batches(self, max_bytes: int = _MAX_BATCH, *, claims: bool = False) -> Iterator[pa.RecordBatch]:
        """Give the rows of `PART_SCHEMA` in batches of ``max_bytes`` of text and content, unless one row has more.

        With ``claims`` they have one column more at the end, ``claim``: the claim check of a part that was set aside.
        """
        start: int | None = 0
        while start is not None:
            batch, start = self._native.rows(start, _MAX_ROWS, max_bytes, False, claims)
            yield batch

    def batch(self) -> pa.RecordBatch:
        """Give all rows of `PART_SCHEMA` as one batch.

        Raises :class:`penstock.DocumentsError` of kind "limit" if the text has 2 GiB or more: take :meth:`batches`.
        """
        batch, rest = self._native.rows(0, self.parts + 1, _MAX_TEXT, False, False)
        if rest is not None:
            raise DocumentsError("the parts' text has 2 GiB or more; take it in batches()", "limit")
        return batch
