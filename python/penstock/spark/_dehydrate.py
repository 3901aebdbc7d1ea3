"""One attempt of a task that takes documents apart.

::

    paths ──▶ DocumentSender.send ──▶ on their way, at most in_flight ──▶ settled: rows, and a staged receipt
                                                                             │ after the last document
                                                                    session closed with 0
                                                                             │
                                                        receipts renamed into place, last rows given out
"""

import io
import shutil
from collections import deque
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Self, cast

import pyarrow as pa

from penstock import receipts
from penstock.documents import DocumentResult, DocumentSender, SentDocument, document_name
from penstock.errors import PipeStreamError, SparkError
from penstock.pipestream import Session
from penstock.spark._batches import resize
from penstock.spark._paths import from_column

if TYPE_CHECKING:
    from penstock.spark.functions import Dehydrate

__all__ = ["take_apart"]


def take_apart(options: "Dehydrate", batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Send the documents that the rows name; give the rows of their parts."""
    documents = _documents(batches, options.root)
    first = next(documents, None)
    if first is None:
        return
    attempt = _Attempt(options)
    last: pa.RecordBatch | None = None
    with attempt:
        for batch in resize(attempt.rows(chain([first], documents))):
            if last is not None:
                yield last
            last = batch
        attempt.finish()
    # Whoever has all rows of a task can read its session in the sink, and its receipts.
    if last is not None:
        yield last


class _Attempt:
    """The session of an attempt, the documents on their way, and the receipts that wait for its end."""

    def __init__(self, options: "Dehydrate") -> None:
        self._options = options
        self._on_their_way: deque[SentDocument] = deque()
        self._settled = 0
        self._session = self._connect()
        self._receipts = None if options.receipts is None else _Receipts(Path(options.receipts), self._session.id)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Without an error finish() has closed the session. With one, a consumer that stopped early (GeneratorExit)
        # included, the session is aborted: its entities count for nobody.
        try:
            self._session.__exit__(kind, error, traceback)
        finally:
            if self._receipts is not None:
                self._receipts.discard()
        if isinstance(error, PipeStreamError):
            raise SparkError(self._account(error)) from error

    def rows(self, documents: Iterator[tuple[str, str | BinaryIO]]) -> Iterator[pa.RecordBatch]:
        """Send documents while earlier ones are still being received; give rows in the order of the documents."""
        sender = DocumentSender(self._session, limits=self._options.limits, in_flight=self._options.in_flight)
        for name, source in documents:
            if len(self._on_their_way) == self._options.in_flight:
                yield from self._settle()
            self._on_their_way.append(sender.send(name, source))
        while self._on_their_way:
            yield from self._settle()

    def finish(self) -> None:
        """Close the session, then show the receipts."""
        self._session.close()
        if self._receipts is not None:
            self._receipts.publish()

    def _settle(self) -> Iterator[pa.RecordBatch]:
        result = self._on_their_way[0].wait()
        self._on_their_way.popleft()
        self._settled += 1
        if self._receipts is not None:
            self._receipts.add(result)
        return iter(result.batches())

    def _connect(self) -> Session:
        options = self._options
        try:
            return Session.connect(
                options.sink,
                fingerprint=options.fingerprint,
                ca=options.ca,
                system_ca=options.system_ca,
                cert=options.cert,
                key=options.key,
            )
        except (PipeStreamError, OSError) as error:
            raise SparkError(f"no session with the sink {options.sink}: {error}") from error

    def _account(self, error: PipeStreamError) -> str:
        return (
            f"the session {self._session.id} with the sink {self._options.sink} ended before its time: {error}. "
            f"{self._settled} documents of this task were settled, {len(self._on_their_way)} were on their way; "
            "nothing of this attempt is in the results"
        )


class _Receipts:
    """Receipts of an attempt, kept out of sight until its session is closed."""

    def __init__(self, folder: Path, session: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        # On the same file system as the folder, so that a receipt appears there in one step.
        self._staging = folder / f".{session}"
        self._staging.mkdir()

    def add(self, result: DocumentResult) -> None:
        receipts.write(result, self._staging)

    def publish(self) -> None:
        for receipt in self._staging.iterdir():
            receipt.replace(self._folder / receipt.name)

    def discard(self) -> None:
        shutil.rmtree(self._staging, ignore_errors=True)


class _Unreadable(io.RawIOBase):
    """What a path stands for that cannot even be tried: reading it fails, and so its document is FAILED."""

    def __init__(self, reason: OSError) -> None:
        super().__init__()
        self._reason = reason

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:  # noqa: ARG002 - what a binary file takes
        raise self._reason


def _documents(batches: Iterator[pa.RecordBatch], root: str | None) -> Iterator[tuple[str, str | BinaryIO]]:
    """The name of each document, and what it is read from."""
    for batch in batches:
        if "path" not in batch.schema.names:
            raise SparkError(f"dehydrate needs a column path; there are {', '.join(batch.schema.names)}")
        paths = batch.column("path").to_pylist()
        names = batch.column("document").to_pylist() if "document" in batch.schema.names else [None] * len(paths)
        for name, path in zip(names, paths, strict=True):
            if not isinstance(path, str):
                raise SparkError("dehydrate needs a path in every row, as a string; filter rows without one")
            try:
                local = from_column(path)
            except OSError as error:
                yield name or path, cast("BinaryIO", _Unreadable(error))
            else:
                yield name or _name(local, root), local


def _name(path: str, root: str | None) -> str:
    if root is not None and Path(path).is_relative_to(root):
        return document_name(path, root)
    return document_name(path)
