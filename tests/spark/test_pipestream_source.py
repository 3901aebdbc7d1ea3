"""The data source "pipestream", read: batch, and as a stream that is killed in every way."""

import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import PipeStreamError, SparkError
from penstock.pipestream import ErrorCode, Limits, Server, Session, Status
from penstock.spark import PipeStreamDataSource
from penstock.spark._options import Options
from penstock.spark.pipestream.listen import Listen
from penstock.spark.pipestream.source import ROW_COLUMNS
from penstock.tls import write_certificates

from ..ports import free_port

KEY = "a secret of 16 bytes or more"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "key").write_text(KEY + "\n")
    with Server(sink=tmp_path / "sink", read_key=KEY, state_dir=tmp_path) as server:
        yield server


def is_closed(sink: Path, session: str) -> bool:
    log = sink / session / "entities.jsonl"
    return log.exists() and log.read_bytes().endswith(b'{"closed":0}\n')


def send(server: Server, sink: Path, *payloads: bytes) -> str:
    """Send a session, and wait until its last line is written."""
    with Session.connect(server.address, fingerprint=server.fingerprint) as session:
        for payload in payloads:
            session.send(payload, metadata={"penstock.document": payload[:1].decode()})
    wait_until_closed(sink, session.id)
    return session.id


def wait_until_closed(sink: Path, session: str) -> None:
    deadline = time.monotonic() + 60
    while not is_closed(sink, session):
        assert time.monotonic() < deadline, "the session is not closed"
        time.sleep(0.01)


def where(server: Server, tmp_path: Path, place: str) -> dict[str, str]:
    """Options for the folder, or for the server that keeps it."""
    if place == "folder":
        return {"path": str(tmp_path / "sink")}
    return {"address": server.address, "fingerprint": server.fingerprint, "read_key_file": str(tmp_path / "key")}


def reader(**options: str):
    return PipeStreamDataSource(options).reader(ROW_COLUMNS)


def stream(**options: str):
    return PipeStreamDataSource(options).streamReader(ROW_COLUMNS)


def contents(partitions) -> list[bytes]:
    batches = [batch for partition in pickle.loads(pickle.dumps(partitions)) for batch in partition.read()]  # noqa: S301
    return [data for batch in batches for data in batch.column("content").to_pylist()]


@pytest.mark.parametrize("place", ["folder", "server"])
def test_partitions_weigh_about_the_same_however_sessions_are_cut(server, tmp_path, place):
    sizes = [2_000_000, 10_000, 0, 500_000, 1, *[100_000] * 40]
    send(server, tmp_path / "sink", *[bytes([65 + at % 26]) * size for at, size in enumerate(sizes)])
    for at in range(8):
        send(server, tmp_path / "sink", b"x" * 100_000 + bytes([at]))
    partitions = reader(**where(server, tmp_path, place), minPartitions="4").partitions()
    weights = [sum(piece.bytes for piece in partition.pieces) for partition in partitions]
    assert len(weights) == 4
    assert max(weights) < 2.2 * min(weights)
    found = contents(partitions)
    assert Counter(map(len, found)) == Counter([*sizes, *[100_001] * 8])
    assert len(set(found)) >= 8 + 26


def test_spark_reads_a_sink_without_sessions_as_no_rows(spark, tmp_path):
    (tmp_path / "sink").mkdir()
    read = spark.read.format("pipestream").load(str(tmp_path / "sink"))
    assert (read.columns, read.collect()) == (ROW_COLUMNS.fieldNames(), [])


def test_a_partition_is_read_again_with_the_same_rows(server, tmp_path):
    send(server, tmp_path / "sink", *[b"%d" % at * 1000 for at in range(100)])
    options = where(server, tmp_path, "server")
    partitions = reader(**options, minPartitions="2").partitions()
    first = [contents([partition]) for partition in partitions]
    send(server, tmp_path / "sink", b"later")
    assert [contents([partition]) for partition in partitions] == first
    assert len(contents(reader(**options).partitions())) == 101


