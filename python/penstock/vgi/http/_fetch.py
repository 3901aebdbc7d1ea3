"""JSON documents from authorization servers: keys, metadata and tokens."""

import json
import logging
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
)

__all__ = ["FetchError", "fetch_json"]

_log = logging.getLogger("vgi_rpc.http")

_SECONDS = 10.0
"""The timeout in seconds of each step of an answer."""
_BYTES = 1 << 20
"""The most bytes of a document."""
_HERE = ("localhost", "127.0.0.1", "::1")


class FetchError(OSError):
    """A document that could not be fetched. ``status`` is the HTTP status, or None without an error status."""

    def __init__(self, message: str, status: int | None = None) -> None:
        """Create the error with its reason and the HTTP status."""
        super().__init__(message)
        self.status = status


class _NoDowngrade(HTTPRedirectHandler):
    """A redirect handler that rejects redirects from https:// to anything else."""

    def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Request | None:
        if urlsplit(req.full_url).scheme == "https" and urlsplit(newurl).scheme != "https":
            raise FetchError(f"{req.full_url} redirects to {newurl}, which is not https://", code)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def fetch_json(url: str, form: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the JSON object at a URL, requested with GET, or with POST if there is a form.

    Raises:
        FetchError: If the document cannot be fetched; the message contains nothing of the form.
    """
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise FetchError(f"{url!r} is no URL: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise FetchError(f"{url!r} is not an http:// or https:// URL")
    if parts.scheme == "http" and parts.hostname not in _HERE:
        _log.warning("%s is read without TLS, and could be modified in transit", url)
    opener = OpenerDirector()
    # HTTP only: urllib's default handlers would also open files and FTP.
    handlers = (ProxyHandler, HTTPHandler, HTTPSHandler, HTTPDefaultErrorHandler, _NoDowngrade, HTTPErrorProcessor)
    for handler in handlers:
        opener.add_handler(handler())
    data = None if form is None else urlencode(form).encode()
    request = Request(url, data, {"Accept": "application/json"})  # noqa: S310 -- the scheme was checked
    try:
        with opener.open(request, timeout=_SECONDS) as answer:
            body = answer.read(_BYTES + 1)
    except HTTPError as error:
        error.close()
        raise FetchError(f"{url}: HTTP {error.code}", error.code) from None
    except FetchError:
        raise
    except (URLError, OSError) as error:
        raise FetchError(f"{url}: {getattr(error, 'reason', error)}") from None
    except (HTTPException, ValueError) as error:
        # The answer is not HTTP, or it redirects to something that is no URL.
        raise FetchError(f"{url}: the answer cannot be read: {type(error).__name__}") from None
    if len(body) > _BYTES:
        raise FetchError(f"{url}: the response has more than {_BYTES} bytes")
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        raise FetchError(f"{url}: the response is not JSON") from None
    if not isinstance(said, dict):
        raise FetchError(f"{url}: the response is not a JSON object")
    return said
