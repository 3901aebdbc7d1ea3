"""A sink in an object store: the same names as in a folder, and COMPLETE only for what the store has."""

import json
import re
import shutil
import signal
import subprocess
import sys

import pytest

from penstock import PipeStreamError, receipts
from penstock.documents import DocumentSender
from penstock.pipestream import Server, Session

READY = re.compile(r"listening (127\.0\.0\.1:\d+) fingerprint (sha256:[0-9a-f]{64})\n")


def lines(s3, session, prefix="sink"):
    return [json.loads(line) for line in s3.get(f"{prefix}/{session}/entities.jsonl").splitlines()]


@pytest.fixture
def server(s3, tmp_path):
    with Server(sink=s3.uri("sink"), storage=s3.storage, state_dir=tmp_path) as server:
        yield server


def test_entities_and_their_list_lie_where_a_folder_has_them(s3, server):
    large = bytes(20 << 20)
    with Session.connect(server.address, fingerprint=server.fingerprint) as session:
        with session.dehydrate(metadata={"penstock.document": "a.zip"}) as scope:
            scope.send(b"one", content_type="text/plain")
            scope.send(b"")
        session.send(large)
    server.close()
    found = {key.removeprefix(f"sink/{session.id}/"): s3.get(key) for key in s3.list()}
    list_ = found.pop("entities.jsonl").splitlines()
    assert {name: len(data) for name, data in found.items()} == {"2/1": 3, "2/2": 0, "0/2": 20 << 20}
    assert (found["2/1"], found["0/2"] == large) == (b"one", True)
    assert json.loads(list_[-1]) == {"closed": 0}
    files = {json.loads(line)["file"] for line in list_[:-1]}
    assert files == {None, f"{session.id}/2/1", f"{session.id}/2/2", f"{session.id}/0/2"}
    assert s3.client.list_multipart_uploads(Bucket="bucket").get("Uploads", []) == []


def test_a_payload_that_is_not_what_its_header_says_never_appears(s3, server):
    session = Session.connect(server.address, fingerprint=server.fingerprint)
    session.send(b"whole").wait()
    session.abort()
    server.close()
    assert [line.get("status") for line in lines(s3, session.id)] == ["COMPLETE", None]
    assert lines(s3, session.id)[-1]["closed"] != 0


def test_requests_that_fail_for_a_while_are_made_again(s3, server):
    refused = []

    def refuse(method, path):
        if method == "PUT" and path.endswith("/0/1") and len(refused) < 2:
            refused.append(path)
            return True
        return False

    s3.refuse = refuse
    with Session.connect(server.address, fingerprint=server.fingerprint) as session:
        assert session.send(b"bytes").wait().name == "COMPLETE"
    assert len(refused) == 2


def test_a_store_that_goes_on_failing_fails_the_entity_and_says_why(s3, server):
    s3.refuse = lambda method, path: method == "PUT" and path.endswith("/0/1")
    with Session.connect(server.address, fingerprint=server.fingerprint) as session:
        first, second = session.send(b"refused"), session.send(b"taken")
        assert (first.wait().name, second.wait().name) == ("FAILED", "COMPLETE")
    assert "the sink cannot store it" in first.reason.message
    assert "503" in first.reason.message
    server.close()
    list_ = lines(s3, session.id)
    assert [line.get("status") for line in list_] == ["COMPLETE", "FAILED", None]
    assert s3.list(f"sink/{session.id}/0/") == [f"sink/{session.id}/0/2"]


def test_a_store_that_does_not_answer_is_named_at_once(s3, tmp_path):
    with pytest.raises(PipeStreamError, match=r"s3://nobody/sink.*404") as error:
        Server(sink="s3://nobody/sink", storage=s3.storage, state_dir=tmp_path)
    assert error.value.kind == "io"
    with pytest.raises(PipeStreamError, match="no storage option endpiont"):
        Server(sink=s3.uri("sink"), storage={"endpiont": "x"}, state_dir=tmp_path)
    with pytest.raises(PipeStreamError, match="a sink is a folder or a URI of s3"):
        Server(sink="ftp://host/sink", state_dir=tmp_path)


def test_a_receipt_is_verified_against_the_store_and_every_difference_is_named(s3, server, tmp_path, penstock):
    document = tmp_path / "in" / "page.html"
    document.parent.mkdir()
    document.write_text("<p>A page.<img src='data:text/plain,part'>")
    with Session.connect(server.address, fingerprint=server.fingerprint) as session:
        result = DocumentSender(session).send("page.html", document).wait()
    server.close()
    receipt = receipts.write(result, tmp_path / "receipts")
    s3.put(f"receipts/{receipt.name}", receipt.read_bytes())
    assert receipts.verify(receipt, s3.uri("sink"), storage=s3.storage) == []
    assert receipts.verify(s3.uri(f"receipts/{receipt.name}"), s3.uri("sink"), storage=s3.storage) == []

    verified = penstock("verify", s3.uri("receipts"), s3.uri("sink"), env=s3.environment)
    assert (verified.returncode, verified.stdout) == (0, "1 receipt verified: no differences\n"), verified.stderr

    file = json.loads(receipt.read_text())["parts"][0]["file"]
    s3.put(f"sink/{file}", b"something else")
    s3.put(f"sink/{session.id}/2/99", b"nobody sent it")
    wrong = penstock("verify", s3.uri("receipts"), s3.uri("sink"), env=s3.environment)
    assert wrong.returncode == 1
    assert f"computed from {file}" in wrong.stdout
    assert f"{session.id}/2/99" in wrong.stdout
    s3.delete(f"sink/{file}")
    assert "No such file" in penstock("verify", s3.uri("receipts"), s3.uri("sink"), env=s3.environment).stdout


