"""Documents through real sessions: what is counted, what a lost session leaves, back-pressure, threads, the command."""

import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import samples

from penstock import DocumentsError, PipeStreamError, receipts
from penstock.documents import PART_SCHEMA, DocumentResult, DocumentSender, Limits, dehydrate
from penstock.pipestream import Server, Session


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server("127.0.0.1:0", sink=tmp_path / "sink") as server:
        yield server


def _connect(server: Server, **options: Any) -> Session:
    return Session.connect(server.address, fingerprint=server.fingerprint, **options)


def _verified(result: DocumentResult, folder: Path) -> list[str]:
    path = receipts.write(result, folder / "receipts")
    return [difference.text for difference in receipts.verify(path, folder / "sink")]


NESTED = samples.zip_file(
    {
        "a.tar.gz": samples.gzip_file(samples.tar_file({"x.txt": b"text", "y.bin": bytes(2 << 20)})),
        "m.eml": samples.mail("s", "b", {"p.pdf": samples.pdf(["one", "two"])}),
    }
)


PAGE = (
    b'<html><title>t</title><img src="data:image/png;base64,iVBORw0KGgo="><img src="data:image/png;base64,@@@"></html>'
)


def test_a_page_keeps_its_own_bytes_when_something_in_it_is_broken(server: Server, tmp_path: Path) -> None:
    with _connect(server) as session:
        result = DocumentSender(session).send("page.html", PAGE).wait(30)
    receipt = result.receipt()
    assert (receipt["status"], receipt["reason"]) == ("FAILED", "1 of 2 parts are not COMPLETE")
    assert [part["status"] for part in receipt["parts"]] == ["COMPLETE", "FAILED"]
    assert (tmp_path / "sink" / receipt["file"]).read_bytes() == PAGE
    assert _verified(result, tmp_path) == []
    log = (tmp_path / "sink" / session.id / "entities.jsonl").read_text().splitlines()
    line = next(line for line in map(json.loads, log) if line.get("entity") == 1 and line["scope"] == 0)
    assert (line["status"], line["reason"], line["file"]) == ("FAILED", "not every child is COMPLETE", receipt["file"])


@pytest.mark.parametrize("data", [b"PK\x03\x04 and no more", b"%PDF-1.4 and no more", b"\x1f\x8b\x08 and no more"])
def test_what_is_sent_whole_need_not_be_whole(server: Server, tmp_path: Path, data: bytes) -> None:
    with _connect(server) as session:
        result = DocumentSender(session, dehydrate=False).send("broken", data).wait(30)
    assert (result.status, result.receipt()["parts"]) == ("COMPLETE", [])
    with _connect(server, layers=0) as session:
        outer = DocumentSender(session).send("outer.zip", samples.zip_file({"broken": data})).wait(30)
    assert (outer.status, [part["status"] for part in outer.receipt()["parts"]]) == ("COMPLETE", ["COMPLETE"])
    assert _verified(result, tmp_path) == _verified(outer, tmp_path) == []


def test_a_part_that_cannot_be_sent_fails_its_document_at_layer_0_too(server: Server, tmp_path: Path) -> None:
    with _connect(server, layers=0) as session:
        result = DocumentSender(session).send("page.html", PAGE).wait(30)
    receipt = result.receipt()
    assert (receipt["status"], receipt["reason"]) == ("FAILED", "1 of its parts could not be sent")
    assert [part["status"] for part in receipt["parts"]] == ["COMPLETE", "FAILED"]
    assert _verified(result, tmp_path) == []


def test_a_document_arrives_part_by_part(server: Server, tmp_path: Path) -> None:
    with _connect(server) as session:
        result = DocumentSender(session).send("dir/n.zip", NESTED).wait(30)
    assert (result.status, result.reason, result.session) == ("COMPLETE", None, session.id)
    assert result.sha256 == hashlib.sha256(NESTED).hexdigest()
    parts = list(dehydrate("n.zip", NESTED))
    receipt = result.receipt()
    assert [tuple(part["path"]) for part in receipt["parts"]] == [part.path for part in parts[1:]]
    assert [part["sha256"] for part in receipt["parts"]] == [part.sha256 for part in parts[1:]]
    assert len(receipt["scopes"]) == sum(part.container for part in parts)
    assert _verified(result, tmp_path) == []
    for part, sent in zip(parts[1:], receipt["parts"], strict=True):
        if sent["file"]:
            assert (tmp_path / "sink" / sent["file"]).read_bytes() == part.content


