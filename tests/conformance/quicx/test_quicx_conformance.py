"""Any daemon of Quicx, met from outside by a peer that shares no code with it (`PENSTOCK_QUICX=HOST:PORT`)."""

import contextlib
import json
import resource
import select
import socket
import struct
from pathlib import Path

import pytest
from quicx_wire import Peer

VECTORS = Path(__file__).parents[2] / "vectors" / "quicx" / "frames-invalid.json"
# Bytes of a daemon's memory for each connection, whatever it does: what docs/quicx.md states.
EACH = 256 << 10
IDLE = 16 << 10


def u32(number: int) -> bytes:
    return struct.pack(">I", number)


@pytest.fixture
def peers(met):
    """Connect; all of them are gone at the end, and the daemon is empty."""
    made: list[Peer] = []

    def connect() -> Peer:
        made.append(Peer(met.address))
        return made[-1]

    yield connect
    for peer in made:
        peer.close()
    drain(met)


def stats(peer: Peer) -> tuple[int, int, int, int, int]:
    peer.send(0x0B)
    name, answer = peer.hear()
    assert (name, len(answer)) == ("STATS_RESPONSE", 28)
    return struct.unpack(">IIIQQ", answer)


def drain(met) -> None:
    """Be the only worker until nothing is left, and all that was held has come back."""
    worker, monitor = Peer(met.address), Peer(met.address)
    worker.send(0x21, struct.pack(">H", 256))
    worker.send(0x04)
    while stats(monitor)[3] > 0:
        worker.send(0x09)
        done = b""
        while (heard := worker.hear())[0] != "PONG":
            if heard[0] == "TASK":
                done += struct.pack(">BBI", 1, 0x06, 4) + heard[1][:4]
        worker.socket.sendall(done)
    worker.close()
    monitor.close()


def test_a_task_goes_from_its_producer_to_a_worker_and_its_failure_back(peers):
    producer, worker = peers(), peers()
    worker.send(0x04)
    assert worker.hear() == ("WAIT", b"")
    producer.submit(b"send_email", b'{"to":"user@gmail.com"}')
    name, task = producer.hear()
    assert (name, len(task)) == ("OK", 4)
    assert worker.hear() == ("TASK", task + b'\x0asend_email{"to":"user@gmail.com"}')
    worker.send(0x07, task + b"mailbox \xff full")
    assert producer.hear() == ("FAILED", task + b"mailbox \xff full")
    depth, workers, idle, used, total = stats(producer)
    assert (depth, workers, idle, used, total > 0) == (0, 1, 1, 0, True)


def test_tasks_come_in_their_order_and_those_of_a_worker_that_dies_come_first(peers):
    producer, first = peers(), peers()
    tasks = []
    for number in range(4):
        producer.submit(b"a", b"%d" % number)
        tasks.append(producer.hear()[1])
    for expected in tasks[:1]:
        first.send(0x04)
        assert first.hear() == ("TASK", expected + b"\x01a0")
    first.close()
    second = peers()
    for number, expected in enumerate(tasks):
        if number == 0:
            second.send(0x04)
        name, payload = second.hear()
        while name == "WAIT":
            second.send(0x04)
            name, payload = second.hear()
        if number == 0 and payload[:4] != expected:
            pytest.fail("the task of the worker that died is not the first")
        assert payload == expected + b"\x01a%d" % number
        second.send(0x06, payload[:4])


def test_the_extensions_prefetch_subscribe_and_observe(peers):
    producer, worker = peers(), peers()
    worker.send(0x22, b"\x01b")
    worker.send(0x21, struct.pack(">H", 2))
    worker.send(0x04)
    assert worker.hear() == ("WAIT", b"")
    ids = []
    for kind in (b"a", b"b", b"b", b"b"):
        producer.submit(kind, b"")
        ids.append(producer.hear()[1])
    assert [worker.hear() for _ in range(2)] == [("TASK", task + b"\x01b") for task in ids[1:3]]
    producer.send(0x20, ids[1])
    worker.send(0x06, ids[1])
    assert producer.hear() == ("DONE", ids[1])
    assert worker.hear() == ("TASK", ids[3] + b"\x01b")


def test_a_key_stands_for_one_task(peers):
    producer, other = peers(), peers()
    for peer in (producer, other, producer):
        peer.send(0x28, b"conformance key!" + b"\x01ahello")
    assert producer.hear() == other.hear() == producer.hear()
    assert stats(producer)[0] == 1


def invalid() -> list[dict[str, object]]:
    return [vector for vector in json.loads(VECTORS.read_text()) if not vector.get("truncated")]


@pytest.mark.parametrize("vector", invalid(), ids=lambda vector: vector["name"])
def test_what_is_wrong_is_refused_with_its_code_and_the_connection_goes_on_unless_it_cannot(peers, vector):
    peer = peers()
    peer.socket.sendall(bytes.fromhex(vector["hex"]))
    name, answer = peer.hear()
    assert (name, answer[0]) == ("ERROR", vector["code"])
    if vector.get("close"):
        assert peer.is_closed()
        return
    # What stands behind it is READY.
    assert peer.hear() == ("WAIT", b"")
    peer.send(0x09)
    assert peer.hear() == ("PONG", b"")


