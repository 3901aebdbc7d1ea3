"""Lumberjack as others speak it: Elastic's Go module at either end, pylogbeat, Camel, and Filebeat where it is."""

import json
import os
import shutil
import signal
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pylogbeat import PyLogBeatClient

from penstock.lumberjack import Receiver, Sender
from penstock.tls import write_certificates

from ..ports import free_port

EVENTS = [{"message": f"line {number}", "n": number} for number in range(300)]


class Taking:
    """Takes what comes until so many events are there."""

    def __init__(self, receiver: Receiver) -> None:
        self.events: list[Any] = []
        self._receiver = receiver
        self._thread = threading.Thread(target=self._take)
        self._thread.start()

    def _take(self) -> None:
        for batch in self._receiver:
            self.events += [event.content for event in batch.events()]
            batch.ack()

    def end(self) -> list[Any]:
        self._receiver.close(5)
        self._thread.join()
        return self.events


@contextmanager
def served(program: Path, *options: str) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """Run the Go server; gives its address."""
    process = subprocess.Popen([program, "serve", "-print", *options], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split()[1], process
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()


def printed(process: "subprocess.Popen[str]", count: int) -> list[Any]:
    assert process.stdout is not None
    return [json.loads(process.stdout.readline()) for _ in range(count)]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("compress", [0, 3])
def test_the_go_server_takes_what_the_sender_sends(go_lumber, version, compress):
    # It acknowledges counts: windows that begin with 1 suit it (decision 4). Its version 1 knows pairs only.
    frames = "map" if version == 1 else "json"
    with served(go_lumber, f"-v{version}") as (address, process):
        with Sender(address, protocol=version, frames=frames, compress=compress, window=128, retry=20) as sender:
            sender.send(EVENTS, timeout=60)
            assert sender.acknowledged == len(EVENTS)
        events = printed(process, len(EVENTS))
    assert [event["message"] for event in events] == [event["message"] for event in EVENTS]


def test_the_go_server_takes_tls(go_lumber, tmp_path):
    write_certificates(tmp_path)
    files = ("-cert", str(tmp_path / "cert.pem"), "-key", str(tmp_path / "key.pem"))
    with served(go_lumber, "-v2", *files) as (address, process):
        with Sender(address, protocol=2, ca=tmp_path / "ca.pem", retry=20) as sender:
            sender.send(EVENTS, timeout=60)
        assert printed(process, len(EVENTS)) == EVENTS


@pytest.mark.parametrize(
    ("version", "frames", "compress"), [(1, "map", 0), (2, "json", 0), (2, "json", 3), (2, "map", 3)]
)
def test_camel_takes_what_the_sender_sends(camel, version, frames, compress):
    """A reader for the JVM, on Netty, as Logstash's is."""
    port = free_port()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([*camel, str(port)], text=True, **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline().split() == ["listening", f"127.0.0.1:{port}"]
        with Sender(f"127.0.0.1:{port}", protocol=version, frames=frames, compress=compress, window=128) as sender:
            sender.send(EVENTS, timeout=60)
            assert sender.acknowledged == len(EVENTS)
        events = printed(process, len(EVENTS))
        process.communicate("")
    assert [event["message"] for event in events] == [event["message"] for event in EVENTS]


@pytest.mark.parametrize("options", [["-window", "50"], ["-window", "64", "-async", "3"], ["-level", "0"]])
def test_the_receiver_takes_what_the_go_client_sends(go_lumber, tmp_path, options):
    write_certificates(tmp_path)
    with Receiver(cert=tmp_path / "cert.pem", key=tmp_path / "key.pem") as receiver:
        taking = Taking(receiver)
        lines = "".join(f"{json.dumps(event)}\n" for event in EVENTS)
        command = [go_lumber, "send", "-to", receiver.address, "-ca", tmp_path / "ca.pem", *options]
        sent = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=60, check=False)
        assert sent.returncode == 0, sent.stderr
        assert json.loads(sent.stdout)["sent"] == len(EVENTS)
        assert taking.end() == EVENTS


@pytest.mark.parametrize("tls", [False, True])
def test_the_receiver_takes_what_pylogbeat_sends(tmp_path, tls):
    write_certificates(tmp_path)
    own = {"cert": tmp_path / "cert.pem", "key": tmp_path / "key.pem"} if tls else {}
    with Receiver(**own) as receiver:
        taking = Taking(receiver)
        host, _, port = receiver.address.rpartition(":")
        options = {"ssl_enable": tls, "ca_certs": str(tmp_path / "ca.pem") if tls else None}
        with PyLogBeatClient(host, int(port), timeout=20, ssl_verify_flags=ssl.VERIFY_DEFAULT, **options) as client:
            client.send(EVENTS[:100])
            client.send(EVENTS[100:])
        assert taking.end() == EVENTS


@pytest.mark.parametrize("tls", [False, True])
def test_the_receiver_takes_what_filebeat_sends(tmp_path, tls):
    filebeat = os.environ.get("PENSTOCK_FILEBEAT") or shutil.which("filebeat")
    if filebeat is None:
        pytest.skip("NOT TESTED: Filebeat; there is none: PENSTOCK_FILEBEAT=PATH, CONTRIBUTING.md says how to build it")
    log = tmp_path / "app.log"
    log.write_text("".join(f"line {number}\n" for number in range(100)))
    write_certificates(tmp_path)
    own = {"cert": tmp_path / "cert.pem", "key": tmp_path / "key.pem"} if tls else {}
    with Receiver(**own) as receiver:
        taking = Taking(receiver)
        config = tmp_path / "filebeat.yml"
        trust = f", ssl.certificate_authorities: ['{tmp_path / 'ca.pem'}']" if tls else ""
        config.write_text(
            f"filebeat.inputs: [{{type: filestream, id: t, paths: ['{log}']}}]\n"
            f"output.logstash: {{hosts: ['{receiver.address}']{trust}}}\npath.home: {tmp_path}/home\n"
            # Filters of its older versions know fewer system calls than a newer C library makes.
            "seccomp.enabled: false\n"
        )
        config.chmod(0o600)
        process = subprocess.Popen([filebeat, "-c", str(config), "--strict.perms=false"])
        try:
            while receiver.counters.acknowledged < 100:
                assert process.poll() is None
        finally:
            process.terminate()
            process.wait(30)
        assert {event["message"] for event in taking.end()} == {f"line {number}" for number in range(100)}
