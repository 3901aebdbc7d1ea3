"""Lumberjack for asyncio: `Receiver` and `Sender` with coroutine methods.

Everything else is the same as in `penstock.lumberjack`.
"""

from collections.abc import AsyncIterator, Generator, Iterable, Sequence
from types import TracebackType
from typing import Any, Literal, NoReturn, Self

from penstock import _core
from penstock.aio._loop import futures, result, seconds_or
from penstock.errors import LumberjackError
from penstock.lumberjack._event import Event, pair_bytes, rows_of
from penstock.lumberjack._handler import LogHandler
from penstock.lumberjack._options import Limits, PathLike, ReceiveOptions, SendOptions, host_list
from penstock.lumberjack._receiver import Batch, ReceiverCounters, counters_of, receive_options
from penstock.lumberjack._sender import batches_of, bytes_of, check_frames, event_column, parts_of
from penstock.lumberjack._spool import Spool

__all__ = ["Batch", "Event", "Limits", "LogHandler", "Receiver", "ReceiverCounters", "Sender"]


class Receiver:
    """A Lumberjack receiver. It starts to listen when it is awaited or entered with ``async with``.

    >>> import asyncio
    >>> async def main():
    ...     async with Receiver() as receiver, Sender(receiver.address) as sender:
    ...         await sender.send([{"message": "hello"}], wait=False)
    ...         async for batch in receiver:
    ...             print([event.content["message"] for event in batch.events()])
    ...             batch.ack()
    ...             break
    >>> asyncio.run(main())
    ['hello']
    """

    __slots__ = ("__weakref__", "_listen", "_native", "_options", "_schema", "_spool")

    def __init__(
        self,
        listen: str = "127.0.0.1:0",
        *,
        tls: bool | None = None,
        cert: PathLike | None = None,
        key: PathLike | None = None,
        client_ca: PathLike | None = None,
        client_certificates: Literal["required", "optional"] = "required",
        schema: object = None,
        spool: PathLike | Spool | None = None,
        max_connections: int = 16_384,
        max_connections_per_address: int | None = None,
        max_bytes: int = 256 << 20,
        max_age: float | None = None,
        frame_timeout: float = 30.0,
        idle_timeout: float | None = 900.0,
        keepalive: float = 3.0,
        repeat_ack: bool = False,
        pause: float = 1.0,
        limits: Limits | None = None,
        metrics: str | None = None,
        state_dir: PathLike | None = None,
    ) -> None:
        """Make a receiver. The arguments are those of `penstock.lumberjack.Receiver`."""
        self._listen = listen
        self._schema = schema
        self._spool = spool.core if isinstance(spool, Spool) else spool
        self._options: ReceiveOptions = receive_options(
            listen,
            tls=tls,
            cert=cert,
            key=key,
            client_ca=client_ca,
            client_certificates=client_certificates,
            max_connections=max_connections,
            max_connections_per_address=max_connections_per_address,
            max_bytes=max_bytes,
            max_age=max_age,
            frame_timeout=frame_timeout,
            idle_timeout=idle_timeout,
            keepalive=keepalive,
            repeat_ack=repeat_ack,
            pause=pause,
            limits=limits,
            metrics=metrics,
            state_dir=state_dir,
        )
        self._native: _core.LumberjackReceiver | None = None

    async def _start(self) -> Self:
        if self._native is None:
            operation = _core.lumberjack_listen(futures(), self._listen, self._options, self._schema, self._spool)
            self._native = await result(operation)
        return self

    def __await__(self) -> Generator[Any, Any, Self]:
        """Start to listen."""
        return self._start().__await__()

    async def __aenter__(self) -> Self:
        """Start to listen."""
        return await self._start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the receiver; after an exception, without a grace period."""
        await (self.close() if kind is None else self.close(grace=0))

    def _listening(self) -> "_core.LumberjackReceiver":
        if self._native is None:
            raise LumberjackError("await the receiver, or enter it, before using it", "misuse")
        return self._native

    @property
    def address(self) -> str:
        """The address on which the receiver listens, ``HOST:PORT``, with the actual port."""
        return self._listening().address()

    @property
    def fingerprint(self) -> str | None:
        """The fingerprint of the receiver's certificate, ``sha256:HEX``; None without TLS."""
        return self._listening().fingerprint()

    @property
    def metrics_address(self) -> str | None:
        """The address on which metrics are served, ``HOST:PORT``; None if they are not."""
        return self._listening().metrics_address()

    @property
    def counters(self) -> ReceiverCounters:
        """Counters of what the receiver has handled so far."""
        return counters_of(self._listening().counters())

    async def receive(self, timeout: float | None = None) -> Batch | None:
        """Wait for the next batch.

        If the wait is cancelled, no batch is lost.

        Args:
            timeout: Seconds to wait; by default indefinitely.

        Returns:
            The batch, or None if the receiver is closed.

        Raises:
            LumberjackError: Of kind "deadline" after the timeout.
        """
        async with seconds_or(timeout, _late("no batch arrived within the timeout")):
            native = await result(_core.lumberjack_next(futures(), self._listening()))
        return None if native is None else Batch(native)

    async def __aiter__(self) -> AsyncIterator[Batch]:
        """Yield batches until the receiver is closed."""
        while (batch := await self.receive()) is not None:
            yield batch

    async def close(self, grace: float = 10.0) -> None:
        """Accept no more events, wait up to ``grace`` seconds for acknowledgements, then close the connections."""
        if self._native is not None:
            await result(_core.lumberjack_shutdown(futures(), self._native, grace))

    def __reduce__(self) -> NoReturn:
        """Not picklable: it holds a live socket."""
        raise TypeError("a Receiver is a live socket and cannot be pickled")


