"""Servers of vgi-rpc beside clients that say nothing: over TCP, Unix sockets and HTTP the others are served."""

import contextlib
import errno
import os
import re
import signal
import socket
import stat
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from worker import Service, ServiceImpl

from penstock import _core
from penstock.tls import write_certificates
from penstock.vgi import AuthContext, RpcError, RpcServer, http_connect
from penstock.vgi.http import HttpServer, bearer_authenticate_static
from penstock.vgi.rpc import _listening, serve_tcp, serve_unix, tcp_connect, unix_connect

HERE = Path(__file__).parent
SILENT = 130
"""Connections without a byte: more than the server has descriptors."""
SERVE = (
    "import resource, signal, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128)); from worker import *; "
    "from penstock.vgi import RpcServer; from penstock.vgi.rpc import serve_tcp, serve_unix, _listening; "
    "_listening.FIRST_BYTE = 2.0; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); "
    "server = RpcServer(Service, ServiceImpl()); "
)
TCP = SERVE + "serve_tcp(server, **dict(zip(('cert', 'key', 'client_ca'), sys.argv[1:])))"
UNIX = SERVE + "serve_unix(server, sys.argv[1], threaded=True, announce=lambda: print('ready', flush=True))"


@contextlib.contextmanager
def running(program: str, *arguments: str) -> Iterator[tuple[str, Callable[[], str]]]:
    """Run a server with 128 descriptors; gives its first line, and what ends it and gives its log."""
    command = [sys.executable, "-c", program, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=HERE) as process:
        assert process.stdout is not None

        def end() -> str:
            process.send_signal(signal.SIGTERM)
            log = process.communicate(timeout=60)[1]
            assert process.returncode == 0, log
            return log

        try:
            yield process.stdout.readline().strip(), end
        finally:
            process.kill()


@contextlib.contextmanager
def silence(family: int, where: object) -> Iterator[None]:
    """Hold many connections that never send a byte."""
    with contextlib.ExitStack() as stack:
        for _ in range(SILENT):
            client = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
            client.setblocking(False)
            client.connect_ex(where)  # type: ignore[arg-type]
        yield


def is_calm(log: str) -> bool:
    """Whether a log has neither a traceback nor a panic."""
    return re.search("Traceback|panicked", log) is None


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "tls"])
def test_a_server_without_descriptors_serves_an_honest_client_over_tcp(tmp_path: Path, encrypted: bool) -> None:
    fingerprint = write_certificates(tmp_path) if encrypted else None
    files = [str(tmp_path / name) for name in ("cert.pem", "key.pem", "ca.pem")] if encrypted else []
    trusted = {"fingerprint": fingerprint, "cert": files[0], "key": files[1]} if encrypted else {}
    with running(TCP, *files) as (line, end):
        host, port = line.removeprefix("TCP:").split(" ")[0].split(":")
        with silence(socket.AF_INET, (host, int(port))), tcp_connect(Service, host, int(port), **trusted) as service:
            assert service.add(a=1.0) == 3.0
        log = end()
    assert is_calm(log), log
    assert "handshake and sent a first byte in time" in log


def test_a_server_without_descriptors_serves_an_honest_client_over_a_unix_socket(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with running(UNIX, path) as (line, end):
        assert line == "ready"
        with silence(socket.AF_UNIX, path), honest(path) as service:
            assert service.add(a=1.0) == 3.0
        log = end()
    assert is_calm(log), log
    assert not Path(path).exists()


@contextlib.contextmanager
def honest(path: str) -> Iterator[Service]:
    """Connect as soon as the queue of the socket has a place."""
    deadline = time.monotonic() + 30
    while True:
        with contextlib.ExitStack() as stack:
            try:
                service = stack.enter_context(unix_connect(Service, path))
            except BlockingIOError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
                continue
            yield service
            return


def test_a_server_ends_calmly_while_connections_are_open(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with running(UNIX, path) as (_, end), unix_connect(Service, path) as service:
        assert service.add(a=1.0) == 3.0
        assert is_calm(end())


def test_a_call_that_runs_is_answered_before_the_server_ends(tmp_path: Path) -> None:
    path, entered = str(tmp_path / "socket"), tmp_path / "entered"
    slow = (
        "import time; from pathlib import Path\n"
        "class Slow(ServiceImpl):\n"
        "    def add(self, a, b=2.0):\n"
        f"        Path({str(entered)!r}).touch(); time.sleep(1); return a + b\n"
        "server = RpcServer(Service, Slow())\n"
    )
    head, serve = UNIX.rsplit("; ", 1)
    answers: list[float] = []

    def call() -> None:
        with unix_connect(Service, path) as service:
            answers.append(service.add(a=1.0))

    with running(f"{head}\n{slow}{serve}", path) as (_, end):
        caller = threading.Thread(target=call)
        caller.start()
        while not entered.exists():
            time.sleep(0.01)
        end()
        caller.join()
    assert answers == [3.0]


def test_a_socket_belongs_to_its_owner_and_is_not_taken_from_a_server(tmp_path: Path) -> None:
    path, ready = tmp_path / "socket", threading.Event()
    mask = os.umask(0)
    try:
        server = RpcServer(Service, ServiceImpl())
        serving = {"threaded": True, "announce": ready.set}
        threading.Thread(target=serve_unix, args=(server, str(path)), kwargs=serving, daemon=True).start()
        assert ready.wait(30)
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError, match="another server listens there"):
        serve_unix(RpcServer(Service, ServiceImpl()), str(path))
    with unix_connect(Service, str(path)) as service:
        assert service.add(a=1.0) == 3.0


def listener_at(path: Path) -> "_core.VgiListener":
    """Listen on a Unix socket as a server does."""
    return _core.VgiListener.unix(RpcServer(Service, ServiceImpl()).core, path, first_byte=10.0)


def test_a_socket_of_a_dead_server_is_replaced_and_another_file_is_not(tmp_path: Path) -> None:
    stale = tmp_path / "stale"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(stale))
        dead.listen(1)
    listener = listener_at(stale)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(stale))
    listener.close()
    assert not stale.exists()
    while listener.accept() is not None:
        pass
    file = tmp_path / "file"
    file.write_text("kept")
    with pytest.raises(FileExistsError, match="not a socket"):
        listener_at(file)
    assert file.read_text() == "kept"
    with pytest.raises(FileNotFoundError, match="nowhere"):
        listener_at(tmp_path / "nowhere" / "socket")


