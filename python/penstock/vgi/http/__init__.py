"""vgi over HTTP (section 10): the server, applications for other web servers, the caller's end, who calls."""

from typing import Final

from penstock.vgi.http._auth import (
    Authenticate,
    Request,
    bearer_authenticate,
    bearer_authenticate_static,
    chain_authenticate,
    make_cookie_authenticate,
)
from penstock.vgi.http._client import (
    HttpRetryConfig,
    HttpServerCapabilities,
    HttpStreamSession,
    HttpTransientError,
    http_capabilities,
    http_connect,
    http_introspect,
)
from penstock.vgi.http._options import HttpOptions
from penstock.vgi.http._server import HttpServer, WsgiApp, make_asgi_app, make_wsgi_app, serve_http
from penstock.vgi.http._testing import SyncTestClient, make_sync_client
from penstock.vgi.http._token import StateToken

__all__ = [
    "MAX_REQUEST_BYTES_HEADER",
    "RPC_ERROR_HEADER",
    "Authenticate",
    "HttpOptions",
    "HttpRetryConfig",
    "HttpServer",
    "HttpServerCapabilities",
    "HttpStreamSession",
    "HttpTransientError",
    "Request",
    "StateToken",
    "SyncTestClient",
    "WsgiApp",
    "bearer_authenticate",
    "bearer_authenticate_static",
    "chain_authenticate",
    "http_capabilities",
    "http_connect",
    "http_introspect",
    "make_asgi_app",
    "make_cookie_authenticate",
    "make_sync_client",
    "make_wsgi_app",
    "serve_http",
]

MAX_REQUEST_BYTES_HEADER: Final = "VGI-Max-Request-Bytes"
RPC_ERROR_HEADER: Final = "X-VGI-RPC-Error"
