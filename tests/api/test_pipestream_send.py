"""`penstock pipestream send`, in a process of its own."""

import json
import re
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from penstock.pipestream import Server

PIN = "ab" * 32
WAIT = 30.0


@pytest.fixture
def document(tmp_path):
    path = tmp_path / "note.txt"
    path.write_bytes(b"A line of text.")
    return path


@pytest.mark.parametrize(
    "arguments",
    [
        ("localhost", "--fingerprint", PIN),
        ("localhost:0", "--fingerprint", PIN),
        ("localhost:65536", "--fingerprint", PIN),
        ("::1:4433", "--fingerprint", PIN),
        ("127.0.0.1:1", "--fingerprint", "abc"),
        ("127.0.0.1:1", "--fingerprint", PIN + "00"),
        ("127.0.0.1:1", "--ca", "none.pem"),
        ("127.0.0.1:1", "--fingerprint", PIN, "--cert", "none.pem", "--key", "note.txt"),
        ("127.0.0.1:1", "--fingerprint", PIN, "--cert", "note.txt", "--key", "none.pem"),
        ("127.0.0.1:1", "--fingerprint", PIN, "--cert", "note.txt"),
        ("127.0.0.1:1",),
        ("127.0.0.1:1", "none.txt", "--fingerprint", PIN),
        ("127.0.0.1:1", "--fingerprint", PIN, "--pad-children", "1001"),
        ("127.0.0.1:1", "--fingerprint", PIN, "--pad-children", "2", "--layers", "0"),
        ("127.0.0.1:1", "--fingerprint", PIN, "--pseudonym-key-file", "none.key"),
        ("127.0.0.1:1", "--fingerprint", PIN, "--by-reference", "s3://bucket"),
        ("127.0.0.1:1", "--fingerprint", PIN, "--no-dehydrate", "--by-reference", "http://host/"),
        ("127.0.0.1:1", "--fingerprint", PIN, "--no-dehydrate", "--by-reference", "s3://b", "--opaque-types"),
        ("127.0.0.1:1", "--fingerprint", PIN, "--layers", "1", "--state", "kept"),
        ("127.0.0.1:1", "--fingerprint", PIN, "--survive", "0", "--state", "kept"),
        ("127.0.0.1:1", "--fingerprint", PIN, "--state", "note.txt"),
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_is_exit_2(usage, document, arguments):
    address, *options = arguments
    ended = usage("pipestream", "send", address, document, *options, cwd=document.parent)
    assert (ended.returncode, ended.stdout) == (2, ""), ended.stderr


@pytest.fixture
def sink(tmp_path):
    """A server that keeps what comes."""
    with Server(sink=tmp_path / "sink", state_dir=tmp_path) as server:
        yield server


@pytest.fixture
def holding(tmp_path):
    """A server that takes sessions, and completes nothing."""
    server = Server(state_dir=tmp_path)
    yield server
    server.close(0)


@pytest.fixture
def start(document, tmp_path):
    """Start `send` with a server and a document, and give the process."""
    processes = []

    def start(server, *options):
        command = [sys.executable, "-m", "penstock", "pipestream", "send", server.address, str(document)]
        process = subprocess.Popen(
            [*command, "--fingerprint", server.fingerprint, "--receipts", str(tmp_path / "receipts"), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("options", [(), ("--layers", "1")], ids=["by default", "with layer 1"])
def test_the_policy_strict_is_what_layer_1_does(penstock, document, tmp_path, options):
    with Server(sink=tmp_path / "sink", state_dir=tmp_path, layers=1) as server:
        trust = ("--fingerprint", server.fingerprint)
        sent = penstock("pipestream", "send", server.address, document, *trust, "--policy", "strict", *options)
        assert sent.returncode == 0, sent.stderr
        waits = penstock("pipestream", "send", server.address, document, *trust, "--policy", "lenient", *options)
        assert waits.returncode != 0
        assert "layer 2" in waits.stderr


def test_the_last_line_is_the_account_of_all(sink, penstock, document, tmp_path):
    archive = tmp_path / "two.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("one", "1")
        file.writestr("two", "2")
    command = ("pipestream", "send", sink.address, document, archive, "--fingerprint", sink.fingerprint)
    ended = penstock(*command, "--receipts", tmp_path / "receipts")
    account = r"2 documents, 2 parts, all COMPLETE; session ([0-9a-f]{32}); receipts in (.*)\n"
    found = re.fullmatch(account, ended.stdout)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert (tmp_path / "sink" / found[1]).is_dir()
    assert Path(found[2]) == tmp_path / "receipts"
    assert re.fullmatch(account.replace("; receipts in (.*)", ""), penstock(*command).stdout)


def test_what_failed_is_counted_in_the_last_line(sink, penstock, document, tmp_path):
    archive = tmp_path / "half.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("one", "1111")
        file.writestr("two", "2222")
    archive.write_bytes(archive.read_bytes().replace(b"2222", b"2223"))
    ended = penstock("pipestream", "send", sink.address, document, archive, "--fingerprint", sink.fingerprint)
    account = r"2 documents, 2 parts; not COMPLETE: 1 document, 1 part; session [0-9a-f]{32}\n"
    assert re.fullmatch(account, ended.stdout)
    assert ended.returncode == 1
    assert ended.stderr.startswith("penstock: 1 of 2 documents are not COMPLETE (half.zip: FAILED, ")


def test_receipts_are_shown_at_the_end_and_replace_earlier_ones(sink, penstock, document, tmp_path):
    folder = tmp_path / "receipts"
    command = ("pipestream", "send", sink.address, document, "--fingerprint", sink.fingerprint, "--receipts", folder)
    (line,) = [json.loads(line) for line in penstock(*command, "--json").stdout.splitlines()]
    assert [str(path) for path in folder.iterdir()] == [line["receipt"]]
    assert penstock(*command).returncode == 0
    assert [str(path) for path in folder.iterdir()] == [line["receipt"]]
    assert json.loads(Path(line["receipt"]).read_text())["session"] != line["session"]
    assert penstock("verify", folder, tmp_path / "sink").returncode == 0


def test_receipts_that_cannot_be_written_are_found_before_anything_is_sent(sink, penstock, document, tmp_path):
    folder = document / "receipts"
    command = ("pipestream", "send", sink.address, document, "--fingerprint", sink.fingerprint, "--receipts", folder)
    ended = penstock(*command)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == f"penstock: receipts cannot be written into {folder}: Not a directory\n"
    assert not any(path.is_dir() for path in (tmp_path / "sink").iterdir())


def test_a_session_that_the_server_ends_leaves_no_receipts(holding, start, tmp_path):
    process = start(holding)
    session = holding.accept(WAIT)
    held = session.receive(WAIT)
    holding.close(0)
    out, err = process.communicate(timeout=WAIT)
    assert (process.returncode, out) == (1, "")
    assert held is not None
    assert err.startswith(f"penstock: session {session.id} with {holding.address} ended early: ")
    assert err.endswith("no receipts were written\n")
    assert err.count("\n") == 1
    assert list((tmp_path / "receipts").iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_one_line(holding, start, tmp_path, number):
    process = start(holding)
    session = holding.accept(WAIT)
    held = session.receive(WAIT)
    process.send_signal(number)
    assert process.communicate(timeout=WAIT) == ("", "penstock: interrupted\n")
    assert process.returncode == 1
    assert list((tmp_path / "receipts").iterdir()) == []
    assert session.wait_closed(WAIT).code != 0
    assert held is not None