def test_a_port_that_is_taken_is_an_error_of_the_system() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="cannot listen on 127"):
        serve_tcp(RpcServer(Service, ServiceImpl()), port=taken.getsockname()[1])


def test_a_system_without_threads_is_survived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, ready = str(tmp_path / "socket"), threading.Event()
    serving = {"threaded": True, "announce": ready.set}
    server = threading.Thread(target=serve_unix, args=(RpcServer(Service, ServiceImpl()), path), kwargs=serving)
    server.daemon = True
    server.start()
    assert ready.wait(30)
    start, refused = threading.Thread.start, threading.Event()

    def cannot_start(self: threading.Thread) -> None:
        if self.name == "vgi-serve" and not refused.is_set():
            refused.set()
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", cannot_start)
    with unix_connect(Service, path) as service, pytest.raises(RpcError):
        service.add(a=1.0)
    assert refused.is_set()
    with unix_connect(Service, path) as service:
        assert service.add(a=1.0) == 3.0


@contextlib.contextmanager
def served() -> Iterator[tuple[str, int]]:
    """Serve in a thread; gives the address."""
    server = RpcServer(Service, ServiceImpl())
    listener = _core.VgiListener.tcp(server.core, "127.0.0.1:0", first_byte=10.0)
    listening = _listening.Listening(server, listener, threaded=True, idle_timeout=900.0)
    serving = threading.Thread(target=listening.serve, daemon=True)
    serving.start()
    yield "127.0.0.1", listener.port
    listener.close()
    serving.join(60)
    assert not serving.is_alive()


def lines_of(caplog: pytest.LogCaptureFixture, text: str) -> int:
    """Count the lines of a log that have a text."""
    return sum(text in record.getMessage() for record in caplog.records)


def test_threads_that_cannot_start_are_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    start, refused = threading.Thread.start, []

    def cannot_start(self: threading.Thread) -> None:
        if self.name == "vgi-serve" and len(refused) < 10:
            refused.append(self)
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", cannot_start)
    with served() as (host, port):
        for _ in range(10):
            with tcp_connect(Service, host, port) as service, pytest.raises(RpcError):
                service.add(a=1.0)
        with tcp_connect(Service, host, port) as service:
            assert service.add(a=1.0) == 3.0
    assert (len(refused), lines_of(caplog, "a connection cannot be served")) == (10, 1)


