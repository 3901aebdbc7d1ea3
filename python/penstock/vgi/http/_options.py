"""The options of a service over HTTP."""

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
    """The options of ``make_wsgi_app``, ``make_asgi_app``, ``serve_http`` and ``make_sync_client``; all are optional.

    ```python
    >>> from penstock.vgi.http import HttpOptions
    >>> options: HttpOptions = {"prefix": "/functions", "max_request_bytes": 64 << 20}

    ```
    """

    prefix: str
    """The prefix of the paths; by default "/vgi", and "" in the dialect "0.10"."""
    signing_key: bytes | None
    """The key of state tokens, at least 16 bytes; by default a random one. Servers that share the work need the same
    key."""
    token_ttl: int
    """Seconds for which a state token is valid, by default 3600; 0 means that it does not expire."""
    max_stream_response_bytes: int | None
    """The size in bytes after which a producer's answer ends, and the caller requests the next: by default 64 MiB. The
    last batch may exceed it. In the dialect "0.10" an answer has one batch unless this or the next option is set."""
    max_stream_response_time: float | None
    """Seconds after which a producer's answer ends; by default there is no limit."""
    max_request_bytes: int | None
    """The most bytes of a request, both compressed and decompressed, by default 256 MiB. If set, it is announced to
    callers."""
    authenticate: Authenticate | None
    """A function that returns the caller of a request; its ValueError or PermissionError is answered with status 401.
    By default all callers are anonymous."""
    upload_url_provider: "UploadUrlProvider | None"
    """The provider of URLs to which callers upload requests that are too large, for example an ``S3Storage``."""
    max_upload_bytes: int | None
    """The most bytes of an upload, which are announced to callers."""
    cors_origins: str | Iterable[str] | None
    """The origins whose pages may make calls; "*" allows all. By default none may."""
    cors_max_age: int | None
    """Seconds for which a browser may cache that permission, by default 7200."""
    otel_config: "OtelConfig | None"
    """The OpenTelemetry configuration, as for ``instrument_server``."""
    compression_level: int | None
    """The zstd level of answers to callers that accept zstd, by default 3; None disables compression."""
    enable_not_found_page: bool
    """Whether an unknown path is answered with a page instead of a line of text; True by default."""
    enable_landing_page: bool
    """Whether to serve ``GET PREFIX``, a page about the service; True by default."""
    enable_describe_page: bool
    """Whether to serve ``GET PREFIX/describe`` if the server answers ``__describe__``; True by default."""
    enable_health_endpoint: bool
    """Whether to serve ``GET PREFIX/health``; True by default."""
    repo_url: str | None
    """The URL of the service's source code, for its pages."""
    oauth_resource_metadata: OAuthResourceMetadata | None
    """The OAuth metadata to publish; with its ``client_id`` and ``authenticate``, browsers are sent to log in."""


@dataclass(frozen=True, slots=True)
class CoreOptions:
    """The options of a service over HTTP, for the core."""

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
    """Convert options for the core; raise TypeError for an unknown option, and ValueError for an invalid value."""
    unknown = set(options) - set(HttpOptions.__annotations__)
    if unknown:
        raise TypeError(f"unknown options: {', '.join(sorted(unknown))}")
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
        # A caller that is not authenticated must not see the methods either.
        guarded_pages=options.get("authenticate") is not None,
        own_pages=_own_pages(at, options.get("authenticate"), options.get("oauth_resource_metadata")),
        upload_urls=options.get("upload_url_provider") is not None,
        max_upload_bytes=options.get("max_upload_bytes"),
    )


def _own_pages(prefix: str, authenticate: Authenticate | None, metadata: OAuthResourceMetadata | None) -> list[str]:
    if metadata is None:
        return []
    if not isinstance(metadata, OAuthResourceMetadata):
        raise TypeError(f"oauth_resource_metadata must be an OAuthResourceMetadata, not {type(metadata).__name__}")
    pages = [WELL_KNOWN, WELL_KNOWN + prefix]
    if authenticate is not None and metadata.client_id is not None:
        pages += [prefix + CALLBACK, prefix + LOGOUT]
    return pages
