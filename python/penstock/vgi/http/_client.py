"""The client over HTTP."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from os import PathLike
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import pyarrow as pa

from penstock import _core
from penstock.vgi._external import core_external, core_uploads
from penstock.vgi.external import UploadUrl
from penstock.vgi.introspect import DESCRIBE_METHOD_NAME, ServiceDescription, parse_describe_batch
from penstock.vgi.rpc._batches import AnnotatedBatch
from penstock.vgi.rpc._client import Caller, OnLog, Session, on_log_adapter, proxy, transport_errors
from penstock.vgi.rpc._common import RpcError
from penstock.vgi.rpc._methods import core_protocol, method_values
from penstock.vgi.rpc._types import rpc_methods
from penstock.vgi.utils import IpcValidation, validate_batch

if TYPE_CHECKING:
    from penstock.vgi._external import ExternalConfig

__all__ = [
    "HttpRetryConfig",
    "HttpServerCapabilities",
    "HttpStreamSession",
    "HttpTransientError",
    "http_capabilities",
    "http_connect",
    "http_introspect",
    "request_upload_urls",
]

P = TypeVar("P")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RETRYABLE = frozenset({429, 502, 503, 504})


@dataclass(frozen=True)
class HttpRetryConfig:
    """The rules for retrying requests, as long as there is time left for an answer.

    ```python
    >>> from penstock.vgi import HttpRetryConfig
    >>> sorted(HttpRetryConfig(max_retries=1).retryable_status_codes)
    [429, 502, 503, 504]

    ```
    """

    max_retries: int = 3
    """The most retries of a request."""
    backoff_base: float = 0.5
    """Seconds before the first retry, doubled for each further one; the actual wait is a random half to all of it."""
    backoff_max: float = 30.0
    """The longest wait in seconds."""
    retryable_status_codes: frozenset[int] = field(default_factory=lambda: _RETRYABLE)
    """The response statuses that are retried."""
    retry_on_connection_error: bool = True
    """Whether connection failures are retried."""
    respect_retry_after: bool = True
    """Whether to wait for the time in the server's ``Retry-After``, at most ``backoff_max``."""


class HttpTransientError(RpcError):
    """A retryable status of a server or proxy that persisted over all retries."""

    def __init__(self, status_code: int, body_preview: str, retry_after: float | None = None) -> None:
        """Create the error.

        Args:
            status_code: The status of the last response.
            body_preview: The beginning of its body.
            retry_after: The seconds in its ``Retry-After``, or None.
        """
        super().__init__("HttpTransientError", f"HTTP {status_code}: {body_preview}", "")
        self.status_code = status_code
        self.body_preview = body_preview
        self.retry_after = retry_after

    @classmethod
    def of(cls, said: str) -> Self:
        """Create the error from the core's JSON about the response."""
        return cls(**json.loads(said))

    def __reduce__(self) -> tuple[Any, ...]:
        """Support pickling."""
        return type(self), (self.status_code, self.body_preview, self.retry_after)


class HttpStreamSession(Session):
    """The client's end of a stream over HTTP, which the streaming methods of ``http_connect`` proxies return.

    The server keeps no state of the stream, so closing it does nothing, and other calls may be made meanwhile.
    """

    def exchange(self, input_batch: AnnotatedBatch) -> AnnotatedBatch:
        """Send a batch and return the answer. The batch is sent only once, regardless of ``retry``."""
        return super().exchange(input_batch)

    def close(self) -> None:
        """Do nothing, because the server keeps no state of the stream."""


@dataclass(frozen=True)
class HttpServerCapabilities:
    """The announced capabilities of a server (vgi-rpc, section 10)."""

    max_request_bytes: int | None = None
    """The most bytes of a request; None if the server does not announce it."""
    upload_url_support: bool = False
    """Whether the server issues URLs for uploading requests that are too large."""
    max_upload_bytes: int | None = None
    """The most bytes of an upload; None if the server does not announce it."""
    cache_expires_at: float | None = None
    """The time until which this may be cached, in seconds since 1970; None if the server does not announce it."""


_ZSTD = b"\x28\xb5\x2f\xfd"