def test_rows_are_chosen_by_session_document_and_receipt(server, tmp_path):
    sessions = [send(server, tmp_path / "sink", b"a1", b"b1", b"a2") for _ in range(2)]
    options = where(server, tmp_path, "server")
    assert sorted(contents(reader(**options, document="a").partitions())) == [b"a1", b"a1", b"a2", b"a2"]
    one = reader(**options, session=sessions[0], document='["a", "b"]')
    assert sorted(contents(one.partitions())) == [b"a1", b"a2", b"b1"]
    (tmp_path / "note.txt").write_text("A line.\n")
    command = [sys.executable, "-m", "penstock", "pipestream", "send", server.address, str(tmp_path / "note.txt")]
    command += ["--fingerprint", server.fingerprint, "--receipts", str(tmp_path / "receipts")]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    named = reader(**options, receipts=str(tmp_path / "receipts"))
    (receipt,) = (tmp_path / "receipts").iterdir()
    wait_until_closed(tmp_path / "sink", json.loads(receipt.read_text())["session"])
    assert contents(named.partitions()) == [b"A line.\n"]
    receipt.write_text(receipt.read_text().replace(json.loads(receipt.read_text())["session"], "ab" * 16))
    with pytest.raises(SparkError, match=r"receipts name session abab.*, which is not closed"):
        named.partitions()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "requires an address"),
        ({"path": "/no/such/folder"}, "neither HOST:PORT nor a directory"),
        ({"path": "ftp://host/sink"}, "only local paths"),
        ({"path": "/", "colour": "blue"}, "unknown option 'colour'"),
        ({"path": "/", "content": "maybe"}, "content .* must be true or false"),
        ({"path": "/", "max_content": "2147483647"}, "must be at most"),
        ({"path": "/", "receipts": "/no/such/file"}, "does not exist"),
        ({"path": "/", "session": "[1]"}, "JSON array of names"),
        ({"address": "127.0.0.1:1", "fingerprint": "ab" * 32}, "read_key_file"),
        ({"address": "127.0.0.1:1", "read_key_file": "/no/such/file"}, "to verify the server"),
        ({"address": "127.0.0.1:1", "fingerprint": "ab" * 32, "read_key_file": "/no/such/file"}, "cannot be read"),
    ],
)
def test_wrong_options_are_named(options, message, monkeypatch):
    monkeypatch.delenv("PENSTOCK_KEY", raising=False)
    with pytest.raises(SparkError, match=message):
        reader(**options)


def test_the_server_of_a_source_has_the_limits_of_its_options(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path))
    options = Options({"listen": "127.0.0.1:0", "spool": str(tmp_path / "spool"), "max_metadata": "300"}, "source")
    listen = Listen.read(options)
    options.finish()
    assert listen.limits == Limits(max_metadata=300)
    server, _ = listen.start()
    with server, Session.connect(server.address, fingerprint=server.fingerprint) as session:
        sent = session.send(b"x", metadata={"m": "m" * 300})
        assert (sent.wait(30), sent.reason.code) == (Status.FAILED, ErrorCode.ENTITY_TOO_LARGE)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"listen": "127.0.0.1:0"}, "requires the option spool"),
        ({"spool": "/", "path": "/"}, "requires the option listen"),
        ({"listen": "127.0.0.1:0", "spool": "/", "path": "/"}, "mutually exclusive"),
        ({"listen": "0.0.0.0:4433", "spool": "/"}, "set the option advertise"),
        ({"listen": "nowhere", "spool": "/"}, "HOST:PORT"),
        ({"listen": "127.0.0.1:0", "spool": "s3://b/p", "advertise": "h:1"}, "executors read s3://b/p directly"),
        ({"listen": "127.0.0.1:0", "spool": "/", "storage.region": "r"}, "unknown option 'storage.region'"),
        ({"client_ca": "/", "path": "/"}, "requires the option listen"),
        (
            {"listen": "127.0.0.1:0", "spool": "/", "max_header": "1000"},
            "the option max_header .* must be a number from 1024 to 1048576, not '1000'",
        ),
        (
            {"listen": "127.0.0.1:0", "spool": "/", "max_parent_time": "soon"},
            r"the option max_parent_time .* must be a number of seconds from 0.1 to 3600.0, not 'soon'",
        ),
        ({"path": "/", "max_header": "2000"}, "unknown option 'max_header'"),
        ({"path": "/", "receipts": "/"}, "is only for batch reads"),
        ({"path": "/", "maxRowsPerTrigger": "0"}, "positive number"),
        (
            {"address": "h:1", "fingerprint": "ab" * 32, "deleteAfterCommit": "true", "read_key_file": __file__},
            "deleteAfterCommit .* requires a sink in a directory or object store: .* cannot delete",
        ),
    ],
)
def test_wrong_options_of_a_stream_are_named(options, message):
    with pytest.raises(SparkError, match=message):
        stream(**options)


