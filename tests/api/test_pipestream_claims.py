"""Claim checks by the command line, and handed over to a task queue that outlives the server."""

import json
import signal
import subprocess
import sys
import time
import zipfile
from contextlib import contextmanager, suppress

import pytest

from penstock import PipeStreamError, receipts
from penstock.documents import DocumentSender
from penstock.pipestream import CompletionPolicy, Server, Session, SinkReader, Status
from penstock.pipestream._hand_over import Queue
from penstock.quicx import Producer, Worker

POLICY = CompletionPolicy("best-effort")
KEY = "a secret of 16 bytes or more"
WAIT = 60.0
PNG = b"\x89PNG\r\n\x1a\n" + bytes(64)


class Served:
    """`penstock pipestream serve` in a process of its own."""

    def __init__(self, process):
        self.process = process
        line = process.stdout.readline()
        assert line.startswith("listening "), process.stderr.read()
        _, self.address, _, self.fingerprint = line.split()

    def trust(self):
        return ["--fingerprint", self.fingerprint]

    def reader(self):
        return SinkReader.connect(self.address, fingerprint=self.fingerprint, read_key=KEY)


@pytest.fixture
def serve(tmp_path, monkeypatch):
    """Start a server with options; at the end of the block it is stopped, unless it was killed."""
    (tmp_path / "read.key").write_text(KEY)
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path / "state"))

    @contextmanager
    def start(*options):
        command = [sys.executable, "-m", "penstock", "pipestream", "serve", "--listen", "127.0.0.1:0"]
        command += ["--sink", str(tmp_path / "sink"), "--read-key-file", str(tmp_path / "read.key"), *options]
        with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            try:
                yield Served(process)
            finally:
                process.terminate()
                process.communicate(timeout=WAIT)
        assert process.returncode in (0, -signal.SIGKILL)

    return start


@pytest.fixture
def daemon(tmp_path):
    """`penstock quicx start` with a journal: its address."""
    command = [sys.executable, "-m", "penstock", "quicx", "start", "--listen", "127.0.0.1:0"]
    command += ["--journal", str(tmp_path / "journal")]
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        yield process.stdout.readline().split()[1]
        process.terminate()


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "in" / "a.zip"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("note.txt", "A note.")
        file.writestr("scan.png", PNG)
    return path


def test_what_is_set_aside_is_listed_taken_up_and_verified(serve, penstock, archive, tmp_path, monkeypatch):
    folder = tmp_path / "receipts"
    with serve("--defer-type", "image/*") as server:
        send = ("pipestream", "send", server.address, archive, *server.trust(), "--receipts", folder)
        sent = penstock(*send, "--policy", "best-effort")
        assert sent.returncode == 1
        assert "1 of 1 documents are not COMPLETE (a.zip: PARTIAL, 1 of 2 parts are not COMPLETE)" in sent.stderr
        listed = ("pipestream", "claims", server.address, *server.trust())
        monkeypatch.setenv("PENSTOCK_KEY", KEY)
        (line,) = [json.loads(line) for line in penstock(*listed, "--json").stdout.splitlines()]
        assert list(line) == [
            "claim", "session", "scope", "entity", "status", "expires", "reason", "document", "path", "type", "bytes",
            "sha256", "file",
        ]  # fmt: skip
        assert (line["status"], line["document"], line["path"]) == ("DEFERRED", "a.zip", ["scan.png"])
        (receipt,) = folder.glob("*.json")
        assert json.loads(receipt.read_text())["parts"][1]["claim"] == line["claim"]
        assert penstock("verify", folder, tmp_path / "sink").returncode == 0
        text = penstock(*listed).stdout.splitlines()
        assert text[0].startswith(f"{line['claim']} DEFERRED until ")
        assert text[0].endswith(f"a.zip / scan.png (image/png, {len(PNG)} bytes, {line['reason']})")
        assert text[1] == "1 claim check, 1 open"

        again = penstock(*send, "--policy", "best-effort", "--previous", folder)
        assert (again.returncode, again.stderr) == (0, "")
        assert penstock(*listed).stdout.splitlines()[-1] == "1 claim check, 0 open"
    assert penstock("verify", folder, tmp_path / "sink").returncode == 0


