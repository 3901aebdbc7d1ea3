"""Send documents into a session; `penstock.documents` exports the classes."""

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
"""The columns of parts. The first row is the document itself, then its parts follow depth first."""

CLAIM_SCHEMA: pa.Schema = _core.part_schema(claims=True)
"""`PART_SCHEMA` with the claim check of a deferred part, 16 hex digits: for documents that are sent under a policy."""

PLACED_SCHEMA: pa.Schema = _core.part_schema(placed=True)
"""`CLAIM_SCHEMA` with the columns that a receipt needs: which child of its container a part is or lies in, its number,
session, file, and the digest of its own scope."""

_MAX_ROWS = 65_536
_MAX_BATCH = 8 << 20
# The offsets of Arrow's string type have 32 bits, and Spark accepts no other string type.
_MAX_TEXT = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The ID and the owner of a document, for the core."""

    doc_id: str | None
    owner: "OwnershipContext | None"


def document_name(path: str | os.PathLike[str], folder: str | os.PathLike[str] | None = None) -> str:
    r"""Return a document's name for receipts: its path relative to ``folder`` with ``/``, or its base name without one.

    Bytes that are not UTF-8 are written as ``\xhh``.

    >>> document_name("/data/in/b/c.zip", "/data/in"), document_name("/data/in/b/c.zip")
    ('b/c.zip', 'c.zip')
    """
    name = os.path.basename(path) if folder is None else os.path.relpath(path, folder)  # noqa: PTH119
    return os.fsencode(name.replace(os.sep, "/")).decode("utf-8", "backslashreplace")


class DocumentSender:
    """Splits documents and sends their parts into a session. No Python code runs for a single part.

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
        """Make a sender for a session.

        If the session has a ``state``, each part has a label made from the document's name, its bytes and the part's
        place in it: a process that sends the same documents in the same order continues what an earlier process has
        announced.

        Args:
            session: The session into which to send. At layer 0 a document has one level of parts: containers inside it
                are sent whole.
            dehydrate: Whether documents are split; if False, each is sent as one entity.
            limits: The limits for splitting; by default those of `penstock.documents.Limits`.
            in_flight: The most documents on their way at once; beyond it, `send` waits for the oldest.
            text: Whether rows of results have the texts of all parts; if False, only of parts of mails, whose charset
                is not known from the content.
            max_content: The most bytes of content in a row; the content of larger parts is null, and only in the sink.
            privacy: What the headers conceal; by default nothing.
            by_reference: A URL below which the documents lie under their names: with ``dehydrate=False``, a reference
                to each document is sent instead of its bytes.
            policy: The policy for each container of a document: what happens to parts that fail, and to the container
                then. By default that of `Session.connect`, if any.
            owner: The owner of documents for which `send` names no other.

        Raises:
            PipeStreamError: The session is over, or lacks layer 2 for the policy.
            OSError: The pseudonym key cannot be read.
            ValueError: ``by_reference`` and ``privacy`` are both given.
        """
        from penstock.documents import Limits

        manner = manner_of(privacy, by_reference)
        # Passed explicitly: if the session applied its own policy to the entities, the receipt would not mention it.
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
        """Split one document and send it; return once its last part has been announced and handed over.

        A document that cannot be read is announced as FAILED with the reason. If the session is lost meanwhile, the
        result still accounts for every part.

        Args:
            name: The document's name, which appears in the headers of all its parts and in the receipt.
            source: A path, the bytes themselves, or a binary file.
            previous: An earlier receipt of any version of the document, as `penstock.receipts.load` returns it. Parts
                that are COMPLETE in it and have not changed are not sent again; the new receipt names the session of
                each part. Parts that are DEFERRED in it are sent again under their claim checks, which are redeemed,
                if the session has layer 2.
            doc_id: The document ID (PipeStream, section 7.1), a UUID in lower case; by default it is made from the
                receipt's key. It is sent with the root entity, in a `penstock.pipestream.PipeDoc`. If ``doc_id`` or
                ``owner`` differs from ``previous``, the root entity is announced again.
            owner: The owner of the document; by default that of the sender.

        Raises:
            PipeStreamError: The session was over before.
            ValueError: ``doc_id`` is not a UUID, or the owner exceeds the limits of its class.
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

        This is for plans that process the parts of one document in several tasks. `DocumentResult.group` describes the
        outcome.
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

        It has ``children`` children, of which ``incomplete`` are not COMPLETE; if there are any, the containers become
        FAILED.
        """
        text = None if previous is None else json.dumps(previous)
        identity = self._identity(doc_id, owner)
        return SentDocument(self._native.send_containers(name, chain, children, incomplete, text, identity))

    def stop(self) -> None:
        """Stop sending: calls of `send` in other threads raise, and no new one starts."""
        self._native.stop()


