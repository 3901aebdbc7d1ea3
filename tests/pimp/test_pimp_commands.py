"""``penstock pimp``: a buffer that is killed, files that are sent and fetched, and who is refused."""

import gzip
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.cli import app
from penstock.errors import PimpError
from penstock.pimp import Buffer, Job, Sender, new_job_id, new_key


def run(*arguments: str | Path, stdin: bytes = b"", **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run ``penstock pimp`` with these arguments."""
    command = [sys.executable, "-m", "penstock", "pimp", *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, env=os.environ | environment, timeout=120)


def test_a_file_goes_through_a_buffer_with_tls(tmp_path: Path, serve: Any) -> None:
    source, key_file, result = tmp_path / "page.json", tmp_path / "key", tmp_path / "out.json"
    source.write_bytes(json.dumps(list(range(200_000))).encode())
    key_file.write_text(f"{new_key()}\n")
    with serve("--listen", "127.0.0.1:0", "--store", tmp_path / "store") as served:
        assert served.fingerprint is not None
        url = f"{served.url}/pimp/{new_job_id()}"
        trust = ("--fingerprint", served.fingerprint, "--key-file", key_file)
        sent = run("send", url, source, "--gzip", "--json", *trust)
        assert sent.returncode == 0, sent.stderr
        size = source.stat().st_size
        assert json.loads(sent.stdout) == {"job": url, "bytes": size, "chunks": 4}
        fetched = run("fetch", url, "-o", result, "--json", *trust)
        line = json.loads(fetched.stdout)
        assert (line["bytes"], line["content_type"]) == (size, "application/json")
        assert result.read_bytes() == source.read_bytes()
        piped = run("fetch", url, *trust)
        assert hashlib.sha256(piped.stdout).digest() == hashlib.sha256(source.read_bytes()).digest()
        again = run("send", url, "-", "--key", "another", "--fingerprint", served.fingerprint, stdin=b"x")
        assert (again.returncode, again.stderr.count(b"\n")) == (1, 1)
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(30) == 0


def test_files_are_sent_as_what_they_are(tmp_path: Path, buffer: Buffer) -> None:
    files = {
        "a.json.gz": (gzip.compress(b"{}"), "application/gzip", "base64"),
        "b.tar.bz2": (b"BZh9", "application/x-bzip2", "base64"),
        "c.csv": ("größe,1\n".encode("latin-1"), "text/csv", "base64"),
        "d.csv": ("größe,1\n".encode(), "text/csv", "identity"),
        "e": (b"\xff", "application/octet-stream", "base64"),
    }
    for name, (data, kind, encoding) in files.items():
        (tmp_path / name).write_bytes(data)
        job = Job(f"{buffer.url}/pimp/{new_job_id()}", key="key")
        sent = run("send", job.url, tmp_path / name, "--key", "key")
        assert sent.returncode == 0, sent.stderr
        consumer = job.consumer()
        assert consumer.read() == data
        metadata = consumer.metadata
        assert (metadata.content_type, metadata.content_encoding) == (kind, encoding)
        assert metadata.content_length == len(data)
    again = run("send", job.url, tmp_path / "d.csv", "--key", "key")
    assert (again.returncode, b"another writer" in again.stderr) == (1, True)
    same = run("send", job.url, tmp_path / "e", "--key", "key")
    assert same.returncode == 0, same.stderr


def test_a_file_that_is_not_whole_is_gone_on_with(tmp_path: Path, job: Job) -> None:
    result, part = tmp_path / "out", tmp_path / ".out.part"
    sender = job.sender(content_type="text/plain")
    sender.send("one ")
    command = [sys.executable, "-m", "penstock", "pimp", "fetch", job.url, "-o", str(result), "--resume"]
    with subprocess.Popen([*command, "--key", "reader"]) as fetching:
        while not part.with_name(".out.part.json").exists():
            assert fetching.poll() is None
            time.sleep(0.02)
        fetching.kill()
    assert (part.read_bytes(), result.exists()) == (b"one ", False)
    # What was written behind what was noted is not counted.
    with part.open("ab") as file:
        file.write(b"half")
    sender.send("two")
    sender.finish()
    again = run("fetch", job.url, "-o", result, "--resume", "--key", "reader", "--json")
    assert json.loads(again.stdout)["bytes"] == 7
    assert result.read_bytes() == b"one two"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_comes_by_a_pipe_is_sent_as_it_comes(job: Job) -> None:
    assert job.key is not None
    command = [sys.executable, "-m", "penstock", "pimp", "send", job.url, "-", "--content-type", "text/plain"]
    with subprocess.Popen([*command, "--key", job.key], stdin=subprocess.PIPE) as sending:
        assert sending.stdin is not None
        consumer = job.consumer()
        for line in (b"one\n", b"two\n"):
            sending.stdin.write(line)
            sending.stdin.flush()
            assert consumer.receive(timeout=60) == line
        sending.stdin.close()
        assert sending.wait(60) == 0
    assert consumer.receive(timeout=60) is None


def test_what_is_fetched_replaces_files_alone(tmp_path: Path, job: Job) -> None:
    with job.sender() as sender:
        sender.send("text")
    file, link, pipe = tmp_path / "file", tmp_path / "link", tmp_path / "pipe"
    file.write_text("before")
    file.chmod(0o600)
    link.symlink_to(file)
    os.mkfifo(pipe)
    assert job.consumer().save(link) == 4
    assert (link.is_symlink(), file.read_text(), file.stat().st_mode & 0o777) == (True, "text", 0o600)
    read: list[bytes] = []
    reading = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reading.start()
    assert job.consumer().save(pipe) == 4
    reading.join()
    assert (read, pipe.is_fifo()) == ([b"text"], True)


def test_the_command_line_is_checked(tmp_path: Path) -> None:
    job = f"pimp/{new_job_id()}"
    wrong = [
        ("fetch", f"https://buffer.example/{job}"),
        ("fetch", f"http://buffer.example/{job}"),
        ("fetch", "http://127.0.0.1/none"),
        ("fetch", f"http://127.0.0.1:1/{job}", "--system-ca"),
        ("fetch", f"http://127.0.0.1:1/{job}", "--json"),
        ("fetch", f"http://127.0.0.1:1/{job}", "--resume"),
        ("send", f"http://127.0.0.1:1/{job}", "-"),
        ("send", f"http://127.0.0.1:1/{job}", tmp_path / "none", "--key", "k"),
        ("serve", "--listen", "0.0.0.0:0", "--store", "memory:", "--behind-proxy"),
        ("serve", "--listen", "127.0.0.1:0", "--store", "memory:", "--behind-proxy", "--cert", "a", "--key", "b"),
        ("serve", "--listen", "127.0.0.1:0", "--store", "memory:", "--cert", "a"),
    ]
    for arguments in wrong:
        ended = CliRunner().invoke(app, ["pimp", *map(str, arguments)], env={"PENSTOCK_KEY": ""})
        assert ended.exit_code == 2, (arguments, ended.output)


def test_fetch_gives_up_where_nothing_new_comes_for_as_long_as_it_is_told(tmp_path: Path) -> None:
    with Buffer(behind_proxy=True) as buffer:
        job = Job.create(buffer.url)
        sender = job.sender(content_type="text/plain")
        sender.send("one")
        sender.flush()
        for output in ((), ("-o", tmp_path / "out"), ("-o", tmp_path / "out", "--resume")):
            fetched = run("fetch", job.url, "--stall", "0.5", *output)
            assert fetched.returncode == 1
            assert b"500 ms" in fetched.stderr, fetched.stderr
        assert not (tmp_path / "out").exists()
        sender.finish()
        assert run("fetch", job.url, "--stall", "60").stdout == b"one"
    for wrong in ("0", "-1", "nan", "1e9", "soon"):
        refused = CliRunner().invoke(app, ["pimp", "fetch", job.url, "--stall", wrong])
        assert refused.exit_code == 2, (wrong, refused.output)


def test_nothing_that_was_answered_with_201_is_missing_after_a_kill(tmp_path: Path, serve: Any) -> None:
    key = new_key()
    with serve("--listen", "127.0.0.1:0", "--store", tmp_path, "--behind-proxy") as served:
        job = Job(f"{served.url}/pimp/{new_job_id()}", key=key, retry=0.0)
        job.ensure()
        sender = job.sender(content_type="text/plain", stall_timeout=1.0)
        killer = threading.Timer(0.5, served.process.kill)
        killer.start()
        written, stalled = _write_until_it_fails(sender)
        assert stalled.code == "STALLED"
        served.process.wait(30)
    assert written > 3
    with serve("--listen", "127.0.0.1:0", "--store", tmp_path, "--behind-proxy") as served:
        again = Job(f"{served.url}/pimp/{job.id}", key=key)
        consumer = again.consumer()
        expected = "".join(f"{number:08}" for number in range(written)).encode()
        found = b""
        while len(found) < len(expected):
            found += consumer.receive(timeout=20) or b""
        # The write that was on its way may be there too, as a whole.
        assert found[: len(expected)] == expected
        assert len(found) - len(expected) in {0, 8}


def _write_until_it_fails(sender: Sender) -> tuple[int, PimpError]:
    written = 0
    try:
        while True:
            sender.send(f"{written:08}")
            sender.flush()
            written += 1
    except PimpError as error:
        return written, error


def test_a_body_of_a_gigabyte_is_refused_at_little_cost(serve: Any) -> None:
    with serve("--listen", "127.0.0.1:0", "--store", "memory:", "--behind-proxy") as served:
        job = Job(f"{served.url}/pimp/{new_job_id()}", key="key")
        job.ensure()
        host, port = served.address.split(":")
        head = f"POST /pimp/{job.id}/chunks HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer key\r\n"
        # The length is known before the body comes, or the body comes in pieces without end.
        for length in ("Content-Length: 1073741824", "Transfer-Encoding: chunked"):
            with socket.create_connection((host, int(port)), timeout=30) as peer:
                peer.sendall(f"{head}{length}\r\n\r\n".encode())
                piece = b"100000\r\n" + b" " * (1 << 20) + b"\r\n" if "chunked" in length else b" " * (1 << 20)
                sent = 0
                try:
                    while sent < 1 << 10:
                        peer.sendall(piece)
                        sent += 1
                except OSError:
                    assert sent < 200
                else:
                    pytest.fail("a gigabyte was taken")
        peak = _peak(served.process.pid)
        assert peak < 250 << 20, f"{peak:,} bytes"
        assert job.status().chunks == 0


def _peak(pid: int) -> int:
    """Give the most memory that a process has had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) << 10


def test_an_evil_buffer_gets_nobody_anywhere() -> None:
    answers = [
        (b"HTTP/1.1 200 OK\r\n\r\n", b" " * (1 << 20), "TOO_LARGE"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n[", b"", "MALFORMED"),
        (b'HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{"chunks":[{}]}', b"", "MALFORMED"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", b"", "UNEXPECTED_STATUS"),
        (b"HTTP/1.1 418 No\r\nContent-Length: 0\r\n\r\n", b"", "UNEXPECTED_STATUS"),
        (b"", b"", "STALLED"),
    ]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/pimp/{new_job_id()}"
        for answer, more, code in answers:
            thread = threading.Thread(target=_answer, args=(listener, answer, more), daemon=True)
            thread.start()
            with pytest.raises(PimpError) as refused:
                Job(url).consumer(stall_timeout=2.0).read()
            assert refused.value.code == code, answer
            if answer:
                thread.join(30)


def _answer(listener: socket.socket, answer: bytes, more: bytes) -> None:
    try:
        while True:
            peer, _ = listener.accept()
            with peer:
                peer.recv(65536)
                peer.sendall(answer)
                while more:
                    peer.sendall(more)
            if answer:
                return
    except OSError:
        return