def exhaust(producer: Peer, size: int) -> int:
    """Submit until the pool is full; give how many were taken."""
    frame = struct.pack(">BBI", 1, 0x01, 5 + size) + b"\x04fill" + bytes(size)
    taken = 0
    while True:
        producer.socket.sendall(frame * 50)
        answers = [producer.hear() for _ in range(50)]
        taken += sum(name == "OK" for name, _ in answers)
        refused = {answer[:1] for name, answer in answers if name == "ERROR"}
        if refused:
            assert refused == {b"\x01"}
            return taken


def test_memory_stays_below_the_pool_and_a_constant_for_each_connection_through_all_that_is_wrong(met):
    if met.process is None or not Path("/proc/self/status").exists():
        pytest.skip("NOT TESTED: a daemon's memory; it is read from Linux's /proc, of a daemon that the tests start")
    pool = 2 << 20
    producer = Peer(met.address)
    before = met.resident()
    peers = []
    # The pool, exhausted and drained again and again, each time with another class.
    first = {}
    for size in (3_000, 100, 1_000, 3_000, 100, 1_000):
        taken = exhaust(producer, size)
        assert first.setdefault(size, taken) == taken, "the pool has become smaller"
        drain(met)
    assert stats(producer)[3] == 0
    for _ in range(20):
        for vector in invalid():
            peer = Peer(met.address)
            peer.socket.sendall(bytes.fromhex(str(vector["hex"])))
            peers.append(peer)
    for number in range(100):
        peer = Peer(met.address)
        peer.socket.settimeout(5)
        match number % 5:
            case 0:  # half a frame, and nothing more
                peer.send(0x01, b"\x01a", length=4_000)
            case 1:  # 64 MiB that never come
                peer.send(0x01, b"\x01a" + bytes(60_000), length=64 << 20)
            case 2:  # a flood of READY
                peer.socket.sendall(struct.pack(">BBI", 1, 0x04, 0) * 10_000)
            case 3:  # DONE for tasks that it does not hold
                peer.socket.sendall((struct.pack(">BBI", 1, 0x06, 4) + u32(number)) * 1_000)
            case _:  # asks, and never reads
                peer.socket.settimeout(0.1)
                with contextlib.suppress(TimeoutError):
                    peer.socket.sendall(struct.pack(">BBI", 1, 0x0B, 0) * 100_000)
        peers.append(peer)
    # It has read all that it will: it answers.
    stats(producer)
    grown = met.resident() - before
    assert grown < pool + len(peers) * EACH, (grown, len(peers))
    for peer in peers:
        peer.close()
    drain(met)
    assert stats(producer)[3] == 0
    producer.close()


def test_ten_thousand_workers_wait_in_bounded_memory_and_each_gets_its_task(met):
    count = 10_000
    if min(resource.getrlimit(resource.RLIMIT_NOFILE)) < count + 500:
        pytest.skip(f"NOT TESTED: {count} connections; descriptors are too few: `ulimit -n {count + 500}`")
    before = met.resident() if met.process is not None else 0
    monitor = Peer(met.address)
    workers = [Peer(met.address) for _ in range(count)]
    for worker in workers:
        worker.send(0x04)
    for worker in workers:
        assert worker.hear() == ("WAIT", b"")
    assert stats(monitor)[1:3] == (count, count)
    if met.process is not None:
        assert met.resident() - before < count * IDLE
    producer = Peer(met.address)
    frame = struct.pack(">BBI", 1, 0x01, 4) + b"\x01abc"
    found = set()
    for _ in range(0, count, 100):
        producer.socket.sendall(frame * 100)
        found |= {producer.hear() for _ in range(100)}
    assert len(found) == count
    # Whoever has waited longest is first, and none gets two.
    for worker in workers:
        name, payload = worker.hear()
        assert (name, ("OK", payload[:4]) in found) == ("TASK", True)
        worker.send(0x06, payload[:4])
    assert stats(producer)[0] == 0
    for peer in (*workers, producer):
        peer.close()
    waiting = [monitor.socket]
    while stats(monitor)[1] > 0:
        select.select(waiting, [], [], 0.01)
    monitor.close()


def test_a_half_open_connection_is_ended_and_its_task_goes_on(peers):
    producer, lost = peers(), peers()
    producer.submit(b"a", b"x")
    task = producer.hear()[1]
    lost.send(0x04)
    assert lost.hear()[0] == "TASK"
    # It says no more, but still listens: as a machine that was switched off half way through a close.
    lost.socket.shutdown(socket.SHUT_WR)
    other = peers()
    other.send(0x04)
    name, payload = other.hear()
    while name == "WAIT":
        name, payload = other.hear()
    assert (name, payload[:4]) == ("TASK", task)
    other.send(0x06, task)
