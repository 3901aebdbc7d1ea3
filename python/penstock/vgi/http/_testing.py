"""A caller's end without a socket, for tests."""

import json
from typing import Any, Unpack
from urllib.parse import urlsplit

from penstock.vgi.http._options import HttpOptions
from penstock.vgi.http._server import WsgiApp
from penstock.vgi.rpc._server import RpcServer

__all__ = ["SyncTestClient", "make_sync_client"]


class _Headers(dict[str, str]):
    """Headers whose names have no case."""

    def __getitem__(self, name: str) -> str:
        return super().__getitem__(name.lower())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and super().__contains__(name.lower())

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name.lower(), default)


class TestResponse:
    """An answer."""

    # Not a test, whatever its name.
    __test__ = False

    def __init__(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        """Take what the application said."""
        self.status_code, self.content = status, body
        self.headers = _Headers({name.lower(): value for name, value in headers})

    @property
    def text(self) -> str:
        """The body as text."""
        return self.content.decode("utf-8", "replace")

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.content)


class SyncTestClient:
    """Sends requests to an application without a socket; ``make_sync_client`` makes it, and shows it."""

    def __init__(self, app: WsgiApp, default_headers: dict[str, str] | None = None) -> None:
        """Send to that application; the headers go with every request."""
        self._app = app
        self.prefix = app.prefix
        """What stands before the methods' names."""
        self._headers = default_headers or {}

    def request(
        self, method: str, url: str, *, headers: dict[str, str] | None = None, content: bytes = b""
    ) -> TestResponse:
        """Send a request, and give the answer."""
        parts = urlsplit(url)
        given = list({**self._headers, **(headers or {})}.items())
        return TestResponse(*self._app.respond(method, parts.path, parts.query, given, content, "127.0.0.1"))

    def get(self, url: str, *, headers: dict[str, str] | None = None) -> TestResponse:
        """Send a GET."""
        return self.request("GET", url, headers=headers)

    def options(self, url: str, *, headers: dict[str, str] | None = None) -> TestResponse:
        """Send an OPTIONS."""
        return self.request("OPTIONS", url, headers=headers)

    def post(self, url: str, *, content: bytes = b"", headers: dict[str, str] | None = None) -> TestResponse:
        """Send a POST."""
        return self.request("POST", url, headers=headers, content=content)

    def close(self) -> None:
        """Let go of nothing: there is no socket."""


def make_sync_client(
    server: RpcServer, *, default_headers: dict[str, str] | None = None, **options: Unpack[HttpOptions]
) -> SyncTestClient:
    """Give a client for ``http_connect(client=...)`` that needs no socket; the options are those of ``HttpOptions``.

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
