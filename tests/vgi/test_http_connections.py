"""What follows a refused request of vgi or of metrics: a connection that is usable, or an end that is announced."""

import http.client
import re
import socket
import ssl
import urllib.request
from pathlib import Path

import pytest
from worker import Service, ServiceImpl

from penstock.lumberjack import Receiver
from penstock.tls import write_certificates
from penstock.vgi import AuthContext, RpcServer
from penstock.vgi.http import HttpServer, bearer_authenticate_static, make_sync_client

ARROW = "application/vnd.apache.arrow.stream"


def _ask(
    connection: http.client.HTTPConnection, method: str, path: str, body: bytes, **headers: str
) -> tuple[int, bool]:
    """Give the status, and whether the answer says that the connection ends."""
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    answer.read()
    return answer.status, answer.getheader("connection") == "close"


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize(
    ("status", "method", "path", "headers"),
    [
        (401, "POST", "/vgi/add", {"Content-Type": ARROW}),
        (401, "POST", "/vgi/add", {"Content-Type": ARROW, "Authorization": "Bearer wrong"}),
        (415, "POST", "/vgi/add", {"Content-Type": "text/plain", "Authorization": "Bearer good"}),
        (404, "POST", "/vgi/no_such_method", {"Content-Type": ARROW, "Authorization": "Bearer good"}),
        (404, "POST", "/elsewhere", {"Content-Type": ARROW, "Authorization": "Bearer good"}),
        (405, "PUT", "/vgi/add", {"Content-Type": ARROW, "Authorization": "Bearer good"}),
        (400, "POST", "/vgi/add", {"Content-Type": ARROW, "Authorization": "Bearer good"}),
    ],
)
def test_a_refused_call_leaves_its_connection_usable_or_says_that_it_ends(
    tmp_path: Path, tls: bool, status: int, method: str, path: str, headers: dict[str, str]
) -> None:
    files = {}
    if tls:
        write_certificates(tmp_path)
        files = {"cert": tmp_path / "cert.pem", "key": tmp_path / "key.pem"}
    authenticate = bearer_authenticate_static(tokens={"good": AuthContext("bearer", True, "caller")})
    server = RpcServer(Service, ServiceImpl())
    with HttpServer(server, authenticate=authenticate, max_request_bytes=1 << 20, **files) as running:
        connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=60)
        if tls:
            context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
            connection = http.client.HTTPSConnection("127.0.0.1", running.port, timeout=60, context=context)
        assert _ask(connection, method, path, b"x" * 4_096, **headers) == (status, False)
        # The same socket: the client was not told to make another one.
        connection.auto_open = 0
        assert _ask(connection, "GET", "/vgi/health", b"") == (200, False)
        said, ends = _ask(connection, method, path, b"x" * 900_000, **headers)
        assert said == status
        if not ends:
            assert _ask(connection, "GET", "/vgi/health", b"") == (200, False)
        connection.close()


def test_a_call_beyond_the_limit_is_refused_and_what_follows_it_is_known() -> None:
    with HttpServer(RpcServer(Service, ServiceImpl()), max_request_bytes=1 << 20) as running:
        connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=60)
        status, ends = _ask(connection, "POST", "/vgi/add", b"x" * (2 << 20), **{"Content-Type": ARROW})
        assert status == 413
        if not ends:
            connection.auto_open = 0
            assert _ask(connection, "GET", "/vgi/health", b"") == (200, False)


def test_tls_ends_with_close_notify(tmp_path: Path) -> None:
    write_certificates(tmp_path)
    with HttpServer(RpcServer(Service, ServiceImpl()), cert=tmp_path / "cert.pem", key=tmp_path / "key.pem") as running:
        context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        context.options &= ~getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)
        with (
            socket.create_connection(("127.0.0.1", running.port), timeout=60) as plain,
            context.wrap_socket(plain, server_hostname="localhost", suppress_ragged_eofs=False) as secure,
        ):
            secure.sendall(b"GET /vgi/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            data = b""
            # SSLEOFError here would say that the end is bare.
            while more := secure.recv(1 << 16):
                data += more
    assert data.startswith(b"HTTP/1.1 200")


def test_the_endpoint_for_metrics_announces_the_end_of_each_connection() -> None:
    with Receiver(metrics="127.0.0.1:0") as receiver:
        address = receiver.metrics_address
        assert address is not None
        for method, path, status in [("POST", "/metrics", 405), ("GET", "/metrics", 200), ("GET", "/none", 404)]:
            connection = http.client.HTTPConnection(address, timeout=30)
            assert _ask(connection, method, path, b"x" * 4_096) == (status, True)
            # An end, and no reset, follows.
            assert connection.sock is None


def test_every_request_that_no_method_saw_is_counted_once_whoever_has_refused_it() -> None:
    authenticate = bearer_authenticate_static(tokens={"good": AuthContext("bearer", True, "caller")})
    server = RpcServer(Service, ServiceImpl())
    metrics = server.core.metrics("127.0.0.1:0")

    def refused() -> int:
        with urllib.request.urlopen(f"http://{metrics.address}/metrics") as page:
            found = re.search(r"^penstock_vgi_refused_total (\d+)$", page.read().decode(), re.MULTILINE)
        assert found is not None
        return int(found[1])

    good = {"Content-Type": ARROW, "Authorization": "Bearer good"}
    asked = [
        (401, "POST", "/vgi/add", b"", {"Content-Type": ARROW}),
        (404, "POST", "/elsewhere", b"", good),
        (405, "PUT", "/vgi/add", b"", good),
        (415, "POST", "/vgi/add", b"", {**good, "Content-Type": "text/plain"}),
        (413, "POST", "/vgi/add", bytes(1_001), good),
        (400, "POST", "/vgi/add", b"no Arrow", good),
        (404, "POST", "/vgi/no_such_method", b"", good),
    ]
    try:
        with HttpServer(server, authenticate=authenticate, max_request_bytes=1_000) as running:
            for count, (status, method, path, body, headers) in enumerate(asked, 1):
                connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=60)
                assert _ask(connection, method, path, body, **headers)[0] == status
                connection.close()
                assert refused() == count, (status, path)
        client = make_sync_client(server, authenticate=authenticate, max_request_bytes=1_000)
        for count, (status, method, path, body, headers) in enumerate(asked, 1 + len(asked)):
            answer = client.request(method, path, content=body, headers=headers)
            assert (answer.status_code, refused()) == (status, count), path
    finally:
        metrics.close()