class Sender:
    """Sends events to Lumberjack receivers, as `penstock.lumberjack.Sender` does. Enter it with ``async with``.

    >>> import asyncio
    >>> from penstock.aio.lumberjack import Receiver
    >>> async def take(receiver):
    ...     async for batch in receiver:
    ...         batch.ack()
    >>> async def main():
    ...     async with Receiver() as receiver, Sender(receiver.address) as sender:
    ...         taking = asyncio.create_task(take(receiver))
    ...         await sender.send([{"message": "hello"}])
    ...         print(sender.acknowledged)
    ...         taking.cancel()
    >>> asyncio.run(main())
    1
    """

    __slots__ = ("__weakref__", "_frames", "_native", "_options")

    def __init__(
        self,
        hosts: str | Sequence[str],
        *,
        balance: bool = False,
        fingerprint: str | None = None,
        ca: PathLike | None = None,
        system_ca: bool = False,
        cert: PathLike | None = None,
        key: PathLike | None = None,
        server_name: str | None = None,
        plain: bool = False,
        frames: Literal["json", "map"] = "json",
        protocol: Literal[1, 2] = 1,
        sequence: Literal["window", "continue"] = "window",
        window: int = 2_048,
        in_flight: int = 2,
        compress: int = 3,
        ack_timeout: float = 30.0,
        retry: float | None = None,
    ) -> None:
        """Make a sender. The arguments are those of `penstock.lumberjack.Sender`."""
        self._frames = check_frames(frames)
        self._options = SendOptions(
            hosts=host_list(hosts),
            balance=balance,
            fingerprint=fingerprint,
            ca=ca,
            system_ca=system_ca,
            cert=cert,
            key=key,
            server_name=server_name,
            plain=plain,
            protocol=protocol,
            sequence=sequence,
            window=window,
            in_flight=in_flight,
            compress=compress,
            ack_timeout=ack_timeout,
            retry=retry,
        ).check()
        self._native: _core.LumberjackSender | None = None

    async def _start(self) -> Self:
        if self._native is None:
            self._native = await result(_core.lumberjack_open(futures(), self._options))
        return self

    def __await__(self) -> Generator[Any, Any, Self]:
        """Read the certificates and keys. Connections are made later, when they are needed."""
        return self._start().__await__()

    async def __aenter__(self) -> Self:
        """Read the certificates and keys. Connections are made later, when they are needed."""
        return await self._start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the sender; after an exception, end immediately and raise nothing else."""
        if kind is None:
            await self.close()
        elif self._native is not None:
            self._native.abandon()

    def _open(self) -> "_core.LumberjackSender":
        if self._native is None:
            raise LumberjackError("await the sender, or enter it, before using it", "misuse")
        return self._native

    async def send(self, events: Iterable[object], *, wait: bool = True, timeout: float | None = None) -> None:
        """Send events. Arguments and errors are those of `penstock.lumberjack.Sender.send`.

        If the call is cancelled, some, all or none of the events may be sent.
        """
        native = self._open()
        async with seconds_or(timeout, _late("the events were not accepted within the timeout")):
            if hasattr(events, "__arrow_c_array__") or hasattr(events, "__arrow_c_stream__"):
                for batch in batches_of(events):
                    if self._frames == "json" and "event" in batch.schema.names:
                        await result(
                            _core.lumberjack_send_column(futures(), native, event_column(batch), "event", False)
                        )
                    else:
                        await self._send(native, rows_of(batch))
            else:
                await self._send(native, events)
            if wait:
                await result(_core.lumberjack_flush(futures(), native))

    async def _send(self, native: "_core.LumberjackSender", events: Iterable[object]) -> None:
        for part in parts_of(events):
            if self._frames == "json":
                await result(_core.lumberjack_send_json(futures(), native, bytes_of(part), False))
            else:
                pairs = [pair_bytes(event) for event in part]
                await result(_core.lumberjack_send_maps(futures(), native, pairs, False))

    @property
    def acknowledged(self) -> int:
        """The number of events that are acknowledged without a gap, in the order in which they were sent."""
        return self._open().acknowledged()

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until all events sent so far are acknowledged.

        Args:
            timeout: Seconds to wait; by default indefinitely.

        Raises:
            LumberjackError: Of kind "deadline" after the timeout.
        """
        async with seconds_or(timeout, _late("not all events were acknowledged within the timeout")):
            await result(_core.lumberjack_flush(futures(), self._open()))

    async def close(self, grace: float = 30.0) -> None:
        """Accept no more events, wait up to ``grace`` seconds for the acknowledgements, then disconnect."""
        if self._native is not None:
            await result(_core.lumberjack_close(futures(), self._native, grace))

    def __reduce__(self) -> NoReturn:
        """Not picklable: it holds a live connection."""
        raise TypeError("a Sender is a live connection and cannot be pickled")


def _late(message: str) -> LumberjackError:
    return LumberjackError(message, "deadline")
