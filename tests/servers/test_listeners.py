"""One way in for every server: the same limits, deadlines, certificates and ends, whatever the protocol."""

import contextlib
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from every_server import ENCRYPTED, GENEROUS, PLAIN, Ask, Met, meet, start

from penstock.tls import write_certificates

# Seconds from accept to the first byte.
_PATIENCE = 10


def _is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def _folder(tmp_path_factory: pytest.TempPathFactory, name: str) -> Path:
    return tmp_path_factory.mktemp(name)


@dataclass(frozen=True)
class Replaced:
    """A server whose certificate was replaced, and a client of before."""

    met: Met
    old: Ask
    before: Path
    after: Path


@pytest.fixture(scope="module")
def replaced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Replaced]]:
    """Start every server with the same certificate, connect to each, and replace the certificate."""
    folder = _folder(tmp_path_factory, "certificates")
    before, after = folder / "before.pem", folder / "after/ca.pem"
    write_certificates(folder / "tls")
    shutil.copy(folder / "tls/ca.pem", before)
    tls = {"cert": folder / "tls/cert.pem", "key": folder / "tls/key.pem"}
    with ExitStack() as stack:
        met: dict[str, Replaced] = {}
        for name in ENCRYPTED:
            server = start(name, stack, _folder(tmp_path_factory, name), tls)
            old = stack.enter_context(server.connect(before))
            old()
            met[name] = Replaced(server, old, before, after)
        write_certificates(folder / "after")
        for name in ("key.pem", "cert.pem"):
            (folder / "after" / name).replace(folder / "tls" / name)
        yield met


def _opened(server: Replaced, ca: Path) -> bool:
    try:
        with server.met.connect(ca) as ask:
            ask()
    except Exception:  # noqa: BLE001 -- each client has its own
        return False
    return True


@pytest.mark.parametrize("name", ENCRYPTED)
def test_a_replaced_certificate_is_shown_to_new_connections_and_drops_nobody(
    replaced: dict[str, Replaced], name: str
) -> None:
    server = replaced[name]
    deadline = time.monotonic() + GENEROUS
    while not _opened(server, server.after):
        assert time.monotonic() < deadline, "the new certificate is not shown"
        time.sleep(0.2)
    assert not _opened(server, server.before), "the old certificate is shown"
    # A client that had lost its connection could not come back: it trusts the old certificate only.
    server.old()


@dataclass(frozen=True)
class Silent:
    """A server while a client of it says nothing."""

    silent: socket.socket
    since: float
    timers: set[int]


def _timers(address: str) -> set[int]:
    """Give the timers that a server's connections have: 2 is keep-alive."""
    port = int(address.rpartition(":")[2])
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ours = [line for line in lines if int(line[1].partition(":")[2], 16) == port and line[3] == "01"]
    return {int(line[5].partition(":")[0], 16) for line in ours}


def _meet(met: Met, ca: Path | None) -> Silent:
    silent, since = met.raw(), time.monotonic()
    with met.connect(ca) as ask:
        ask()
    timers: set[int] = set()
    if not met.address.startswith("/"):
        while 2 not in (timers := _timers(met.address)) and time.monotonic() - since < _PATIENCE / 2:
            time.sleep(0.01)
    return Silent(silent, since, timers)


TCP = [("plain", name) for name in PLAIN] + [("tls", name) for name in ENCRYPTED if name != "pipestream"]


@pytest.fixture(scope="module")
def silent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, str], Silent]]:
    """Meet every server over TCP and Unix sockets, all at a time."""
    folder = _folder(tmp_path_factory, "tls")
    write_certificates(folder)
    tls = {"cert": folder / "cert.pem", "key": folder / "key.pem"}
    with ExitStack() as stack:
        met = {}
        for kind, name in TCP:
            files = {} if kind == "plain" else tls
            server = start(name, stack, _folder(tmp_path_factory, f"{kind}-{name}"), files)
            met[kind, name] = _meet(server, folder / "ca.pem" if files else None)
        yield met


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="NOT TESTED: keep-alive; it is seen in Linux's /proc")
@pytest.mark.parametrize(("kind", "name"), TCP)
def test_a_silent_client_is_closed_and_an_honest_one_is_served_meanwhile(
    silent: dict[tuple[str, str], Silent], kind: str, name: str
) -> None:
    server = silent[kind, name]
    if not name.endswith("unix"):
        assert 2 in server.timers, "nobody asks whether its machine is there"
    server.silent.settimeout(_PATIENCE + GENEROUS)
    assert _is_closed(server.silent)
    assert time.monotonic() - server.since < _PATIENCE + GENEROUS


