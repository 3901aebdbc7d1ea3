"""The spool: what a receiver has acknowledged, durable, until everybody has read it."""

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
"""The columns of events as they came: ``received`` (timestamp), ``peer``, ``identity`` (by the writer's certificate,
else null), ``sequence``, ``event`` (a JSON object as it was sent; null for others), ``fields`` (the pairs of a D frame;
null for J frames), ``raw`` (the bytes of a J frame that is no JSON object), ``tags`` (what is wrong:
``_jsonparsefailure``, ``_charsetfailure``; null if nothing is)."""


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place between two events of a spool: the next one.

    >>> Position(1, 500) < Position(2, 0)
    True
    """

    segment: int = 0
    """The number of a segment; 0 is before all of them."""
    row: int = 0
    """The row in it."""


@dataclass(frozen=True, slots=True)
class SpoolPiece:
    """Events of a segment behind one another, which anybody reads with the same result, at any time.

    >>> SpoolPiece(segment=1, header=800, start=800, end=2000, skip=0, rows=10).bytes
    1200
    """

    segment: int
    """The segment's number."""
    header: int
    """Bytes of the segment's header."""
    start: int
    """Where its first record begins in the segment, in bytes."""
    end: int
    """Where its last record ends."""
    skip: int
    """Events of the first record that are not of the piece."""
    rows: int
    """Its events."""

    @property
    def bytes(self) -> int:
        """Bytes of its records."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class SpoolCounters:
    """What a spool has seen since it was opened.

    >>> SpoolCounters(events=3, duplicates=1, syncs=2, refused=0, bytes=4096).duplicates
    1
    """

    events: int
    """Events that were made durable."""
    duplicates: int
    """Events that were sent again after a reconnect, acknowledged, and left out."""
    syncs: int
    """How often the disk was asked to be sure, or an object was written."""
    refused: int
    """Batches that were refused, because disk or store failed."""
    bytes: int
    """Bytes that are kept."""
    damaged: int = 0
    """Records that were found damaged when the spool was opened, and whose events are lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolOptions:
    """What `Spool` tells the core."""

    place: str
    storage: Mapping[str, str] = field(default_factory=dict)
    max_bytes: int
    segment_bytes: int
    segment_seconds: float
    linger: float
    ack: str
    dedup: bool


