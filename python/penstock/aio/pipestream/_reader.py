"""Readers of sinks, for asyncio."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from typing import Self

import pyarrow as pa

from penstock.aio._threads import each
from penstock.pipestream import _reader as blocking
from penstock.pipestream._fields import PathLike
from penstock.pipestream._messages import SetAside
from penstock.pipestream._reader import ClosedSession, Piece

__all__ = ["SinkReader"]


class SinkReader:
    """Reads the contents of a sink: the sessions that were closed with code 0.

    Files are read and batches are made in a thread. Arguments, results and errors are those of
    `penstock.pipestream.SinkReader`.

    >>> import asyncio
    >>> from tempfile import TemporaryDirectory
    >>> from penstock.aio.pipestream import Server, Session
    >>> async def main(folder):
    ...     async with Server(sink=folder + "/sink", state_dir=folder) as server:
    ...         async with Session.connect(server.address, fingerprint=server.fingerprint) as session:
    ...             await session.send(b"hello", content_type="text/plain")
    ...     return [batch.column("content").to_pylist() async for batch in SinkReader(folder + "/sink").read()]
    >>> with TemporaryDirectory() as folder:
    ...     asyncio.run(main(folder))
    [[b'hello']]
    """

    __slots__ = ("_reader",)

    def __init__(self, folder: PathLike, *, storage: Mapping[str, str] | None = None) -> None:
        """Make a reader of a sink's folder, or of its URI in an object store, without a server."""
        self._reader = blocking.SinkReader(folder, storage=storage)

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
        """Make a reader of the sink of a server that has a read key. The connection is made at the first use."""
        reader = cls.__new__(cls)
        reader._reader = blocking.SinkReader.connect(
            address,
            read_key=read_key,
            fingerprint=fingerprint,
            ca=ca,
            system_ca=system_ca,
            cert=cert,
            key=key,
            server_name=server_name,
            timeout=timeout,
        )
        return reader

    async def sessions(self) -> list[ClosedSession]:
        """Return the closed sessions in the order in which they ended. Nothing is written."""
        return await asyncio.to_thread(self._reader.sessions)

    async def follow(self, after: int = 0, limit: int = blocking.ITEMS) -> tuple[str, int, list[ClosedSession]]:
        """Return the name and the length of the sink's journal, and at most ``limit`` sessions from a position on."""
        return await asyncio.to_thread(self._reader.follow, after, limit)

    def plan(
        self,
        session: str,
        *,
        start: int = 0,
        max_bytes: int = blocking.PIECE,
        rows: int = blocking.ALL,
        documents: Collection[str] | None = None,
        names: Collection[str] | None = None,
    ) -> AsyncIterator[Piece]:
        """Yield the pieces into which a closed session is divided, for ``async for``."""
        options = {"start": start, "max_bytes": max_bytes, "rows": rows}
        return each(self._reader.plan(session, **options, documents=documents, names=names))

    def read(
        self,
        pieces: Collection[Piece] | None = None,
        *,
        content: bool = True,
        max_content: int = blocking.MAX_CONTENT,
        batch_bytes: int = blocking.BATCH,
    ) -> AsyncIterator[pa.RecordBatch]:
        """Yield the rows of pieces, by default of all closed sessions, as record batches, for ``async for``."""
        return each(self._reader.read(pieces, content=content, max_content=max_content, batch_bytes=batch_bytes))

    async def claims(self) -> list[SetAside]:
        """Return the deferred entities and claim checks that the sink's server knows, in the order of their expiry."""
        return await asyncio.to_thread(self._reader.claims)

    async def remove(self, session: str) -> None:
        """Remove a session from a folder permanently; the journal keeps its line. A missing session is not an error."""
        await asyncio.to_thread(self._reader.remove, session)

    def __eq__(self, other: object) -> bool:
        """Return whether both readers read the same sink with the same options."""
        return isinstance(other, SinkReader) and self._reader == other._reader

    def __hash__(self) -> int:
        """Return a hash of the options."""
        return hash(self._reader)

    def __repr__(self) -> str:
        """Return where the sink is, without any secret."""
        return repr(self._reader)
