"""Jobs: the URL and the keys that senders and consumers need, and the management of a job."""

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
    """Return a new jobId, a UUIDv4 (PIMP, section 6).

    >>> len(new_job_id())
    36
    """
    return str(uuid.uuid4())


def new_key() -> str:
    """Return a new key: 32 random bytes of the system, in URL-safe Base64 (PIMP, section 13).

    >>> len(new_key())
    43
    """
    return secrets.token_urlsafe(32)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """The status of a job: `Job.status`."""

    state: Literal["CREATED", "ACTIVE", "COMPLETED", "FAILED", "EXPIRED"]
    """The state (PIMP, section 10)."""
    chunks: int
    """The number of stored chunks, including chunk 0."""
    bytes: int
    """The bytes of all stored values, including that of chunk 0."""
    next_index: int
    """The highest stored index plus 1."""
    created_at: int
    """The time of creation, in milliseconds since the Unix epoch."""
    expires_at: int
    """The time of expiry, in milliseconds since the Unix epoch."""
    cancelled: bool
    """Whether the job was cancelled."""
    sha256: str | None
    """The SHA-256 of the payload in hex, if its sender has set it."""
    etag: str | None
    """The generation of the writeKey, for `Job.take_over`; None if the buffer does not support that."""


_ATTEMPTS = 8
_NOTHING = {"contentType": "application/octet-stream", "contentEncoding": "base64"}


