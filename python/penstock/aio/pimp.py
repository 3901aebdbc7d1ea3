"""PIMP for asyncio: the classes of `penstock.pimp` with coroutine methods."""

import asyncio
import codecs
import logging
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NoReturn, Self, cast

import pyarrow as pa

from penstock import _core
from penstock.aio._loop import futures, result, seconds_or
from penstock.aio._threads import each
from penstock.errors import PimpError
from penstock.pimp import _consumer as blocking_consumer
from penstock.pimp import _job as blocking
from penstock.pimp._consumer import Metadata, metadata_of, read_options
from penstock.pimp._job import JobStatus, key_of, new_job_id, new_key, status_of
from penstock.pimp._options import (
    Limits,
    PathLike,
    ServeOptions,
    WriteOptions,
    milliseconds,
    serve_options,
    write_options,
)
from penstock.pimp._pieces import ArrowFormat, Pieces
from penstock.pimp._sender import abandoned, check_sender, reason_of, sayable
from penstock.pimp._trigger import Answer, Gate, Requested, accepted, answer_by_asgi, asked_by_asgi

__all__ = ["Buffer", "Consumer", "Job", "JobStatus", "Limits", "Metadata", "Sender", "Trigger", "new_job_id", "new_key"]

_log = logging.getLogger("penstock.pimp")


def _late() -> PimpError:
    return PimpError("the operation timed out", "deadline", "DEADLINE")


class Buffer:
    """A buffer in this process, like `penstock.pimp.Buffer`. It starts when it is awaited or entered.

    >>> import asyncio
    >>> async def main():
    ...     async with Buffer(behind_proxy=True) as buffer:
    ...         job = await Job.create(buffer.url)
    ...         async with job.sender() as sender:
    ...             await sender.send("hello")
    ...         print(await job.consumer().read())
    >>> asyncio.run(main())
    b'hello'
    """

    __slots__ = ("__weakref__", "_listen", "_native", "_options")

    def __init__(
        self,
        listen: str = "127.0.0.1:0",
        *,
        store: PathLike = "memory:",
        behind_proxy: bool = False,
        cert: PathLike | None = None,
        key: PathLike | None = None,
        client_ca: PathLike | None = None,
        jwt_secret: bytes | None = None,
        allow_origin: str | None = None,
        limits: Limits | None = None,
        max_connections: int = 16_384,
        max_connections_per_address: int | None = None,
        metrics: str | None = None,
        state_dir: PathLike | None = None,
    ) -> None:
        """Make a buffer. The arguments are those of `penstock.pimp.Buffer`."""
        self._listen = listen
        self._options: ServeOptions = serve_options(
            listen,
            store=store,
            behind_proxy=behind_proxy,
            cert=cert,
            key=key,
            client_ca=client_ca,
            jwt_secret=jwt_secret,
            allow_origin=allow_origin,
            limits=limits,
            max_connections=max_connections,
            max_connections_per_address=max_connections_per_address,
            metrics=metrics,
            state_folder=state_dir,
        )
        self._native: _core.PimpBuffer | None = None

    async def _start(self) -> Self:
        if self._native is None:
            self._native = await result(_core.pimp_listen(futures(), self._listen, self._options))
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
        """Close the buffer; after an exception, without a grace period."""
        await (self.close() if kind is None else self.close(grace=0))

    def _listening(self) -> "_core.PimpBuffer":
        if self._native is None:
            raise PimpError("await the buffer, or enter it, before using it", "misuse", "MISUSE")
        return self._native

    @property
    def address(self) -> str:
        """The address on which the buffer listens, ``HOST:PORT``, with the actual port."""
        return self._listening().address()

    @property
    def url(self) -> str:
        """The buffer's URL for `Job.create`: ``https://HOST:PORT``, or ``http://`` without TLS."""
        return f"{'https' if self._options.tls else 'http'}://{self.address}"

    @property
    def fingerprint(self) -> str | None:
        """The fingerprint of the buffer's certificate, ``sha256:HEX``; None without TLS."""
        return self._listening().fingerprint()

    @property
    def metrics_address(self) -> str | None:
        """The address on which metrics are served, ``HOST:PORT``; None if they are not."""
        return self._listening().metrics_address()

    async def close(self, grace: float = 10.0) -> None:
        """Accept no more connections, wait up to ``grace`` seconds for open requests, then close the rest."""
        if self._native is not None:
            await result(_core.pimp_close(futures(), self._native, grace))

    def __reduce__(self) -> NoReturn:
        """Not picklable: it holds a live socket."""
        raise TypeError("a Buffer is a live socket and cannot be pickled")


