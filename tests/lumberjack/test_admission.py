"""Places at a receiver: silent connections, one address with many, few descriptors, peers whose machine is gone."""

import http.client
import os
import re
import resource
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from wire import Writer, whole_window

from penstock.lumberjack import Receiver, Sender
from penstock.tls import write_certificates

# Seconds from accept to the first byte, and what a busy machine may add.
_PATIENCE = 10
_GENEROUS = 30


class Served:
    """``penstock lumberjack receive`` in a process of its own."""

    def __init__(self, process: "subprocess.Popen[str]", address: str, log: Path) -> None:
        self.process = process
        self.address = address
        self.log = log

    def silent(self, count: int) -> list[socket.socket]:
        """Connect, and say nothing."""
        host, _, port = self.address.rpartition(":")
        return [socket.create_connection((host, int(port)), timeout=_GENEROUS) for _ in range(count)]


@contextmanager
def receiving(folder: Path, *options: object, descriptors: int | None = None) -> Iterator[Served]:
    """Run a receiver with a spool; it is killed at the end."""

    def limit() -> None:
        if descriptors is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

    command = [sys.executable, "-m", "penstock", "lumberjack", "receive", "--listen", "127.0.0.1:0"]
    command += ["--spool", str(folder / "spool"), *map(str, options)]
    log = folder / "log"
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, preexec_fn=limit) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("listening "), log.read_text()
            yield Served(process, line.split()[1], log)
        finally:
            process.kill()


def _is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_places_that_are_taken_before_tls_are_free_after_the_deadline(tmp_path: Path) -> None:
    write_certificates(tmp_path)
    cert, key, ca = (tmp_path / name for name in ("cert.pem", "key.pem", "ca.pem"))
    options = ("--cert", cert, "--key", key, "--client-ca", ca, "--max-connections", 64)
    with receiving(tmp_path, *options) as served:
        silent = served.silent(64)
        began = time.monotonic()
        while True:
            # Our own sender tries again until there is a place.
            try:
                with Sender(served.address, ca=ca, cert=cert, key=key, retry=1.0) as sender:
                    sender.send([{"message": "honest"}])
                break
            except Exception:
                if time.monotonic() - began > _PATIENCE + _GENEROUS:
                    raise
        assert all(map(_is_closed, silent))


def test_a_connection_that_says_nothing_after_its_handshake_is_closed(tmp_path: Path) -> None:
    with Receiver(tls=True, state_dir=tmp_path, metrics="127.0.0.1:0") as receiver:
        context = ssl.create_default_context(cafile=str(tmp_path / "certificate" / "ca.pem"))
        host, _, port = receiver.address.rpartition(":")
        with (
            socket.create_connection((host, int(port)), timeout=_PATIENCE + _GENEROUS) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secure,
        ):
            began = time.monotonic()
            assert _is_closed(secure)
            assert time.monotonic() - began > _PATIENCE / 2
        with urllib.request.urlopen(f"http://{receiver.metrics_address}/metrics", timeout=20) as response:
            assert 'connections_not_served_total{reason="late"} 1' in response.read().decode()


def test_an_address_has_its_share_and_others_are_served(taking: Callable[..., Any]) -> None:
    receiver = taking(max_connections=8, max_connections_per_address=2, metrics="127.0.0.1:0")
    host, _, port = receiver.address.rpartition(":")
    held = [socket.create_connection((host, int(port)), timeout=20) for _ in range(2)]
    with Writer(receiver.address) as third:
        assert third.rest() == b""
    with socket.create_connection((host, int(port)), timeout=20, source_address=("127.0.0.2", 0)) as other:
        other.sendall(whole_window(1))
        assert other.recv(6) == b"2A\0\0\0\x01"
    with urllib.request.urlopen(f"http://{receiver.receiver.metrics_address}/metrics", timeout=20) as response:
        text = response.read().decode()
    assert 'penstock_lumberjack_connections_not_served_total{reason="address"} 1' in text
    assert receiver.receiver.counters.refused == 1
    held.pop().close()
    deadline = time.monotonic() + _GENEROUS
    while receiver.receiver.counters.open > 1:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with Writer(receiver.address) as again:
        again.send(whole_window(1))
        assert again.ack() == (2, 1)