@pytest.mark.parametrize(
    ("limit", "most"), [({"maxRowsPerTrigger": "7"}, 7), ({"maxBytesPerTrigger": "400"}, 4), ({}, 60)]
)
def test_a_micro_batch_is_as_large_as_the_limit_says_and_nothing_is_lost_between(server, tmp_path, limit, most):
    payloads = [b"%04d" % at * 25 for at in range(60)]
    for start, end in [(0, 30), (30, 31), (31, 60)]:
        send(server, tmp_path / "sink", *payloads[start:end])
    following = stream(**where(server, tmp_path, "server"), **limit)
    offset, read, batches = following.initialOffset(), [], 0
    while (end := following.latestOffset(offset, following.getDefaultReadLimit())) != offset:
        rows = contents(following.partitions(offset, end))
        assert 0 < len(rows) <= most
        assert following.partitions(end, end) == []
        # Whoever was killed here asks again, in another process.
        again = stream(**where(server, tmp_path, "server"), **limit)
        assert sorted(contents(again.partitions(offset, end))) == sorted(rows)
        read, batches, offset = read + rows, batches + 1, end
    assert sorted(read) == payloads
    assert batches >= 60 / most
    assert following.reportLatestOffset() == offset


def test_a_row_larger_than_the_limit_comes_alone(server, tmp_path):
    send(server, tmp_path / "sink", b"a", b"b" * 10_000, b"c")
    following = stream(**where(server, tmp_path, "folder"), maxBytesPerTrigger="100")
    offset, sizes = following.initialOffset(), []
    while (end := following.latestOffset(offset, following.getDefaultReadLimit())) != offset:
        sizes.append(sorted(map(len, contents(following.partitions(offset, end)))))
        offset = end
    # Each entity comes over a stream of its own, so the sink's list has them in the order in which they became whole.
    assert [10_000] in sizes
    assert sorted(size for batch in sizes for size in batch) == [1, 1, 10_000]


def test_available_now_ends_at_what_was_there(server, tmp_path):
    send(server, tmp_path / "sink", b"before")
    following = stream(**where(server, tmp_path, "server"))
    following.prepareForTriggerAvailableNow()
    send(server, tmp_path / "sink", b"after")
    end = following.latestOffset(following.initialOffset(), following.getDefaultReadLimit())
    assert contents(following.partitions(following.initialOffset(), end)) == [b"before"]
    assert following.latestOffset(end, following.getDefaultReadLimit()) == end


def test_a_checkpoint_of_another_sink_is_refused(server, tmp_path):
    send(server, tmp_path / "sink", b"bytes")
    following = stream(**where(server, tmp_path, "folder"))
    limit = following.getDefaultReadLimit()
    end = following.latestOffset(following.initialOffset(), limit)
    for offset, message in [
        ({**end, "journal": "another", "session": 0}, "another sink"),
        ({**end, "session": 7}, "ahead of the sink"),
        ({"index": 3}, "is not an offset of this one"),
    ]:
        with pytest.raises(SparkError, match=message):
            following.partitions(offset, {**end, "session": 9})