def test_a_wrong_command_line_is_exit_2(usage, archive, tmp_path, monkeypatch):
    monkeypatch.delenv("PENSTOCK_KEY", raising=False)
    pin = ["--fingerprint", "ab" * 32]
    for wrong in (
        ["claims", "127.0.0.1:1", *pin],
        ["claims", "127.0.0.1:1", "--read-key-file", archive],
        ["send", "127.0.0.1:1", archive, *pin, "--policy", "quorum"],
        ["send", "127.0.0.1:1", archive, *pin, "--policy", "lenient", "--layers", "1"],
        ["serve", "--listen", "127.0.0.1:0", "--sink", tmp_path / "s", "--defer-to", "http://127.0.0.1:1"],
        ["serve", "--listen", "127.0.0.1:0", "--sink", tmp_path / "s", "--defer-to", "quicx://example.org:1"],
        ["serve", "--listen", "127.0.0.1:0", "--sink", tmp_path / "s", "--layers", "1", "--defer-type", "image/*"],
        ["serve", "--listen", "127.0.0.1:0", "--sink", tmp_path / "s", "--layers", "3"],
    ):
        ended = usage("pipestream", *wrong)
        assert (ended.returncode, ended.stdout) == (2, ""), (wrong, ended.stderr)


def test_a_worker_settles_what_is_handed_over_though_the_server_is_killed_meanwhile(
    serve, penstock, daemon, archive, tmp_path
):
    defer = ("--defer-type", "image/*", "--defer-to", f"quicx://{daemon}")
    with serve(*defer) as server, Producer(daemon) as producer:
        sent = penstock("pipestream", "send", server.address, archive, *server.trust(), "--policy", "lenient")
        assert sent.returncode == 1, sent.stderr
        (row,) = server.reader().claims()
        taken = Taken(daemon)
        payload = taken.wait()
        assert {name: payload[name] for name in ("claim", "session", "document", "path", "type", "file")} == {
            "claim": row.claim.hex,
            "session": row.claim.session,
            "document": "a.zip",
            "path": ["scan.png"],
            "type": "image/png",
            "file": row.file,
        }
        assert (tmp_path / "sink" / payload["file"]).read_bytes() == PNG
        # Between the submit and its end.
        server.process.kill()
        server.process.wait()
        assert producer.stats().queue_depth == 0
    taken.finish()
    with serve(*defer) as server:
        reader = server.reader()
        while (status := reader.claims()[0].claim.status) in (Status.DEFERRED, Status.PROCESSING):
            pass  # asked over the network each time
        assert status is Status.COMPLETE
    assert taken.runs == 1


class Taken:
    """A worker that holds its task until it is told to finish."""

    def __init__(self, daemon):
        import threading

        self.runs = 0
        self._payload = None
        self._there, self._go = threading.Event(), threading.Event()
        self._worker = Worker(daemon)

        @self._worker.task("pipestream.claim")
        def work(payload: bytes) -> None:
            self.runs += 1
            self._payload = json.loads(payload)
            self._there.set()
            assert self._go.wait(WAIT)

        self._worker.start()

    def wait(self):
        assert self._there.wait(WAIT)
        return self._payload

    def finish(self):
        self._go.set()
        self._worker.close()


