"""A daemon in a process of its own, met by a peer that shares no code: the frames, crashes, a full disk, memory."""

import json
import re
import resource
import signal
import struct
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from quicx_wire import Peer

from penstock.errors import QuicxError
from penstock.quicx import Daemon, Producer


def _ok(number: int) -> tuple[str, bytes]:
    return "OK", struct.pack(">I", number)


@pytest.fixture
def daemon():
    with Daemon() as daemon:
        yield daemon


def test_a_task_of_the_specification_goes_from_a_producer_to_a_worker(daemon):
    producer, worker = Peer(daemon.address), Peer(daemon.address)
    worker.send(0x04)
    assert worker.hear() == ("WAIT", b"")
    producer.submit(b"send_email", b'{"to":"user@gmail.com"}')
    assert producer.hear() == _ok(1)
    assert worker.hear() == ("TASK", struct.pack(">I", 1) + b'\x0asend_email{"to":"user@gmail.com"}')
    producer.send(0x20, struct.pack(">I", 1))
    worker.send(0x07, struct.pack(">I", 1) + b"mailbox \xff full")
    assert producer.hear() == ("FAILED", struct.pack(">I", 1) + b"mailbox \xff full")
    producer.send(0x0B)
    name, stats = producer.hear()
    assert (name, struct.unpack(">IIIQQ", stats)) == ("STATS_RESPONSE", (0, 1, 1, 0, 64 << 20))


def test_what_is_wrong_is_refused_and_the_connection_goes_on_unless_it_cannot(daemon):
    peer = Peer(daemon.address)
    for opcode, payload, code in [
        (0x7F, b"", 2),  # no opcode
        (0x05, b"", 2),  # the daemon's
        (0x04, b"x", 2),  # READY has no payload
        (0x01, b"", 2),  # no type at all
        (0x01, b"\x00payload", 2),  # an empty type
        (0x01, b"\x05ab", 2),  # a type beyond the end
        (0x01, b"\x02\xff\xfe", 2),  # no UTF-8
        (0x01, b"\x01a" + bytes(5_000), 3),  # above the largest class
        (0x06, struct.pack(">I", 9), 2),  # not held
        (0x20, struct.pack(">I", 9), 2),  # not known
    ]:
        peer.send(opcode, payload)
        name, answer = peer.hear()
        assert (name, answer[0]) == ("ERROR", code), (opcode, payload[:10], answer)
    peer.send(0x09)
    assert peer.hear() == ("PONG", b"")
    peer.send(0x01, length=(64 << 20) + 1)
    name, answer = peer.hear()
    assert (name, answer[0], peer.is_closed()) == ("ERROR", 3, True)
    wrong = Peer(daemon.address)
    wrong.send(0x01, version=2)
    name, answer = wrong.hear()
    assert (name, answer[0], wrong.is_closed()) == ("ERROR", 2, True)


def test_killed_at_any_moment_it_has_what_it_said_ok_to(start):
    options = ("--journal", "journal")
    process, address = start(*options)
    worker = Peer(address)
    with Producer(address) as producer:
        ids = producer.submit_many("a", [bytes([number]) for number in range(100)])
        worker.send(0x21, struct.pack(">H", 10))
        worker.send(0x04)
        held = [struct.unpack(">I", worker.hear()[1][:4])[0] for _ in range(10)]
        worker.send(0x06, struct.pack(">I", held[0]))
        assert producer.observe(held[0]).ok
        # On the disk by the time that what comes after it is.
        ids += producer.submit_many("a", [b"last"])
    process.kill()
    process.wait(timeout=30)
    _, address = start(*options)
    worker = Peer(address)
    worker.send(0x21, struct.pack(">H", 200))
    worker.send(0x04)
    found = [struct.unpack(">I", worker.hear()[1][:4])[0] for _ in range(100)]
    assert found == ids[1:]
    with Producer(address) as producer:
        producer.stop_daemon()


def test_a_full_disk_refuses_submits_and_is_tried_again(start):
    process, address = start("--journal", "journal")
    peer = Peer(address)
    peer.submit(b"a", b"before")
    assert peer.hear() == _ok(1)
    # No file of the process may grow: the disk is full as far as it knows.
    before = resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
    peer.submit(b"a", b"too much")
    name, answer = peer.hear()
    assert (name, answer[:1]) == ("ERROR", b"\x01")
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, before)
    late = time.monotonic() + 30
    while name != "OK" and time.monotonic() < late:
        peer.submit(b"a", b"after")
        name, _ = peer.hear()
    assert name == "OK"
    peer.send(0x0B)
    assert struct.unpack(">I", peer.hear()[1][:4]) == (2,)


