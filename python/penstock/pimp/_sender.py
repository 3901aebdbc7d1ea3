"""Senders, which write a job."""

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
    """A writer of a job. As a context manager it finishes the job at the end, or fails it if the block raises.

    Small pieces are combined into chunks. They are sent when ten chunks are full (``max_chunks_per_batch``), 250 ms
    after the first byte (``flush_interval``), or by `flush`. Failed requests are retried, which is safe, because the
    buffer accepts each chunk once.

    Args:
        job: The job, with its writeKey. If its URL comes from outside, it needs ``allowed_hosts``.
        content_type: The payload's MIME type. By default it depends on what is sent within 100 ms, because chunk 0 must
            not wait longer: ``text/plain`` for strings, the type of Arrow or of JSON lines for batches, else
            ``application/octet-stream``.
        encoding: "identity" (values are the text itself), "base64", or "auto": "identity" for strings and textual MIME
            types, else "base64".
        gzip: Whether to compress the payload, which is then encoded as Base64.
        content_length: The bytes of the payload, if they are known and it is not compressed.
        meta: An object for the consumer, which must be representable as JSON.
        arrow: The format of batches: "ipc" for an Arrow IPC stream, "jsonl" for a line of JSON for each row.
        chunk_bytes: The most bytes of a chunk's value; by default 256 KiB.
        max_chunks_per_batch: The most chunks of a request.
        flush_interval: Seconds after which a part of a chunk is sent; None: only full chunks are sent before the end,
            so that their boundaries depend only on the payload.
        stall_timeout: Seconds for which failing writes are retried.

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
        """Begin the job with chunk 0, in the background; the class describes the arguments.

        Raises:
            PimpError: Of kind "misuse" for invalid options, and for URLs to which no key may be sent.
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
        """The job that the sender writes."""
        return self._job

    @property
    def last_index(self) -> int | None:
        """The highest index of this sender that the buffer has; None before chunk 0."""
        return None if self._native is None else self._native.progress()[0]

    @property
    def bytes_written(self) -> int:
        """The bytes of the payload that the buffer has, before compression."""
        return 0 if self._native is None else self._native.progress()[1]

    def send(self, data: object, *, timeout: float | None = None) -> None:
        """Send a part of the payload; return once it is queued.

        Args:
            data: Bytes, a str, a `pathlib.Path`, an open file, an Arrow batch or table, or an iterable of these, which
                may yield more than fits into memory.
            timeout: Seconds to wait for each piece; by default indefinitely. After the timeout it is unknown how much
                of the piece is sent.

        Raises:
            PimpError: With the code CANCELLED if the consumer has cancelled the job, STALLED if the buffer cannot be
                reached, or the code of the buffer's refusal. In these cases the job has ended.
        """
        for piece in self._pieces.of(data):
            if not self._described and self._pieces.content_type is not None:
                self._begun().describe(self._pieces.content_type, timeout)
            self._described = True
            self._begun().send(piece, timeout)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until the buffer has everything that was sent; with Base64, up to two bytes wait for more.

        Each call makes a chunk if there is something to send. By default a job has at most 4,096 chunks, including
        chunk 0 and the final one.

        Raises:
            PimpError: As for `send`; with the code TOO_LARGE if the job has no chunks left, in which case it fails.
        """
        self._begun().flush(timeout)

    def finish(self, timeout: float | None = None) -> None:
        """Write the remaining bytes and the final chunk, with the payload's SHA-256; a second call changes nothing.

        Raises:
            PimpError: As for `send`; with the code MISUSE if the payload's length is not ``content_length``, CONFLICT
                if another writer's chunks are in the place of these. Then the job has failed, or had ended before.
        """
        for piece in self._pieces.end():
            self._begun().send(piece, timeout)
        self._begun().finish(timeout)

    def fail(self, reason: str, timeout: float | None = None) -> None:
        """End the job with an error, whose reason the consumer gets (PIMP, section 11)."""
        self._begun().fail(sayable(reason), timeout)

    def abandon(self) -> None:
        """Write nothing more and leave the job unfinished; another sender with its key may continue it."""
        self._native = None

    def __enter__(self) -> Self:
        """Return the sender itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Finish the job; after an exception, fail it without raising another one."""
        if error is None:
            self.finish()
            return
        try:
            self.fail(reason_of(error), timeout=10.0)
        except PimpError:
            return

    def __reduce__(self) -> NoReturn:
        """Not picklable: it is a live connection."""
        raise TypeError("a Sender is a live connection and cannot be pickled; pickle its job")

    def __repr__(self) -> str:
        """Return the job."""
        return f"<Sender of {self._job!r}>"


def check_sender(options: Mapping[str, Any]) -> None:
    """Reject options that `Sender` would reject, before there is a job.

    Raises:
        PimpError: Of kind "misuse" for invalid options.
        TypeError: For an unknown option.
    """
    given = inspect.signature(Sender).bind(None, **options)
    given.apply_defaults()
    fields = {name: value for name, value in given.arguments.items() if name not in {"job", "arrow"}}
    Pieces(given.arguments["arrow"])
    _core.pimp_check_sender(write_options(**fields))


def abandoned() -> PimpError:
    """Return the error for an abandoned job."""
    return PimpError("the job was abandoned", "misuse", "MISUSE")


def sayable(reason: str) -> str:
    """Escape what UTF-8 cannot encode: a reason may have file names with lone surrogates."""
    return reason.encode(errors="backslashreplace").decode()


def reason_of(error: BaseException) -> str:
    """Return the reason that the consumer gets for an exception."""
    return str(error) or type(error).__name__
