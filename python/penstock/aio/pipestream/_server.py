"""Servers, for asyncio."""

import asyncio
from collections.abc import AsyncIterator, Generator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, NoReturn, Self

from penstock import _core
from penstock._pipestream_limits import Limits
from penstock.aio._loop import futures, limit, result
from penstock.aio.pipestream._session import Session
from penstock.pipestream._codes import Status
from penstock.pipestream._fields import PathLike
from penstock.pipestream._hand_over import HandOver, Queue
from penstock.pipestream._keys import misuse
from penstock.pipestream._messages import ClaimCheck, SetAside, claim_id, set_aside_of
from penstock.pipestream._references import References
from penstock.pipestream._server import (
    LAYER_2,
    ServeOptions,
    ServerCounters,
    check_defer_to,
    counters_of,
    development,
    sink_of,
)

__all__ = ["Server"]


class Server:
    """A PipeStream server. It starts to listen when it is awaited or entered with ``async with``.

    With ``sink`` the server writes the payload of each entity into that folder or object store, after its checksum was
    verified. Without a sink, iterating over the server yields a `Session` for each client, and the application receives
    its entities. As an async context manager it closes at the end, with 10 seconds for open sessions to end.

    >>> import asyncio
    >>> from tempfile import TemporaryDirectory
    >>> async def client(server):
    ...     async with Session.connect(server.address, fingerprint=server.fingerprint) as session:
    ...         await session.send(b"hello")
    >>> async def main(folder):
    ...     async with Server(state_dir=folder) as server, asyncio.TaskGroup() as tasks:
    ...         tasks.create_task(client(server))
    ...         async with await server.accept() as session:
    ...             async for entity in session:
    ...                 print(entity, await entity.read())
    ...                 await entity.complete()
    >>> with TemporaryDirectory() as folder:
    ...     asyncio.run(main(folder))
    ReceivedEntity(scope_id=0, entity_id=1) b'hello'
    """

    __slots__ = (
        "__weakref__",
        "_address",
        "_fingerprint",
        "_hand_over",
        "_listen",
        "_options",
        "_queue",
        "_started",
    )

    def __init__(
        self,
        listen: str = "127.0.0.1:0",
        *,
        sink: PathLike | None = None,
        storage: Mapping[str, str] | None = None,
        cert: PathLike | None = None,
        key: PathLike | None = None,
        client_ca: PathLike | None = None,
        layers: int = 2,
        window: int | None = None,
        max_payload: int | None = None,
        mtu: int | None = None,
        events: PathLike | None = None,
        read_key: str | None = None,
        reader_certificates: Literal["required", "optional"] = "required",
        defer_types: Sequence[str] = (),
        defer_to: str | None = None,
        claims: PathLike | None = None,
        max_connections_per_address: int | None = None,
        idle_timeout: float = 900.0,
        survive: float = 300.0,
        state: PathLike | None = None,
        status_interval: float | None = None,
        metrics: str | None = None,
        references: References | None = None,
        limits: Limits | None = None,
        header_key: str | None = None,
        state_dir: PathLike | None = None,
    ) -> None:
        """Make a server. The arguments are those of `penstock.pipestream.Server`."""
        self._listen = listen
        self._options = ServeOptions(
            sink=sink_of(sink),
            storage=dict(storage or {}),
            cert=cert,
            key=key,
            development=development(state_dir),
            client_ca=client_ca,
            layers=layers,
            window=window,
            max_payload=max_payload,
            mtu=mtu,
            events=events,
            read_key=read_key,
            reader_certificates=reader_certificates,
            metrics=metrics,
            references=references,
            claims=claims,
            defer_types=list(defer_types),
            max_connections_per_address=max_connections_per_address,
            idle_timeout=idle_timeout,
            survive=survive if layers == LAYER_2 else None,
            state=state,
            limits=limits or Limits(),
            header_key=header_key,
            status_interval=status_interval,
        )
        check_defer_to(defer_to, sink, claims)
        self._wait_to_start(None if defer_to is None else Queue.parse(defer_to))

    def _wait_to_start(self, queue: Queue | None) -> None:
        self._queue = queue
        self._hand_over: HandOver | None = None
        self._started: _core.Server | None = None
        self._address = self._fingerprint = ""

    async def _start(self) -> Self:
        if self._started is None:
            native = await result(futures().listen(self._listen, self._options))
            self._started = native
            self._address, self._fingerprint = native.address(), native.fingerprint()
            if self._queue is not None:
                self._hand_over = HandOver(native, self._queue)
        return self

    def __await__(self) -> Generator[Any, Any, Self]:
        """Start to listen.

        Raises:
            PipeStreamError: As `penstock.pipestream.Server`.
        """
        return self._start().__await__()

    @property
    def _native(self) -> "_core.Server":
        if self._started is None:
            raise misuse("the server does not listen yet: await it, or enter it with `async with`")
        return self._started

    @property
    def address(self) -> str:
        """The address on which the server listens, ``HOST:PORT``, with the actual port; empty before it listens."""
        return self._address

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the server's certificate, ``sha256:HEX``, which clients pin; empty before it listens."""
        return self._fingerprint

    @property
    def metrics_address(self) -> str | None:
        """The address on which metrics are served, ``HOST:PORT``, with the actual port; None if they are not."""
        return self._native.metrics_address()

    @property
    def counters(self) -> ServerCounters:
        """The current counters."""
        return counters_of(self._native.counters())

    async def claims(self) -> list[SetAside]:
        """Return the deferred entities and their claim checks that the server knows, in the order of their expiry."""
        return [set_aside_of(row) for row in await asyncio.to_thread(self._native.claims)]

    async def settle(self, claim: ClaimCheck | int | str, status: Status = Status.COMPLETE) -> None:
        """Store the outcome of a deferred entity that no session has redeemed; a second call changes nothing.

        Arguments and errors are those of `penstock.pipestream.Server.settle`.
        """
        await asyncio.to_thread(self._native.settle, claim_id(claim), status)

    async def accept(self, timeout: float | None = None) -> Session | None:
        """Wait for the next client and return its session; return None if the server is closed.

        If the wait is cancelled, no client is lost.

        Args:
            timeout: Seconds to wait; by default indefinitely.

        Raises:
            PipeStreamError: Of kind "deadline" after the timeout, "misuse" if the server has a sink.
        """
        async with limit(timeout, "no client has connected"):
            native = await result(futures().accept(self._native))
        return None if native is None else Session(native)

    async def __aiter__(self) -> AsyncIterator[Session]:
        """Yield a session for each client until the server is closed."""
        while (session := await self.accept()) is not None:
            yield session

    async def close(self, grace: float = 10.0) -> None:
        """Accept no more connections, wait up to ``grace`` seconds for sessions to end, then cut off those that remain.

        Closing a closed server has no effect. If the wait is cancelled, the server continues to close.
        """
        await result(futures().shutdown(self._native, grace))
        if self._hand_over is not None:
            await asyncio.to_thread(self._hand_over.stop)

    async def __aenter__(self) -> Self:
        """Start to listen."""
        return await self._start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the server; after an exception, without a grace period."""
        await (self.close() if kind is None else self.close(grace=0))

    def __reduce__(self) -> NoReturn:
        """Not picklable: it holds a live socket."""
        raise TypeError("a Server is a live socket and cannot be pickled")

    def __repr__(self) -> str:
        """Return the class and the address."""
        return f"<Server {self.address or 'that does not listen yet'}>"