def test_only_what_may_be_redeemed_is_handed_over(daemon, tmp_path):
    claims = tmp_path / "claims"

    def send(owner, receiver, life, metadata=None):
        sent = owner.send(b"x", metadata=metadata)
        next(iter(receiver)).defer("later", life=life)
        assert sent.wait(WAIT) is Status.DEFERRED
        return sent.claim

    with Server(state_dir=tmp_path, claims=claims) as server:
        options = {"fingerprint": server.fingerprint, "layers": 2}
        with Session.connect(server.address, **options) as first:
            receiver = server.accept(WAIT)
            expired, used, still_open = (send(first, receiver, life) for life in (0.001, 600, 600))
        with Session.connect(server.address, **options) as second:
            redeemed = {"pipestream.claim": second.redeem(used, first.id).hex}
            once_more = send(second, server.accept(WAIT), 600, redeemed)
    assert len({expired, used, still_open, once_more}) == 4

    tasks, worker = [], Worker(daemon)

    @worker.task("pipestream.claim")
    def work(payload: bytes) -> None:
        tasks.append(int(json.loads(payload)["claim"], 16))

    worker.start()
    with Server(state_dir=tmp_path, claims=claims, defer_to=f"quicx://{daemon}") as server:
        deadline = time.monotonic() + WAIT
        left = {still_open, once_more}
        while left - {row.claim.id for row in server.claims() if row.claim.status is Status.COMPLETE}:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    worker.close()
    assert sorted(tasks) == sorted(left)


def test_a_command_works_on_claim_checks_and_its_failure_is_theirs(serve, penstock, daemon, archive):
    script = "import json, sys; task = json.load(sys.stdin); sys.exit(task['type'] == 'image/png')"
    command = [sys.executable, "-m", "penstock", "quicx", "work", "pipestream.claim", "--connect", daemon, "--"]
    with (
        serve("--defer-type", "image/*", "--defer-type", "text/*", "--defer-to", f"quicx://{daemon}") as server,
        subprocess.Popen([*command, sys.executable, "-c", script]) as worker,
    ):
        penstock("pipestream", "send", server.address, archive, *server.trust(), "--policy", "best-effort")
        reader = server.reader()
        while any(rows := reader.claims()) and any(row.claim.status is Status.DEFERRED for row in rows):
            pass  # asked over the network each time
        assert {row.type: row.claim.status for row in rows} == {
            "image/png": Status.FAILED,
            "text/plain": Status.COMPLETE,
        }
        worker.terminate()


@pytest.mark.parametrize("policy", [(), ("--policy", "best-effort")])
def test_a_worker_completes_the_receipt_and_nothing_is_sent_again(serve, penstock, daemon, archive, tmp_path, policy):
    folder, sink = tmp_path / "receipts", tmp_path / "sink"
    with serve("--defer-type", "image/*", "--defer-to", f"quicx://{daemon}") as server:
        send = ("pipestream", "send", server.address, archive, *server.trust(), "--receipts", folder, *policy)
        assert penstock(*send, "--layers", "2").returncode == 1
        (path,) = folder.glob("*.json")
        before = json.loads(path.read_text())["parts"][1]
        assert (before["status"], before["file"]) == ("DEFERRED", None)
        taken = Taken(daemon)
        taken.wait()
        taken.finish()
        while (row := server.reader().claims()[0]).claim.status is Status.DEFERRED:
            pass  # asked over the network each time
        assert row.claim.status is Status.COMPLETE
        with Session.connect(server.address, fingerprint=server.fingerprint, layers=2) as session:
            asked = session.claim(row.claim, WAIT)
        # No checkpoint was passed before the part was set aside, and a file's place is no checkpoint.
        assert (asked.file, asked.validation.checkpoint_ref) == (row.file, None)
        again = penstock(*send, "--previous", folder)
        assert (again.returncode, again.stderr) == (0, "")
    receipt = json.loads(path.read_text())
    assert receipt["status"] == "COMPLETE"
    assert receipt.get("outcome") == ("RESOLVED" if policy else None)
    part = receipt["parts"][1]
    assert {name: part[name] for name in ("status", "reason", "file", "claim")} == {
        "status": "COMPLETE",
        "reason": None,
        "file": row.file,
        "claim": row.claim.hex,
    }
    assert [part[name] for name in ("session", "scope", "entity")] == [
        before[n] for n in ("session", "scope", "entity")
    ]
    assert (sink / part["file"]).read_bytes() == PNG
    # No other file was made, so nothing travelled twice.
    assert len([path for path in sink.glob("[0-9a-f]*/*/*") if path.read_bytes() == PNG]) == 1
    checked = penstock("verify", folder, sink)
    assert checked.returncode == 0, checked.stdout
    settled = sink / before["session"] / "settled.jsonl"
    assert json.loads(settled.read_text())["claim"] == row.claim.hex
    # Where the sink does not say so, nobody takes the receipt's word for it.
    settled.unlink()
    refused = penstock("verify", folder, sink)
    assert refused.returncode == 1
    assert "DEFERRED" in refused.stdout


