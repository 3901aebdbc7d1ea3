"""Jobs: what who writes one and who reads it are told, and what the one who made it may do."""

import json
import secrets
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self
from urllib.parse import quote

from penstock import _core
from penstock.errors import PimpError
from penstock.pimp._options import PathLike, ReachOptions, milliseconds, reach_options

if TYPE_CHECKING:
    from penstock.pimp._consumer import Consumer
    from penstock.pimp._sender import Sender

__all__ = ["Job", "JobStatus", "key_of", "new_job_id", "new_key", "status_of"]


def new_job_id() -> str:
    """Make a jobId: a UUIDv4 (section 6).

    >>> len(new_job_id())
    36
    """
    return str(uuid.uuid4())


def new_key() -> str:
    """Make a key: 32 bytes of the system's random numbers (section 13).

    >>> len(new_key())
    43
    """
    return secrets.token_urlsafe(32)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """Where a job is in its life: `Job.status`."""

    state: Literal["CREATED", "ACTIVE", "COMPLETED", "FAILED", "EXPIRED"]
    """Section 10."""
    chunks: int
    """Chunks stored, chunk 0 included."""
    bytes: int
    """Bytes of all values stored, that of chunk 0 included."""
    next_index: int
    """The highest index stored, plus 1."""
    created_at: int
    """Milliseconds since 1970."""
    expires_at: int
    """Milliseconds since 1970."""
    cancelled: bool
    """Whether its consumer wants no more."""
    sha256: str | None
    """The payload's, in hex, if its sender has said it."""
    etag: str | None
    """The generation, for `Job.take_over`; None from buffers that have none."""


_ATTEMPTS = 8
_NOTHING = {"contentType": "application/octet-stream", "contentEncoding": "base64"}


