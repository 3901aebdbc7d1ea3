"""Serving over HTTP: the core's server, and applications for the web server that you have."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from os import PathLike
from types import TracebackType
from typing import Any, Self, Unpack

from penstock import _core
from penstock.vgi.http._calls import HttpCalls
from penstock.vgi.http._gate import Gate
from penstock.vgi.http._options import HttpOptions, core_options
from penstock.vgi.rpc._server import RpcServer

__all__ = ["HttpServer", "WsgiApp", "make_asgi_app", "make_wsgi_app", "serve_http"]

_THREADS = 8
"""Calls that run at a time in ``serve_http``."""

Answer = tuple[int, list[tuple[str, str]], bytes]
"""A status, the fields, the body."""


class WsgiApp:
    """A server's calls over HTTP, as a WSGI application; ``make_wsgi_app`` makes it."""

    def __init__(self, server: RpcServer, **options: Unpack[HttpOptions]) -> None:
        """Take the options of ``HttpOptions``."""
        made = core_options(server, **options)
        otel, authenticate = options.get("otel_config"), options.get("authenticate")
        on_failure = None
        if otel is not None:
            from penstock.vgi.otel import count_refused, instrument_server

            instrument_server(server, otel)
            on_failure = count_refused(server, otel)
        self.prefix = made.prefix
        """What stands before the methods' names."""
        self.core = server.core.http(made)
        """The core's part."""
        gate = Gate(made, authenticate, options.get("oauth_resource_metadata"), on_failure)
        seconds, uploads = options.get("max_stream_response_time"), options.get("upload_url_provider")
        self.calls = HttpCalls(server, gate, seconds, uploads)
        """What runs the methods."""

    def respond(
        self, method: str, path: str, query: str, headers: list[tuple[str, str]], body: bytes, remote: str
    ) -> Answer:
        """Answer one request: its status, its fields, its body."""
        return self._respond(self.core.begin(method, path, query, headers, remote), lambda: body)

    def _respond(self, call: "_core.VgiHttpCall", read: Callable[[], bytes]) -> Answer:
        # The caller is looked at before its body is read.
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
        # WSGI has the path's bytes as latin-1; what the application is mounted at is no part of it.
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
        # Not more than the limit says, and one byte, by which the core sees that it was more.
        most = self.core.max_body + 1
        if length:
            # A web server that lets a negative length through would have all of the input read.
            data: bytes = stream.read(max(0, min(int(length), most)))
            return data
        chunked = "chunked" in environ.get("HTTP_TRANSFER_ENCODING", "").lower()
        return bytes(stream.read(most)) if chunked else b""


def make_wsgi_app(server: RpcServer, **options: Unpack[HttpOptions]) -> WsgiApp:
    """Give a WSGI application that answers the calls of a server, for gunicorn, waitress and the like.

    ``options``, all by name, are those of ``HttpOptions``.
    """
    return WsgiApp(server, **options)


def make_asgi_app(server: RpcServer, **options: Unpack[HttpOptions]) -> Callable[..., Awaitable[None]]:
    """Give an ASGI application, for uvicorn and the like. Methods run in the threads of ``asyncio.to_thread``.

    ``options``, all by name, are those of ``HttpOptions``.
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
        # What the application is mounted at is no part of its paths.
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
        # One byte more than the limit is enough for the core to see that it was more; the rest is dropped.
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
    """A server of the core that runs: ``with HttpServer(server) as running``.

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
        """Listen; port 0 picks a free one.

        With ``cert`` and ``key`` over TLS, and then ``client_ca`` may say whose callers are let in. ``options`` are
        those of ``HttpOptions``.
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
        """Where it listens."""
        self.fingerprint: str | None = self._listener.fingerprint
        """The fingerprint of its certificate, ``sha256:HEX``; None without TLS."""
        self.url = f"{'http' if cert is None else 'https'}://{place}:{self.port}"
        """The base URL, without the prefix."""
        self._threads = [threading.Thread(target=self._work, name="vgi-http", daemon=True) for _ in range(_THREADS)]
        for thread in self._threads:
            thread.start()

    def _work(self) -> None:
        while (call := self._listener.next()) is not None:
            self._app.calls.handle(call)

    def wait(self) -> None:
        """Serve until it is closed."""
        for thread in self._threads:
            thread.join()

    def close(self) -> None:
        """Take no more calls, and wait for those that run, half a minute at most."""
        self._listener.close()

    def __enter__(self) -> Self:
        """Give this server."""
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()


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
    """Serve HTTP with the core's server until the process is told to end, and print ``PORT:<n>`` when it is ready.

    The arguments are those of ``HttpServer``.
    """
    with HttpServer(server, host=host, port=port, cert=cert, key=key, client_ca=client_ca, **options) as running:
        print(f"PORT:{running.port}", flush=True)  # noqa: T201 -- it is how a caller finds it
        running.wait()
