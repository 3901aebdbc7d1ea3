"""Consumers: who reads a job."""

import codecs
import io
import json
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, NoReturn

import pyarrow as pa

from penstock import _core
from penstock.errors import PimpError
from penstock.pimp._job import Job
from penstock.pimp._options import PathLike, ReadOptions

__all__ = ["Consumer", "Metadata", "metadata_of", "read_options", "replaced"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """What a job is: its chunk 0 (section 4)."""

    content_type: str
    """The payload's MIME type."""
    content_encoding: Literal["identity", "base64"]
    """How values hold it."""
    compression: Literal["none", "gzip"]
    """What was done to it before; a consumer gives it as it was."""
    content_length: int | None
    """Bytes of the payload, compressed where it is; None where the sender did not say."""
    meta: dict[str, Any] | None
    """What the sender has for the consumer; None where Python cannot read it, as integers of 5,000 digits."""


class Consumer:
    """Reads a job: an iterator of bytes, as they come. Nothing is asked before the first of them is wanted.

    It polls by index, so a connection that breaks loses nothing; where the buffer can, it waits for news (``wait``).
    What it gives at the end is whole: gaps, contentLength and the sender's SHA-256 are checked.

    Args:
        job: The job, with its readKey where it has one.
        wait: Seconds that a buffer is asked to hold a poll open; 0: it is asked every ``poll_interval`` instead.
        poll_interval: Seconds between polls.
        max_poll_interval: What this grows to while nothing comes.
        stall_timeout: Seconds without anything new, after which the job counts as stalled.
        max_bytes: The most bytes of a payload.
        position: Go on behind what another consumer of this job has given: its `position`.

    >>> from penstock.pimp import Buffer, Job
    >>> with Buffer(behind_proxy=True) as buffer:
    ...     job = Job.create(buffer.url)
    ...     with job.sender(meta={"page": 7}) as sender:
    ...         sender.send(["hello ", "world"])
    ...     consumer = Consumer(job)
    ...     print("".join(consumer.text()), consumer.metadata.content_type, consumer.metadata.meta)
    hello world text/plain; charset=utf-8 {'page': 7}
    """

    __slots__ = ("_job", "_native")

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
        """Take what is known of the job; the class says what the arguments are.

        Raises:
            PimpError: Of kind "misuse" for options that do not fit; "malformed" where that is no position in this job.
        """
        options = read_options(wait, poll_interval, max_poll_interval, stall_timeout, max_bytes)
        self._job = job
        self._native = _core.PimpConsumer(job._native, job.read_key or job.key, options, position)

    @property
    def job(self) -> Job:
        """The job that it reads."""
        return self._job

    @property
    def metadata(self) -> Metadata:
        """What the job is; waits for its chunk 0.

        Raises:
            PimpError: As for `receive`.
        """
        return metadata_of(self._native.metadata(None))

    @property
    def next_index(self) -> int:
        """The next index that it needs."""
        return self._native.next_index()

    @property
    def position(self) -> str:
        """Behind what it has given: a text that a consumer in another process takes, or this one's successor.

        Of a payload that was compressed everything is asked for again, and what was given before is left out.

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
        """Wait for the next bytes; None when the payload is whole.

        Args:
            timeout: Seconds to wait; nothing is lost where they are over. By default as long as ``stall_timeout`` says.

        Raises:
            PimpError: With the code FAILED where the sender says so, STALLED, EXPIRED, NOT_FOUND or UNAUTHORIZED,
                CORRUPT where the payload is not what the job says, TOO_LARGE beyond a limit, DEADLINE after the time.
        """
        return self._native.next_data(timeout)

    def __iter__(self) -> Iterator[bytes]:
        """Give the payload as it comes."""
        while (data := self.receive()) is not None:
            yield data

    def text(self, encoding: str = "utf-8") -> Iterator[str]:
        """Give the payload as text, as it comes."""
        decoder = codecs.getincrementaldecoder(encoding)()
        for data in self:
            if text := decoder.decode(data):
                yield text
        if text := decoder.decode(b"", final=True):
            yield text

    def read(self) -> bytes:
        """Wait for the whole payload."""
        return b"".join(self)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Give the batches of a payload that is a stream of Arrow, as they come.

        Raises:
            PimpError: As for `receive`, also behind the last batch: a job may fail, or its checksum be another; CORRUPT
                where bytes are left behind the stream's end.
        """
        source = _Reader(self)
        with pa.ipc.open_stream(source) as reader:
            yield from reader
        # Arrow stops at its own end, which is not yet the job's.
        if source.read(1):
            raise PimpError("bytes are left behind the end of the stream of Arrow", "violation", "CORRUPT")

    def arrow_schema(self) -> pa.Schema:
        """Give the columns of a payload that is a stream of Arrow. What it takes of the payload is not given again."""
        with pa.ipc.open_stream(_Reader(self)) as reader:
            return reader.schema

    def save(self, path: PathLike, *, progress: Callable[[int], object] | None = None) -> int:
        """Write the payload to a file, which is there when it is whole; give its bytes.

        Args:
            path: The file; one that is there is replaced, with its permissions. A device or a pipe is written to.
            progress: Called with the bytes so far.
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
        """Refuse a pickle."""
        raise TypeError("a Consumer is a live connection and cannot be pickled; pickle its job and its position")

    def __repr__(self) -> str:
        """Say what it reads, and how far it is."""
        return f"<Consumer of {self._job!r} at {self.next_index}>"


@contextmanager
def replaced(path: Path) -> Iterator[BinaryIO]:
    """Give a file that takes the place of another one when the block is over; a device or a pipe itself."""
    mode = None
    if path.exists():
        # A link stays one.
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
    """A file over a consumer, for what reads files."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        # Filled, unless the payload ends: who reads batches takes fewer bytes for the end.
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
    """Make what the core is told."""
    return ReadOptions(
        wait=wait,
        poll_interval=poll_interval,
        max_poll_interval=max_poll_interval,
        stall_timeout=stall_timeout,
        max_bytes=max_bytes,
    )


def metadata_of(fields: "_core._PimpMetadata") -> Metadata:
    """Make the dataclass from what the core gave."""
    content_type, content_encoding, compression, content_length, text = fields
    try:
        meta = None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        # It is the sender's, and no reason not to read the payload.
        meta = None
    return Metadata(
        content_type=content_type,
        content_encoding=content_encoding,
        compression=compression,
        content_length=content_length,
        meta=meta,
    )