class Job:
    """A job at a buffer: its URL, and the keys that are known here. It can be pickled, with the keys.

    Args:
        url: ``BUFFER/pimp/{jobId}``, or a writeUrl, which has ``/chunks`` behind it.
        key: The writeKey: it writes, reads, cancels and deletes.
        read_key: The readKey, where the job has one: it reads and cancels.
        fingerprint: Trust the buffer whose certificate has this SHA-256.
        ca: Trust buffers that this CA (PEM) has signed.
        system_ca: Trust what the system trusts, which is also the default for ``https://``. ``http://`` is for loopback
            only.
        cert: Our own certificate (PEM), with ``cert_key``.
        cert_key: Its private key (PEM).
        allowed_hosts: The hosts that may be asked, ``HOST`` or ``HOST:PORT``; to be given where the URL comes from
            outside. By default that of the URL.
        retry: Seconds for which requests that fail are made again.

    >>> from penstock.pimp import Buffer
    >>> with Buffer(behind_proxy=True) as buffer:
    ...     job = Job.create(buffer.url, read_key="reader")
    ...     print(job.status().state, job.cancel(), job.status().cancelled)
    CREATED True True
    """

    __slots__ = ("__dict__", "_options", "_url", "key", "read_key")

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        read_key: str | None = None,
        fingerprint: str | None = None,
        ca: PathLike | None = None,
        system_ca: bool = False,
        cert: PathLike | None = None,
        cert_key: PathLike | None = None,
        allowed_hosts: Sequence[str] | None = None,
        retry: float = 30.0,
    ) -> None:
        """Take what is known of a job; the class says what the arguments are. Nothing is asked yet."""
        self._url = url
        self.key: str | None = key
        """The writeKey, if it is known here."""
        self.read_key: str | None = read_key
        """The readKey, if it is known here."""
        self._options: ReachOptions = reach_options(
            fingerprint=fingerprint,
            ca=ca,
            system_ca=system_ca,
            cert=cert,
            cert_key=cert_key,
            allowed_hosts=allowed_hosts,
            retry=retry,
        )

    @classmethod
    def create(
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
        """Make a job at a buffer, as its consumer does (section 6).

        Args:
            buffer: The buffer's URL.
            job_id: By default a new one.
            key: The writeKey; by default a new one.
            read_key: The key without which nobody reads; by default who knows the jobId reads.
            ttl: Seconds that it lives; by default the buffer's limit, 300.
            timeout: Seconds to wait; by default as long as ``retry`` says.
            reach: Whom to trust, as for `Job`.

        Raises:
            PimpError: With the code CONFLICT where the job is there with another key.
        """
        url = f"{buffer.rstrip('/')}/pimp/{job_id or new_job_id()}"
        job = cls(url, key=key or new_key(), read_key=read_key, **reach)
        job.ensure(ttl=ttl, timeout=timeout)
        return job

    @cached_property
    def _native(self) -> "_core.PimpJob":
        # Opened when it is needed, so that a job can be made where it is only handed on.
        return _core.PimpJob(self._url, self._options)

    @property
    def url(self) -> str:
        """The job's URL, ``BUFFER/pimp/{jobId}``."""
        return self._native.url()

    @property
    def id(self) -> str:
        """The jobId."""
        return self._native.id()

    @property
    def write_url(self) -> str:
        """Where chunks are posted: the writeUrl of a trigger request."""
        return f"{self.url}/chunks"

    @property
    def raw_url(self) -> str:
        """Where the payload is, once the job is completed."""
        return f"{self.url}/raw"

    @property
    def page_url(self) -> str:
        """The buffer's page that shows the job as it arrives, with the key that reads; it stays behind the ``#``."""
        key = "" if self.read_key is None else f"&key={quote(self.read_key, safe='')}"
        return f"{self.url.removesuffix(f'pimp/{self.id}')}#job={self.id}{key}"

    def ensure(self, *, ttl: float | None = None, timeout: float | None = None) -> bool:
        """Make the job if it is not there; say whether it is new.

        Raises:
            PimpError: As for `create`.
        """
        new, _ = self._native.create(key_of(self), milliseconds("ttl", ttl), self.read_key, timeout)
        return new

    def status(self, timeout: float | None = None) -> JobStatus:
        """Ask where it is in its life.

        Raises:
            PimpError: With the code NOT_FOUND or EXPIRED, for example.
        """
        return status_of(self._native.status(self.read_key or self.key, timeout))

    def cancel(self, timeout: float | None = None) -> bool:
        """Say that nobody wants more of it: its sender hears of it and stops. False for a job that has ended."""
        return self._native.cancel(key_of(self, "reads"), timeout)

    def delete(self, timeout: float | None = None) -> None:
        """Have the buffer forget it, with its chunks."""
        self._native.delete(key_of(self), timeout)

    def finish(self, error: str | None = None, timeout: float | None = None) -> None:
        """Write the final chunk behind the last one, for a writer that does not: the sink of a stream of Spark.

        Args:
            error: Why it has failed; by default it is completed.
            timeout: Seconds to wait for each request.

        Raises:
            PimpError: With the code CONFLICT where somebody else writes it again and again meanwhile.
        """
        error = None if error is None else error.encode(errors="backslashreplace").decode()
        for _ in range(_ATTEMPTS):
            status = status_of(self._native.status(self.read_key or self.key, timeout))
            if status.state not in {"CREATED", "ACTIVE"}:
                return
            chunks = [(status.next_index, "")]
            if status.next_index == 0 and error is None:
                # Nothing was ever written: an empty payload.
                chunks = [(0, json.dumps(_NOTHING)), (1, "")]
            try:
                self._native.write_chunks(key_of(self), chunks, True, error, timeout)
            except PimpError as refused:
                if refused.code != "CONFLICT":
                    raise
            # Another writer's chunk may have come into its place, and stays: the job says whether it has ended.
        raise PimpError(f"{self!r} is written by others again and again", "violation", "CONFLICT")

    def take_over(self, *, etag: str | None = None, key: str | None = None, timeout: float | None = None) -> Self:
        """Make another key the writeKey: whoever writes with the old one is refused from then on (decision 11).

        Args:
            etag: The generation that is taken over; by default the present one, whichever that is.
            key: The new key; by default one is made.
            timeout: Seconds to wait.

        Returns:
            The job with the new key.

        Raises:
            PimpError: With the code PRECONDITION_FAILED where somebody else has taken it over meanwhile.
        """
        etag = etag or self.status(timeout).etag
        if etag is None:
            raise PimpError("the buffer gives no ETag: it knows no takeover", "violation", "PRECONDITION_FAILED")
        key = key or new_key()
        self._native.take_over(etag, key_of(self), key, timeout)
        return self.with_key(key)

    def with_key(self, key: str | None) -> Self:
        """Give the same job with another writeKey, or, for those who only read it, with none."""
        other = type(self)(self._url, key=key, read_key=self.read_key)
        other._options = self._options
        return other

    def request(self, payload: Mapping[str, object]) -> bytes:
        """Make the body of a trigger request (section 6): the jobId, the writeUrl, the writeKey, and this payload."""
        fields = {"jobId": self.id, "writeUrl": self.write_url, "writeKey": key_of(self), "payload": dict(payload)}
        return json.dumps(fields).encode()

    def trigger(
        self,
        url: str,
        payload: Mapping[str, object],
        *,
        token: str | None = None,
        timeout: float | None = None,
        **reach: Any,
    ) -> None:
        """Ask a sender for this job; it answers at once, and writes later.

        Args:
            url: The sender's endpoint.
            payload: What it is told.
            token: The bearer that it wants to see.
            timeout: Seconds to wait.
            reach: Whom to trust there, as for `Job`.

        Raises:
            PimpError: Where it does not answer with 202.
        """
        options = reach_options(**{"allowed_hosts": None, **reach})
        _core.pimp_ask(url, options, token, self.request(payload), timeout)

    def sender(self, **options: Any) -> "Sender":
        """Write it; the options are those of `Sender`."""
        from penstock.pimp._sender import Sender

        return Sender(self, **options)

    def consumer(self, **options: Any) -> "Consumer":
        """Read it; the options are those of `Consumer`."""
        from penstock.pimp._consumer import Consumer

        return Consumer(self, **options)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what it was made with, keys included."""
        return _restore, (type(self), self._url, self.key, self.read_key, self._options)

    def __eq__(self, other: object) -> bool:
        """Compare what is known of them."""
        return isinstance(other, Job) and self.__reduce__() == other.__reduce__()

    def __hash__(self) -> int:
        """Hash the URL."""
        return hash(self._url)

    def __repr__(self) -> str:
        """Name it, without its keys."""
        return f"<{type(self).__name__} {self._url}>"


def _restore(cls: type[Job], url: str, key: str | None, read_key: str | None, options: ReachOptions) -> Job:
    job = cls(url, key=key, read_key=read_key)
    job._options = options
    return job


def key_of(job: Job, does: Literal["writes", "reads"] = "writes") -> str:
    """Give the key that this needs."""
    key = job.key if does == "writes" else job.read_key or job.key
    if key is None:
        raise PimpError(f"{job!r} has no key that {does}", "misuse", "MISUSE")
    return key


def status_of(fields: Mapping[str, Any]) -> JobStatus:
    """Make the dataclass from what the core gave."""
    return JobStatus(**fields)