def test_a_journal_has_one_daemon_and_a_pool_that_is_large_enough(start, tmp_path):
    process, address = start("--journal", "journal")
    with Producer(address) as producer:
        producer.submit_many("a", [bytes(3_000)] * 40)
    again = [sys.executable, "-m", "penstock", "quicx", "start", "--listen", "127.0.0.1:0", "--journal", "journal"]
    refused = subprocess.run(again, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (refused.returncode, "another daemon has this journal" in refused.stderr) == (1, True)
    process.send_signal(signal.SIGTERM)
    _, logged = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "tasks stay in the journal" in logged
    small = subprocess.run(
        [*again, "--pool-bytes", "40000"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (small.returncode, "40 tasks need a pool of" in small.stderr) == (1, True)


def test_a_bit_that_flips_on_the_disk_costs_one_task_and_is_kept_to_be_looked_at(start, tmp_path):
    process, address = start("--journal", "journal")
    with Producer(address) as producer:
        producer.submit_many("a", [b"%05d" % number for number in range(2_000)])
    process.kill()
    process.wait(timeout=30)
    [segment] = (tmp_path / "journal").glob("*.journal")
    data = bytearray(segment.read_bytes())
    data[data.index(b"00200")] ^= 1
    segment.write_bytes(data)
    process, address = start("--journal", "journal")
    with Producer(address) as producer:
        assert producer.stats().queue_depth == 1_999
    worker = Peer(address)
    worker.send(0x21, struct.pack(">H", 2_000))
    worker.send(0x04)
    tasks = [worker.hear()[1] for _ in range(1_999)]
    assert {int(task[6:]) for task in tasks} == set(range(2_000)) - {200}
    worker.send(0x27)
    assert worker.hear() == ("OK", bytes(4))
    for task in tasks:
        worker.send(0x06, task[:4])
    _, logged = process.communicate(timeout=60)
    kept = segment.with_name(f"{segment.name}.damaged")
    # Of the segment itself nothing counts any more.
    assert kept.read_bytes() == data
    assert process.returncode == 0
    for words in (str(segment.name), "offset", "damaged", str(kept.name), "Check the disk"):
        assert words in logged
    process, address = start("--journal", "journal")
    with Producer(address) as producer:
        assert producer.stats().queue_depth == 0


def _resident(process: int) -> int:
    fields = Path(f"/proc/{process}/status").read_text().split("VmRSS:")[1].split()
    return int(fields[0]) << 10


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="NOT TESTED: memory; it is read from Linux's /proc")
def test_floods_and_half_open_sockets_cost_bounded_memory(start):
    process, address = start("--pool-bytes", str(4 << 20))
    peers = [Peer(address) for _ in range(120)]
    before = _resident(process.pid)
    for peer in peers[:100]:
        # A frame that never comes whole.
        peer.send(0x01, b"\x01a", length=4_000)
    for peer in peers[100:]:
        peer.socket.settimeout(0.1)
        try:
            # Asks for more and more, and never reads.
            for _ in range(40):
                peer.socket.sendall(struct.pack(">BBI", 1, 0x0B, 0) * 10_000)
        except TimeoutError:
            pass
    flooded = _resident(process.pid)
    assert flooded - before < 120 * (256 << 10), (before, flooded)
    with Producer(address) as producer:
        with pytest.raises(QuicxError) as raised:
            producer.submit_many("a", [bytes(1_000)] * 10_000)
        assert raised.value.code == 1
        taken = sum(1 for number in raised.value.accepted if number)
        assert 3_000 < taken < 4_300
        assert producer.stats().queue_depth == taken


def test_it_tells_prometheus_all_that_the_page_lists(pytestconfig):
    with Daemon(metrics="127.0.0.1:0") as told, Producer(told.address) as producer:
        producer.submit("a", b"")
        with urllib.request.urlopen(f"http://{told.metrics_address}/metrics", timeout=20) as response:
            text = response.read().decode()
    assert "penstock_quicx_submitted_total 1" in text
    metrics = re.findall(r"^# TYPE penstock_quicx_(\w+) (\w+)$", text, re.MULTILINE)
    page = (pytestconfig.rootpath / "docs" / "quicx.md").read_text()
    names = {f"{name}_total" if kind == "counter" else name for name, kind in metrics}
    assert len(names) >= 20
    assert {name for name in names if f"`{name}`" not in page} == set()


def test_a_unix_socket_serves_the_same_and_goes_with_the_daemon(tmp_path):
    path = tmp_path / "quicx.sock"
    with Daemon(listen=None, socket=path) as daemon:
        assert (daemon.address, path.stat().st_mode & 0o777) == ("", 0o600)
        peer = Peer("", str(path))
        peer.submit(b"a", b"x")
        assert peer.hear() == _ok(1)
        with Producer(socket=path) as producer:
            assert json.loads(json.dumps(producer.submit("a"))) == 2
    assert not path.exists()
