"""One attempt of a task that splits documents.

::

    paths ──▶ DocumentSender.send, two at once ──▶ in transit, at most in_flight ────▶ settled: rows, a staged receipt
                                                                             │ after the last document
                                                                    session closed with 0
                                                                             │
                                                        receipts renamed into place, last rows returned
"""

import io
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Self, cast

import pyarrow as pa

from penstock._places import Place, is_uri
from penstock._previous import EarlierReceipts
from penstock._staged_receipts import StagedReceipts
from penstock.documents import DocumentResult, DocumentSender, SentDocument
from penstock.errors import DocumentsError, PipeStreamError, SparkError
from penstock.pipestream import OwnershipContext
from penstock.spark._batches import resize
from penstock.spark._divide import CARRIED, Task, default_name
from penstock.spark._paths import from_column
from penstock.spark._peer import parsed

if TYPE_CHECKING:
    from penstock.spark.functions import Dehydrate

__all__ = ["Attempt", "finished", "identity_of", "source_of", "staged_receipts", "take_apart"]

_HANDS = 2
"""How many documents are split at once, so that one proceeds while another waits for the PDF reader."""


def take_apart(options: "Dehydrate", batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Send the documents that the rows name; yield the rows of their parts."""
    documents = _documents(batches, options)
    first = next(documents, None)
    if first is None:
        return
    with staged_receipts(options) as receipts, Attempt(options, receipts) as attempt:
        yield from finished(attempt, attempt.rows(chain([first], documents)))


def finished(attempt: "Attempt", rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows in batches of a suitable size, the last batch only after the attempt has closed its session.

    A consumer that has all rows of a task can therefore read its session in the sink, and its receipts.
    """
    last: pa.RecordBatch | None = None
    for batch in resize(rows):
        if last is not None:
            yield last
        last = batch
    attempt.finish()
    if last is not None:
        yield last


def staged_receipts(options: "Dehydrate") -> StagedReceipts:
    """Create the staging area that holds a task's receipts until its session is closed."""
    try:
        if (earlier := _earlier(options)) is not None:
            _prepare(earlier, options)
        return StagedReceipts(options.receipts, options.storage)
    except DocumentsError as error:
        raise SparkError(error.message, error.kind) from error


def _prepare(earlier: EarlierReceipts, options: "Dehydrate") -> None:
    """Make earlier receipts searchable by document name."""
    try:
        earlier.prepare()
    except OSError as error:
        why = error.strerror or error
        raise SparkError(f"earlier receipts cannot be found in {options.previous}: {why}", "io") from error


def _earlier(options: "Dehydrate") -> EarlierReceipts | None:
    return None if options.previous is None else EarlierReceipts(options.previous, options.storage)


class Attempt:
    """The session of an attempt, the documents in transit, and the receipts that are published at its end."""

    def __init__(self, options: "Dehydrate", receipts: StagedReceipts) -> None:
        self._options = options
        self._receipts = receipts
        self._earlier = _earlier(options)
        self._on_their_way: deque[SentDocument | Future[SentDocument]] = deque()
        self._settled = 0
        peer = options.peer
        self._sink = peer.object_sink()
        self._session = peer.connect() if self._sink is None else self._sink.connect()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Without an error finish() has already closed the session. An error, also that of a consumer that stops early
        # (GeneratorExit), aborts the session, so its entities are never read.
        self._session.__exit__(kind, error, traceback)
        if self._sink is not None:
            self._sink.stop()
        if isinstance(error, PipeStreamError):
            raise SparkError(self._account(error), error.kind) from error

    def rows(self, documents: Iterator["Found"]) -> Iterator[pa.RecordBatch]:
        """Send documents while earlier ones are still being received; yield rows in the order of the documents."""
        sender = self.sender()
        hands = ThreadPoolExecutor(_HANDS, "penstock-documents")
        try:
            for found in documents:
                if len(self._on_their_way) == self._options.in_flight:
                    yield from self._settle()
                named: dict[str, Any] = {"doc_id": found.doc_id, "owner": found.owner}
                previous = self.previous(found.name)
                sent = hands.submit(sender.send, found.name, found.source, previous=previous, **named)
                self._on_their_way.append(sent)
            while self._on_their_way:
                yield from self._settle()
        except BaseException:
            sender.stop()
            raise
        finally:
            hands.shutdown(cancel_futures=True)

    def previous(self, document: str) -> dict[str, Any] | None:
        """Return the earlier receipt of a document, if earlier receipts are used and it has one."""
        return None if self._earlier is None else self._earlier.find(document)

    def sender(self) -> DocumentSender:
        """Create a sender for the session."""
        options = self._options
        return DocumentSender(
            self._session,
            limits=options.limits,
            in_flight=options.in_flight,
            text=options.text,
            max_content=options.max_content,
            privacy=options.privacy,
            policy=parsed(options.policy),
            owner=options.owner,
        )

    def finish(self) -> None:
        """Close the session, then publish the receipts."""
        self.check_session()
        self._session.close()
        if self._sink is not None:
            self._sink.finish(self._session.id)
        self._receipts.publish()

    def wait(self) -> DocumentResult:
        """Wait until the oldest document in transit is settled; return its result."""
        oldest = self._on_their_way[0]
        result = (oldest.result() if isinstance(oldest, Future) else oldest).wait()
        self.check_session()
        self._on_their_way.popleft()
        self._settled += 1
        return result

    def _settle(self) -> Iterator[pa.RecordBatch]:
        result = self.wait()
        self._receipts.add(result)
        return iter(result.batches(claims=self._options.has_claims))

    def check_session(self) -> None:
        """Raise if the session has ended with any code, because the parts that it cut off are to be retried."""
        if (early := self._session.closed) is not None:
            raise early.error()

    def _account(self, error: PipeStreamError) -> str:
        return (
            f"session {self._session.id} with the sink {self._options.sink} ended early: {error}. "
            f"{self._settled} documents of this task were settled, {len(self._on_their_way)} were in flight; "
            "nothing of this attempt is in the results"
        )


class _Unreadable(io.RawIOBase):
    """The file of an unusable path: reading it raises the reason, so its document is FAILED."""

    def __init__(self, reason: OSError) -> None:
        super().__init__()
        self._reason = reason

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:  # noqa: ARG002 - what a binary file takes
        raise self._reason


@dataclass(frozen=True, slots=True)
class Found:
    """A document that a row names."""

    name: str
    source: str | BinaryIO
    doc_id: str | None
    owner: OwnershipContext | None


def _documents(batches: Iterator[pa.RecordBatch], options: "Dehydrate") -> Iterator[Found]:
    """Yield each document that a row names; with ``redeems`` only those that have DEFERRED parts."""
    earlier = _earlier(options) if options.redeems else None
    if earlier is not None:
        _prepare(earlier, options)
    for batch in batches:
        if "path" not in batch.schema.names:
            raise SparkError(f"dehydrate requires a column path; the columns are {', '.join(batch.schema.names)}")
        carried = [column for column in CARRIED if column in batch.schema.names]
        for row in batch.select(["path", *carried]).to_pylist():
            path, name = row["path"], row.get("document")
            if not isinstance(path, str):
                raise SparkError("dehydrate requires a path in every row, as a string; filter out rows without one")
            if earlier is None or _is_due(earlier.find(name or named(path, options))):
                title, source = source_of(path, name, options)
                yield Found(title, source, row.get("doc_id"), owner_of(row.get("owner")))


def _is_due(receipt: dict[str, Any] | None) -> bool:
    """Return whether any part of a document was deferred."""
    return receipt is not None and any(part["status"] == "DEFERRED" for part in (receipt, *receipt["parts"]))


def named(path: str, options: "Dehydrate") -> str:
    """Return a document's name, derived from its path, or the path itself if it is unusable."""
    try:
        return default_name(from_column(path), options.root)
    except OSError:
        return path


def owner_of(column: Any) -> OwnershipContext | None:
    """Read a document's owner from a row's column ``owner``; return ``None`` for null."""
    if column is None:
        return None
    if not isinstance(column, Mapping):
        raise SparkError("the column owner must be a struct of owner_id, group_id and scopes, or null")
    try:
        return OwnershipContext(
            owner_id=column.get("owner_id"), group_id=column.get("group_id"), scopes=column.get("scopes") or ()
        )
    except TypeError as error:
        raise SparkError(f"the column owner: {error}") from None


def identity_of(task: Task) -> dict[str, Any]:
    """Return the identifier and the owner from a divided document's row, for its sender."""
    return {"doc_id": task.doc_id, "owner": owner_of(task.owner)}


def source_of(path: str, name: str | None, options: "Dehydrate") -> tuple[str, str | BinaryIO]:
    """Return the name of a row's document and the path or file to read it from."""
    try:
        local = from_column(path)
    except OSError as error:
        return name or path, cast("BinaryIO", _Unreadable(error))
    source = _open(local, options.storage) if is_uri(local) else local
    return name or default_name(local, options.root), source


def _open(uri: str, storage: Mapping[str, str]) -> BinaryIO:
    try:
        return cast("BinaryIO", Place.open(uri, storage).open_file())
    except ValueError as error:
        return cast("BinaryIO", _Unreadable(OSError(str(error))))
    except OSError as error:
        return cast("BinaryIO", _Unreadable(error))