def test_a_store_that_fails_while_it_is_verified_is_a_difference(s3, server, tmp_path, monkeypatch):
    with Session.connect(server.address, fingerprint=server.fingerprint) as session:
        sender = DocumentSender(session)
        for result in [sender.send(f"{name}.txt", b"A note.") for name in "ab"]:
            receipts.write(result.wait(), tmp_path / "receipts")
    server.close()

    def found() -> list[list[str]]:
        verified = receipts.verify_all(tmp_path / "receipts", s3.uri("sink"), storage=s3.storage)
        return [[difference.text for difference in differences] for _, differences in verified]

    assert found() == [[], []]
    for name in ("entities.jsonl", session.id):
        s3.refuse = lambda _method, path, name=name: name in path
        for texts in found():
            assert len(texts) == 1, name
            assert "the sink cannot be read: " in texts[0]
    s3.refuse = lambda _method, _path: False

    def broken(source, target, _length):
        target.write(source.read(10))
        raise OSError("the connection is gone")

    monkeypatch.setattr(shutil, "copyfileobj", broken)
    assert [[text.partition(": ")[2] for text in texts] for texts in found()] == [
        ["the sink cannot be read: the connection is gone"]
    ] * 2
    monkeypatch.undo()
    assert found() == [[], []]


def test_kill_9_loses_nothing_that_was_acknowledged(s3, tmp_path):
    """The server is killed while entities come in: what it said is complete has its payload and its line."""
    command = [sys.executable, "-m", "penstock", "pipestream", "serve", "--listen", "127.0.0.1:0"]
    serve = subprocess.Popen(
        [*command, "--sink", s3.uri("sink")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**s3.environment, "PENSTOCK_STATE": str(tmp_path)},
    )
    try:
        address, fingerprint = READY.fullmatch(serve.stdout.readline()).groups()
        session = Session.connect(address, fingerprint=fingerprint)
        complete = []
        entities = [session.send(f"payload {number}".encode()) for number in range(300)]
        for number, entity in enumerate(entities):
            if number == 100:
                serve.kill()
            if entity.wait().name == "COMPLETE":
                complete.append(entity.entity_id)
    finally:
        serve.kill()
        serve.communicate()
    assert len(complete) >= 100
    pieces = s3.list(f"sink/.open/{session.id}/")
    kept = [json.loads(line) for piece in pieces for line in s3.get(piece).splitlines()]
    named = {line["entity"]: line for line in kept}
    for entity in complete:
        assert named[entity]["status"] == "COMPLETE"
        assert s3.get(f"sink/{named[entity]['file']}") == f"payload {entity - 1}".encode()
    assert s3.list(f"sink/{session.id}/entities.jsonl") == [], "nobody closed that session"

    # Another server on the same sink works, and leaves the session as it is.
    with (
        Server(sink=s3.uri("sink"), storage=s3.storage, state_dir=tmp_path) as again,
        Session.connect(again.address, fingerprint=again.fingerprint) as other,
    ):
        other.send(b"again")
    assert lines(s3, other.id)[-1] == {"closed": 0}
    assert s3.list(f"sink/.open/{session.id}/") == pieces


def test_serve_stops_cleanly_and_takes_its_options_from_the_command_line(s3, tmp_path, penstock):
    command = [sys.executable, "-m", "penstock", "pipestream", "serve", "--listen", "127.0.0.1:0"]
    options = [argument for name, value in s3.storage.items() for argument in ("--storage", f"{name}={value}")]
    serve = subprocess.Popen(
        [*command, "--sink", s3.uri("sink"), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**s3.environment, "AWS_ENDPOINT_URL": "", "PENSTOCK_STATE": str(tmp_path)},
    )
    address, fingerprint = READY.fullmatch(serve.stdout.readline()).groups()
    (tmp_path / "a.txt").write_text("a text")
    sent = penstock(
        "pipestream", "send", address, tmp_path / "a.txt", "--fingerprint", fingerprint, "--receipts",
        s3.uri("receipts"), env=s3.environment,
    )  # fmt: skip
    assert sent.returncode == 0, sent.stderr
    serve.send_signal(signal.SIGTERM)
    _, logged = serve.communicate(timeout=30)
    assert serve.returncode == 0, logged
    verified = penstock("verify", s3.uri("receipts"), s3.uri("sink"), env=s3.environment)
    assert verified.returncode == 0, verified.stdout
    wrong = penstock("verify", s3.uri("receipts"), s3.uri("sink"), "--storage", "nothing=1", env=s3.environment)
    assert wrong.returncode == 2
    assert "no storage option nothing" in wrong.stderr