def test_a_socket_whose_queue_is_full_is_alive(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as busy, contextlib.ExitStack() as clients:
        busy.bind(str(path))
        busy.listen(0)
        refused = 0
        while refused != errno.EAGAIN:
            client = clients.enter_context(socket.socket(socket.AF_UNIX))
            client.setblocking(False)
            refused = client.connect_ex(str(path))
            assert refused in (0, errno.EAGAIN)
        with pytest.raises(FileExistsError, match="another server"):
            listener_at(path)
        assert path.is_socket()


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "tls"])
def test_a_client_that_falls_silent_loses_its_place(tmp_path: Path, encrypted: bool) -> None:
    fingerprint = write_certificates(tmp_path) if encrypted else None
    files = [str(tmp_path / name) for name in ("cert.pem", "key.pem", "ca.pem")] if encrypted else []
    trusted = {"fingerprint": fingerprint, "cert": files[0], "key": files[1]} if encrypted else {}
    idle = TCP.replace("serve_tcp(server,", "serve_tcp(server, max_connections=1, idle_timeout=1.0,")
    with running(idle, *files) as (line, end):
        host, port = line.removeprefix("TCP:").split(" ")[0].split(":")
        # Within a request, and between two of them.
        with contextlib.ExitStack() as stack:
            if not encrypted:
                half = stack.enter_context(socket.create_connection((host, int(port)), timeout=30))
                half.sendall(b"\xff")
                assert half.recv(1 << 16) == b""
            silent = stack.enter_context(tcp_connect(Service, host, int(port), **trusted))
            assert silent.add(a=1.0) == 3.0
            # The only place: another one waits until it is free.
            with tcp_connect(Service, host, int(port), **trusted) as service:
                assert service.add(a=1.0) == 3.0
        log = end()
    assert is_calm(log), log
    assert "the peer has sent or read nothing for 1 s" in log


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_silence_of_no_time_is_no_limit(tmp_path: Path, seconds: float) -> None:
    with pytest.raises(ValueError, match="idle_timeout"):
        serve_unix(RpcServer(Service, ServiceImpl()), str(tmp_path / "socket"), idle_timeout=seconds)


LARGE = 268_435_456
HEAD = "POST /vgi/add HTTP/1.1\r\nHost: x\r\nContent-Type: application/vnd.apache.arrow.stream\r\n"


@pytest.mark.parametrize(
    "length", [f"Content-Length: {LARGE}", "Transfer-Encoding: chunked"], ids=["length", "chunked"]
)
@pytest.mark.parametrize("known", [False, True], ids=["stranger", "known"])
def test_silent_uploads_keep_nobody_waiting(length: str, known: bool) -> None:
    authenticate = bearer_authenticate_static(tokens={"secret": AuthContext("bearer", True, "someone")})
    server = RpcServer(Service, ServiceImpl(), dialect="spec")
    token = "Authorization: Bearer secret\r\n" if known else ""
    with (
        HttpServer(server, authenticate=authenticate, max_request_bytes=LARGE) as running,
        contextlib.ExitStack() as uploads,
    ):
        before = median(running)
        # More of them than there are threads for calls.
        for _ in range(16):
            upload = uploads.enter_context(socket.create_connection(("127.0.0.1", running.port)))
            upload.sendall(f"{HEAD}{token}{length}\r\n\r\n".encode() + (b"1\r\nx" if "chunked" in length else b"x"))
        with urllib.request.urlopen(f"{running.url}/vgi/health", timeout=5) as health:  # noqa: S310 -- a server of ours
            assert health.status == 200
        assert median(running) <= 2 * before + 0.005


def median(running: HttpServer) -> float:
    """Give how long a call takes."""
    times = []
    with http_connect(Service, running.url, headers={"Authorization": "Bearer secret"}) as service:
        for _ in range(40):
            began = time.perf_counter()
            assert service.add(a=1.0) == 3.0
            times.append(time.perf_counter() - began)
    return statistics.median(times)


def test_uploads_that_take_all_the_room_for_bodies_leave_small_calls_alone() -> None:
    server = RpcServer(Service, ServiceImpl(), dialect="spec")
    with HttpServer(server, max_request_bytes=4 << 20) as running, contextlib.ExitStack() as uploads:
        for size in [(4 << 20) - 1] * 4 + [(1 << 20) + 1] * 2:
            upload = uploads.enter_context(socket.create_connection(("127.0.0.1", running.port)))
            upload.sendall(f"{HEAD}Content-Length: {size + 1}\r\n\r\n".encode())
            # What waits for room is not read: it must not keep this test waiting.
            upload.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while size := size - upload.send(bytes(size)):
                    pass
        time.sleep(1)
        with http_connect(Service, running.url) as service:
            for _ in range(5):
                assert service.add(a=1.0) == 3.0


def test_a_stranger_is_told_before_its_body_is_read() -> None:
    authenticate = bearer_authenticate_static(tokens={"secret": AuthContext("bearer", True, "someone")})
    server = RpcServer(Service, ServiceImpl(), dialect="spec")
    with (
        HttpServer(server, authenticate=authenticate) as running,
        socket.create_connection(("127.0.0.1", running.port), timeout=10) as stranger,
    ):
        stranger.sendall(f"{HEAD}Content-Length: 1000000\r\n\r\n".encode())
        assert stranger.recv(1 << 16).startswith(b"HTTP/1.1 401")


def test_a_body_that_is_stated_too_large_is_refused_before_it_comes() -> None:
    server = RpcServer(Service, ServiceImpl(), dialect="spec")
    with (
        HttpServer(server, max_request_bytes=1_000) as running,
        socket.create_connection(("127.0.0.1", running.port), timeout=10) as client,
    ):
        client.sendall(f"{HEAD}Content-Length: 1001\r\n\r\n".encode())
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 413")