def _sender(client: Any) -> Callable[..., tuple[int, list[tuple[str, str]], bytes]] | None:
    """Return the function that sends requests through the user's client: an httpx.Client or a SyncTestClient."""
    if client is None:
        return None

    def send(method: str, path: str, headers: Any, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        answer = client.request(method, path, headers=dict(headers), content=body)
        content: bytes = answer.content
        # The client may have decompressed the body without removing the header.
        coded = content.startswith(_ZSTD)
        kept = [(name, value) for name, value in answer.headers.items() if coded or name.lower() != "content-encoding"]
        return answer.status_code, kept, content

    return send


@dataclass(frozen=True)
class _Trust:
    """The servers that a client trusts over https://, and its own certificate."""

    fingerprint: str | None = None
    ca: str | PathLike[str] | None = None
    system_ca: bool = False
    cert: str | PathLike[str] | None = None
    key: str | PathLike[str] | None = None


def _core_client(
    protocol: "_core.VgiProtocol",
    base_url: str | None,
    prefix: str | None,
    client: Any,
    *,
    on_log: OnLog | None = None,
    retry: HttpRetryConfig | None = None,
    compression_level: int | None = None,
    headers: Mapping[str, str] | None = None,
    trust: _Trust | None = None,
    external: "ExternalConfig | None" = None,
) -> "_core.VgiHttpClient":
    if base_url is None and client is None:
        raise ValueError("base_url is required, or a client that has one")
    return _core.VgiHttpClient(
        protocol,
        base_url or "",
        prefix=getattr(client, "prefix", None) if prefix is None else prefix,
        on_log=on_log_adapter(on_log),
        compression_level=compression_level,
        retry=retry,
        headers=list((headers or {}).items()),
        send=_sender(client),
        external=core_external(external),
        uploads=core_uploads(external),
        **vars(trust or _Trust()),
    )


@contextlib.contextmanager
def http_connect(
    protocol: type[P],
    base_url: str | None = None,
    *,
    prefix: str | None = None,
    on_log: OnLog | None = None,
    client: Any = None,
    external_location: "ExternalConfig | None" = None,
    ipc_validation: IpcValidation = IpcValidation.FULL,
    retry: HttpRetryConfig | None = None,
    compression_level: int | None = 3,
    headers: Mapping[str, str] | None = None,
    fingerprint: str | None = None,
    ca: str | PathLike[str] | None = None,
    system_ca: bool = False,
    cert: str | PathLike[str] | None = None,
    key: str | PathLike[str] | None = None,
) -> Iterator[P]:
    """Yield a proxy of a service at a URL.

    Over https:// the server is trusted by at most one of ``fingerprint``, ``ca`` and ``system_ca``; by default by the
    system's CAs. Redirects are errors.

    Args:
        protocol: The service, a ``typing.Protocol``.
        base_url: The URL of the server, without the prefix; not needed with ``client``.
        prefix: The prefix of the service's paths; by default that of ``client``, else it is discovered.
        on_log: Called with each log message of the server; by default they are dropped.
        client: An ``httpx.Client`` with a base URL, or the result of ``make_sync_client``, to send requests with; by
            default the core sends them. The arguments about TLS have no effect with it.
        external_location: How to fetch batches that the server put into an object store; by default their pointers
            are returned as they are. It also restricts the URLs to which requests that are too large for the server
            are uploaded; by default that of ``ClientExternalConfig()`` does.
        ipc_validation: How thoroughly to check the batches of streams.
        retry: When to retry a request; by default never.
        compression_level: The zstd level of requests to servers that accept zstd; answers may be compressed too. None
            disables both.
        headers: Headers of every request.
        fingerprint: The fingerprint of the trusted certificate, ``sha256:HEX``.
        ca: The path of the trusted CA certificates, PEM.
        system_ca: Whether to trust the system's CAs.
        cert: The path of the client's own certificate, PEM.
        key: The path of its key.

    Yields:
        A proxy with the service's methods, which accept keyword arguments only.

    Raises:
        ValueError: If there is neither a base URL nor a client.
    """
    values = dict(method_values(rpc_methods(protocol)))
    core = _core_client(
        core_protocol(protocol.__name__, values),
        base_url,
        prefix,
        client,
        on_log=on_log,
        retry=retry,
        compression_level=compression_level,
        headers=headers,
        trust=_Trust(fingerprint, ca, system_ca, cert, key),
        external=external_location,
    )
    yield cast(P, proxy(Caller(protocol, core, values, ipc_validation, HttpStreamSession)))


def http_introspect(
    base_url: str | None = None,
    *,
    prefix: str | None = None,
    client: Any = None,
    ipc_validation: IpcValidation = IpcValidation.FULL,
    retry: HttpRetryConfig | None = None,
    headers: Mapping[str, str] | None = None,
    fingerprint: str | None = None,
    ca: str | PathLike[str] | None = None,
    system_ca: bool = False,
    cert: str | PathLike[str] | None = None,
    key: str | PathLike[str] | None = None,
) -> ServiceDescription:
    """Request the description of a server at a URL.

    The arguments are those of ``http_connect``; ``ipc_validation`` applies to the batch with the description.

    Raises:
        RpcError: If the server does not answer ``__describe__``, or its description cannot be read.
    """
    trust = _Trust(fingerprint, ca, system_ca, cert, key)
    core = _core_client(_core.VgiProtocol("", []), base_url, prefix, client, retry=retry, headers=headers, trust=trust)
    with transport_errors(DESCRIBE_METHOD_NAME):
        batch, metadata = core.describe()
    validate_batch(batch, ipc_validation)
    return parse_describe_batch(batch, pa.KeyValueMetadata(metadata or {}))


def http_capabilities(
    base_url: str | None = None,
    *,
    prefix: str | None = None,
    client: Any = None,
    retry: HttpRetryConfig | None = None,
) -> HttpServerCapabilities:
    """Request the capabilities of a server at a URL. The arguments are those of ``http_connect``."""
    core = _core_client(_core.VgiProtocol("", []), base_url, prefix, client, retry=retry)
    with transport_errors("capabilities"):
        request, urls, upload, seconds = core.capabilities()
    return HttpServerCapabilities(
        max_request_bytes=request,
        upload_url_support=urls,
        max_upload_bytes=upload,
        cache_expires_at=None if seconds is None else time.time() + seconds,
    )


def request_upload_urls(
    base_url: str | None = None,
    *,
    count: int = 1,
    prefix: str | None = None,
    client: Any = None,
    retry: HttpRetryConfig | None = None,
) -> list[UploadUrl]:
    """Request URLs for uploads from a server.

    The further arguments are those of ``http_connect``.

    Args:
        base_url: The URL of the server, without the prefix.
        count: The number of URLs, 1 to 100.
        prefix: The prefix of the service's paths.
        client: The client to send the request with.
        retry: When to retry the request.

    Raises:
        RpcError: If the server does not issue upload URLs.
    """
    core = _core_client(_core.VgiProtocol("", []), base_url, prefix, client, retry=retry)
    with transport_errors("request_upload_urls"):
        found = core.upload_urls(count)
    return [UploadUrl(put, get, _EPOCH + timedelta(microseconds=until)) for put, get, until in found]