class Job(blocking.Job):
    """A job at a buffer, like `penstock.pimp.Job`, with coroutine methods. A pickle of it contains the keys.

    >>> import asyncio
    >>> async def main():
    ...     async with Buffer(behind_proxy=True) as buffer:
    ...         job = await Job.create(buffer.url)
    ...         print((await job.status()).state)
    >>> asyncio.run(main())
    CREATED
    """

    __slots__ = ()

    @classmethod
    async def create(  # type: ignore[override]  # it is awaited
        cls,
        buffer: str,
        *,
        job_id: str | None = None,
        key: str | None = None,
        read_key: str | None = None,
        ttl: float | None = None,
        timeout: float | None = None,
        **reach: Any,
    ) -> Self:
        """Create a job at a buffer. Arguments and errors are those of `penstock.pimp.Job.create`."""
        url = f"{buffer.rstrip('/')}/pimp/{job_id or new_job_id()}"
        job = cls(url, key=key or new_key(), read_key=read_key, **reach)
        await job.ensure(ttl=ttl, timeout=timeout)
        return job

    async def _opened(self) -> "_core.PimpJob":
        # Certificates and keys are read outside the event loop, because that blocks.
        if "_native" not in self.__dict__:
            self.__dict__["_native"] = await result(_core.pimp_open(futures(), self._url, self._options))
        return self._native

    async def ensure(self, *, ttl: float | None = None, timeout: float | None = None) -> bool:  # type: ignore[override]
        """Create the job if it does not exist, and return whether it is new."""
        key, milli = key_of(self), milliseconds("ttl", ttl)
        async with seconds_or(timeout, _late()):
            new, _ = await result(_core.pimp_create(futures(), await self._opened(), key, milli, self.read_key))
        return new

    async def status(self, timeout: float | None = None) -> JobStatus:  # type: ignore[override]
        """Ask the buffer for the job's state."""
        async with seconds_or(timeout, _late()):
            fields = await result(_core.pimp_status(futures(), await self._opened(), self.read_key or self.key))
        return status_of(fields)

    async def cancel(self, timeout: float | None = None) -> bool:  # type: ignore[override]
        """Cancel the job: its sender is notified and stops. Return False if the job has already ended."""
        async with seconds_or(timeout, _late()):
            return await result(_core.pimp_cancel(futures(), await self._opened(), key_of(self, "reads")))

    async def delete(self, timeout: float | None = None) -> None:  # type: ignore[override]
        """Delete the job and its chunks from the buffer."""
        async with seconds_or(timeout, _late()):
            await result(_core.pimp_delete(futures(), await self._opened(), key_of(self)))

    async def take_over(  # type: ignore[override]
        self, *, etag: str | None = None, key: str | None = None, timeout: float | None = None
    ) -> Self:
        """Make another key the writeKey. Arguments and errors are those of `penstock.pimp.Job.take_over`."""
        etag = etag or (await self.status(timeout)).etag
        if etag is None:
            raise PimpError(
                "the buffer sends no ETag: it does not support takeover", "violation", "PRECONDITION_FAILED"
            )
        key = key or new_key()
        async with seconds_or(timeout, _late()):
            await result(_core.pimp_take_over(futures(), await self._opened(), etag, key_of(self), key))
        return self.with_key(key)

    async def finish(self, error: str | None = None, timeout: float | None = None) -> None:  # type: ignore[override]
        """Write the final chunk after the last one, like `penstock.pimp.Job.finish`."""
        await asyncio.to_thread(super().finish, error, timeout)

    async def trigger(  # type: ignore[override]
        self,
        url: str,
        payload: Mapping[str, object],
        *,
        token: str | None = None,
        timeout: float | None = None,
        **reach: Any,
    ) -> None:
        """Request this job from a sender. Arguments and errors are those of `penstock.pimp.Job.trigger`."""
        await asyncio.to_thread(super().trigger, url, payload, token=token, timeout=timeout, **reach)

    def sender(self, **options: Any) -> "Sender":  # type: ignore[override]
        """Return a `Sender` that writes the job, with the options of `Sender`."""
        return Sender(self, **options)

    def consumer(self, **options: Any) -> "Consumer":  # type: ignore[override]
        """Return a `Consumer` that reads the job, with the options of `Consumer`."""
        return Consumer(self, **options)


