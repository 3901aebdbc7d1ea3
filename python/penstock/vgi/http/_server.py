"""Servers over HTTP: the core's own, and WSGI and ASGI applications for other web servers."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from os import PathLike
from types import TracebackType
from typing import Any, Self, Unpack

from penstock import _core
from penstock.vgi.http._calls import HttpCalls
from penstock.vgi.http._gate import FAILED, Gate
from penstock.vgi.http._options import HttpOptions, core_options
from penstock.vgi.rpc._calls import fail
from penstock.vgi.rpc._server import RpcServer

__all__ = ["HttpServer", "WsgiApp", "make_asgi_app", "make_wsgi_app", "serve_http"]

_log = logging.getLogger("vgi_rpc.http")

_THREADS = 8
"""The number of threads that run calls in ``serve_http``."""

Answer = tuple[int, list[tuple[str, str]], bytes]
"""The status, headers and body of a response."""


class WsgiApp:
    """A WSGI application that answers the calls of a server; ``make_wsgi_app`` creates it."""

    def __init__(self, server: RpcServer, **options: Unpack[HttpOptions]) -> None:
        """Create the application; the options are those of ``HttpOptions``."""
        made = core_options(server, **options)
        otel, authenticate = options.get("otel_config"), options.get("authenticate")
        on_failure = None
        if otel is not None:
            from penstock.vgi.otel import count_refused, instrument_server

            instrument_server(server, otel)
            on_failure = count_refused(server, otel)
        self.prefix = made.prefix
        """The prefix of the paths."""
        self.core = server.core.http(made)
        """The core's service over HTTP."""
        gate = Gate(made, authenticate, options.get("oauth_resource_metadata"), on_failure)
        seconds, uploads = options.get("max_stream_response_time"), options.get("upload_url_provider")
        self.calls = HttpCalls(server, gate, seconds, uploads)
        """The executor of calls."""

    def respond(
        self, method: str, path: str, query: str, headers: list[tuple[str, str]], body: bytes, remote: str
    ) -> Answer:
        """Answer one request, and return the status, headers and body of the response."""
        return self._respond(self.core.begin(method, path, query, headers, remote), lambda: body)

    def _respond(self, call: "_core.VgiHttpCall", read: Callable[[], bytes]) -> Answer:
        # Authenticate the caller before reading the body.
        auth = self.calls.admit(call)
        if auth is not None:
            call.receive(read())
            self.calls.answer(call, auth)
        return call.response()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        """Answer as a WSGI application."""
        headers = [
            (key.removeprefix("HTTP_").replace("_", "-").title(), str(value))
            for key, value in environ.items()
            if key.startswith("HTTP_") or (key in ("CONTENT_TYPE", "CONTENT_LENGTH") and value)
        ]
        # WSGI decodes the path's bytes as latin-1. PATH_INFO excludes the path at which the application is mounted.
        path = environ.get("PATH_INFO", "").encode("latin-1")
        call = self.core.begin(
            environ["REQUEST_METHOD"],
            path.decode("utf-8", "replace"),
            environ.get("QUERY_STRING", ""),
            headers,
            environ.get("REMOTE_ADDR", ""),
        )
        status, answer, body = self._respond(call, lambda: self._read(environ))
        start_response(f"{status} {HTTPStatus(status).phrase}", [*answer, ("Content-Length", str(len(body)))])
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    def _read(self, environ: dict[str, Any]) -> bytes:
        stream, length = environ["wsgi.input"], environ.get("CONTENT_LENGTH")
        # Read at most one byte beyond the limit, by which the core detects that the body is too large.
        most = self.core.max_body + 1
        if length:
            # Some web servers pass a negative length on, which would read all of the input.
            data: bytes = stream.read(max(0, min(int(length), most)))
            return data
        chunked = "chunked" in environ.get("HTTP_TRANSFER_ENCODING", "").lower()
        return bytes(stream.read(most)) if chunked else b""


def make_wsgi_app(server: RpcServer, **options: Unpack[HttpOptions]) -> WsgiApp:
    """Return a WSGI application that answers the calls of a server, for gunicorn, waitress and the like.

    The options are those of ``HttpOptions``.
    """
    return WsgiApp(server, **options)


def make_asgi_app(server: RpcServer, **options: Unpack[HttpOptions]) -> Callable[..., Awaitable[None]]:
    """Return an ASGI application that answers the calls of a server, for uvicorn and the like.

    Methods run in the threads of ``asyncio.to_thread``. The options are those of ``HttpOptions``.
    """
    app = WsgiApp(server, **options)

    async def serve(scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Callable[..., Any]) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            raise ValueError(f"an ASGI scope of type {scope['type']!r} is not served")
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        remote = (scope.get("client") or ("",))[0]
        query = scope.get("query_string", b"").decode("latin-1")
        # The paths of the service exclude the path at which the application is mounted.
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        call = app.core.begin(scope["method"], path, query, headers, remote)
        auth = await asyncio.to_thread(app.calls.admit, call)
        if auth is not None:
            call.receive(await _body(receive, app.core.max_body))
            await asyncio.to_thread(app.calls.answer, call, auth)
        status, answer, data = call.response()
        packed = [(name.lower().encode("latin-1"), value.encode("latin-1", "replace")) for name, value in answer]
        packed.append((b"content-length", str(len(data)).encode()))
        await send({"type": "http.response.start", "status": status, "headers": packed})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else data})

    return serve


