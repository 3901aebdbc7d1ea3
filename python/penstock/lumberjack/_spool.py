"""The spool: a durable store of the events that a receiver has acknowledged, until all readers have read them."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

import pyarrow as pa

from penstock import _core
from penstock._opened import Opened
from penstock._state import state_dir

__all__ = ["EVENT_SCHEMA", "Position", "Spool", "SpoolCounters", "SpoolPiece", "SpoolReader"]

PathLike = str | os.PathLike[str]
_ALL = (1 << 63) - 1
_PIECE = 64 << 20

EVENT_SCHEMA: pa.Schema = _core.event_schema()
"""The columns of events as they were received: ``received`` (timestamp), ``peer``, ``identity`` (the name in the
writer's certificate, else null), ``sequence``, ``event`` (a JSON object as it was sent; null for other events),
``fields`` (the pairs of a D frame; null for J frames), ``raw`` (the bytes of a J frame that is not a JSON object),
``tags`` (the problems of the event: ``_jsonparsefailure``, ``_charsetfailure``; null if there are none)."""


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A position in a spool, before an event.

    >>> Position(1, 500) < Position(2, 0)
    True
    """

    segment: int = 0
    """The number of the segment; 0 is before the first one."""
    row: int = 0
    """The row in the segment."""


@dataclass(frozen=True, slots=True)
class SpoolPiece:
    """A range of consecutive events in a segment, which always reads with the same result.

    >>> SpoolPiece(segment=1, header=800, start=800, end=2000, skip=0, rows=10).bytes
    1200
    """

    segment: int
    """The segment's number."""
    header: int
    """The bytes of the segment's header."""
    start: int
    """The offset of the first record in the segment, in bytes."""
    end: int
    """The offset of the end of the last record, in bytes."""
    skip: int
    """The number of events at the start of the first record that are not in the piece."""
    rows: int
    """The number of events."""

    @property
    def bytes(self) -> int:
        """The bytes of the records."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class SpoolCounters:
    """The counters of a spool since it was opened.

    >>> SpoolCounters(events=3, duplicates=1, syncs=2, refused=0, bytes=4096).duplicates
    1
    """

    events: int
    """Events that were made durable."""
    duplicates: int
    """Events that were sent again after a reconnect; they were acknowledged and left out."""
    syncs: int
    """How often the disk was synced or an object was written."""
    refused: int
    """Batches that were refused because the disk or the object store failed."""
    bytes: int
    """Bytes that are stored."""
    damaged: int = 0
    """Records that were damaged when the spool was opened, so that their events are lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolOptions:
    """The options that `Spool` passes to the core."""

    place: str
    storage: Mapping[str, str] = field(default_factory=dict)
    max_bytes: int
    segment_bytes: int
    segment_seconds: float
    linger: float
    ack: str
    dedup: bool


class _Planned:
    """The methods that `Spool` and `SpoolReader` have in common."""

    _native: "_core.Spool | _core.SpoolReader"

    def _core_of(self) -> "_core.Spool | _core.SpoolReader":
        return self._native

    @property
    def id(self) -> str:
        """The spool's ID, 32 hex digits, which never changes.

        Raises:
            LumberjackError: Of kind "io" if the spool cannot be read.
        """
        return self._core_of().id()

    def plan(
        self,
        start: Position = Position(),
        until: Position | None = None,
        *,
        rows: int = _ALL,
        max_bytes: int = _ALL,
        piece: int = _PIECE,
    ) -> tuple[list[SpoolPiece], Position]:
        """Divide the events after a position into pieces; return the pieces and the position after them.

        Args:
            start: The position at which to start; by default the start of the spool.
            until: The position at which to end; by default the end of what is durable now.
            rows: The most events of all pieces together; by default there is no limit.
            max_bytes: The most bytes of all pieces together; a single larger event is returned alone. By default there
                is no limit.
            piece: The most bytes of a piece; by default 64 MiB.

        Raises:
            LumberjackError: Of kind "misuse" if a segment after ``start`` has been removed, or the spool ends before
                ``start`` or ``until``; "io" if the spool cannot be read.
        """
        last = None if until is None else (until.segment, until.row)
        pieces, end = self._core_of().plan((start.segment, start.row), last, rows, max_bytes, piece)
        return [SpoolPiece(*found) for found in pieces], Position(*end)

    def end(self, start: Position = Position()) -> Position:
        """Return the current end of the spool; a known ``start`` avoids reading what is before it."""
        return self.plan(start)[1]

    def commit(self, reader: str, position: Position) -> None:
        """Report that a reader has processed all events before a position.

        Segments that all named readers have committed are removed, except for the last two; with ``ack="commit"`` their
        events are acknowledged. A position before the last committed one changes nothing.

        Args:
            reader: The reader's name, 1 to 128 bytes.
            position: A position that `plan` has returned.

        Raises:
            LumberjackError: Of kind "misuse" if the spool ends before the position, or is read without its receiver.
        """
        self._core_of().commit(reader, (position.segment, position.row))


class Spool(_Planned):
    """A spool that only this process writes: a `Receiver` stores events in it before it acknowledges them.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, Spool(f"{folder}/spool") as spool:
    ...     spool.plan()
    ([], Position(segment=0, row=0))
    """

    def __init__(
        self,
        place: PathLike,
        *,
        max_bytes: int = 10 << 30,
        segment_bytes: int = 64 << 20,
        segment_seconds: float = 60.0,
        linger: float = 0.5,
        ack: str = "spool",
        dedup: bool = True,
        storage: Mapping[str, str] | None = None,
    ) -> None:
        """Open a spool, or create it.

        A record that a crash left half-written is cut off; its events were not acknowledged. A record that was damaged
        on disk loses its own events and no others (see `SpoolReader.read`). The file as it was found is kept next to
        the segment, as ``.damaged``.

        A spool in an object store is taken over from its previous writer, which refuses events from then on.

        Args:
            place: A folder, or the URI of a prefix in an object store (``s3://``, ``gs://``, ``abfss://``).
            max_bytes: The most bytes to store, by default 10 GiB; beyond it writers wait until readers commit.
            segment_bytes: The size at which a segment is full, by default 64 MiB, at most a quarter of ``max_bytes``.
            segment_seconds: The age in seconds at which a segment is full.
            linger: Seconds that an object in an object store waits for more events before it is written.
            ack: When events are acknowledged: ``spool``, once they are durable, or ``commit``, once all named readers
                have committed them.
            dedup: Whether to leave out events that a sender sends again because its connection broke.
            storage: Options of the object store; by default the environment configures it.

        Raises:
            LumberjackError: Of kind "misuse" for an invalid option; "io" if another process writes the folder, or the
                disk or the object store fails.
        """
        options = SpoolOptions(
            place=os.fspath(place),
            storage=dict(storage or {}),
            max_bytes=max_bytes,
            segment_bytes=segment_bytes,
            segment_seconds=segment_seconds,
            linger=linger,
            ack=ack,
            dedup=dedup,
        )
        self._place = options.place
        self._native: _core.Spool = _core.Spool(options)

    def serve(
        self,
        listen: str = "127.0.0.1:0",
        *,
        read_key: str,
        cert: PathLike | None = None,
        key: PathLike | None = None,
        state: PathLike | None = None,
    ) -> tuple[str, str]:
        """Serve the spool over TLS to readers that have the key; return the address and the certificate's fingerprint.

        Args:
            listen: ``HOST:PORT`` to listen on; port 0 picks a free one.
            read_key: The secret that readers must present, at least 16 bytes.
            cert: The certificate (PEM file), with ``key``; by default a development certificate.
            key: The certificate's private key (PEM file).
            state: The folder of the development certificate; by default the state folder of the command line.

        Raises:
            LumberjackError: Of kind "io" if the address is in use, "misuse" if the key is too short.
        """
        development = (state_dir() if state is None else Path(state)) / "certificate"
        pair = [None if path is None else Path(path) for path in (cert, key)]
        return self._native.serve(listen, read_key, development, *pair)

    @property
    def core(self) -> "_core.Spool":
        """The core's spool, to which a `Receiver` delivers."""
        return self._native

    def counters(self) -> SpoolCounters:
        """Return the current counters."""
        return SpoolCounters(**self._native.counters())

    def close(self) -> None:
        """Stop serving readers, accept no more events, and wait until the accepted ones are durable."""
        self._native.close()

    def __enter__(self) -> Self:
        """Return the spool itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the spool."""
        self.close()

    def __reduce__(self) -> NoReturn:
        """Not picklable: only one process writes a spool."""
        raise TypeError("a Spool is written by one process and cannot be pickled: pickle a SpoolReader")

    def __repr__(self) -> str:
        """Return the place of the spool."""
        return f"<Spool {self._place}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolReaderOptions:
    """The options that `SpoolReader` passes to the core."""

    place: str | None = None
    storage: Mapping[str, str] = field(default_factory=dict)
    address: str | None = None
    fingerprint: str | None = None
    ca: str | None = None
    system_ca: bool = False
    cert: str | None = None
    key: str | None = None
    server_name: str | None = None
    read_key: str | None = None


class SpoolReader(_Planned):
    """A reader of a spool in a folder, in an object store, or through the receiver that writes it.

    It holds only options and opens the spool at its first use in each process, so it can be pickled and used after a
    fork.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, Spool(f"{folder}/spool") as spool:
    ...     address, fingerprint = spool.serve(read_key="a secret of 16 bytes or more", state=folder)
    ...     reader = SpoolReader.connect(address, read_key="a secret of 16 bytes or more", fingerprint=fingerprint)
    ...     reader.id == SpoolReader(f"{folder}/spool").id == spool.id, list(reader.read())
    (True, [])
    """

    def __init__(self, place: PathLike, *, storage: Mapping[str, str] | None = None) -> None:
        """Make a reader of a spool in a folder or, by its URI, in an object store; nothing is opened yet.

        Args:
            place: The spool's folder, or its URI.
            storage: Options of the object store; by default the environment configures it.
        """
        self._take(SpoolReaderOptions(place=os.fspath(place), storage=dict(storage or {})))

    def _take(self, options: SpoolReaderOptions) -> None:
        self._options = options
        # An open spool cannot be used after a fork.
        self._opened = Opened(partial(_core.SpoolReader, options))

    @classmethod
    def _of(cls, options: SpoolReaderOptions) -> Self:
        reader = cls.__new__(cls)
        reader._take(options)
        return reader

    @classmethod
    def connect(
        cls,
        address: str,
        *,
        read_key: str,
        fingerprint: str | None = None,
        ca: PathLike | None = None,
        system_ca: bool = False,
        cert: PathLike | None = None,
        key: PathLike | None = None,
        server_name: str | None = None,
    ) -> Self:
        """Make a reader of a spool that its receiver serves (`Spool.serve`); it connects at its first use.

        Exactly one of ``fingerprint``, ``ca`` and ``system_ca`` must be given: it determines which server is trusted.

        Args:
            address: ``HOST:PORT`` of the server.
            read_key: The server's read key.
            fingerprint: Trust the server whose certificate has this SHA-256, in hex.
            ca: Trust servers whose certificate is signed by this CA (PEM file).
            system_ca: Trust servers whose certificate is signed by a CA of the system's store.
            cert: The reader's certificate (PEM file), with ``key``.
            key: The certificate's private key (PEM file).
            server_name: The name that the server's certificate must have; by default the host of ``address``.
        """
        paths = [None if path is None else os.fspath(path) for path in (ca, cert, key)]
        return cls._of(
            SpoolReaderOptions(
                address=address,
                fingerprint=fingerprint,
                ca=paths[0],
                system_ca=system_ca,
                cert=paths[1],
                key=paths[2],
                server_name=server_name,
                read_key=read_key,
            )
        )

    @property
    def address(self) -> str | None:
        """The ``HOST:PORT`` of the server; None for a spool that is read directly, where `commit` is not possible."""
        return self._options.address

    def _core_of(self) -> _core.SpoolReader:
        return self._opened.get()

    def read(
        self,
        pieces: Iterable[SpoolPiece] | None = None,
        *,
        schema: pa.Schema | None = None,
        skip_damaged: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the events of pieces, by default of the whole spool, as record batches.

        Args:
            pieces: The pieces to read, in this order.
            schema: The columns into which the fields of events are parsed; by default events are returned unparsed, in
                the columns of `EVENT_SCHEMA`. The names ``_received``, ``_peer``, ``_identity``, ``_sequence``,
                ``_raw``, ``_tags`` and ``_rescue`` (the fields that did not fit, as a JSON object) are not fields of
                events.
            skip_damaged: Whether to leave out events that were lost to damage on disk, with a warning in the log.

        Raises:
            LumberjackError: Of kind "io" if the spool cannot be read or is damaged; the message names the segment and
                the lost rows.
        """
        native = self._core_of()
        for piece in self.plan()[0] if pieces is None else pieces:
            place = (piece.segment, piece.header, piece.start, piece.end, piece.skip, piece.rows)
            yield from native.rows(place, schema, skip_damaged)

    def __eq__(self, other: object) -> bool:
        """Compare the options."""
        return isinstance(other, SpoolReader) and self._options == other._options

    def __hash__(self) -> int:
        """Hash the spool's place or address."""
        return hash((self._options.place, self._options.address))

    def __reduce__(self) -> tuple[object, tuple[SpoolReaderOptions]]:
        """Pickle the options."""
        return SpoolReader._of, (self._options,)

    def __repr__(self) -> str:
        """Return the spool's place or address, without secrets."""
        return f"<SpoolReader {self._options.place or self._options.address}>"