class Job:
    """A job at a buffer, with its URL and the keys that are known here. It can be pickled, including the keys.

    Args:
        url: ``BUFFER/pimp/{jobId}``, or a writeUrl, which ends with ``/chunks``.
        key: The writeKey, which allows to write, read, cancel and delete the job.
        read_key: The readKey, if the job has one, which allows to read and cancel the job.
        fingerprint: Trust the buffer whose certificate has this SHA-256, in hex.
        ca: Trust buffers whose certificate is signed by this CA (PEM file).
        system_ca: Trust buffers whose certificate is signed by a CA of the system's store, which is also the default
            for ``https://``. ``http://`` is allowed only on loopback.
        cert: The client certificate (PEM file), with ``cert_key``.
        cert_key: The certificate's private key (PEM file).
        allowed_hosts: The hosts to which requests may be sent, ``HOST`` or ``HOST:PORT``; set them if the URL comes
            from outside. By default the host of the URL.
        retry: Seconds for which failed requests are retried.

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
        """Make a job object, without a request; the class describes the arguments."""
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
        """Create a job at a buffer, which is what a consumer does first (PIMP, section 6).

        Args:
            buffer: The buffer's URL.
            job_id: The jobId; by default a new one.
            key: The writeKey; by default a new one.
            read_key: The readKey, which readers then need. By default the jobId is enough to read the job.
            ttl: The life of the job in seconds; by default the buffer's limit, usually 300.
            timeout: Seconds to wait; by default only ``retry`` applies.
            reach: The buffers to trust, as for `Job`.

        Raises:
            PimpError: With the code CONFLICT if the job exists with another key.
        """
        url = f"{buffer.rstrip('/')}/pimp/{job_id or new_job_id()}"
        job = cls(url, key=key or new_key(), read_key=read_key, **reach)
        job.ensure(ttl=ttl, timeout=timeout)
        return job

    @cached_property
    def _native(self) -> "_core.PimpJob":
        # Opened at the first use, because a job may be made only to be pickled.
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
        """The URL to which chunks are posted: the writeUrl of a trigger request."""
        return f"{self.url}/chunks"

    @property
    def raw_url(self) -> str:
        """The URL of the payload of a completed job."""
        return f"{self.url}/raw"

    @property
    def page_url(self) -> str:
        """The URL of the buffer's page that shows the job as it arrives; the readKey is after the ``#``: never sent."""
        key = "" if self.read_key is None else f"&key={quote(self.read_key, safe='')}"
        return f"{self.url.removesuffix(f'pimp/{self.id}')}#job={self.id}{key}"

    def ensure(self, *, ttl: float | None = None, timeout: float | None = None) -> bool:
        """Create the job if it does not exist; return whether it is new.

        Raises:
            PimpError: As for `create`.
        """
        new, _ = self._native.create(key_of(self), milliseconds("ttl", ttl), self.read_key, timeout)
        return new

    def status(self, timeout: float | None = None) -> JobStatus:
        """Return the status of the job.

        Raises:
            PimpError: With the code NOT_FOUND or EXPIRED, for example.
        """
        return status_of(self._native.status(self.read_key or self.key, timeout))

    def cancel(self, timeout: float | None = None) -> bool:
        """Cancel the job, so that its sender stops; return False if the job has ended already."""
        return self._native.cancel(key_of(self, "reads"), timeout)

    def delete(self, timeout: float | None = None) -> None:
        """Delete the job and its chunks from the buffer."""
        self._native.delete(key_of(self), timeout)

    def finish(self, error: str | None = None, timeout: float | None = None) -> None:
        """Write the final chunk after the last one, for writers that do not, such as the sink of a Spark stream.

        Args:
            error: The reason for which the job fails; by default it is completed.
            timeout: Seconds to wait for each request.

        Raises:
            PimpError: With the code CONFLICT if another writer repeatedly writes to the job meanwhile.
        """
        error = None if error is None else error.encode(errors="backslashreplace").decode()
        for _ in range(_ATTEMPTS):
            status = status_of(self._native.status(self.read_key or self.key, timeout))
            if status.state not in {"CREATED", "ACTIVE"}:
                return
            chunks = [(status.next_index, "")]
            if status.next_index == 0 and error is None:
                # Nothing was written yet, so complete the job with an empty payload.
                chunks = [(0, json.dumps(_NOTHING)), (1, "")]
            try:
                self._native.write_chunks(key_of(self), chunks, True, error, timeout)
            except PimpError as refused:
                if refused.code != "CONFLICT":
                    raise
            # Another writer's chunk may have taken the place of the final one, so ask again whether the job has ended.
        raise PimpError(
            f"gave up after repeated conflicts: another writer keeps changing {self!r}", "violation", "CONFLICT"
        )

    def take_over(self, *, etag: str | None = None, key: str | None = None, timeout: float | None = None) -> Self:
        """Replace the writeKey; writes with the old one are rejected from then on.

        Args:
            etag: The generation to take over; by default the current one.
            key: The new writeKey; by default a new one.
            timeout: Seconds to wait for each request.

        Returns:
            The job with the new key.

        Raises:
            PimpError: With the code PRECONDITION_FAILED if another process has taken the job over meanwhile, or the
                buffer does not support that.
        """
        etag = etag or self.status(timeout).etag
        if etag is None:
            raise PimpError(
                "the buffer sends no ETag: it does not support takeover", "violation", "PRECONDITION_FAILED"
            )
        key = key or new_key()
        self._native.take_over(etag, key_of(self), key, timeout)
        return self.with_key(key)

    def with_key(self, key: str | None) -> Self:
        """Return the same job with another writeKey, or, for consumers, with None."""
        other = type(self)(self._url, key=key, read_key=self.read_key)
        other._options = self._options
        return other

    def request(self, payload: Mapping[str, object]) -> bytes:
        """Return the body of a trigger request with the jobId, writeUrl, writeKey and payload (PIMP, section 6)."""
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
        """Request the job from a sender, which answers at once and writes the job later.

        Args:
            url: The sender's endpoint.
            payload: The payload for the sender.
            token: The bearer token for the endpoint, if it requires one.
            timeout: Seconds to wait for the answer.
            reach: The endpoint to trust, as for `Job`.

        Raises:
            PimpError: If the answer is not 202.
        """
        options = reach_options(**{"allowed_hosts": None, **reach})
        _core.pimp_ask(url, options, token, self.request(payload), timeout)

    def sender(self, **options: Any) -> "Sender":
        """Return a sender that writes the job; the options are those of `Sender`."""
        from penstock.pimp._sender import Sender

        return Sender(self, **options)

    def consumer(self, **options: Any) -> "Consumer":
        """Return a consumer that reads the job; the options are those of `Consumer`."""
        from penstock.pimp._consumer import Consumer

        return Consumer(self, **options)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the URL, the keys and the options."""
        return _restore, (type(self), self._url, self.key, self.read_key, self._options)

    def __eq__(self, other: object) -> bool:
        """Compare the class, the URL, the keys and the options."""
        return isinstance(other, Job) and self.__reduce__() == other.__reduce__()

    def __hash__(self) -> int:
        """Hash the URL."""
        return hash(self._url)

    def __repr__(self) -> str:
        """Return the URL, without the keys."""
        return f"<{type(self).__name__} {self._url}>"


def _restore(cls: type[Job], url: str, key: str | None, read_key: str | None, options: ReachOptions) -> Job:
    job = cls(url, key=key, read_key=read_key)
    job._options = options
    return job


def key_of(job: Job, does: Literal["writes", "reads"] = "writes") -> str:
    """Return the key for writing or reading; raise an error if it is not known."""
    key = job.key if does == "writes" else job.read_key or job.key
    if key is None:
        purpose = "writing" if does == "writes" else "reading"
        raise PimpError(f"{job!r} has no key for {purpose}", "misuse", "MISUSE")
    return key


def status_of(fields: Mapping[str, Any]) -> JobStatus:
    """Return the dataclass for the core's status."""
    return JobStatus(**fields)