def test_what_was_settled_when_the_server_was_killed_is_noted_by_the_next(serve, daemon, archive, tmp_path, penstock):
    defer = ("--defer-type", "image/*", "--defer-to", f"quicx://{daemon}")
    with serve(*defer) as server:
        penstock("pipestream", "send", server.address, archive, *server.trust(), "--policy", "lenient")
        taken = Taken(daemon)
        session = taken.wait()["session"]
        taken.finish()
        while server.reader().claims()[0].claim.status is Status.DEFERRED:
            pass  # asked over the network each time
        server.process.kill()
        server.process.wait()
    settled = tmp_path / "sink" / session / "settled.jsonl"
    deadline = time.monotonic() + WAIT
    # As if it had died between the claim check and the sink, in the middle of the line.
    settled.write_text('{"claim":"0123')
    with serve(*defer):
        while not settled.read_text().endswith("\n"):
            assert time.monotonic() < deadline
    (line,) = settled.read_text().splitlines()
    assert json.loads(line)["status"] == "COMPLETE"


def test_a_session_that_goes_on_knows_what_it_has_redeemed(serve, archive, tmp_path):
    folder, sink = tmp_path / "receipts", tmp_path / "sink"
    with serve("--defer-type", "image/*", "--state", str(tmp_path / "sessions")) as server:
        trust = {"fingerprint": server.fingerprint, "layers": 2}
        with Session.connect(server.address, **trust) as session:
            first = DocumentSender(session, policy=POLICY).send("a.zip", archive).wait()
        previous = receipts.load(receipts.write(first, folder))
        (claim,) = [part["claim"] for part in previous["parts"] if part["status"] == "DEFERRED"]
        with suppress(RuntimeError), Session.connect(server.address, **trust, state=tmp_path / "mine") as session:
            DocumentSender(session, policy=POLICY).send("a.zip", archive, previous=previous).wait()
            raise RuntimeError("what leaves the session to the next process")
        with Session.connect(server.address, **trust, state=tmp_path / "mine") as session:
            assert session.resumed
            result = DocumentSender(session, policy=POLICY).send("a.zip", archive, previous=previous).wait()
        path = receipts.write(result, folder)
        # It was redeemed once, by this session.
        (part,) = [part for part in receipts.load(path)["parts"] if part.get("claim")]
        assert (part["status"], part["claim"], part["session"]) == ("COMPLETE", claim, session.id)
        (row,) = server.reader().claims()
        assert row.claim.status is Status.COMPLETE
    assert receipts.verify(path, sink) == []


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("127.0.0.1:16381", "a queue must be quicx://HOST:PORT"),
        ("quicx://127.0.0.1", "127.0.0.1"),
        ("quicx://127.0.0.1:1/path", "a queue must be quicx://HOST:PORT"),
        ("quicx://127.0.0.1:1?password=x", "accepts only fingerprint, ca, cert and key"),
        ("quicx://127.0.0.1:1?fingerprint=xyz", "fingerprint"),
        ("quicx://example.org:1", "another machine requires exactly one"),
        ("quicx://example.org:1?ca=a.pem&fingerprint=" + "ab" * 32, "another machine requires exactly one"),
        ("quicx://example.org:1?ca=a.pem&cert=c.pem", "cert and key must be used together"),
    ],
)
def test_a_url_that_is_no_queue_says_what_is_wrong(url, problem):
    with pytest.raises(PipeStreamError, match=problem):
        Queue.parse(url)
    assert Queue.parse("quicx://example.org:1?ca=a.pem&cert=c.pem&key=k.pem").trust["key"] == "k.pem"
