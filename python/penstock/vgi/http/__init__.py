"""vgi-rpc over HTTP (section 10): server, WSGI and ASGI applications, client, and authentication."""

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
    request_upload_urls,
)
from penstock.vgi.http._jwt import jwt_authenticate
from penstock.vgi.http._mtls import (
    XfccElement,
    mtls_authenticate,
    mtls_authenticate_fingerprint,
    mtls_authenticate_subject,
    mtls_authenticate_xfcc,
)
from penstock.vgi.http._oauth import (
    OAuthResourceMetadata,
    OAuthResourceMetadataResponse,
    fetch_oauth_metadata,
    http_oauth_metadata,
    parse_client_id,
    parse_client_secret,
    parse_device_code_client_id,
    parse_device_code_client_secret,
    parse_resource_metadata_url,
    parse_use_id_token_as_bearer,
)
from penstock.vgi.http._options import HttpOptions
from penstock.vgi.http._server import HttpServer, WsgiApp, make_asgi_app, make_wsgi_app, serve_http
from penstock.vgi.http._testing import SyncTestClient, make_sync_client
from penstock.vgi.http._token import StateToken

__all__ = [
    "MAX_REQUEST_BYTES_HEADER",
    "MAX_UPLOAD_BYTES_HEADER",
    "RPC_ERROR_HEADER",
    "UPLOAD_URL_HEADER",
    "Authenticate",
    "HttpOptions",
    "HttpRetryConfig",
    "HttpServer",
    "HttpServerCapabilities",
    "HttpStreamSession",
    "HttpTransientError",
    "OAuthResourceMetadata",
    "OAuthResourceMetadataResponse",
    "Request",
    "StateToken",
    "SyncTestClient",
    "WsgiApp",
    "XfccElement",
    "bearer_authenticate",
    "bearer_authenticate_static",
    "chain_authenticate",
    "fetch_oauth_metadata",
    "http_capabilities",
    "http_connect",
    "http_introspect",
    "http_oauth_metadata",
    "jwt_authenticate",
    "make_asgi_app",
    "make_cookie_authenticate",
    "make_sync_client",
    "make_wsgi_app",
    "mtls_authenticate",
    "mtls_authenticate_fingerprint",
    "mtls_authenticate_subject",
    "mtls_authenticate_xfcc",
    "parse_client_id",
    "parse_client_secret",
    "parse_device_code_client_id",
    "parse_device_code_client_secret",
    "parse_resource_metadata_url",
    "parse_use_id_token_as_bearer",
    "request_upload_urls",
    "serve_http",
]

MAX_REQUEST_BYTES_HEADER: Final = "VGI-Max-Request-Bytes"
MAX_UPLOAD_BYTES_HEADER: Final = "VGI-Max-Upload-Bytes"
UPLOAD_URL_HEADER: Final = "VGI-Upload-URL-Support"
RPC_ERROR_HEADER: Final = "X-VGI-RPC-Error"
