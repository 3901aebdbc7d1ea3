"""`penstock pipestream send --state` and `serve --state`: sessions that outlive their processes."""

import json
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from penstock import receipts
from penstock._send_state import SendState
from penstock.errors import DocumentsError
from penstock.pipestream import Server


@pytest.fixture
def sink(tmp_path):
    """A server that keeps what comes, and its sessions."""
    with Server(sink=tmp_path / "sink", state=tmp_path / "sessions", state_dir=tmp_path) as server:
        yield server


@pytest.fixture
def inbox(tmp_path):
    folder = tmp_path / "inbox"
    folder.mkdir()
    (folder / "note.txt").write_bytes(b"A line of text.")
    with zipfile.ZipFile(folder / "two.zip", "w") as file:
        file.writestr("one", "1")
        file.writestr("two", "2")
    return folder


@pytest.fixture
def send(penstock, sink, inbox, tmp_path):
    """Send the documents with a folder for the session."""

    def send(*options):
        kept = ("--state", tmp_path / "sending", "--receipts", tmp_path / "receipts")
        command = ("pipestream", "send", sink.address, inbox, "--fingerprint", sink.fingerprint)
        return penstock(*command, *kept, *options)

    return send


def sessions(tmp_path: Path) -> list[Path]:
    """Name the sessions that have come to the sink."""
    return [path for path in (tmp_path / "sink").iterdir() if path.is_dir() and not path.name.startswith(".")]


def test_what_was_delivered_is_not_sent_again(send, inbox, tmp_path):
    first = send()
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout.startswith("2 documents, 2 parts, all COMPLETE; session ")
    again = send()
    assert again.stdout == "2 documents, 2 parts, all COMPLETE; 2 by an earlier run; nothing left to send\n"
    assert len(sessions(tmp_path)) == 1
    (inbox / "note.txt").write_bytes(b"Another line of text.")
    changed = send()
    assert changed.stdout.startswith("2 documents, 2 parts, all COMPLETE; 1 by an earlier run; session ")
    assert len(sessions(tmp_path)) == 2
    assert receipts_differ(tmp_path) == []


def receipts_differ(tmp_path: Path) -> list[str]:
    found = receipts.verify_all(tmp_path / "receipts", tmp_path / "sink")
    return [difference.text for _, differences in found for difference in differences]


def test_a_document_whose_receipt_is_gone_is_sent_again(send, tmp_path):
    lines = [json.loads(line) for line in send("--json").stdout.splitlines()]
    note = next(line for line in lines if line["document"] == "note.txt")
    Path(note["receipt"]).unlink()
    again = {line["document"]: line for line in map(json.loads, send("--json").stdout.splitlines())}
    assert again["note.txt"]["session"] != note["session"]
    assert again["two.zip"] == next(line for line in lines if line["document"] == "two.zip")
    assert receipts_differ(tmp_path) == []


def test_receipts_that_nobody_has_shown_are_shown_by_the_next_run(send, tmp_path):
    """Its process was killed when the session had ended, and no receipt was to be seen."""
    lines = [json.loads(line) for line in send("--json").stdout.splitlines()]
    shown, staged = tmp_path / "receipts", tmp_path / "sending" / "receipts"
    for line in lines:
        shutil.move(line["receipt"], staged)
    (tmp_path / "sending" / "documents.jsonl").unlink()
    ending = {"session": lines[0]["session"], "receipts": str(shown), "documents": lines}
    (tmp_path / "sending" / "ending.json").write_text(json.dumps(ending))
    again = send()
    assert again.stdout.endswith("; 2 by an earlier run; nothing left to send\n")
    assert len(sessions(tmp_path)) == 1
    assert receipts_differ(tmp_path) == []
    assert sorted(path.name for path in shown.glob("*.json")) == sorted(f"{line['key']}.json" for line in lines)