def test_rows_have_contents_up_to_a_size(server: Server) -> None:
    with _connect(server) as session:
        sender = DocumentSender(session, max_content=1 << 20)
        rows = sender.send("n.zip", NESTED).wait(30).batch().to_pylist()
        page = sender.send("page.html", PAGE).wait(30).batch().to_pylist()
    assert {row["path"][-1]: row["content"] for row in rows if row["content"] is not None} == {
        "x.txt": b"text",
        "part 1": b"b\n",
        "page 1": b"one",
        "page 2": b"two",
    }
    # A page keeps its own bytes although what is embedded in it is a part; a part that failed has none.
    assert [row["content"] for row in page] == [PAGE, b"\x89PNG\r\n\x1a\n", None]


def test_rows_have_no_texts_if_nobody_wants_them(server: Server) -> None:
    with _connect(server) as session:
        with_texts = DocumentSender(session).send("n.zip", NESTED).wait(30).batch()
        without = DocumentSender(session, text=False).send("n.zip", NESTED).wait(30).batch()
    assert with_texts.column("text").null_count < with_texts.num_rows
    # But for the mail's body, whose charset stands in the mail's header.
    assert [row["path"][-1] for row in without.to_pylist() if row["text"] is not None] == ["part 1"]
    assert without.column("sha256").equals(with_texts.column("sha256"))


def test_rows_have_the_document_first(server: Server) -> None:
    with _connect(server) as session:
        result = DocumentSender(session).send("n.zip", NESTED).wait(30)
    batch = result.batch()
    assert batch.schema.equals(PART_SCHEMA)
    rows = batch.to_pylist()
    assert (rows[0]["path"], rows[0]["depth"], rows[0]["document"], rows[0]["key"]) == ([], 0, "n.zip", result.key)
    assert [row["path"] for row in rows[1:]] == [part["path"] for part in result.receipt()["parts"]]
    texts = {tuple(row["path"]): row["text"] for row in rows}
    assert texts[("m.eml", "p.pdf", "page 2")] == "two"
    assert all(row["content"] is None and row["attempts"] == 1 for row in rows)
    small = list(result.batches(max_bytes=1))
    assert len(small) > 1
    assert pa.Table.from_batches(small).to_pylist() == rows


@pytest.mark.parametrize("layers", [0, 1])
def test_kinds_of_sources(server: Server, tmp_path: Path, layers: int) -> None:
    large = os.urandom(3 << 20)
    path = tmp_path / "large.bin"
    path.write_bytes(large)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    class Broken(io.BytesIO):
        def read(self, _size: int | None = -1, /) -> bytes:
            raise OSError("the tape is torn")

    sources = {
        "path": path, "str": str(path), "bytes": large, "file": io.BytesIO(large), "empty": b"",
        "folder": tmp_path, "fifo": fifo, "none": tmp_path / "none", "broken": Broken(),
    }  # fmt: skip
    with _connect(server, layers=layers) as session:
        sender = DocumentSender(session, in_flight=2)
        sent = {name: sender.send(name, source) for name, source in sources.items()}  # type: ignore[arg-type]
        results = {name: each.wait(30) for name, each in sent.items()}
    complete = {name for name, result in results.items() if result.status == "COMPLETE"}
    assert complete == {"path", "str", "bytes", "file", "empty"}
    assert {results[name].sha256 for name in ("path", "str", "bytes", "file")} == {hashlib.sha256(large).hexdigest()}
    assert "torn" in str(results["broken"].reason)
    assert all(results[name].bytes is None and results[name].reason for name in sources.keys() - complete)
    assert [_verified(result, tmp_path) for result in results.values()] == [[]] * len(results)


def test_a_sender_that_was_stopped_sends_no_more(server: Server) -> None:
    with _connect(server) as session:
        sender = DocumentSender(session)
        assert sender.send("n.zip", NESTED).wait(30).status == "COMPLETE"
        sender.stop()
        with pytest.raises(PipeStreamError, match="has stopped"):
            sender.send("n.zip", NESTED)


def test_one_entity_for_a_document(server: Server, tmp_path: Path) -> None:
    with _connect(server) as session:
        result = DocumentSender(session, dehydrate=False).send("n.zip", NESTED).wait(30)
    assert (result.status, result.parts) == ("COMPLETE", 0)
    assert (tmp_path / "sink" / str(result.file)).read_bytes() == NESTED
    assert _verified(result, tmp_path) == []