def test_a_source_that_listens_takes_senders_with_a_certificate_only(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path / "state"))
    own = tmp_path / "senders"
    write_certificates(own)
    following = stream(listen="127.0.0.1:0", spool=str(tmp_path / "spool"), client_ca=str(own / "ca.pem"))
    start, limit = following.initialOffset(), following.getDefaultReadLimit()
    try:
        following.latestOffset(start, limit)
        server = following._server
        with (
            pytest.raises(PipeStreamError),
            Session.connect(server.address, fingerprint=server.fingerprint) as session,
        ):
            session.send(b"of nobody").wait()
        pair = {"cert": own / "cert.pem", "key": own / "key.pem"}
        with Session.connect(server.address, fingerprint=server.fingerprint, **pair) as session:
            session.send(b"of somebody")
        wait_until_closed(tmp_path / "spool", session.id)
        # Executors have no certificate, and the key of this run.
        end = following.latestOffset(start, limit)
        assert contents(following.partitions(start, end)) == [b"of somebody"]
    finally:
        following.stop()


def test_a_server_that_asks_for_certificates_asks_readers_too(tmp_path):
    own = tmp_path / "clients"
    write_certificates(own)
    pair = {"cert": str(own / "cert.pem"), "key": str(own / "key.pem")}
    (tmp_path / "key").write_text(KEY)
    with Server(sink=tmp_path / "sink", read_key=KEY, client_ca=own / "ca.pem", state_dir=tmp_path) as server:
        with Session.connect(server.address, fingerprint=server.fingerprint, **pair) as session:
            session.send(b"bytes")
        wait_until_closed(tmp_path / "sink", session.id)
        options = where(server, tmp_path, "server")
        with pytest.raises(SparkError, match="cannot be read"):
            reader(**options).partitions()
        assert contents(reader(**options, **pair).partitions()) == [b"bytes"]


def test_committed_sessions_are_removed_only_where_that_was_asked_for(server, tmp_path):
    sessions = [send(server, tmp_path / "sink", b"a", b"b") for _ in range(3)]
    for delete in ("false", "true"):
        following = stream(**where(server, tmp_path, "folder"), maxRowsPerTrigger="5", deleteAfterCommit=delete)
        end = following.latestOffset(following.initialOffset(), following.getDefaultReadLimit())
        following.commit(end)
        left = [session for session in sessions if (tmp_path / "sink" / session).exists()]
        assert left == (sessions[2:] if delete == "true" else sessions)
    rest = following.latestOffset(end, following.getDefaultReadLimit())
    assert len(contents(following.partitions(end, rest))) == 1


@pytest.mark.timeout(300)
@pytest.mark.parametrize("place", ["folder", "server"])
def test_spark_reads_a_sink(spark, server, tmp_path, place):
    payloads = [b"%04d" % at * 500 for at in range(50)]
    session = send(server, tmp_path / "sink", *payloads)
    rows = spark.read.format("pipestream").options(**where(server, tmp_path, place), minPartitions="3").load()
    assert rows.schema == ROW_COLUMNS
    found = rows.collect()
    assert sorted(bytes(row.content) for row in found) == payloads
    assert {(row.session, row.status, row.metadata["penstock.document"]) for row in found} == {
        (session, "COMPLETE", "0")
    }
    chosen = spark.read.format("pipestream").schema("content binary, entity bigint")
    two = chosen.options(**where(server, tmp_path, place)).load().where("entity <= 2").collect()
    assert sorted(bytes(row.content) for row in two) == payloads[:2]


@pytest.mark.timeout(300)
def test_what_one_job_writes_another_one_reads(spark, server, tmp_path):
    to = {"address": server.address, "fingerprint": server.fingerprint}
    rows = spark.range(100).selectExpr("cast(id as string) content", "concat('d', id % 3) document").repartition(3)
    rows.write.format("pipestream").options(**to).mode("append").save()
    found = spark.read.format("pipestream").options(**where(server, tmp_path, "server")).load()
    pairs = found.selectExpr("int(cast(content as string)) as id", "document").collect()
    assert sorted((row.id, row.document) for row in pairs) == [(at, f"d{at % 3}") for at in range(100)]


