"""What one client can make a daemon hold: a few kilobytes of requests must not become gigabytes of answers."""

import contextlib
import resource
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from quicx_wire import Peer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="NOT TESTED: memory; it is read from Linux's /proc")

_DEAD_LIST = struct.pack(">BBI", 1, 0x23, 0)
_STATS = struct.pack(">BBI", 1, 0x0B, 0)
_PING = struct.pack(">BBI", 1, 0x09, 0)
_OBSERVE = struct.pack(">BBII", 1, 0x20, 4, 15_000)
_SUBMIT = struct.pack(">BBI", 1, 0x01, 3) + b"\x01ax"
# The largest answer, DEAD_TASKS of 512 KiB, as often as an allocator may have it at once; and room for all else.
_GROWTH = 24 << 20


@pytest.fixture
def daemon(tmp_path):
    """Start a daemon with a journal and one attempt for each task; give its process and its address."""
    command = [sys.executable, "-m", "penstock", "quicx", "start", "--listen", "127.0.0.1:0"]
    command += ["--journal", "journal", "--max-attempts", "1"]
    # Each dead task is a line of the log: a pipe that is not read would be full, and a file may not grow here.
    process = subprocess.Popen(command, cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    line = process.stdout.readline()
    assert line.startswith("listening "), line
    yield process, line.split()[1]
    process.kill()
    process.communicate(timeout=30)


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()[0]) << 10


def _dead_tasks(address: str, count: int) -> None:
    """Fill the dead list as any client may: submit, take, drop the connection. The daemon gives a task one attempt."""
    producer, worker = Peer(address), Peer(address)
    producer.socket.sendall(_SUBMIT * count)
    assert {producer.hear()[0] for _ in range(count)} == {"OK"}
    worker.send(0x21, struct.pack(">H", 65_535))
    worker.send(0x04)
    for _ in range(count):
        assert worker.hear()[0] == "TASK"
    worker.close()
    heard = [producer.hear() for _ in range(count)]
    assert {name for name, _ in heard} == {"FAILED"}
    producer.close()


def _flood(address: str, requests: bytes) -> socket.socket:
    """Send requests without reading an answer, as much as the daemon takes within a moment."""
    peer = Peer(address)
    peer.socket.settimeout(0.5)
    with contextlib.suppress(TimeoutError):
        peer.socket.sendall(requests)
    return peer.socket


def _answers(address: str) -> None:
    """See that the daemon is there for others."""
    peer = Peer(address)
    peer.socket.sendall(_STATS)
    assert peer.hear()[0] == "STATS_RESPONSE"
    peer.close()


def test_36_kb_of_requests_behind_a_submit_leave_the_daemon_alive_in_1_5_gib(daemon):
    process, address = daemon
    _dead_tasks(address, 15_000)
    resource.prlimit(process.pid, resource.RLIMIT_AS, (3 << 29, 3 << 29))
    before = _resident(process.pid)
    # The first waits for the disk, and all behind it for the first.
    held = [_flood(address, _SUBMIT + _DEAD_LIST * 6_000)]
    assert process.poll() is None
    held.append(_flood(address, _SUBMIT + _DEAD_LIST * 2_000))
    _answers(address)
    assert process.poll() is None
    grown = _resident(process.pid) - before
    assert grown < _GROWTH, f"{grown >> 20} MiB"
    for each in held:
        each.close()


def test_a_flood_behind_a_journal_that_is_stuck_is_read_no_further_than_its_answers_have_room(daemon):
    process, address = daemon
    _dead_tasks(address, 15_000)
    # No file of the process may grow: the disk is full as far as it knows, and what waits for it has no end.
    whole = resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
    first = Peer(address)
    first.socket.sendall(_SUBMIT)
    assert first.hear()[1][:1] == b"\x01"
    before = _resident(process.pid)
    requeue = struct.pack(">BBII", 1, 0x25, 4, 1)
    flooding = []
    # Submits have the pool's memory: they are no part of this.
    for number, flood in enumerate((_PING * 2_000_000, _STATS * 2_000_000, _DEAD_LIST * 2_000, _OBSERVE * 1_000_000)):
        waits = struct.pack(">BBII", 1, 0x25, 4, 2 + number)
        flooding.append(_flood(address, waits + flood))
    flooding.append(_flood(address, requeue + _DEAD_LIST * 2_000))
    _answers(address)
    assert process.poll() is None
    grown = _resident(process.pid) - before
    assert grown < _GROWTH, f"{grown >> 20} MiB"
    # Once the disk is there again, everything is answered, in its turn.
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, whole)
    last = Peer(address)
    last.socket.sendall(struct.pack(">BBII", 1, 0x25, 4, 99) + _PING * 10 + _DEAD_LIST * 2 + _PING)
    assert [last.hear()[0] for _ in range(14)] == ["OK", *["PONG"] * 10, *["DEAD_TASKS"] * 2, "PONG"]
    for each in flooding:
        each.close()


def test_a_log_that_takes_nothing_ends_nothing(tmp_path):
    """Each dead task is a line of the log, written by the thread that also writes the journal."""
    command = [sys.executable, "-m", "penstock", "quicx", "start", "--listen", "127.0.0.1:0", "--max-attempts", "1"]
    command += ["--journal", "journal", "--log-level", "debug"]
    with Path("/dev/full").open("wb") as full:
        process = subprocess.Popen(command, cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=full)
    try:
        address = process.stdout.readline().split()[1]
        for _ in range(3):
            _dead_tasks(address, 50)
        peer = Peer(address)
        peer.socket.sendall(_SUBMIT + _PING)
        assert [peer.hear()[0], peer.hear()[0]] == ["OK", "PONG"]
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate(timeout=30)