def test_with_few_descriptors_the_spool_has_its_files_and_a_sender_its_acknowledgements(tmp_path: Path) -> None:
    # A segment is full after few windows, so new files are opened while nothing else is left.
    with receiving(tmp_path, "--max-connections", 200, descriptors=128) as served:
        with Writer(served.address) as writer:
            writer.send(whole_window(1))
            assert writer.ack() == (2, 1)
            crowd = served.silent(150)
            big = b'{"message":"' + os.urandom(3 << 20).hex().encode() + b'"}'
            for _ in range(24):
                writer.send(b"2W\0\0\0\x01" + b"2J\0\0\0\x01" + len(big).to_bytes(4, "big") + big)
                assert writer.ack() == (2, 1)
        assert len(list((tmp_path / "spool").glob("*"))) > 2, "no second segment was opened"
        assert served.process.poll() is None
        for connection in crowd:
            connection.close()
        log = served.log.read_text()
    assert "the limit of descriptors (ulimit -n) is too low" in log, log
    assert "requested=200" in log, log


def test_a_full_receiver_with_few_descriptors_leaves_some_to_its_readers_and_metrics(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("a key of readers\n")
    options = ("--max-connections", 16_384, "--metrics", "127.0.0.1:0")
    reading = ("--read-listen", "127.0.0.1:0", "--read-key-file", key)
    with receiving(tmp_path, *options, *reading, descriptors=128) as served:
        assert served.process.stdout is not None
        reader = served.process.stdout.readline().split()[1]
        found = re.search(r"metrics at http://(\S+)/metrics", served.log.read_text())
        assert found, served.log.read_text()
        crowd = served.silent(150)
        # They have 10 s: this is the time in which the receiver is full.
        assert _https(reader) > 0
        assert _health(found[1]) == 200
        for connection in crowd:
            connection.close()


def _https(address: str) -> int:
    """Ask a server over TLS; gives the status, of whatever kind."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection(address, timeout=_GENEROUS, context=context)
    connection.request("GET", "/")
    return connection.getresponse().status


def _health(address: str) -> int:
    connection = http.client.HTTPConnection(address, timeout=_GENEROUS)
    connection.request("GET", "/healthz")
    return connection.getresponse().status


def test_an_address_has_four_of_the_eight_places_at_the_metrics() -> None:
    with Receiver(metrics="127.0.0.1:0") as receiver:
        assert receiver.metrics_address is not None
        host, _, port = receiver.metrics_address.rpartition(":")
        held = [socket.create_connection((host, int(port)), timeout=5) for _ in range(5)]
        assert _is_closed(held[4])
        other = http.client.HTTPConnection(host, int(port), timeout=5, source_address=("127.0.0.2", 0))
        other.request("GET", "/healthz")
        assert other.getresponse().status == 200


def test_without_descriptors_for_one_connection_a_receiver_says_so_and_does_not_start() -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))"
    code = f"{limit}; from penstock.lumberjack import Receiver; Receiver()"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 1
    assert re.search(r"LumberjackError: .*ulimit -n.* needs at least \d+ descriptors", ended.stderr), ended.stderr


def test_the_limit_of_descriptors_is_raised_to_what_connections_need() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < 3_200:
        pytest.skip(f"NOT TESTED: 3,000 connections; the hard limit of descriptors is {hard}: `ulimit -Hn 3200`")
    code = """
import resource
from penstock.lumberjack import Receiver
resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
with Receiver(max_connections=3_000):
    print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert 3_032 < int(ended.stdout) < 3_200


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="NOT TESTED: keep-alive; it is seen in Linux's /proc")
def test_a_peer_whose_machine_is_gone_is_asked_for(taking: Callable[..., Any]) -> None:
    receiver = taking()
    port = int(receiver.address.rpartition(":")[2])
    with Writer(receiver.address) as writer:
        writer.send(whole_window(1))
        assert writer.ack() == (2, 1)
        timers = []
        deadline = time.monotonic() + _GENEROUS
        # After a retransmission timer has been disarmed, the one of keep-alive is shown: 02.
        while 2 not in timers and time.monotonic() < deadline:
            lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
            ours = [line for line in lines if int(line[1].partition(":")[2], 16) == port and line[3] == "01"]
            timers = [int(line[5].partition(":")[0], 16) for line in ours]
    assert 2 in timers, timers


def test_a_silent_writer_ends_after_its_idle_time_and_by_default_after_15_minutes() -> None:
    with Receiver(idle_timeout=0.2) as receiver, Writer(receiver.address) as writer:
        writer.send(whole_window(1))
        batch = receiver.receive(20)
        assert batch is not None
        batch.ack()
        assert writer.ack() == (2, 1)
        assert writer.rest() == b""
    parameters = Receiver.__init__.__kwdefaults__
    assert parameters is not None
    assert parameters["idle_timeout"] == 900.0