@pytest.mark.timeout(300)
def test_a_stream_gives_every_row_once_in_bounded_batches(spark, server, tmp_path):
    rows = (
        spark.readStream.format("pipestream")
        .options(**where(server, tmp_path, "server"), maxRowsPerTrigger="10")
        .load()
    )
    out = rows.selectExpr("cast(content as string) as text").writeStream.format("parquet")
    out = out.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    sent = 0
    for _ in range(2):
        send(server, tmp_path / "sink", *[b"%04d" % (sent + at) for at in range(25)])
        sent += 25
        query = out.start(str(tmp_path / "out"))
        query.awaitTermination()
        assert [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]] == [
            10,
            10,
            5,
        ]
    texts = [row.text for row in spark.read.parquet(str(tmp_path / "out")).collect()]
    assert sorted(texts) == [f"{at:04}" for at in range(50)]


_QUERY = """
import sys
from penstock.spark import local_session
spool, out, checkpoint, cert, key, listen = sys.argv[1:]
with local_session("source", master="local[2]", config={"spark.log.level": "FATAL"}) as spark:
    rows = spark.readStream.format("pipestream").options(
        listen=listen, spool=spool, cert=cert, key=key, maxRowsPerTrigger=200
    ).load()
    query = rows.selectExpr("session", "cast(content as string) as text").writeStream.format("parquet")
    query.option("checkpointLocation", checkpoint).start(out).awaitTermination()
"""


class Senders:
    """Sends sessions until it is told to stop; what was not told to be kept is sent again, as something else."""

    def __init__(self, address: str, fingerprint: str, spool: Path) -> None:
        self.address, self.fingerprint, self.spool = address, fingerprint, spool
        self.told: dict[str, list[str]] = {}
        self.tried = 0
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(2)]
        for thread in self._threads:
            thread.start()

    def _run(self, number: int) -> None:
        attempt = 0
        while not self._stop.is_set():
            attempt += 1
            texts = [f"{number} {attempt} {at}" for at in range(40)]
            with contextlib.suppress(PipeStreamError):
                self.tried += 1
                with Session.connect(self.address, fingerprint=self.fingerprint, timeout=2) as session:
                    for text in texts:
                        session.send(text.encode())
                deadline = time.monotonic() + 2
                while time.monotonic() < deadline and not self._stop.is_set():
                    if is_closed(self.spool, session.id):
                        self.told[session.id] = texts
                        break
                    time.sleep(0.01)
            self._stop.wait(0.02)

    def wait_for(self, sessions: int) -> None:
        """Wait until so many more sessions are kept."""
        wanted, deadline = len(self.told) + sessions, time.monotonic() + 300
        while len(self.told) < wanted:
            assert time.monotonic() < deadline, f"only {len(self.told)} of {wanted} sessions are kept"
            time.sleep(0.02)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def listener(port: int) -> int:
    """The process that listens on a UDP port of this machine."""
    lines = Path("/proc/net/udp").read_text().splitlines()[1:]
    (inode,) = {line.split()[9] for line in lines if line.split()[1].endswith(f":{port:04X}")}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if any(str(file.readlink()) == f"socket:[{inode}]" for file in (process / "fd").iterdir()):
                return int(process.name)
    raise AssertionError(f"nobody listens on {port}")


