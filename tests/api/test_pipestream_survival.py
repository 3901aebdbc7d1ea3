"""Sessions of layer 2 that go on when their connection is lost, over a wire that can be cut."""

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from penstock import PipeStreamError
from penstock.pipestream import Server, Session, Status

CUT = 32.0
"""Longer than the 30 s after which both ends give a silent connection up."""


class Wire:
    """Datagrams between a client and a server. Each mend gives the client another address at the server."""

    def __init__(self, server: str) -> None:
        host, port = server.rsplit(":", 1)
        self._server = (host, int(port))
        self._near = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._near.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._near.getsockname()[1]}"
        self._client: tuple[str, int] | None = None
        self._far = self._socket()
        self.is_cut = False
        threading.Thread(target=self._out, daemon=True).start()

    def _socket(self) -> socket.socket:
        far = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        far.connect(self._server)
        threading.Thread(target=self._back, args=(far,), daemon=True).start()
        return far

    def _out(self) -> None:
        while True:
            try:
                datagram, self._client = self._near.recvfrom(65_536)
            except OSError:
                return
            if not self.is_cut:
                self._far.send(datagram)

    def _back(self, far: socket.socket) -> None:
        while True:
            try:
                datagram = far.recv(65_536)
            except OSError:
                return
            if not self.is_cut and self._client is not None:
                # The end of the test closes it.
                with suppress(OSError):
                    self._near.sendto(datagram, self._client)

    def close(self) -> None:
        self._near.close()
        self._far.close()


@contextmanager
def wire_to(server: str) -> Iterator[Wire]:
    wire = Wire(server)
    try:
        yield wire
    finally:
        wire.close()


def test_what_needs_layer_2_says_so(tmp_path):
    with Server(sink=tmp_path / "sink", layers=1, state_dir=tmp_path) as server:
        with pytest.raises(PipeStreamError, match="survive requires layer 2, but layers=1 was given"):
            Session.connect(server.address, fingerprint=server.fingerprint, layers=1, survive=5)
        with pytest.raises(PipeStreamError, match="does not support"):
            Session.connect(server.address, fingerprint=server.fingerprint, survive=5)
    with pytest.raises(PipeStreamError, match="survive=100000: 0 to 86400 seconds"):
        Server(survive=100_000, state_dir=tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_session_goes_on_when_the_network_was_gone_and_nothing_is_stored_twice(tmp_path):
    with (
        Server(sink=tmp_path / "sink", state_dir=tmp_path) as server,
        wire_to(server.address) as wire,
        Session.connect(wire.address, fingerprint=server.fingerprint, survive=120) as session,
    ):
        before = [session.send(f"{number}".encode()) for number in range(50)]
        wire.is_cut = True
        mended = time.monotonic() + CUT
        # The client does not notice at once, and then dials; meanwhile it takes what it is given, some of it only then.
        during = [session.send(bytes([number]) * 100_000) for number in range(50)]
        time.sleep(max(0.0, mended - time.monotonic()))
        wire.is_cut = False
        assert {entity.wait(60) for entity in before + during} == {Status.COMPLETE}
        assert server.counters.reconnects >= 1
        name = session.id
    lines = [json.loads(line) for line in (tmp_path / "sink" / name / "entities.jsonl").read_text().splitlines()]
    assert lines[-1] == {"closed": 0}
    assert sorted(line["entity"] for line in lines[:-1]) == list(range(1, 101))


@pytest.mark.timeout(120)
def test_a_server_that_was_killed_and_started_again_does_not_know_the_session(tmp_path):
    command = [sys.executable, "-m", "penstock", "pipestream", "serve", "--sink", str(tmp_path / "sink"), "--listen"]

    def serve(listen: str) -> tuple[subprocess.Popen[str], list[str]]:
        process = subprocess.Popen([*command, listen], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert process.stdout is not None
        return process, process.stdout.readline().split()

    process, said = serve("127.0.0.1:0")
    try:
        session = Session.connect(said[1], fingerprint=said[3], survive=60)
        session.send(b"a").wait(30)
        process.kill()
        process.wait()
        process, _ = serve(said[1])
        entity = session.send(b"b")
        assert entity.wait(60) is Status.FAILED
        with pytest.raises(PipeStreamError) as caught:
            session.close()
        assert caught.value.name == "PIPESTREAM_CLAIM_NOT_FOUND"
    finally:
        process.kill()
        process.wait()
    assert (Path(tmp_path) / "sink").is_dir()