def test_layer_0_keeps_inner_containers_whole(server: Server, tmp_path: Path) -> None:
    with _connect(server, layers=0) as session:
        result = DocumentSender(session).send("n.zip", NESTED).wait(30)
    receipt = result.receipt()
    assert [part["path"] for part in receipt["parts"]] == [["a.tar.gz"], ["m.eml"]]
    assert receipt["scopes"] == []
    assert {part["scope"] for part in receipt["parts"]} == {0}
    assert _verified(result, tmp_path) == []


def test_layer_0_with_more_parts_than_the_window_fails_by_itself(server: Server) -> None:
    many = samples.zip_file({f"{number}": b"x" for number in range(40)})
    with _connect(server, layers=0, window=16) as session:
        sender = DocumentSender(session)
        result = sender.send("many.zip", many).wait(30)
        other = sender.send("few.zip", samples.zip_file({"a": b"a"})).wait(30)
    assert result.status == "FAILED"
    assert result.parts == 40
    assert all(part["reason"] for part in result.receipt()["parts"] if part["status"] != "COMPLETE")
    assert other.status == "COMPLETE"


def test_a_small_window_holds_the_sender_back_and_loses_nothing(server: Server, tmp_path: Path) -> None:
    many = samples.zip_file({f"{n}.zip": samples.zip_file({f"{m}": b"x" for m in range(20)}) for n in range(20)})
    with _connect(server, window=4) as session:
        result = DocumentSender(session).send("many.zip", many).wait(60)
    assert (result.status, result.parts, result.complete) == ("COMPLETE", 420, 420)
    assert _verified(result, tmp_path) == []


def test_too_many_children_are_accounted_for(server: Server, tmp_path: Path) -> None:
    many = samples.zip_file({"big.zip": samples.zip_file({f"{n}": b"" for n in range(1100)}), "after": b"a"})
    with _connect(server) as session:
        result = DocumentSender(session).send("many.zip", many).wait(60)
    parts = {tuple(part["path"]): part for part in result.receipt()["parts"]}
    assert parts[("after",)]["status"] == "COMPLETE"
    assert parts[("big.zip",)]["status"] == "FAILED"
    assert any("children" in str(part["reason"]) for part in parts.values())
    assert _verified(result, tmp_path) == []


def test_limits_of_the_caller_hold(server: Server, tmp_path: Path) -> None:
    with _connect(server) as session:
        result = DocumentSender(session, limits=Limits(max_depth=1)).send("n.zip", NESTED).wait(30)
    assert [part["status"] for part in result.receipt()["parts"]] == ["FAILED", "FAILED"]
    assert _verified(result, tmp_path) == []


