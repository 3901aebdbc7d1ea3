"""Reading a sink: the rows of its closed sessions, from its folder or from the server that keeps it."""

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Self

from penstock import _core
from penstock._opened import Opened
from penstock.pipestream._fields import PathLike
from penstock.pipestream._messages import SetAside, set_aside_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ClosedSession", "Piece", "SinkReader"]

MAX_CONTENT = (1 << 31) - (1 << 16)
BATCH = 4 << 20
PIECE = 64 << 20
ALL = (1 << 63) - 1
ITEMS = 4096


@dataclass(frozen=True, slots=True)
class ClosedSession:
    """A session that was closed with 0: all of it is in the sink, and none of it changes."""

    session: str
    """Its ID, and its folder's name."""
    rows: int
    """Its entities."""
    bytes: int
    """The bytes of their contents."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a closed session: a range of its list, which anybody reads with the same result, at any time."""

    session: str
    """The session's ID."""
    start: int
    """Where its first line starts in ``entities.jsonl``, in bytes."""
    end: int
    """Where its last line ends."""
    rows: int
    """Its rows."""
    bytes: int
    """The bytes of their contents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderOptions:
    """What `SinkReader` tells the core."""

    folder: str | None = None
    storage: Mapping[str, str] = field(default_factory=dict)
    address: str | None = None
    fingerprint: str | None = None
    ca: PathLike | None = None
    system_ca: bool = False
    cert: PathLike | None = None
    key: PathLike | None = None
    server_name: str | None = None
    read_key: str | None = None
    timeout: float | None = None


class SinkReader:
    """Reads what a sink has kept: only sessions that were closed with 0.

    It holds options and opens nothing before it is used; it survives a pickle and a fork.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from penstock.pipestream import Server, Session
    >>> key = "a secret of 16 bytes or more"
    >>> with TemporaryDirectory() as state, Server(sink=f"{state}/sink", read_key=key, state_dir=state) as server:
    ...     with Session.connect(server.address, fingerprint=server.fingerprint) as session:
    ...         entity = session.send(b"hello", content_type="text/plain")
    ...     remote = SinkReader.connect(server.address, fingerprint=server.fingerprint, read_key=key)
    ...     while not remote.sessions():
    ...         pass  # the session's last line is written a moment after its client has left
    ...     for batch in SinkReader(f"{state}/sink").read():
    ...         print(batch.column("type").to_pylist(), batch.column("content").to_pylist())
    ...     print([batch.num_rows for batch in remote.read(content=False)])
    ['text/plain'] [b'hello']
    [1]
    """

    __slots__ = ("_opened", "_options")

    def __init__(self, folder: PathLike, *, storage: Mapping[str, str] | None = None) -> None:
        """Take a sink's folder, or its URI in an object store, to be read where it lies.

        ``storage`` has options of the store; by default the environment says it all.
        """
        self._take(ReaderOptions(folder=os.fspath(folder), storage=dict(storage or {})))

    def _take(self, options: ReaderOptions) -> None:
        self._options = options
        # A connection does not survive a fork.
        self._opened = Opened(partial(_core.SinkReader, options))

    @classmethod
    def _of(cls, options: ReaderOptions) -> Self:
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
        timeout: float | None = 30.0,
    ) -> Self:
        """Take a server that keeps a sink and has a read key. The connection is made at the first use.

        Args:
            address: ``HOST:PORT``, the same as for senders.
            read_key: The server's read key.
            fingerprint: Trust the server whose certificate has this SHA-256.
            ca: Trust servers that this CA (PEM file) has signed.
            system_ca: Trust what the system trusts. Exactly one of the three must be given.
            cert: The reader's certificate (PEM file), with ``key``, for servers that ask.
            key: Its private key (PEM file).
            server_name: What the server's certificate must be for; by default the host.
            timeout: Seconds until the connection must stand.
        """
        return cls._of(
            ReaderOptions(
                address=address,
                fingerprint=fingerprint,
                ca=ca,
                system_ca=system_ca,
                cert=cert,
                key=key,
                server_name=server_name,
                read_key=read_key,
                timeout=timeout,
            )
        )

    @property
    def _core(self) -> _core.SinkReader:
        return self._opened.get()

    def sessions(self) -> list[ClosedSession]:
        """Give the closed sessions, the one that ended first at the front. Nothing is written.

        Raises:
            PipeStreamError: Of kind "io" where the sink cannot be read or reached, "misuse" where the key is wrong.
        """
        return [ClosedSession(*found) for found in self._core.sessions()]

    def follow(self, after: int = 0, limit: int = ITEMS) -> tuple[str, int, list[ClosedSession]]:
        """Give the name and the length of the sink's journal, and at most ``limit`` sessions from a position on.

        The journal is the order in which sessions were found closed. It only grows, and outlives crashes of everybody,
        so a position in it is a place to go on from. In a folder it is the file ``closed.jsonl``, which this writes.

        Raises:
            PipeStreamError: Of kind "io" where the sink cannot be read or its journal not be written.
        """
        journal, length, sessions = self._core.follow(after, limit)
        return journal, length, [ClosedSession(*found) for found in sessions]

    def plan(
        self,
        session: str,
        *,
        start: int = 0,
        max_bytes: int = PIECE,
        rows: int = ALL,
        documents: Collection[str] | None = None,
        names: Collection[str] | None = None,
    ) -> Iterator[Piece]:
        """Divide a closed session into pieces.

        Args:
            session: Its ID.
            start: Where to begin: 0, or the end of a piece.
            max_bytes: What a piece may have, unless it is a single row; a row counts for a bit more than its content.
            rows: How many rows a piece may have.
            documents: Only rows of these documents.
            names: Only rows of these names: their files, or ``SESSION/SCOPE/ENTITY`` for those without one.

        Raises:
            PipeStreamError: There is no such closed session, or its list cannot be read.
        """
        wanted = [None if only is None else set(only) for only in (documents, names)]
        rest: int | None = start
        while rest is not None:
            pieces, rest = self._core.plan(session, rest, max_bytes, rows, ITEMS, *wanted)
            for piece in pieces:
                yield Piece(session, *piece)

    def read(
        self,
        pieces: Collection[Piece] | None = None,
        *,
        content: bool = True,
        max_content: int = MAX_CONTENT,
        batch_bytes: int = BATCH,
    ) -> "Iterator[pa.RecordBatch]":
        """Give the rows of pieces, by default of all closed sessions, as record batches with `ROW_SCHEMA`.

        Args:
            pieces: What to read, in this order.
            content: Whether to read payloads; the column ``content`` is null otherwise.
            max_content: The largest payload in bytes that becomes the content of a row, at most 2 GiB less 64 KiB.
                For a larger one ``content`` is null, and ``reason`` names its file.
            batch_bytes: What a batch may have, unless it is a single row.

        Raises:
            PipeStreamError: Of kind "io" where the sink cannot be read.
        """
        if pieces is None:
            pieces = [piece for found in self.sessions() for piece in self.plan(found.session)]
        most = min(max_content, MAX_CONTENT) if content else None
        for piece in pieces:
            yield from self._core.rows(piece.session, piece.start, piece.end, most, batch_bytes)

    def claims(self) -> list[SetAside]:
        """Give what the sink's server has set aside and still knows, the first to expire at the front.

        Raises:
            PipeStreamError: Of kind "io" where the sink cannot be read or reached, "misuse" where the key is wrong.
        """
        return [set_aside_of(row) for row in self._core.claims()]

    def remove(self, session: str) -> None:
        """Remove a session from a folder, for good; the journal keeps its line. One that is not there is no error.

        Raises:
            PipeStreamError: Of kind "io" where it cannot be removed, "misuse" where the sink is a server's.
        """
        self._core.remove(session)

    def __eq__(self, other: object) -> bool:
        """Compare what is read, and how."""
        return isinstance(other, SinkReader) and self._options == other._options

    def __hash__(self) -> int:
        """Hash where it is."""
        return hash((self._options.folder, self._options.address))

    def __reduce__(self) -> tuple[object, tuple[ReaderOptions]]:
        """Survive a pickle by the options."""
        return SinkReader._of, (self._options,)

    def __repr__(self) -> str:
        """Say where the sink is, and nothing that is secret."""
        return f"<SinkReader {self._options.folder or self._options.address}>"