async def _body(receive: Callable[[], Awaitable[Any]], most: int) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        # One byte beyond the limit is enough for the core to detect a body that is too large; drop the rest.
        body += message.get("body", b"")[: most + 1 - len(body)]
        if not message.get("more_body"):
            return bytes(body)


async def _lifespan(receive: Callable[[], Awaitable[Any]], send: Callable[..., Any]) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


class HttpServer:
    """A running HTTP server of the core: ``with HttpServer(server) as running``.

    ```python
    >>> from typing import Protocol
    >>> from penstock.vgi import RpcServer
    >>> from penstock.vgi.http import HttpServer, http_connect
    >>> class Calculator(Protocol):
    ...     def add(self, a: float, b: float) -> float: ...
    >>> class CalculatorImpl:
    ...     def add(self, a: float, b: float) -> float:
    ...         return a + b
    >>> with HttpServer(RpcServer(Calculator, CalculatorImpl())) as running:
    ...     with http_connect(Calculator, running.url) as calculator:
    ...         calculator.add(a=1.0, b=2.0)
    3.0

    ```
    """

    def __init__(
        self,
        server: RpcServer,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        cert: str | PathLike[str] | None = None,
        key: str | PathLike[str] | None = None,
        client_ca: str | PathLike[str] | None = None,
        **options: Unpack[HttpOptions],
    ) -> None:
        """Listen, and start to serve in eight threads.

        Args:
            server: The server whose calls to answer.
            host: The address to listen on.
            port: The port; 0, the default, picks a free one.
            cert: The path of the certificate chain, PEM; with it and ``key`` the server uses TLS.
            key: The path of its key.
            client_ca: The path of CA certificates, PEM; only clients with a certificate of such a CA are accepted.
            options: Further options; see ``HttpOptions``.
        """
        self._app = WsgiApp(server, **options)
        place = f"[{host}]" if ":" in host else host
        self._listener = self._app.core.listen(
            f"{place}:{port}",
            authenticates=options.get("authenticate") is not None,
            cert=cert,
            key=key,
            client_ca=client_ca,
        )
        self.port: int = self._listener.port
        """The port on which the server listens."""
        self.fingerprint: str | None = self._listener.fingerprint
        """The fingerprint of the certificate at the start, ``sha256:HEX``; None without TLS."""
        self.url = f"{'http' if cert is None else 'https'}://{place}:{self.port}"
        """The base URL, without the prefix."""
        self._threads = [threading.Thread(target=self._work, name="vgi-http", daemon=True) for _ in range(_THREADS)]
        for thread in self._threads:
            thread.start()

    def _work(self) -> None:
        while (call := self._listener.next()) is not None:
            try:
                self._app.calls.handle(call)
            except BaseException as error:  # noqa: BLE001 -- also sys.exit() must not end the thread
                _log.exception("a call could not be answered: %s %s", call.http_method, call.path)
                _answer_failed(call, error)

    def wait(self) -> None:
        """Wait until the server is closed."""
        for thread in self._threads:
            thread.join()

    def close(self) -> None:
        """Accept no more calls, and wait up to 30 seconds for running ones."""
        self._listener.close()

    def __enter__(self) -> Self:
        """Return this server."""
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        """Close the server."""
        self.close()


def _answer_failed(call: "_core.VgiHttpCall", error: BaseException) -> None:
    """Answer a call with status 500 in whatever state an exception has left it."""
    # A method that has been found fails; before that, the call has no method yet.
    with contextlib.suppress(Exception):
        if not call.done:
            call.error(500, FAILED)
    with contextlib.suppress(Exception):
        if not call.done:
            fail(call, "method", error)


def serve_http(
    server: RpcServer,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    cert: str | PathLike[str] | None = None,
    key: str | PathLike[str] | None = None,
    client_ca: str | PathLike[str] | None = None,
    **options: Unpack[HttpOptions],
) -> None:
    """Serve over HTTP until the process ends, and print ``PORT:<n>`` once the server listens.

    The arguments are those of ``HttpServer``.
    """
    with HttpServer(server, host=host, port=port, cert=cert, key=key, client_ca=client_ca, **options) as running:
        print(f"PORT:{running.port}", flush=True)  # noqa: T201 -- clients find the server by this line
        running.wait()
