"""Consumers, which read a job."""

import codecs
import io
import json
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, NoReturn, Self

import pyarrow as pa

from penstock import _core
from penstock.errors import PimpError
from penstock.pimp._job import Job
from penstock.pimp._options import PathLike, ReadOptions

__all__ = ["Consumer", "Metadata", "metadata_of", "read_options", "replaced"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """The metadata of a job, which are in its chunk 0 (PIMP, section 4)."""

    content_type: str
    """The payload's MIME type."""
    content_encoding: Literal["identity", "base64"]
    """The encoding of the payload in values."""
    compression: Literal["none", "gzip"]
    """The compression of the payload before it was encoded; a consumer returns the payload uncompressed."""
    content_length: int | None
    """The bytes of the payload, after compression; None if the sender did not set it."""
    meta: dict[str, Any] | None
    """An object of the sender; None if there is none, or if Python cannot parse it (integers of 5,000 digits)."""


class Consumer:
    """A reader of a job, which yields its bytes as they arrive. It sends no request before the first are needed.

    It polls by index, so a broken connection loses nothing. If the buffer supports that, it holds a poll open until
    there are new chunks (``wait``). When the iteration ends, the payload is complete: gaps, contentLength and the
    sender's SHA-256 are checked.

    Args:
        job: The job, with its readKey if it has one.
        wait: Seconds that the buffer is asked to hold a poll open; with 0 the consumer polls every ``poll_interval``.
        poll_interval: Seconds between polls.
        max_poll_interval: The longest interval in seconds, to which it grows while there is nothing new.
        stall_timeout: Seconds without anything new after which the job is stalled.
        max_bytes: The most bytes of a payload; by default 1 GiB.
        position: The `position` of another consumer of the job, after which this one continues.

    >>> from penstock.pimp import Buffer, Job
    >>> with Buffer(behind_proxy=True) as buffer:
    ...     job = Job.create(buffer.url)
    ...     with job.sender(meta={"page": 7}) as sender:
    ...         sender.send(["hello ", "world"])
    ...     consumer = Consumer(job)
    ...     print("".join(consumer.text()), consumer.metadata.content_type, consumer.metadata.meta)
    hello world text/plain; charset=utf-8 {'page': 7}
    """

    __slots__ = ("_job", "_native", "_options")

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
        """Make a consumer, without a request; the class describes the arguments.

        Raises:
            PimpError: Of kind "misuse" for invalid options, "malformed" if ``position`` is not a position in this job.
        """
        self._options = read_options(wait, poll_interval, max_poll_interval, stall_timeout, max_bytes)
        self._job = job
        self._native = _core.PimpConsumer(job._native, job.read_key or job.key, self._options, position)

    @classmethod
    def _sharing(cls, job: Job, native: "_core.PimpConsumer", options: ReadOptions) -> Self:
        """Return a consumer that reads with a connection which exists already, and moves its position."""
        consumer = cls.__new__(cls)
        consumer._job, consumer._native, consumer._options = job, native, options
        return consumer

    @property
    def job(self) -> Job:
        """The job that the consumer reads."""
        return self._job

    @property
    def metadata(self) -> Metadata:
        """The job's metadata; waits for chunk 0.

        Raises:
            PimpError: As for `receive`.
        """
        return metadata_of(self._native.metadata(None))

    @property
    def next_index(self) -> int:
        """The index of the next chunk that the consumer needs."""
        return self._native.next_index()

    @property
    def position(self) -> str:
        """The position after the bytes that were returned, as a str from which another consumer can continue.

        If the payload is compressed, that consumer reads it again from the start, and skips what was returned before.

        >>> from penstock.pimp import Buffer, Job
        >>> with Buffer(behind_proxy=True) as buffer:
        ...     job = Job.create(buffer.url)
        ...     sender = job.sender(content_type="text/plain")
        ...     sender.send("one ")
        ...     consumer = job.consumer()
        ...     first = consumer.receive()
        ...     sender.send("two")
        ...     sender.finish()
        ...     print(first, job.consumer(position=consumer.position).read())
        b'one ' b'two'
        """
        return self._native.position()

    def receive(self, timeout: float | None = None) -> bytes | None:
        """Wait for the next bytes; return None if the payload is complete.

        Args:
            timeout: Seconds to wait; no bytes are lost after the timeout. By default only ``stall_timeout`` applies.

        Raises:
            PimpError: With the code FAILED if the sender failed the job; STALLED, EXPIRED, NOT_FOUND or UNAUTHORIZED;
                CORRUPT if the payload contradicts its metadata or checksum; TOO_LARGE beyond a limit; DEADLINE after
                the timeout.
        """
        return self._native.next_data(timeout)

    def __iter__(self) -> Iterator[bytes]:
        """Yield the payload as it arrives."""
        while (data := self.receive()) is not None:
            yield data

    def text(self, encoding: str = "utf-8") -> Iterator[str]:
        """Yield the payload as strings, as it arrives."""
        decoder = codecs.getincrementaldecoder(encoding)()
        for data in self:
            if text := decoder.decode(data):
                yield text
        if text := decoder.decode(b"", final=True):
            yield text

    def read(self) -> bytes:
        """Wait for the whole payload and return it."""
        return b"".join(self)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a payload that is an Arrow IPC stream, as they arrive; they consume the payload.

        Raises:
            PimpError: As for `receive`, also after the last batch, because the job may still fail or its checksum may
                be wrong; CORRUPT if there are bytes after the end of the stream.
        """
        source = _Reader(self)
        with pa.ipc.open_stream(source) as reader:
            yield from reader
        # Arrow stops at the end of its stream; only the end of the job verifies the payload.
        if source.read(1):
            raise PimpError("there are bytes after the end of the Arrow stream", "violation", "CORRUPT")

    def arrow_schema(self) -> pa.Schema:
        """Return the schema of a payload that is an Arrow IPC stream, without consuming any of it."""
        ahead = Consumer(self._job, **asdict(self._options), position=self.position)
        with pa.ipc.open_stream(_Reader(ahead)) as reader:
            return reader.schema

    def save(self, path: PathLike, *, progress: Callable[[int], object] | None = None) -> int:
        """Write the payload to a file, which appears only when it is complete; return the number of bytes.

        Args:
            path: The file; an existing one is replaced and keeps its permissions. A device or a pipe is written to
                directly.
            progress: A function that is called with the number of bytes so far.

        Raises:
            PimpError: As for `receive`.
            OSError: If the file cannot be written.
        """
        size = 0
        with replaced(Path(path)) as file:
            for data in self:
                size += file.write(data)
                file.flush()
                if progress is not None:
                    progress(size)
        return size

    def __reduce__(self) -> NoReturn:
        """Not picklable: it is a live connection."""
        raise TypeError("a Consumer is a live connection and cannot be pickled; pickle its job and its position")

    def __repr__(self) -> str:
        """Return the job and the next index."""
        return f"<Consumer of {self._job!r} at {self.next_index}>"


@contextmanager
def replaced(path: Path) -> Iterator[BinaryIO]:
    """Yield a file that replaces the one at the path after the block; a device or a pipe is yielded itself."""
    mode = None
    if path.exists():
        # Replace the target of a link, not the link.
        path = path.resolve()
        if not path.is_file():
            with path.open("wb") as file:
                yield file
            return
        mode = stat.S_IMODE(path.stat().st_mode)
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with part.open("xb") as file:
            yield file
        if mode is not None:
            part.chmod(mode)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


class _Reader(io.RawIOBase):
    """A readable file with the payload of a consumer."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        # Fill the buffer unless the payload ends, because the reader of batches treats fewer bytes as the end.
        filled = 0
        while filled < len(buffer):
            if not self._rest:
                self._rest = memoryview(self._consumer.receive() or b"")
                if not self._rest:
                    break
            taken = self._rest[: len(buffer) - filled]
            buffer[filled : filled + len(taken)] = taken
            self._rest = self._rest[len(taken) :]
            filled += len(taken)
        return filled


def read_options(
    wait: float, poll_interval: float, max_poll_interval: float, stall_timeout: float, max_bytes: int
) -> ReadOptions:
    """Return the core's options of a consumer."""
    return ReadOptions(
        wait=wait,
        poll_interval=poll_interval,
        max_poll_interval=max_poll_interval,
        stall_timeout=stall_timeout,
        max_bytes=max_bytes,
    )


def metadata_of(fields: "_core._PimpMetadata") -> Metadata:
    """Return the dataclass for the core's metadata."""
    content_type, content_encoding, compression, content_length, text = fields
    try:
        meta = None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        # A bad object of the sender must not prevent reading the payload.
        meta = None
    return Metadata(
        content_type=content_type,
        content_encoding=content_encoding,
        compression=compression,
        content_length=content_length,
        meta=meta,
    )
