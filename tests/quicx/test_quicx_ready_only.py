"""Our workers and producers at a daemon that knows the specification's frames alone, and one that stops answering."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from quicx_ready_only import HEARTBEAT, PONG, READY, ReadyOnly
from quicx_wire import Peer

from penstock.aio import quicx as aio
from penstock.errors import QuicxError
from penstock.quicx import Daemon, Producer, TaskFailed, Worker


@pytest.fixture
def daemon():
    with ReadyOnly() as daemon:
        yield daemon


@pytest.mark.parametrize("threads", [1, 4])
def test_a_worker_asks_for_each_task_and_runs_them_all(daemon, threads):
    ids = [daemon.put(b"a", bytes([number])) for number in range(20)]
    foreign, broken = daemon.put(b"b"), daemon.put(b"a", b"no")
    seen = []
    worker = Worker(daemon.address, threads=threads)

    @worker.task("a")
    def take(payload):
        if payload == b"no":
            raise TaskFailed("no \u00e9")
        seen.append(payload)

    with worker:
        worker.start()
        daemon.until(lambda: len(daemon.done) == 20 and len(daemon.failed) == 2)
        assert (daemon.done, seen) == (ids, [bytes([number]) for number in range(20)])
        assert daemon.failed == {
            broken: "no \u00e9".encode(),
            foreign: b"no function is registered for tasks of type b",
        }
        # It goes on asking while there is nothing, and takes what comes then.
        asked = daemon.heard[READY]
        daemon.until(lambda: daemon.heard[READY] >= asked + 3)
        late = daemon.put(b"a", b"late")
        daemon.until(lambda: late in daemon.done)
    assert (daemon.greedy, daemon.connections) == (0, 1)
    left = daemon.put(b"a", b"left")
    assert [number for number, *_ in daemon.queue] == [left]


def test_for_asyncio_a_worker_asks_for_each_task(daemon):
    ids = [daemon.put(b"a") for _ in range(10)]
    foreign = daemon.put(b"b")

    async def main() -> None:
        worker = aio.Worker(daemon.address, concurrency=3)

        @worker.task("a")
        async def take(_payload: bytes) -> None:
            await asyncio.sleep(0)

        running = asyncio.create_task(worker.run())
        await asyncio.to_thread(daemon.until, lambda: len(daemon.done) == 10 and daemon.failed)
        late = daemon.put(b"a")
        await asyncio.to_thread(daemon.until, lambda: late in daemon.done)
        worker.stop()
        await running

    asyncio.run(main())
    assert daemon.done[:10] == ids
    assert daemon.failed == {foreign: b"no function is registered for tasks of type b"}
    assert (daemon.greedy, daemon.connections) == (0, 1)


def test_the_command_runs_for_each_task(daemon, tmp_path):
    first, bad = daemon.put(b"add", b"1\n"), daemon.put(b"add", b"bad\n")
    shell = 'read line; echo "$line" >> taken; test "$line" != bad || { echo "is bad" >&2; exit 3; }'
    command = [
        sys.executable,
        "-m",
        "penstock",
        "quicx",
        "work",
        "add",
        "--connect",
        daemon.address,
        "--heartbeat",
        "5",
    ]
    worker = subprocess.Popen([*command, "--heartbeat", "5", "--", "sh", "-c", shell], cwd=tmp_path)
    daemon.until(lambda: daemon.done and daemon.failed)
    late = daemon.put(b"add", b"2\n")
    daemon.until(lambda: late in daemon.done)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(60) == 0
    assert (daemon.done, daemon.failed) == ([first, late], {bad: b"is bad\n"})
    assert (tmp_path / "taken").read_text() == "1\nbad\n2\n"


def test_a_worker_whose_daemon_leaves_three_heartbeats_without_an_answer_connects_again(daemon):
    daemon.mute = True
    worker = Worker(daemon.address, heartbeat=0.1)
    worker.task("a")(len)
    with worker:
        worker.start()
        daemon.until(lambda: daemon.connections >= 2)
        assert daemon.heard[HEARTBEAT] >= 3
        daemon.mute = False
        task = daemon.put(b"a")
        daemon.until(lambda: task in daemon.done)
    alone = Worker(daemon.address, heartbeat=0.1, retry=False)
    alone.task("a")(len)
    daemon.mute = True
    with pytest.raises(QuicxError, match="three heartbeats without an answer") as raised:
        alone.run()
    assert raised.value.kind == "io"


def test_an_idle_producer_whose_daemon_does_not_answer_connects_again_when_it_is_needed(daemon):
    with Producer(daemon.address, heartbeat=0.05) as producer:
        assert producer.submit("a") == 1
        daemon.until(lambda: daemon.heard[HEARTBEAT] >= 3)
        assert producer.submit("a") == 2
        assert daemon.connections == 1
        daemon.mute = True
        daemon.until(lambda: daemon.ended == 1)
        daemon.mute = False
        assert producer.submit("a") == 3
        assert daemon.connections == 2

    async def main() -> None:
        async with aio.Producer(daemon.address, heartbeat=0.05) as producer:
            before = daemon.heard[HEARTBEAT]
            await asyncio.to_thread(daemon.until, lambda: daemon.heard[HEARTBEAT] >= before + 2)
            assert await producer.submit("a") > 3

    asyncio.run(main())


def test_a_producer_is_connected_again_after_its_daemon_has_come_back(tmp_path):
    first = Daemon(journal=tmp_path)
    with Producer(first.address) as producer:
        assert producer.submit("a") == 1
        first.close()
        with pytest.raises(QuicxError) as raised:
            producer.submit("a")
        assert raised.value.kind == "io"
        with Daemon(first.address, journal=tmp_path):
            assert producer.submit("a") == 2
            assert producer.stats().queue_depth == 2
    with pytest.raises(QuicxError, match="closed"):
        producer.submit("a")


def test_a_daemon_asks_idle_workers_and_producers_and_ours_answer():
    with Daemon(heartbeat_interval=0.1) as daemon, Producer(daemon.address, heartbeat=0) as producer:
        worker = Worker(daemon.address)
        worker.task("b")(len)
        producer.submit("a")
        quiet, gone = Peer(daemon.address), Peer(daemon.address)
        for peer in (quiet, gone):
            peer.submit(b"a", b"")
            assert peer.hear()[0] == "OK"
        with worker:
            worker.start()
            for _ in range(10):
                assert quiet.hear() == ("HEARTBEAT", b"")
                quiet.send(PONG)
            assert [gone.hear()[0] for _ in range(3)] == ["HEARTBEAT"] * 3
            assert gone.is_closed()
            assert producer.stats().workers_total == 1
            # Those that answer are still those that came first.
            assert daemon.counters.connections == 4


@pytest.mark.skipif(sys.platform != "linux", reason="NOT TESTED: keep-alive; it is seen in Linux's /proc")
def test_the_system_asks_too_on_connections_that_say_nothing():
    def timers(port: int) -> set[tuple[str, str, str]]:
        found = set()
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "01" and port in {int(fields[place].split(":")[1], 16) for place in (1, 2)}:
                found.add((fields[1], fields[2], fields[5].split(":")[0]))
        return found

    with Daemon() as daemon, Producer(daemon.address, heartbeat=0) as producer:
        worker = Worker(daemon.address)
        worker.task("a")(len)
        with worker:
            worker.start()
            producer.stats()
            sockets = timers(int(daemon.address.split(":")[1]))
    # Both ends of two connections; 02 is the keep-alive timer, 01 one of data on its way.
    assert len(sockets) == 4
    assert {kind for *_, kind in sockets} <= {"01", "02"}
    assert "02" in {kind for *_, kind in sockets}
