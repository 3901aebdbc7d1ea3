"""Senders: who writes a job."""

import inspect
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Literal, NoReturn, Self

from penstock import _core
from penstock.errors import PimpError
from penstock.pimp._job import Job, key_of
from penstock.pimp._options import WriteOptions, write_options
from penstock.pimp._pieces import ArrowFormat, Pieces

__all__ = ["Sender", "abandoned", "check_sender", "reason_of", "sayable"]


class Sender:
    """Writes a job: chunks, batches, retries and the end. As a context manager it finishes the job, or fails it.

    What is sent in small pieces is put together, and goes when ten chunks are full, 250 ms after its first byte, or
    with `flush`. Requests that fail are made again, which is safe: the buffer takes each chunk once.

    Args:
        job: The job, with its writeKey. Where its URL came from outside, give it ``allowed_hosts``.
        content_type: The payload's MIME type. By default that of what is sent within 100 ms: ``text/plain`` of strings,
            that of Arrow or of JSON lines of batches, else ``application/octet-stream``; chunk 0 must not wait longer.
        encoding: "identity": values are the text itself; "base64"; "auto" (decision 4) is the first for strings and
            for types that are text, else the other.
        gzip: Compress the payload; then it is Base64.
        content_length: Bytes of the payload, where they are known and it is not compressed.
        meta: An object for the consumer.
        arrow: How batches are sent: "ipc", a stream of Arrow, or "jsonl", a line of JSON for each row.
        chunk_bytes: Bytes of a chunk's value, at most.
        max_chunks_per_batch: Chunks of a request, at most.
        flush_interval: Seconds after which what waits is sent; None: only whole chunks are, so their bounds depend on
            the payload alone.
        stall_timeout: Seconds for which writes that fail are made again.

    >>> import pyarrow as pa
    >>> from penstock.pimp import Buffer, Job
    >>> with Buffer(behind_proxy=True) as buffer:
    ...     job = Job.create(buffer.url)
    ...     with Sender(job, arrow="jsonl") as sender:
    ...         sender.send(pa.table({"name": ["Ada", "Max"]}))
    ...     print(job.consumer().read().decode(), end="")
    {"name":"Ada"}
    {"name":"Max"}
    """

    __slots__ = ("_described", "_job", "_native", "_options", "_pieces")

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
        """Begin the job, with chunk 0; the class says what the arguments are.

        Raises:
            PimpError: Of kind "misuse" for options that do not fit, and URLs that no key may be sent to.
        """
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
        self._native: _core.PimpSender | None = _core.PimpSender(job._native, key_of(job), self._options)

    def _begun(self) -> "_core.PimpSender":
        if self._native is None:
            raise abandoned()
        return self._native

    @property
    def job(self) -> Job:
        """The job that it writes."""
        return self._job

    @property
    def last_index(self) -> int | None:
        """The highest index that the buffer has from here; None before chunk 0."""
        return None if self._native is None else self._native.progress()[0]

    @property
    def bytes_written(self) -> int:
        """Bytes of the payload that the buffer has, before they were compressed."""
        return 0 if self._native is None else self._native.progress()[1]

    def send(self, data: object, *, timeout: float | None = None) -> None:
        """Send a part of the payload. It returns when there is room for it.

        Args:
            data: bytes, str, a path, a file that is open, a batch or table in Arrow, or an iterable of these, which
                may give more than there is memory for.
            timeout: Seconds for each piece, after which it is open how much of it is sent. By default for ever.

        Raises:
            PimpError: With the code CANCELLED where the consumer wants no more, STALLED where the buffer cannot be
                reached, and what the buffer has refused. The job has ended then.
        """
        for piece in self._pieces.of(data):
            if not self._described and self._pieces.content_type is not None:
                self._begun().describe(self._pieces.content_type, timeout)
            self._described = True
            self._begun().send(piece, timeout)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until the buffer has what was sent; of Base64 up to two bytes wait for what completes them.

        Each makes a chunk, where something was sent: a job has 4,096, chunk 0 and the final one among them.

        Raises:
            PimpError: As for `send`; with the code TOO_LARGE where the job has no chunks left, and then it has failed.
        """
        self._begun().flush(timeout)

    def finish(self, timeout: float | None = None) -> None:
        """Write what waits and the final chunk, with the payload's SHA-256. Again changes nothing.

        Raises:
            PimpError: As for `send`; with the code MISUSE where the payload is not as long as ``content_length`` said,
                CONFLICT where another writer's chunks are where these should be: the job has failed, or had ended.
        """
        for piece in self._pieces.end():
            self._begun().send(piece, timeout)
        self._begun().finish(timeout)

    def fail(self, reason: str, timeout: float | None = None) -> None:
        """End the job with an error, which the consumer is told (section 11)."""
        self._begun().fail(sayable(reason), timeout)

    def abandon(self) -> None:
        """Write nothing more, and leave the job as it is: who holds its key may go on."""
        self._native = None

    def __enter__(self) -> Self:
        """Give itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Finish the job; where an exception came, fail it, and without another one."""
        if error is None:
            self.finish()
            return
        try:
            self.fail(reason_of(error), timeout=10.0)
        except PimpError:
            return

    def __reduce__(self) -> NoReturn:
        """Refuse a pickle."""
        raise TypeError("a Sender is a live connection and cannot be pickled; pickle its job")

    def __repr__(self) -> str:
        """Say what it writes."""
        return f"<Sender of {self._job!r}>"


def check_sender(options: Mapping[str, Any]) -> None:
    """Refuse options that no `Sender` takes, before there is a job: whose chunks go nowhere.

    Raises:
        PimpError: Of kind "misuse" for options that do not fit.
        TypeError: For a name that is none.
    """
    given = inspect.signature(Sender).bind(None, **options)
    given.apply_defaults()
    fields = {name: value for name, value in given.arguments.items() if name not in {"job", "arrow"}}
    Pieces(given.arguments["arrow"])
    _core.pimp_check_sender(write_options(**fields))


def abandoned() -> PimpError:
    """Say that nothing more can be sent."""
    return PimpError("the job was abandoned", "misuse", "MISUSE")


def sayable(reason: str) -> str:
    """Make a reason one that UTF-8 can say: names of files may have lone surrogates in them."""
    return reason.encode(errors="backslashreplace").decode()


def reason_of(error: BaseException) -> str:
    """Say to a consumer why its job has failed."""
    return str(error) or type(error).__name__
