"""What a service over HTTP may be told."""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict, Unpack

from penstock.vgi.http._auth import Authenticate
from penstock.vgi.http._oauth import WELL_KNOWN, OAuthResourceMetadata
from penstock.vgi.http._pkce import CALLBACK, LOGOUT

if TYPE_CHECKING:
    from penstock.vgi.external import UploadUrlProvider
    from penstock.vgi.otel import OtelConfig
    from penstock.vgi.rpc._server import RpcServer

__all__ = ["CoreOptions", "HttpOptions", "core_options"]


class HttpOptions(TypedDict, total=False):
    """The options of ``make_wsgi_app``, ``make_asgi_app``, ``serve_http`` and ``make_sync_client``; none is needed.

    ```python
    >>> from penstock.vgi.http import HttpOptions
    >>> options: HttpOptions = {"prefix": "/functions", "max_request_bytes": 64 << 20}

    ```
    """

    prefix: str
    """What stands before the methods' names: "/vgi", and nothing in the dialect "0.10"."""
    signing_key: bytes | None
    """The key of state tokens, at least 16 bytes: random unless given. A fleet shares one."""
    token_ttl: int
    """How many seconds a state token is good for: 3600; 0 is for ever."""
    max_stream_response_bytes: int | None
    """Bytes of one answer of a producer, before it is cut: 64 MiB. The last batch may go beyond."""
    max_stream_response_time: float | None
    """Seconds that a producer runs for one answer."""
    max_request_bytes: int | None
    """Bytes of a request, compressed or not: 256 MiB. Callers are told it if it is given."""
    authenticate: Authenticate | None
    """Who calls; a ValueError or a PermissionError of it is a 401."""
    upload_url_provider: "UploadUrlProvider | None"
    """Gives URLs to which callers may put requests that are too large; an ``S3Storage``, for example."""
    max_upload_bytes: int | None
    """Bytes that a caller may put there; callers are told."""
    cors_origins: str | Iterable[str] | None
    """The origins whose pages may call, "*" for all; none unless given."""
    cors_max_age: int | None
    """Seconds that a browser may keep that: 7200."""
    otel_config: "OtelConfig | None"
    """OpenTelemetry for the server, as ``instrument_server`` takes it."""
    compression_level: int | None
    """The level of zstd for callers that take it: 3; None is never."""
    enable_not_found_page: bool
    """Whether a page says that there is nothing, instead of a line."""
    enable_landing_page: bool
    """Whether there is ``GET PREFIX``, a page about the service."""
    enable_describe_page: bool
    """Whether there is ``GET PREFIX/describe``, for a server that answers ``__describe__``."""
    enable_health_endpoint: bool
    """Whether there is ``GET PREFIX/health``."""
    repo_url: str | None
    """Where the service's source is, for its pages."""
    oauth_resource_metadata: OAuthResourceMetadata | None
    """What is told of who may call; with a ``client_id`` and ``authenticate`` browsers are sent to log in."""


@dataclass(frozen=True, slots=True)
class CoreOptions:
    """The same as the core takes it."""

    prefix: str
    signing_key: bytes
    token_ttl: int
    max_request_bytes: int | None
    max_stream_response_bytes: int | None
    fills: bool
    compression_level: int | None
    cors_origins: list[str]
    cors_max_age: int | None
    health: bool
    landing_page: bool
    describe_page: bool
    not_found_page: bool
    repo_url: str | None
    guarded_pages: bool
    own_pages: list[str]
    upload_urls: bool
    max_upload_bytes: int | None


def core_options(server: "RpcServer", **options: Unpack[HttpOptions]) -> CoreOptions:
    """Give what the core takes; ValueError for what cannot work."""
    unknown = set(options) - set(HttpOptions.__annotations__)
    if unknown:
        raise TypeError(f"there is no option {', '.join(sorted(unknown))}")
    key = options.get("signing_key")
    if key is not None and len(key) < 16:
        raise ValueError("the signing key must have at least 16 bytes")
    for name in (
        "token_ttl",
        "max_request_bytes",
        "max_upload_bytes",
        "max_stream_response_bytes",
        "max_stream_response_time",
    ):
        value = options.get(name)
        if isinstance(value, int | float) and value < 0:
            raise ValueError(f"{name} cannot be negative")
    origins = options.get("cors_origins")
    prefix = options.get("prefix")
    seconds = options.get("max_stream_response_time")
    at = prefix if prefix is not None else "" if server.dialect == "0.10" else "/vgi"
    return CoreOptions(
        prefix=at,
        signing_key=secrets.token_bytes(32) if key is None else key,
        token_ttl=options.get("token_ttl", 3600),
        max_request_bytes=options.get("max_request_bytes"),
        max_stream_response_bytes=options.get("max_stream_response_bytes"),
        fills=seconds is not None,
        compression_level=options.get("compression_level", 3),
        cors_origins=[origins] if isinstance(origins, str) else list(origins or ()),
        cors_max_age=options.get("cors_max_age", 7200),
        health=options.get("enable_health_endpoint", True),
        landing_page=options.get("enable_landing_page", True),
        describe_page=options.get("enable_describe_page", True),
        not_found_page=options.get("enable_not_found_page", True),
        repo_url=options.get("repo_url"),
        # Who may not call is told nothing of the methods either.
        guarded_pages=options.get("authenticate") is not None,
        own_pages=_own_pages(at, options.get("authenticate"), options.get("oauth_resource_metadata")),
        upload_urls=options.get("upload_url_provider") is not None,
        max_upload_bytes=options.get("max_upload_bytes"),
    )


def _own_pages(prefix: str, authenticate: Authenticate | None, metadata: OAuthResourceMetadata | None) -> list[str]:
    if metadata is None:
        return []
    if not isinstance(metadata, OAuthResourceMetadata):
        raise TypeError(f"oauth_resource_metadata is an OAuthResourceMetadata, not {type(metadata).__name__}")
    pages = [WELL_KNOWN, WELL_KNOWN + prefix]
    if authenticate is not None and metadata.client_id is not None:
        pages += [prefix + CALLBACK, prefix + LOGOUT]
    return pages