CLOSES, WAITS = ("lumberjack", "quicx", "quicx-unix"), ("pimp", "vgi-tcp", "vgi-unix")


@pytest.mark.parametrize("name", CLOSES + WAITS)
def test_beyond_the_limit_a_connection_is_closed_or_waits_for_a_place(tmp_path: Path, name: str) -> None:
    with ExitStack() as stack:
        met = start(name, stack, tmp_path, {}, max_connections=2)
        held = [ExitStack(), ExitStack()]
        for each in held:
            stack.enter_context(each)
            each.enter_context(met.connect(None))()
        if name in CLOSES:
            with met.raw() as third:
                assert _is_closed(third)
        with ThreadPoolExecutor() as pool:

            def third_client() -> None:
                deadline = time.monotonic() + GENEROUS
                while True:
                    try:
                        with met.connect(None) as ask:
                            ask()
                        return
                    except Exception:
                        if name in WAITS or time.monotonic() > deadline:
                            raise
                        time.sleep(0.05)

            third_asks = pool.submit(third_client)
            time.sleep(1)
            assert not third_asks.done(), "there were two places"
            held[0].close()
            third_asks.result(GENEROUS)


@pytest.mark.parametrize("name", ["lumberjack", "quicx", "pimp"])
def test_an_address_has_its_share_and_another_one_is_served(tmp_path: Path, name: str) -> None:
    with ExitStack() as stack:
        met = start(name, stack, tmp_path, {}, max_connections=8, max_connections_per_address=1)
        stack.enter_context(met.connect(None))()
        with met.raw() as second:
            assert _is_closed(second)
        host, _, port = met.address.rpartition(":")
        with socket.create_connection((host, int(port)), source_address=("127.0.0.2", 0)) as other:
            other.settimeout(1)
            with pytest.raises(TimeoutError):
                other.recv(1)


def _crowded(name: str, folder: Path) -> str:
    """Serve with 128 descriptors beside 150 clients that say nothing; give the log once an honest one was served."""
    program = Path(__file__).parent / "every_server.py"
    command = [sys.executable, str(program), name, str(folder), "128"]
    log = folder / "log"
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
        ExitStack() as crowd,
    ):
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert address, log.read_text()
            unix = address.startswith("/")
            host, _, port = address.rpartition(":")
            for _ in range(150):
                client = crowd.enter_context(socket.socket(socket.AF_UNIX if unix else socket.AF_INET))
                client.setblocking(False)
                client.connect_ex(address if unix else (host, int(port)))
            deadline = time.monotonic() + _PATIENCE + GENEROUS
            while not _answers(meet(name, address)):
                # Servers that close what is too much are asked again.
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.2)
            assert process.poll() is None, log.read_text()
        finally:
            process.kill()
    return log.read_text()


def _answers(met: Met) -> bool:
    with contextlib.suppress(Exception), met.connect(None) as ask:
        ask()
        return True
    return False


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_without_descriptors_every_server_goes_on_and_serves_an_honest_client(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in PLAIN]
    for folder in folders:
        folder.mkdir()
    with ThreadPoolExecutor(len(PLAIN)) as pool:
        logs = dict(zip(PLAIN, pool.map(_crowded, PLAIN, folders), strict=True))
    for name, log in logs.items():
        assert "Traceback" not in log, log
        assert "panicked" not in log, log
        assert "the limit of descriptors (ulimit -n) is too low" in log, f"{name}: {log}"


def _takes(met: Met) -> bool:
    try:
        met.raw().close()
    except (ConnectionRefusedError, ConnectionResetError, FileNotFoundError):
        # A connection that is in the queue of a listener is reset when that closes.
        return False
    return True


@pytest.mark.parametrize("name", PLAIN)
def test_a_server_that_closes_takes_nobody_and_ends_those_that_are_idle(tmp_path: Path, name: str) -> None:
    with ExitStack() as stack:
        met = start(name, stack, tmp_path, {})
        ask = stack.enter_context(met.connect(None))
        ask()
        began = time.monotonic()
        met.close()
        assert time.monotonic() - began < GENEROUS / 2
        while _takes(met):
            assert time.monotonic() - began < GENEROUS, "it listens still"
        with pytest.raises(Exception):  # noqa: B017, PT011 -- each client has its own
            ask()