class _Planned:
    """What a spool that is written and one that is read have in common."""

    _native: "_core.Spool | _core.SpoolReader"

    def _core_of(self) -> "_core.Spool | _core.SpoolReader":
        return self._native

    @property
    def id(self) -> str:
        """The spool's ID, 32 hex digits, for ever.

        Raises:
            LumberjackError: Of kind "io" where it cannot be read.
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
        """Divide what lies behind a position; give the pieces and where they end.

        Args:
            start: Where to begin.
            until: Where to end; by default with what is durable now.
            rows: Events of all pieces.
            max_bytes: Bytes of all pieces; an event that has more comes alone.
            piece: Bytes of a piece.

        Raises:
            LumberjackError: Of kind "misuse" where a segment behind ``start`` has been removed, or the spool does not
                reach to ``start`` or ``until``; "io" where the spool cannot be read.
        """
        last = None if until is None else (until.segment, until.row)
        pieces, end = self._core_of().plan((start.segment, start.row), last, rows, max_bytes, piece)
        return [SpoolPiece(*found) for found in pieces], Position(*end)

    def end(self, start: Position = Position()) -> Position:
        """Say where the spool ends now; ``start`` spares looking at what is before it."""
        return self.plan(start)[1]

    def commit(self, reader: str, position: Position) -> None:
        """Say that a reader has made every event before a position its own.

        Segments that every named reader is done with are removed, but for the last two; with ``ack="commit"`` their
        events are acknowledged. A position before the one that is known changes nothing.

        Args:
            reader: The reader's name, 1 to 128 bytes.
            position: As `plan` gave it.

        Raises:
            LumberjackError: Of kind "misuse" where the spool is not that far, or is only read here.
        """
        self._core_of().commit(reader, (position.segment, position.row))


class Spool(_Planned):
    """A spool that is written, by this process alone: where a `Receiver` puts what it acknowledges.

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
        """Open a spool, or make one. What a crash has left half-written is cut off; it was never acknowledged.

        A record that was damaged on disk loses its own events and no others (see `SpoolReader.read`). The file
        as it was found is kept beside the segment, as ``.damaged``.

        A spool in an object store is taken over from whoever wrote it before: what that one still gets it refuses.

        Args:
            place: A folder, or the URI of a prefix in an object store (``s3://``, ``gs://``, ``abfss://``).
            max_bytes: Bytes that are kept; then writers wait until readers commit.
            segment_bytes: A segment is full with so many bytes, or a quarter of ``max_bytes``.
            segment_seconds: And after so many seconds.
            linger: In an object store: seconds that an object waits for more events.
            ack: When events are acknowledged: ``spool``, on disk, or ``commit``, when every named reader has committed.
            dedup: Whether events that a sender sends again after its connection broke are left out.
            storage: Options of the object store; by default the environment says it all.

        Raises:
            LumberjackError: Of kind "misuse" where an option is wrong; "io" where another process writes the folder,
                and where disk or store fail.
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
        """Let readers in over TLS who have the key; give the address and the certificate's fingerprint.

        Args:
            listen: ``HOST:PORT``; port 0 picks a free one.
            read_key: What readers must know, at least 16 bytes.
            cert: The certificate (PEM file), with ``key``; by default one for development.
            key: Its private key (PEM file).
            state: For the development certificate; by default the state folder of the command line.

        Raises:
            LumberjackError: Of kind "io" where the address is taken, "misuse" where the key is short.
        """
        development = (state_dir() if state is None else Path(state)) / "certificate"
        pair = [None if path is None else Path(path) for path in (cert, key)]
        return self._native.serve(listen, read_key, development, *pair)

    @property
    def core(self) -> "_core.Spool":
        """What a `Receiver` delivers to."""
        return self._native

    def counters(self) -> SpoolCounters:
        """Give what it has seen."""
        return SpoolCounters(**self._native.counters())

    def close(self) -> None:
        """Take no more, and wait until what was taken is on disk."""
        self._native.close()

    def __enter__(self) -> Self:
        """Use it for a while."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def __reduce__(self) -> NoReturn:
        """Refuse a pickle."""
        raise TypeError("a Spool is written by one process and cannot be pickled: pickle a SpoolReader")

    def __repr__(self) -> str:
        """Say where it is."""
        return f"<Spool {self._place}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolReaderOptions:
    """What `SpoolReader` tells the core."""

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
    """Reads a spool: its folder, its prefix in an object store, or the receiver that writes it.

    It holds options and opens nothing before it is used; it survives a pickle and a fork.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, Spool(f"{folder}/spool") as spool:
    ...     address, fingerprint = spool.serve(read_key="a secret of 16 bytes or more", state=folder)
    ...     reader = SpoolReader.connect(address, read_key="a secret of 16 bytes or more", fingerprint=fingerprint)
    ...     reader.id == SpoolReader(f"{folder}/spool").id == spool.id, list(reader.read())
    (True, [])
    """

    def __init__(self, place: PathLike, *, storage: Mapping[str, str] | None = None) -> None:
        """Take a spool's folder, or its URI in an object store, to be read where it lies."""
        self._take(SpoolReaderOptions(place=os.fspath(place), storage=dict(storage or {})))

    def _take(self, options: SpoolReaderOptions) -> None:
        self._options = options
        # What was opened does not survive a fork.
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
        """Take the spool of a receiver that serves it (`Spool.serve`). Nothing is asked before the first use.

        Args:
            address: ``HOST:PORT`` of the service.
            read_key: The key that it asks for.
            fingerprint: Trust the server whose certificate has this SHA-256.
            ca: Trust servers that this CA (PEM file) has signed.
            system_ca: Trust what the system trusts. Exactly one of the three must be given.
            cert: The reader's certificate (PEM file), with ``key``.
            key: Its private key (PEM file).
            server_name: What the server's certificate must be for; by default the host.
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
        """The service that it asks; None for a spool that is read where it lies, where nothing can be committed."""
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
        """Give the events of pieces, by default all there are, as record batches.

        Args:
            pieces: What to read, in this order.
            schema: The columns that the fields of events are parsed into; by default they stay as they came,
                `EVENT_SCHEMA`. ``_received``, ``_peer``, ``_identity``, ``_sequence``, ``_raw``, ``_tags`` and
                ``_rescue`` (what did not fit, as a JSON object) are no fields.
            skip_damaged: Leave out events that were lost to damage on disk, with a warning in the log.

        Raises:
            LumberjackError: Of kind "io" where the spool cannot be read, or is not what was written: it names the
                segment and the rows that are lost.
        """
        native = self._core_of()
        for piece in self.plan()[0] if pieces is None else pieces:
            place = (piece.segment, piece.header, piece.start, piece.end, piece.skip, piece.rows)
            yield from native.rows(place, schema, skip_damaged)

    def __eq__(self, other: object) -> bool:
        """Compare what is read, and how."""
        return isinstance(other, SpoolReader) and self._options == other._options

    def __hash__(self) -> int:
        """Hash where it is."""
        return hash((self._options.place, self._options.address))

    def __reduce__(self) -> tuple[object, tuple[SpoolReaderOptions]]:
        """Survive a pickle by the options."""
        return SpoolReader._of, (self._options,)

    def __repr__(self) -> str:
        """Say where the spool is, and nothing that is secret."""
        return f"<SpoolReader {self._options.place or self._options.address}>"
