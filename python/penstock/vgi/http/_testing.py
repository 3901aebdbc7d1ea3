"""A client without a socket, for tests."""

import json
from typing import Any, Unpack
from urllib.parse import urlsplit

from penstock.vgi.http._options import HttpOptions
from penstock.vgi.http._server import WsgiApp
from penstock.vgi.rpc._server import RpcServer

__all__ = ["SyncTestClient", "make_sync_client"]


class _Headers(dict[str, str]):
    """Headers with case-insensitive names."""

    def __getitem__(self, name: str) -> str:
        return super().__getitem__(name.lower())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and super().__contains__(name.lower())

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name.lower(), default)


class TestResponse:
    """The response to a request of a SyncTestClient."""

    # Despite its name, pytest must not collect it.
    __test__ = False

    def __init__(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        """Store the status, headers and body of the response."""
        self.status_code, self.content = status, body
        self.headers = _Headers({name.lower(): value for name, value in headers})

    @property
    def text(self) -> str:
        """The body as a str, decoded as UTF-8."""
        return self.content.decode("utf-8", "replace")

    def json(self) -> Any:
        """Return the body parsed as JSON."""
        return json.loads(self.content)


class SyncTestClient:
    """A client that sends requests to an application without a socket; ``make_sync_client`` creates it."""

    def __init__(self, app: WsgiApp, default_headers: dict[str, str] | None = None) -> None:
        """Send requests to an application; the headers are added to each."""
        self._app = app
        self.prefix = app.prefix
        """The prefix of the service's paths."""
        self._headers = default_headers or {}

    def request(
        self, method: str, url: str, *, headers: dict[str, str] | None = None, content: bytes = b""
    ) -> TestResponse:
        """Send a request and return the response."""
        parts = urlsplit(url)
        given = list({**self._headers, **(headers or {})}.items())
        return TestResponse(*self._app.respond(method, parts.path, parts.query, given, content, "127.0.0.1"))

    def get(self, url: str, *, headers: dict[str, str] | None = None) -> TestResponse:
        """Send a GET request and return the response."""
        return self.request("GET", url, headers=headers)

    def options(self, url: str, *, headers: dict[str, str] | None = None) -> TestResponse:
        """Send an OPTIONS request and return the response."""
        return self.request("OPTIONS", url, headers=headers)

    def post(self, url: str, *, content: bytes = b"", headers: dict[str, str] | None = None) -> TestResponse:
        """Send a POST request and return the response."""
        return self.request("POST", url, headers=headers, content=content)

    def close(self) -> None:
        """Do nothing, because there is no socket."""


def make_sync_client(
    server: RpcServer, *, default_headers: dict[str, str] | None = None, **options: Unpack[HttpOptions]
) -> SyncTestClient:
    """Return a client for ``http_connect(client=...)`` that needs no socket.

    Args:
        server: The server to call.
        default_headers: Headers of every request.
        options: Further options; see ``HttpOptions``.

    ```python
    >>> from typing import Protocol
    >>> from penstock.vgi import RpcServer
    >>> from penstock.vgi.http import http_connect, make_sync_client
    >>> class Greeter(Protocol):
    ...     def greet(self, name: str) -> str: ...
    >>> class GreeterImpl:
    ...     def greet(self, name: str) -> str:
    ...         return f"hello {name}"
    >>> with http_connect(Greeter, client=make_sync_client(RpcServer(Greeter, GreeterImpl()))) as greeter:
    ...     greeter.greet(name="world")
    'hello world'

    ```
    """
    return SyncTestClient(WsgiApp(server, **options), default_headers)