def test_a_run_that_was_killed_at_its_end_is_concluded_and_nothing_that_failed_is_sent_twice(send, inbox, tmp_path):
    """What failed is tried again by the run behind that."""
    (inbox / "cut.eml").write_bytes(b"Content-Type: multipart/mixed; boundary=x\n\n--x\n\nA part.\n")
    first = send("--json")
    assert first.returncode == 1
    lines = [json.loads(line) for line in first.stdout.splitlines()]
    assert [line["document"] for line in lines if line["status"] == "FAILED"] == ["cut.eml"]
    for line in lines:
        shutil.move(line["receipt"], tmp_path / "sending" / "receipts")
    (tmp_path / "sending" / "documents.jsonl").unlink()
    ending = {"session": lines[0]["session"], "receipts": str(tmp_path / "receipts"), "documents": lines}
    (tmp_path / "sending" / "ending.json").write_text(json.dumps(ending))
    concluded = send("--json")
    assert concluded.returncode == 1
    assert concluded.stderr == first.stderr
    assert [json.loads(line) for line in concluded.stdout.splitlines()] == lines
    assert len(sessions(tmp_path)) == 1
    again = send()
    assert again.returncode == 1
    assert "; 2 by an earlier run; session " in again.stdout
    assert len(sessions(tmp_path)) == 2


def test_a_line_that_was_cut_off_is_written_anew(tmp_path):
    kept = {"document": "a", "key": "0" * 32, "status": "COMPLETE"}
    with SendState(tmp_path / "kept") as state:
        state.ending("one", None, [kept])
        state.ended(None)
    log = tmp_path / "kept" / "documents.jsonl"
    whole = log.read_bytes()
    for cut in range(len(whole)):
        log.write_bytes(whole + whole[:cut])
        with SendState(tmp_path / "kept") as state:
            state.ending("one", None, [kept])
            state.ended(None)
        assert log.read_bytes() == whole * 2, cut


def test_what_a_session_has_left_is_shown_though_the_next_one_goes_on(tmp_path):
    """Its process was killed when it had ended and the next session had begun."""
    kept = {"document": "a", "key": "0" * 32, "status": "COMPLETE"}
    with SendState(tmp_path / "kept") as state:
        state.ending("one", None, [kept])
        state.goes_on("two", None)
        assert json.loads((tmp_path / "kept" / "documents.jsonl").read_text()) == kept
        state.ending("two", None, [kept | {"document": "b"}])
        state.goes_on("two", None)
        assert len((tmp_path / "kept" / "documents.jsonl").read_text().splitlines()) == 1
        state.ended(None)
    assert len((tmp_path / "kept" / "documents.jsonl").read_text().splitlines()) == 2


def test_a_damaged_line_says_where_it_is(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "documents.jsonl").write_bytes(b"{\n")
    with pytest.raises(DocumentsError, match=r"documents\.jsonl is damaged"):
        SendState(tmp_path / "kept")


def test_a_folder_belongs_to_one_process_at_a_time(send, tmp_path):
    with SendState(tmp_path / "sending"):
        refused = send()
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == f"penstock: another process uses {tmp_path / 'sending'}\n"
    assert (tmp_path / "sending").stat().st_mode & 0o777 == 0o700
    assert send().returncode == 0


@pytest.mark.parametrize("told", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.timeout(240)
def test_a_session_that_is_left_goes_on_with_the_same_command(tmp_path, inbox, told):
    """The server has all of it when the sender ends, and completes it when the next one is there."""
    (inbox / "two.zip").unlink()
    server = Server(state_dir=tmp_path)
    command = [sys.executable, "-m", "penstock", "pipestream", "send", server.address, str(inbox)]
    command += ["--fingerprint", server.fingerprint, "--state", str(tmp_path / "sending")]

    def start():
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    first = start()
    try:
        session = server.accept(120)
        entity = next(iter(session))
        assert entity.read() == b"A line of text."
        first.send_signal(told)
        _, said = first.communicate(timeout=120)
        if told is signal.SIGINT:
            where = tmp_path / "sending"
            assert said == f"penstock: interrupted; run the same command again to resume from {where}\n"
            assert first.returncode == 1
        first = start()
        entity.complete()
        assert list(session) == []
        out, said = first.communicate(timeout=120)
        assert (first.returncode, said) == (0, "")
        assert out == f"1 document, 0 parts, all COMPLETE; session {session.id}\n"
    finally:
        first.kill()
        first.communicate()
        server.close(0)