class Sender:
    """Writes a job, like `penstock.pimp.Sender`. Enter it with ``async with``, or end it with `finish`.

    >>> import asyncio
    >>> async def words():
    ...     yield "hello "
    ...     yield "world"
    >>> async def main():
    ...     async with Buffer(behind_proxy=True) as buffer:
    ...         job = await Job.create(buffer.url)
    ...         async with Sender(job, gzip=True) as sender:
    ...             await sender.send(words())
    ...         print(await job.consumer().read())
    >>> asyncio.run(main())
    b'hello world'
    """

    __slots__ = ("__weakref__", "_abandoned", "_described", "_job", "_native", "_options", "_pieces")

    def __init__(
        self,
        job: Job,
        *,
        content_type: str | None = None,
        encoding: Literal["auto", "identity", "base64"] = "auto",
        gzip: bool = False,
        content_length: int | None = None,
        meta: Mapping[str, object] | None = None,
        arrow: ArrowFormat = "ipc",
        chunk_bytes: int = 256 << 10,
        max_chunks_per_batch: int = 10,
        flush_interval: float | None = 0.25,
        stall_timeout: float = 30.0,
    ) -> None:
        """Make a sender for a job. The other arguments are those of `penstock.pimp.Sender`."""
        self._job = job
        self._options: WriteOptions = write_options(
            content_type=content_type,
            encoding=encoding,
            gzip=gzip,
            content_length=content_length,
            meta=meta,
            chunk_bytes=chunk_bytes,
            max_chunks_per_batch=max_chunks_per_batch,
            flush_interval=flush_interval,
            stall_timeout=stall_timeout,
        )
        self._pieces = Pieces(arrow)
        self._described = content_type is not None
        self._abandoned = False
        self._native: _core.PimpSender | None = None
        key_of(job)

    async def _begun(self) -> "_core.PimpSender":
        if self._abandoned:
            raise abandoned()
        if self._native is None:
            native = await self._job._opened()
            if self._native is None:  # another task may have begun meanwhile
                self._native = _core.PimpSender(native, key_of(self._job), self._options)
        return self._native

    @property
    def job(self) -> Job:
        """The job that this sender writes."""
        return self._job

    @property
    def last_index(self) -> int | None:
        """The highest chunk index that the buffer has from this sender; None before chunk 0."""
        return None if self._native is None else self._native.progress()[0]

    @property
    def bytes_written(self) -> int:
        """The bytes of the payload that the buffer has, counted before compression."""
        return 0 if self._native is None else self._native.progress()[1]

    async def send(self, data: object, *, timeout: float | None = None) -> None:
        """Send a part of the payload, like `penstock.pimp.Sender.send`; ``data`` may also be an async iterable."""
        if isinstance(data, AsyncIterable):
            async for item in data:
                await self.send(item, timeout=timeout)
        elif isinstance(data, bytes | str):
            await self._send(data, timeout)
        else:
            # Files and generators may block, so they are read in a thread.
            async for piece in each(self._pieces.of(data)):
                await self._send(piece, timeout)

    async def _send(self, piece: bytes | str, timeout: float | None) -> None:
        async with seconds_or(timeout, _late()):
            native = await self._begun()
            if not self._described and self._pieces.content_type is not None:
                await result(_core.pimp_describe(futures(), native, self._pieces.content_type))
            self._described = True
            await result(_core.pimp_send(futures(), native, piece))

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until the buffer has everything sent so far, except up to two bytes of an incomplete Base64 group."""
        async with seconds_or(timeout, _late()):
            await result(_core.pimp_flush(futures(), await self._begun()))

    async def finish(self, timeout: float | None = None) -> None:
        """Write the remaining data and the final chunk with the payload's SHA-256. A second call has no effect."""
        for piece in self._pieces.end():
            await self._send(piece, timeout)
        async with seconds_or(timeout, _late()):
            await result(_core.pimp_end(futures(), await self._begun(), None))

    async def fail(self, reason: str, timeout: float | None = None) -> None:
        """End the job with an error that the consumer receives (PIMP, section 11)."""
        async with seconds_or(timeout, _late()):
            await result(_core.pimp_end(futures(), await self._begun(), sayable(reason)))

    def abandon(self) -> None:
        """Write nothing more and leave the job as it is: another sender with its key can continue."""
        self._native, self._abandoned = None, True

    async def __aenter__(self) -> Self:
        """Start the job with chunk 0."""
        await self._begun()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Finish the job; after an exception, fail it and raise nothing else."""
        if error is None:
            await self.finish()
            return
        try:
            await self.fail(reason_of(error), timeout=10.0)
        except PimpError:
            return

    def __reduce__(self) -> NoReturn:
        """Not picklable: it holds a live connection. Pickle its job instead."""
        raise TypeError("a Sender is a live connection and cannot be pickled; pickle its job")


class Consumer:
    """Reads a job, like `penstock.pimp.Consumer`: an async iterator over the payload's bytes as they arrive.

    >>> import asyncio
    >>> async def main():
    ...     async with Buffer(behind_proxy=True) as buffer:
    ...         job = await Job.create(buffer.url)
    ...         async with job.sender() as sender:
    ...             await sender.send("hello")
    ...         async for text in Consumer(job).text():
    ...             print(text)
    >>> asyncio.run(main())
    hello
    """

    __slots__ = ("__weakref__", "_from", "_job", "_native", "_options")

    def __init__(
        self,
        job: Job,
        *,
        wait: float = 25.0,
        poll_interval: float = 0.5,
        max_poll_interval: float = 5.0,
        stall_timeout: float = 30.0,
        max_bytes: int = 1 << 30,
        position: str | None = None,
    ) -> None:
        """Make a consumer for a job. The other arguments are those of `penstock.pimp.Consumer`."""
        self._job = job
        self._from = position
        self._options = read_options(wait, poll_interval, max_poll_interval, stall_timeout, max_bytes)
        self._native: _core.PimpConsumer | None = None

    async def _begun(self) -> "_core.PimpConsumer":
        if self._native is None:
            native, key = await self._job._opened(), self._job.read_key or self._job.key
            if self._native is None:  # another task may have begun meanwhile
                self._native = _core.PimpConsumer(native, key, self._options, self._from)
        return self._native

    @property
    def job(self) -> Job:
        """The job that this consumer reads."""
        return self._job

    @property
    def next_index(self) -> int:
        """The index of the next chunk that this consumer needs."""
        return 0 if self._native is None else self._native.next_index()

    @property
    def position(self) -> str | None:
        """The position after the bytes returned so far, as in `penstock.pimp.Consumer.position`.

        Before the first request it is the position that was passed in, or None.
        """
        return self._from if self._native is None else self._native.position()

    async def metadata(self, timeout: float | None = None) -> Metadata:
        """Wait for chunk 0 and return the job's metadata."""
        async with seconds_or(timeout, _late()):
            return metadata_of(await result(_core.pimp_metadata(futures(), await self._begun())))

    async def receive(self, timeout: float | None = None) -> bytes | None:
        """Wait for the next bytes, and return them; None at the end of the payload.

        If the wait is cancelled, no bytes are lost. Errors are those of `penstock.pimp.Consumer.receive`.
        """
        async with seconds_or(timeout, _late()):
            return await result(_core.pimp_next(futures(), await self._begun()))

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the payload's bytes as they arrive."""
        while (data := await self.receive()) is not None:
            yield data

    async def text(self, encoding: str = "utf-8") -> AsyncIterator[str]:
        """Yield the payload as text, decoded as it arrives."""
        decoder = codecs.getincrementaldecoder(encoding)()
        async for data in self:
            if text := decoder.decode(data):
                yield text
        if text := decoder.decode(b"", final=True):
            yield text

    async def read(self) -> bytes:
        """Wait for the whole payload and return it."""
        return b"".join([data async for data in self])

    async def _blocking(self) -> blocking_consumer.Consumer:
        # Arrow's reader blocks, so it gets a blocking consumer of the same bytes.
        return blocking_consumer.Consumer._sharing(self._job, await self._begun(), self._options)

    async def batches(self) -> AsyncIterator[pa.RecordBatch]:
        """Yield the batches of an Arrow stream payload as they arrive; they consume the payload.

        Errors are those of `receive`. If it is cancelled, this consumer loses the batch that was arriving.
        """
        async for batch in each((await self._blocking()).batches()):
            yield batch

    async def arrow_schema(self) -> pa.Schema:
        """Return the schema of an Arrow stream payload, without consuming any of it."""
        consumer = await self._blocking()
        return await asyncio.to_thread(consumer.arrow_schema)

    async def save(self, path: PathLike, *, progress: Callable[[int], object] | None = None) -> int:
        """Write the payload to a file, like `penstock.pimp.Consumer.save`, and return its size in bytes."""
        size = 0
        with blocking_consumer.replaced(Path(path)) as file:
            async for data in self:
                size += await asyncio.to_thread(file.write, data)
                if progress is not None:
                    progress(size)
        return size

    def __reduce__(self) -> NoReturn:
        """Not picklable: it holds a live connection. Pickle its job instead."""
        raise TypeError("a Consumer is a live connection and cannot be pickled; pickle its job")