class SentDocument:
    """A document whose parts are being sent or have arrived. :meth:`DocumentSender.send` returns it."""

    def __init__(self, native: "_core.SentDocument", previous: Mapping[str, Any] | None = None) -> None:
        """Not made directly: :meth:`DocumentSender.send` returns one."""
        self._native = native
        self._previous = previous

    def done(self) -> bool:
        """Return whether every part is terminal, so that :meth:`wait` would return immediately."""
        return self._native.wait(0) is not None

    def wait(self, timeout: float | None = None) -> "DocumentResult":
        """Wait until every part is terminal, and return the result.

        The wait can be repeated after a timeout.

        Args:
            timeout: Seconds to wait; by default indefinitely.

        Raises:
            DocumentsError: Of kind "deadline" after the timeout.
        """
        outcome = self._native.wait(timeout)
        if outcome is None:
            raise DocumentsError(f"not every part ended within {timeout} s", "deadline")
        return DocumentResult(outcome, self._previous)


class DocumentResult:
    """The outcome of a document and each of its parts. :meth:`SentDocument.wait` returns it."""

    def __init__(self, native: "_core.DocumentOutcome", previous: Mapping[str, Any] | None = None) -> None:
        """Not made directly: :meth:`SentDocument.wait` returns one."""
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
        """Return the receipt, in the form that `penstock.receipts` writes and verifies."""
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
        """The document's key, 32 hex digits, after which the receipt is named."""
        return self._native.key

    @property
    def sha256(self) -> str | None:
        """The document's SHA-256 in hex; ``None`` if it could not be read."""
        value: str | None = self.summary["sha256"]
        return value

    @property
    def bytes(self) -> int | None:
        """The document's size in bytes; ``None`` if it could not be read."""
        value: int | None = self.summary["bytes"]
        return value

    @property
    def status(self) -> str:
        """The document's status: COMPLETE if every part is, or if enough parts are for its policy."""
        return str(self.summary["status"])

    @property
    def outcome(self) -> str | None:
        """The document's outcome under its policy: RESOLVED, PARTIAL or FAILED; ``None`` without a policy."""
        value: str | None = self.summary.get("outcome")
        return value

    @property
    def reason(self) -> str | None:
        """Why the status is not COMPLETE; ``None`` if it is."""
        value: str | None = self.summary["reason"]
        return value

    @property
    def content_root(self) -> str:
        """The digest over the paths, bytes and statuses of all parts, in hex."""
        return self._native.content_root

    @property
    def session(self) -> str:
        """The session's ID."""
        return str(self.summary["session"])

    @property
    def doc_id(self) -> str:
        """The document ID, a UUID."""
        return str(self.summary["doc_id"])

    @property
    def owner(self) -> "OwnershipContext | None":
        """The document's owner; ``None`` if it has none."""
        from penstock.pipestream import OwnershipContext

        owner = self.summary.get("owner")
        return None if owner is None else OwnershipContext(**owner)

    @property
    def uri(self) -> str | None:
        """The ``pipestream://`` URI of the root entity; ``None`` without one, or if the server's name is not known."""
        value: str | None = self.summary.get("uri")
        return value

    @property
    def root(self) -> tuple[int, int] | None:
        """The scope ID and entity ID of the document itself; ``None`` if the session was lost before it had them."""
        root = self.summary["root"]
        return None if root is None else (root[0], root[1])

    @property
    def file(self) -> str | None:
        """The path of the document's own bytes in the sink; ``None`` if its parts replace them, or if it failed."""
        value: str | None = self.summary["file"]
        return value

    @property
    def parts(self) -> int:
        """The number of parts, at any depth."""
        return self._native.counts()[0]

    @property
    def complete(self) -> int:
        """The number of parts that are COMPLETE."""
        return self._native.counts()[1]

    def group(self) -> dict[str, Any]:
        """Return the outcome of the children that :meth:`DocumentSender.send_some` has sent.

        It has the number of ``children``, the number of ``incomplete`` ones, the bytes that were ``inflated`` for them,
        their ``scope`` in the form of a receipt, and the reason why the container is ``missing``, if it is.
        """
        group: dict[str, Any] = json.loads(self._native.group())
        return group

    def placed_batches(self, start: int = 0) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `PLACED_SCHEMA` from row ``start`` on, in batches like those of :meth:`batches`."""
        at: int | None = start
        while at is not None:
            batch, at = self._native.rows(at, _MAX_ROWS, _MAX_BATCH, True, True)
            yield batch

    def batches(self, max_bytes: int = _MAX_BATCH, *, claims: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `PART_SCHEMA` in batches.

        Args:
            max_bytes: The most bytes of text and content in a batch, by default 8 MiB; a single row may have more.
            claims: Whether to add the column ``claim`` at the end: the claim check of a part that was deferred.
        """
        start: int | None = 0
        while start is not None:
            batch, start = self._native.rows(start, _MAX_ROWS, max_bytes, False, claims)
            yield batch

    def batch(self) -> pa.RecordBatch:
        """Return all rows of `PART_SCHEMA` as one batch.

        Raises:
            DocumentsError: Of kind "limit", if the text has 2 GiB or more; use :meth:`batches` then.
        """
        batch, rest = self._native.rows(0, self.parts + 1, _MAX_TEXT, False, False)
        if rest is not None:
            raise DocumentsError("the parts' text has 2 GiB or more; use batches()", "limit")
        return batch