@pytest.mark.timeout(300)
def test_a_follower_loses_nothing_and_repeats_nothing_when_the_server_is_killed(tmp_path):
    fingerprint = write_certificates(tmp_path / "tls")
    (tmp_path / "key").write_text(KEY)
    command = [sys.executable, "-m", "penstock", "pipestream", "serve", "--sink", str(tmp_path / "sink")]
    command += ["--cert", str(tmp_path / "tls" / "cert.pem"), "--key", str(tmp_path / "tls" / "key.pem")]
    command += ["--read-key-file", str(tmp_path / "key"), "--log-level", "error", "--listen"]
    address, senders = "127.0.0.1:0", None
    offset, read = {}, []
    for killed in (True, True, False):
        with subprocess.Popen([*command, address], stdout=subprocess.PIPE, text=True) as process:
            address = process.stdout.readline().split()[1]
            senders = senders or Senders(address, fingerprint, tmp_path / "sink")
            following = stream(
                address=address, fingerprint=fingerprint, read_key_file=str(tmp_path / "key"), maxRowsPerTrigger="100"
            )
            offset = offset or following.initialOffset()
            senders.wait_for(5)
            if not killed:
                senders.stop()
            for _ in range(2 if killed else 1_000):
                end = following.latestOffset(offset, following.getDefaultReadLimit())
                if end == offset and not killed:
                    break
                read += contents(following.partitions(offset, end))
                offset = end
            process.kill() if killed else process.terminate()
    assert len(read) == len(set(read)), "a row came twice"
    told = {text.encode() for texts in senders.told.values() for text in texts}
    assert told <= set(read)
    assert len(read) % 40 == 0, "a part of a session came"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(sys.platform != "linux", reason="NOT TESTED: kills of a source; it is found in Linux's /proc")
@pytest.mark.usefixtures("start_spark")
def test_rows_come_once_into_files_whoever_is_killed_while_they_are_sent(tmp_path):
    fingerprint = write_certificates(tmp_path / "tls")
    port = free_port()
    spool, out = tmp_path / "spool", tmp_path / "out"
    files = [str(tmp_path / "tls" / name) for name in ("cert.pem", "key.pem")]
    command = [sys.executable, "-c", _QUERY, str(spool), str(out), str(tmp_path / "checkpoint"), *files]
    command += [f"127.0.0.1:{port}"]
    senders = Senders(f"127.0.0.1:{port}", fingerprint, spool)
    query: subprocess.Popen[bytes] | None = None
    try:
        for killed in ("everything", "the source", "nobody"):
            query = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
            senders.wait_for(10)
            if killed == "everything":
                os.killpg(query.pid, signal.SIGKILL)
            elif killed == "the source":
                # The query fails with its source, and so does the program.
                os.kill(listener(port), signal.SIGKILL)
                assert query.wait(120) != 0
            else:
                senders.stop()
                _wait_until_read(out, {text for texts in senders.told.values() for text in texts})
    finally:
        senders.stop()
        if query is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(query.pid, signal.SIGKILL)
            query.wait()
    found = _committed(out)
    assert len(found) == len(set(found)), "a row came twice"
    by_session: dict[str, set[str]] = {}
    for session, text in found:
        by_session.setdefault(session, set()).add(text)
    assert all(len(texts) == 40 for texts in by_session.values()), "a part of a session came"
    missing = {session for session, texts in senders.told.items() if by_session.get(session) != set(texts)}
    assert not missing
    assert set(by_session) <= {path.name for path in spool.iterdir() if is_closed(spool, path.name)}
    assert len(senders.told) >= 30


def _committed(out: Path) -> list[tuple[str, str]]:
    """The rows of the files that the file sink has committed: what a reader of it sees."""
    import pyarrow.parquet as pq

    rows: list[tuple[str, str]] = []
    names: set[str] = set()
    for log in (out / "_spark_metadata").glob("[0-9]*"):
        names |= {json.loads(line)["path"].rpartition("/")[2] for line in log.read_text().splitlines()[1:]}
    for name in names:
        table = pq.read_table(out / name)
        rows += zip(table.column("session").to_pylist(), table.column("text").to_pylist(), strict=True)
    return rows


def _wait_until_read(out: Path, texts: set[str]) -> None:
    deadline = time.monotonic() + 300
    while not texts <= {text for _, text in _committed(out)}:
        assert time.monotonic() < deadline, "not all rows came"
        time.sleep(0.2)