class Trigger:
    """Answers trigger requests, like `penstock.pimp.Trigger`, with a coroutine function. It is an ASGI application.

    >>> import asyncio
    >>> async def run(sender, payload):
    ...     await sender.send(f"page {payload['page']}")
    >>> async def main():
    ...     async with Buffer(behind_proxy=True) as buffer, Trigger(run, allowed_hosts=["127.0.0.1"]) as trigger:
    ...         job = await Job.create(buffer.url)
    ...         answer = await trigger.handle("POST", job.request({"page": 7}))
    ...         print(answer.status, await job.consumer().read())
    >>> asyncio.run(main())
    202 b'page 7'
    """

    __slots__ = ("__weakref__", "_gate", "_run", "_running", "_sender", "_workers")

    def __init__(
        self,
        run: Callable[[Sender, Any], Awaitable[object]],
        *,
        allowed_hosts: Sequence[str],
        token: str | None = None,
        workers: int = 64,
        queue: int = 1_024,
        max_body: int = 1 << 20,
        sender: Mapping[str, Any] | None = None,
        **reach: Any,
    ) -> None:
        """Make a trigger that runs a coroutine function. The arguments are those of `penstock.pimp.Trigger`."""
        self._run = run
        self._sender = dict(sender or {})
        check_sender(self._sender)
        Job("https://buffer.example/", **reach)
        self._workers = asyncio.Semaphore(workers)
        self._gate = Gate(Job, allowed_hosts=allowed_hosts, token=token, max_body=max_body, queue=queue, reach=reach)
        self._running: set[asyncio.Task[None]] = set()

    async def handle(
        self, method: str, body: bytes, content_type: str = "application/json", authorization: str = ""
    ) -> Answer:
        """Answer a request from any HTTP server. An accepted job runs in its own task."""
        # The check reads certificates and keys, which would block the event loop.
        found = await asyncio.to_thread(self._gate.check, method, content_type, authorization, body)
        if isinstance(found, Answer):
            return found
        task = asyncio.create_task(self._work(found))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return accepted(found.job.id)

    async def _work(self, requested: Requested) -> None:
        job, failure = cast("Job", requested.job), None
        try:
            async with self._workers, job.sender(**self._sender) as sender:
                await self._run(sender, requested.payload)
        except PimpError as error:
            failure = error
            _log.warning("job %s: %s: %s", job.id, error.code, error)
        except Exception:  # noqa: BLE001 - raised by the function; `sender` has reported it to the consumer
            _log.exception("job %s failed", job.id)
        finally:
            self._gate.ended(job.id, failure)

    async def __call__(self, scope: Mapping[str, Any], receive: Callable[..., Any], send: Callable[..., Any]) -> None:
        """Handle a request as an ASGI application."""
        if (asked := await asked_by_asgi(self._gate, scope, receive, send)) is not None:
            answer = asked if isinstance(asked, Answer) else await self.handle(*asked)
            await answer_by_asgi(send, answer)

    async def close(self) -> None:
        """Wait for the running jobs."""
        while self._running:
            await asyncio.wait(self._running)

    async def __aenter__(self) -> Self:
        """Return the trigger itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Wait for the running jobs."""
        await self.close()

    def __reduce__(self) -> NoReturn:
        """Not picklable: it holds running tasks."""
        raise TypeError("a Trigger has tasks and cannot be pickled")
