"""Calling over HTTP."""

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
    """When a request is sent again, as long as there is time for its answer.

    ```python
    >>> from penstock.vgi import HttpRetryConfig
    >>> sorted(HttpRetryConfig(max_retries=1).retryable_status_codes)
    [429, 502, 503, 504]

    ```
    """

    max_retries: int = 3
    """So many times more, at most."""
    backoff_base: float = 0.5
    """Seconds before the first; each further one waits twice as long, and a part of it by chance."""
    backoff_max: float = 30.0
    """Seconds that a wait has at most."""
    retryable_status_codes: frozenset[int] = field(default_factory=lambda: _RETRYABLE)
    """The statuses after which it is sent again."""
    retry_on_connection_error: bool = True
    """Whether it is sent again where the connection failed."""
    respect_retry_after: bool = True
    """Whether the server may say how long to wait."""


class HttpTransientError(RpcError):
    """A server or a proxy was not able to answer, also after all retries."""

    def __init__(self, status_code: int, body_preview: str, retry_after: float | None = None) -> None:
        """Take the answer's status, the beginning of its body, and how long to wait if it said so."""
        super().__init__("HttpTransientError", f"HTTP {status_code}: {body_preview}", "")
        self.status_code = status_code
        self.body_preview = body_preview
        self.retry_after = retry_after

    @classmethod
    def of(cls, said: str) -> Self:
        """Read what the core says of an answer, JSON."""
        return cls(**json.loads(said))

    def __reduce__(self) -> tuple[Any, ...]:
        """Survive a pickle."""
        return type(self), (self.status_code, self.body_preview, self.retry_after)


class HttpStreamSession(Session):
    """A caller's end of a stream over HTTP.

    The server keeps nothing of it: to close it does nothing, and other calls may be made meanwhile. Streaming methods
    give it, of proxies of ``http_connect``.
    """

    def exchange(self, input_batch: AnnotatedBatch) -> AnnotatedBatch:
        """Send a batch and give the answer. It is sent once only, whatever the retries say."""
        return super().exchange(input_batch)

    def close(self) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class HttpServerCapabilities:
    """What a server takes (section 10)."""

    max_request_bytes: int | None = None
    upload_url_support: bool = False
    max_upload_bytes: int | None = None
    cache_expires_at: float | None = None
    """Until when this may be kept, in seconds since 1970; None where the server does not say."""


_ZSTD = b"\x28\xb5\x2f\xfd"


def _sender(client: Any) -> Callable[..., tuple[int, list[tuple[str, str]], bytes]] | None:
    """Give what sends a request by a client that the caller has: httpx.Client, or that of ``make_sync_client``."""
    if client is None:
        return None

    def send(method: str, path: str, headers: Any, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        answer = client.request(method, path, headers=dict(headers), content=body)
        content: bytes = answer.content
        # It may have inflated the body, and left the field as it was.
        coded = content.startswith(_ZSTD)
        kept = [(name, value) for name, value in answer.headers.items() if coded or name.lower() != "content-encoding"]
        return answer.status_code, kept, content

    return send


@dataclass(frozen=True)
class _Trust:
    """Whom a caller trusts whose URL is https://, and who it is."""

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
        raise ValueError("a base URL is needed, or a client that has one")
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
    """Give a proxy of a service at a URL.

    Without ``prefix`` it finds out where the service is: a server of the specification says so. ``client`` is an
    ``httpx.Client`` or what ``make_sync_client`` gives, in place of the core's own. ``retry`` says when a request is
    sent again, by default never. With ``compression_level`` answers may be compressed, and so are requests to servers
    that say that they take it; None is for neither. ``headers`` go with every request.

    ``external_location`` says how batches are fetched that the server has put elsewhere. A request that is too large
    for the server is put where it says, as ``external_location`` or its default allows.

    A server with https:// is trusted by its ``fingerprint``, a ``ca`` or the system's store, which is the default;
    ``cert`` and ``key`` are the caller's own.
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
    """Ask a server what it has; RpcError where it does not tell. The arguments are those of ``http_connect``."""
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
    """Ask a server what it takes."""
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
    """Ask a server for URLs to which something may be put, 1 to 100; RpcError where it gives none."""
    core = _core_client(_core.VgiProtocol("", []), base_url, prefix, client, retry=retry)
    with transport_errors("request_upload_urls"):
        found = core.upload_urls(count)
    return [UploadUrl(put, get, _EPOCH + timedelta(microseconds=until)) for put, get, until in found]
