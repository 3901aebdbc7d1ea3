"""A store over HTTP for the tests, which does what a test wants of it."""

import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa

from penstock.vgi import UploadUrl


@dataclass
class Shelf:
    """A user's own ExternalStorage and UploadUrlProvider, and the server of what lies there."""

    url: str = ""
    objects: dict[str, tuple[bytes, str | None]] = field(default_factory=dict)
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    """Method, path and range."""
    misbehave: "Callable[[_Handler], bool]" = lambda _handler: False
    """Answers in place of the store; False: the store answers."""
    change: Callable[[bytes], bytes] = lambda data: data
    """What is stored in place of what was given."""

    def upload(self, data: bytes, schema: pa.Schema, *, content_encoding: str | None = None) -> str:
        assert isinstance(schema, pa.Schema)
        path = f"/{len(self.objects)}"
        self.objects[path] = (self.change(data), content_encoding)
        return self.url + path

    def generate_upload_url(self, schema: pa.Schema) -> UploadUrl:
        path = f"/put{len(self.requests)}-{len(self.objects)}"
        return UploadUrl(self.url + path, self.url + path, datetime.now(UTC) + timedelta(hours=1))

    def methods(self) -> list[str]:
        return [method for method, _, _ in self.requests]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "_Server"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.shelf.requests.append(("PUT", self.path, None))
        self.server.shelf.objects[self.path] = (data, None)
        self.answer(204, b"")

    def do_GET(self) -> None:
        shelf = self.server.shelf
        wanted = self.headers["Range"]
        shelf.requests.append((self.command, self.path, wanted))
        if shelf.misbehave(self):
            return
        found = shelf.objects.get(self.path.partition("?")[0])
        if found is None:
            self.answer(404, b"")
            return
        data, coding = found
        headers = {"Accept_Ranges": "bytes"} | ({"Content_Encoding": coding} if coding else {})
        if wanted is None:
            self.answer(200, data, **headers)
            return
        first, last = (int(each) for each in wanted.removeprefix("bytes=").split("-"))
        part = data[first : last + 1]
        self.answer(206, part, **headers, Content_Range=f"bytes {first}-{first + len(part) - 1}/{len(data)}")

    do_HEAD = do_GET


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    shelf: Shelf

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a client that has left before the end: clients do where an answer is too long."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


@contextmanager
def running_shelf(certificates: Path | None = None) -> Iterator[Shelf]:
    """Serve; over TLS with the certificate of a folder."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.shelf = Shelf(url=f"http{'s' if certificates else ''}://127.0.0.1:{server.server_port}")
    if certificates:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates / "cert.pem", certificates / "key.pem")
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.shelf
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