def test_many_threads_send_into_one_session(server: Server, tmp_path: Path) -> None:
    results: list[DocumentResult] = []
    with _connect(server) as session:
        sender = DocumentSender(session, in_flight=3)

        def send(name: str) -> None:
            results.extend(sender.send(f"{name}/{n}.zip", NESTED).wait(60) for n in range(5))

        threads = [threading.Thread(target=send, args=(f"thread {n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(results) == 20
    assert {result.status for result in results} == {"COMPLETE"}
    assert all(_verified(result, tmp_path) == [] for result in results)


def test_a_lost_session_leaves_every_part_accounted_for(tmp_path: Path) -> None:
    with Server("127.0.0.1:0", sink=tmp_path / "sink") as server:
        session = _connect(server)
        sender = DocumentSender(session)
        before = sender.send("before.txt", b"x").wait(30)
        server_gone = threading.Thread(target=lambda: (time.sleep(0.2), session.abort(1, "a test")))
        parts = {f"{n}": os.urandom(20_000) for n in range(900)}
        data = samples.zip_file({**parts, "slow.xz": samples.xz_file(os.urandom(8 << 20)), "last": b"l"})
        server_gone.start()
        result = sender.send("during.zip", _Slow(data, 0.4)).wait(30)
        server_gone.join()
    assert before.status == "COMPLETE"
    assert result.status == "FAILED"
    assert result.parts == 902 + 1
    for part in result.receipt()["parts"]:
        assert part["status"] == "COMPLETE" or part["reason"]
        assert (part["scope"] is None) == (part["attempts"] == 0)
    with pytest.raises(PipeStreamError):
        sender.send("after.txt", b"x")
    assert _verified(result, tmp_path) != []


class _Slow(io.BytesIO):
    """A file that takes its time before it gives the first byte."""

    def __init__(self, data: bytes, seconds: float) -> None:
        super().__init__(data)
        self._seconds = seconds

    def read(self, size: int | None = -1, /) -> bytes:
        time.sleep(self._seconds)
        self._seconds = 0
        return super().read(size)


def test_a_time_out_of_waiting_changes_nothing() -> None:
    with Server("127.0.0.1:0") as server:
        session = _connect(server)
        sent = DocumentSender(session).send("a.txt", b"x")
        assert not sent.done()
        with pytest.raises(DocumentsError) as caught:
            sent.wait(0.05)
        assert caught.value.kind == "deadline"
        (peer,) = [next(iter(server))]
        next(iter(peer)).complete()
        assert sent.wait(30).status == "COMPLETE"
        assert sent.done()
        session.close(10)


def test_names_are_checked(server: Server) -> None:
    with _connect(server) as session:
        sender = DocumentSender(session)
        for name in ("", "x" * 70_000):
            with pytest.raises(ValueError, match="name"):
                sender.send(name, b"")
        with pytest.raises(TypeError, match="bytes, a path or a binary file"):
            sender.send("x", 7)  # type: ignore[arg-type]


def test_ctrl_c_stops_sending_and_the_session_can_still_be_closed(tmp_path: Path) -> None:
    data = samples.zip_file({"a": samples.gzip_file(bytes(300 << 20)), "b": b"b"})
    path = tmp_path / "a.zip"
    path.write_bytes(data)
    program = """
import resource
import sys
from penstock.documents import DocumentSender, Limits
from penstock.pipestream import Server, Session
# Should nobody stop it, because the test itself was killed: it ends by itself, and its files stay small.
resource.setrlimit(resource.RLIMIT_CPU, (120, 120))
with Server("127.0.0.1:0", sink=sys.argv[2]) as server:
    with Session.connect(server.address, fingerprint=server.fingerprint) as session:
        sender = DocumentSender(session, limits=Limits(max_ratio=10**6))
        print("ready", flush=True)
        try:
            for _ in range(8):
                sender.send("a.zip", sys.argv[1]).wait()
        except KeyboardInterrupt:
            print("stopped", flush=True)
        print(sender.send("after", b"x").wait(10).status, flush=True)
    print("closed", flush=True)
"""
    command = [sys.executable, "-c", program, os.fspath(path), os.fspath(tmp_path / "sink")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.7)
        process.send_signal(signal.SIGINT)
        begun = time.monotonic()
        assert process.stdout.read().split() == ["stopped", "COMPLETE", "closed"]
        assert time.monotonic() - begun < 10
    assert process.returncode == 0


@pytest.fixture
def sink_process(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """`penstock pipestream serve` in a process of its own: its address and its fingerprint."""
    command = [sys.executable, "-m", "penstock", "pipestream", "serve", "--listen", "127.0.0.1:0"]
    with subprocess.Popen([*command, "--sink", tmp_path / "sink"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        _, address, _, fingerprint = process.stdout.readline().split()
        yield address, fingerprint
        process.terminate()
    assert process.returncode == 0


def test_the_commands_send_and_verify(
    sink_process: tuple[str, str],
    tmp_path: Path,
    penstock: Callable[..., subprocess.CompletedProcess[str]],
    usage: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    address, fingerprint = sink_process
    folder = tmp_path / "in"
    (folder / "b").mkdir(parents=True)
    (folder / "b" / "n.zip").write_bytes(NESTED)
    (folder / "a.txt").write_bytes(b"text")
    (folder / "link").symlink_to(folder / "a.txt")
    (folder / os.fsdecode(b"\xe9.txt")).write_bytes(b"odd")
    trust = ["--fingerprint", fingerprint]
    run = penstock(
        "pipestream", "send", address, folder, folder / "a.txt", *trust, "--receipts", tmp_path / "r", "--json"
    )
    assert (run.returncode, run.stderr) == (0, "")
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    assert [line["document"] for line in lines] == ["a.txt", "link", "\\xe9.txt", "b/n.zip", "a.txt"]
    assert penstock("verify", tmp_path / "r", tmp_path / "sink").returncode == 0
    (folder / "bad.zip").write_bytes(samples.zip_bomb(8 << 20))
    run = penstock("pipestream", "send", address, folder, *trust)
    assert (run.returncode, run.stdout.count("\n"), run.stderr.count("\n")) == (1, 1, 1)
    assert "bad.zip" in run.stderr
    for wrong in (
        [], [*trust, "--system-ca"], ["--cert", "x", *trust], [*trust, "--layers", "3"],
        [*trust, "--policy", "mild"], [*trust, "--policy", "lenient", "--layers", "1"],
    ):  # fmt: skip
        assert usage("pipestream", "send", address, folder, *wrong).returncode == 2, wrong
    run = penstock("pipestream", "send", address, folder, "--fingerprint", "00" * 32)
    assert (run.returncode, run.stderr.count("\n")) == (1, 1)
