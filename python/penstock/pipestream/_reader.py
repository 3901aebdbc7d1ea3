"""Readers of a sink: the rows of its closed sessions, from its folder, its object store or its server."""

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
    """A session that was closed with code 0: the sink has all of it, and it does not change any more."""

    session: str
    """The session's ID, which is also the name of its folder."""
    rows: int
    """The number of its rows, one for each entity."""
    bytes: int
    """The bytes of their contents."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a closed session: a range of its list of entities, which always reads with the same result."""

    session: str
    """The session's ID."""
    start: int
    """The offset of the first line in ``entities.jsonl``, in bytes."""
    end: int
    """The offset of the end of the last line, in bytes."""
    rows: int
    """The number of rows."""
    bytes: int
    """The bytes of their contents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderOptions:
    """The options that `SinkReader` passes to the core."""

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
    """A reader of the sessions in a sink that were closed with code 0.

    It holds only options and opens the sink at its first use in each process, so it can be pickled and used after a
    fork.

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
        """Make a reader of a sink in a folder or an object store; nothing is opened yet.

        Args:
            folder: The sink's folder, or its URI in an object store.
            storage: Options of the store, ``{"endpoint": URL}``; by default the environment configures it.
        """
        self._take(ReaderOptions(folder=os.fspath(folder), storage=dict(storage or {})))

    def _take(self, options: ReaderOptions) -> None:
        self._options = options
        # A connection cannot be used after a fork.
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
        """Make a reader of the sink of a server with a read key; the connection is opened at the first use.

        Exactly one of ``fingerprint``, ``ca`` and ``system_ca`` must be given: it determines which server is trusted.

        Args:
            address: ``HOST:PORT`` of the server, the same as for senders.
            read_key: The server's read key.
            fingerprint: Trust the server whose certificate has this SHA-256, in hex.
            ca: Trust servers whose certificate is signed by this CA (PEM file).
            system_ca: Trust servers whose certificate is signed by a CA of the system's store.
            cert: The reader's certificate (PEM file), for servers that ask for one; requires ``key``.
            key: The certificate's private key (PEM file).
            server_name: The name that the server's certificate must have; by default the host of ``address``.
            timeout: Seconds that connecting may take.
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
        """Return the closed sessions in the order in which they ended. Nothing is written.

        Raises:
            PipeStreamError: Of kind "io" if the sink cannot be read or reached, "misuse" if the read key is wrong.
        """
        return [ClosedSession(*found) for found in self._core.sessions()]

    def follow(self, after: int = 0, limit: int = ITEMS) -> tuple[str, int, list[ClosedSession]]:
        """Return the ID and the length of the sink's journal, and its sessions from a position on.

        The journal lists sessions in the order in which they were found to be closed. It only grows and survives
        crashes of readers and of the server, so reading can resume at a position in it. In a folder it is the file
        ``closed.jsonl``, which this method writes.

        Args:
            after: The position: the number of sessions to skip.
            limit: The most sessions to return; by default 4,096.

        Raises:
            PipeStreamError: Of kind "io" if the sink cannot be read, or its journal cannot be written.
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
            session: The session's ID.
            start: The offset at which to start: 0, or the end of a piece.
            max_bytes: The most bytes of a piece, by default 64 MiB; a single row may have more. A row counts for a
                little more than its content.
            rows: The most rows of a piece; by default there is no limit.
            documents: Include only rows of these documents.
            names: Include only rows with these names: the row's file, or ``SESSION/SCOPE/ENTITY`` if it has none.

        Raises:
            PipeStreamError: If there is no such closed session, or its list cannot be read.
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
        """Yield the rows of pieces, by default of all closed sessions, as record batches with `ROW_SCHEMA`.

        Args:
            pieces: The pieces to read, in this order.
            content: Whether to read payloads; otherwise the column ``content`` is null.
            max_content: The largest payload in bytes that is read into a row, at most 2 GiB less 64 KiB. For a larger
                one ``content`` is null, and ``reason`` names its file.
            batch_bytes: The most bytes of a batch, by default 4 MiB; a single row may have more.

        Raises:
            PipeStreamError: Of kind "io" if the sink cannot be read.
        """
        if pieces is None:
            pieces = [piece for found in self.sessions() for piece in self.plan(found.session)]
        most = min(max_content, MAX_CONTENT) if content else None
        for piece in pieces:
            yield from self._core.rows(piece.session, piece.start, piece.end, most, batch_bytes)

    def claims(self) -> list[SetAside]:
        """Return the deferred entities and their claim checks that the sink's server knows, in the order of expiry.

        Raises:
            PipeStreamError: Of kind "io" if the sink cannot be read or reached, "misuse" if the read key is wrong.
        """
        return [set_aside_of(row) for row in self._core.claims()]

    def remove(self, session: str) -> None:
        """Delete a session from the sink's folder or object store; its entry in the journal stays.

        Removing a session that does not exist is not an error.

        Raises:
            PipeStreamError: Of kind "io" if it cannot be deleted, "misuse" if the sink is read through its server.
        """
        self._core.remove(session)

    def __eq__(self, other: object) -> bool:
        """Compare the options."""
        return isinstance(other, SinkReader) and self._options == other._options

    def __hash__(self) -> int:
        """Hash the sink's folder or address."""
        return hash((self._options.folder, self._options.address))

    def __reduce__(self) -> tuple[object, tuple[ReaderOptions]]:
        """Pickle the options."""
        return SinkReader._of, (self._options,)

    def __repr__(self) -> str:
        """Return the sink's folder or address, without secrets."""
        return f"<SinkReader {self._options.folder or self._options.address}>"
