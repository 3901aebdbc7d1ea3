"""The data source "lumberjack", read: batch, and as a stream that is killed in every way."""

import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DayTimeIntervalType,
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from penstock.errors import LumberjackError, SparkError
from penstock.lumberjack import Position, Receiver, Sender, Spool, SpoolReader
from penstock.spark import LumberjackDataSource
from penstock.spark.lumberjack.checkpoint import committed_offsets
from penstock.spark.lumberjack.source import EVENT_COLUMNS
from penstock.spark.lumberjack.stream_reader import LumberjackStreamReader

from ..objects.s3 import s3
from ..ports import free_address, free_port

__all__ = ["s3"]

KEY = "a secret of 16 bytes or more"


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    with Spool(tmp_path / "spool") as spool:
        yield spool


def fill(spool: Spool, *events: dict[str, object] | bytes, window: int = 50) -> None:
    """Send events through a receiver; they are in the spool when this returns."""
    with Receiver(spool=spool) as receiver, Sender(receiver.address, window=window) as sender:
        sender.send(events, timeout=60)


def where(spool: Spool, tmp_path: Path, place: str) -> dict[str, str]:
    """Options for the folder, or for the receiver that keeps it."""
    if place == "folder":
        return {"path": str(tmp_path / "spool")}
    (tmp_path / "key").write_text(KEY + "\n")
    address, fingerprint = spool.serve(read_key=KEY, state=tmp_path)
    return {"address": address, "fingerprint": fingerprint, "read_key_file": str(tmp_path / "key")}


def reader(schema: StructType = EVENT_COLUMNS, **options: str):
    return LumberjackDataSource(options).reader(schema)


def stream(schema: StructType = EVENT_COLUMNS, **options: str) -> LumberjackStreamReader:
    return LumberjackDataSource(options).streamReader(schema)


def rows(partitions) -> list[dict[str, object]]:
    copies = pickle.loads(pickle.dumps(partitions))  # noqa: S301
    return [row for partition in copies for batch in partition.read() for row in batch.to_pylist()]


def numbers(partitions) -> list[int]:
    return [json.loads(str(row["event"]))["n"] for row in rows(partitions)]


@pytest.mark.parametrize("place", ["folder", "receiver"])
def test_a_spool_is_read_where_it_lies_and_from_its_receiver(spool, tmp_path, place):
    fill(spool, *[{"n": number} for number in range(120)])
    options = where(spool, tmp_path, place)
    partitions = reader(**options).partitions()
    assert numbers(partitions) == list(range(120))
    fill(spool, {"n": 120})
    assert numbers(partitions) == list(range(120))
    assert numbers(reader(**options).partitions()) == list(range(121))


def test_a_spool_in_an_object_store_is_read_and_followed_without_its_receiver(s3):
    options = {"path": s3.uri("spool"), **{f"storage.{name}": value for name, value in s3.storage.items()}}
    with Spool(s3.uri("spool"), storage=s3.storage, linger=0.02) as spool:
        fill(spool, *[{"n": number} for number in range(120)])
        following = stream(**options, maxRowsPerTrigger="50")
        start = following.initialOffset()
        half = following.latestOffset(start, following.getDefaultReadLimit())
        assert numbers(following.partitions(start, half)) == list(range(50))
    assert numbers(reader(**options).partitions()) == list(range(120))
    end = following.latestOffset(half, following.getDefaultReadLimit())
    assert numbers(stream(**options).partitions(half, end)) == list(range(50, 100))


def test_fields_become_columns_and_what_does_not_fit_is_kept(spool, tmp_path):
    fill(
        spool,
        {"n": 1, "at": "2026-01-02T03:04:05Z", "log": {"line": 7}, "more": [1], "price": 1.5},
        {"n": "one"},
        b"no JSON",
    )
    schema = (
        StructType()
        .add("n", IntegerType())
        .add("at", TimestampType())
        .add("log", StructType().add("line", LongType()))
        .add("price", DecimalType(5, 2))
        .add("_rescue", StringType())
        .add("_raw", BinaryType())
        .add("_tags", ArrayType(StringType()))
    )
    first, second, third = rows(reader(schema, **where(spool, tmp_path, "folder")).partitions())
    assert (first["n"], first["log"], first["_rescue"]) == (1, {"line": 7}, '{"more":[1]}')
    assert (first["price"], second["price"]) == (Decimal("1.50"), None)
    assert first["at"].isoformat() == "2026-01-02T03:04:05+00:00"
    assert (second["n"], json.loads(second["_rescue"])) == (None, {"n": "one"})
    assert (third["n"], third["_raw"], third["_tags"]) == (None, b"no JSON", ["_jsonparsefailure"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "lumberjack source requires an address"),
        ({"path": "/no/such/folder"}, "neither HOST:PORT nor a directory"),
        ({"path": "/", "colour": "blue"}, "unknown option 'colour'"),
        ({"address": "127.0.0.1:1"}, "to verify the receiver"),
        ({"address": "127.0.0.1:1", "fingerprint": "ab" * 32, "read_key_file": "/no/such/file"}, "cannot be read"),
        ({"listen": "127.0.0.1:0"}, "requires the option spool"),
        ({"spool": "/", "path": "/"}, "requires the option listen"),
        ({"listen": "127.0.0.1:0", "spool": "/", "path": "/"}, "mutually exclusive"),
        ({"listen": "0.0.0.0:5044", "spool": "/"}, "set the option advertise"),
        ({"listen": "nowhere", "spool": "/"}, "HOST:PORT"),
        ({"listen": "127.0.0.1:0", "spool": "/", "ack": "never"}, "spool or commit"),
        ({"path": "/", "maxRowsPerTrigger": "0"}, "positive number"),
    ],
)
def test_wrong_options_of_a_stream_are_named(options, message, monkeypatch):
    monkeypatch.delenv("PENSTOCK_KEY", raising=False)
    with pytest.raises(SparkError, match=message):
        stream(**options)


def test_a_type_that_no_event_has_is_named(spool, tmp_path):
    fill(spool, {"took": 1})
    with pytest.raises(SparkError, match="column took has the type Duration"):
        rows(reader(StructType().add("took", DayTimeIntervalType()), **where(spool, tmp_path, "folder")).partitions())


@pytest.mark.parametrize("limit", [{"maxRowsPerTrigger": "7"}, {"maxBytesPerTrigger": "400"}, {}])
def test_a_micro_batch_is_as_large_as_the_limit_says_and_nothing_is_lost_between(spool, tmp_path, limit):
    fill(spool, *[{"n": number} for number in range(100)], window=30)
    options = where(spool, tmp_path, "receiver")
    following = stream(**options, **limit)
    offset, read = following.initialOffset(), []
    while (end := following.latestOffset(offset, following.getDefaultReadLimit())) != offset:
        found = numbers(following.partitions(offset, end))
        assert 0 < len(found) <= (7 if "maxRowsPerTrigger" in limit else 100)
        assert following.partitions(end, end) == []
        # Whoever was killed here asks again, in another process.
        assert numbers(stream(**options, **limit).partitions(offset, end)) == found
        read, offset = read + found, end
    assert read == list(range(100))
    assert following.reportLatestOffset() == {**offset, "tick": 0}


def test_available_now_ends_at_what_was_there(spool, tmp_path):
    fill(spool, {"n": 0})
    following = stream(**where(spool, tmp_path, "folder"))
    following.prepareForTriggerAvailableNow()
    fill(spool, {"n": 1})
    end = following.latestOffset(following.initialOffset(), following.getDefaultReadLimit())
    assert numbers(following.partitions(following.initialOffset(), end)) == [0]
    assert following.latestOffset(end, following.getDefaultReadLimit()) == end


def test_a_checkpoint_of_another_spool_is_refused(spool, tmp_path):
    fill(spool, {"n": 0})
    following = stream(**where(spool, tmp_path, "folder"))
    end = following.latestOffset(following.initialOffset(), following.getDefaultReadLimit())
    with pytest.raises(SparkError, match="the checkpoint has positions of the spool"):
        following.latestOffset({**end, "spool": "ab" * 16}, following.getDefaultReadLimit())
    with pytest.raises(SparkError, match="belongs to another source"):
        following.partitions({}, {"session": 3})


def test_segments_stay_until_the_slowest_named_reader_has_committed(tmp_path):
    with Spool(tmp_path / "spool", segment_bytes=1) as spool:
        for number in range(6):
            fill(spool, {"n": number})
        options = where(spool, tmp_path, "receiver")
        fast, slow = stream(**options, reader="fast"), stream(**options, reader="slow")
        everything = fast.latestOffset(fast.initialOffset(), fast.getDefaultReadLimit())
        slow.commit(slow.initialOffset())
        half = slow.latestOffset(
            slow.initialOffset(), type(slow)(None, slow.columns, slow.shares, max_rows=3).getDefaultReadLimit()
        )
        slow.commit(half)
        fast.commit(everything)
        assert numbers(slow.partitions(half, everything)) == [3, 4, 5]
        slow.commit(everything)
        # An idle reader has nothing to commit any more, so there is no tick.
        assert slow.latestOffset(everything, slow.getDefaultReadLimit()) == everything
        assert numbers(reader(**options).partitions()) == [4, 5]
        with pytest.raises(SparkError, match=r"segment \d of the spool is gone"):
            slow.partitions(half, everything)


def listening(tmp_path: Path, port: int, **options: str) -> LumberjackStreamReader:
    return stream(listen=f"127.0.0.1:{port}", spool=str(tmp_path / "spool"), **options)


def wait_for_events(following: LumberjackStreamReader, offset: dict[str, object]) -> dict[str, object]:
    deadline = time.monotonic() + 60
    while (end := following.latestOffset(offset, following.getDefaultReadLimit())) == offset:
        assert time.monotonic() < deadline, "nothing came"
        time.sleep(0.01)
    return end


def test_with_ack_commit_one_window_and_then_silence_is_acknowledged_by_a_tick(tmp_path):
    port = free_port()
    following = listening(tmp_path, port, ack="commit")
    start = following.latestOffset(following.initialOffset(), following.getDefaultReadLimit())
    with Sender(f"127.0.0.1:{port}") as sender:
        sender.send([{"n": 1}], wait=False)
        end = wait_for_events(following, start)
        assert numbers(following.partitions(start, end)) == [1]
        assert not sender.try_flush(0.2), "it is not committed"
        # The micro-batch has ended, and there is nothing new: the source advances all the same.
        tick = following.latestOffset(end, following.getDefaultReadLimit())
        assert tick == {**end, "tick": 1}
        following.commit(end)
        assert following.partitions(end, tick) == []
        sender.flush(60)
        assert following.latestOffset(tick, following.getDefaultReadLimit()) == tick
    following.stop()


def test_what_the_log_of_commits_says_is_acknowledged_at_the_next_start(tmp_path):
    port, checkpoint = free_port(), tmp_path / "checkpoint"
    options = {"ack": "commit", "checkpointLocation": str(checkpoint)}
    following = listening(tmp_path, port, **options)
    start = following.latestOffset(following.initialOffset(), following.getDefaultReadLimit())
    with Sender(f"127.0.0.1:{port}") as sender:
        sender.send([{"n": 1}], wait=False)
        end = wait_for_events(following, start)
        for name, lines in {"offsets/0": f"v1\n{{}}\n-\n{json.dumps(end)}", "commits/0": "v1\n{}"}.items():
            (checkpoint / name).parent.mkdir(parents=True)
            (checkpoint / name).write_text(lines)
        assert committed_offsets(str(checkpoint)) == [end]
        following.stop()
        sender.flush(60)
        sender.send([{"n": 2}], wait=False)
        again = listening(tmp_path, port, **options)
        # The first one is not there twice, whether its acknowledgement arrived or not.
        later = wait_for_events(again, end)
        assert numbers(again.partitions(end, later)) == [2]
        again.commit(later)
        sender.flush(60)
        again.stop()


@pytest.mark.timeout(300)
def test_spark_reads_a_spool_and_a_stream_of_it_in_bounded_batches(spark, spool, tmp_path):
    fill(spool, *[{"n": number, "text": f"line {number}"} for number in range(50)])
    options = where(spool, tmp_path, "receiver")
    raw = spark.read.format("lumberjack").options(**options).load()
    assert raw.schema == EVENT_COLUMNS
    assert raw.selectExpr("sum(cast(get_json_object(event, '$.n') as int)) s", "count(peer) c").first() == (1225, 50)
    lines = spark.readStream.format("lumberjack").schema("n int, text string, _sequence long")
    lines = lines.options(**options, maxRowsPerTrigger="20", reader="test").load()
    out = lines.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = out.trigger(availableNow=True).start(str(tmp_path / "out"))
    query.awaitTermination()
    counts = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
    assert counts == [20, 20, 10]
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted((row.n, row.text) for row in found) == [(n, f"line {n}") for n in range(50)]
    # All of it was committed, though nothing has come since.
    readers = json.loads((tmp_path / "spool" / "readers.json").read_text())
    assert Position(*readers["test"]) == spool.end()


@pytest.mark.timeout(300)
def test_spark_reads_a_spool_without_events_as_no_rows(spark, spool, tmp_path):
    assert spool.id
    read = spark.read.format("lumberjack").load(str(tmp_path / "spool"))
    assert (read.schema, read.collect()) == (EVENT_COLUMNS, [])


def test_a_query_that_is_idle_acknowledges_its_last_batch(spark, tmp_path):
    port, checkpoint = free_port(), str(tmp_path / "checkpoint")
    events = spark.readStream.format("lumberjack").options(
        listen=f"127.0.0.1:{port}", spool=str(tmp_path / "spool"), ack="commit", checkpointLocation=checkpoint
    )
    out = events.load().select("event").writeStream.format("parquet").option("checkpointLocation", checkpoint)
    query = out.start(str(tmp_path / "out"))
    try:
        with Sender(f"127.0.0.1:{port}") as sender:
            sender.send([{"n": 1}, {"n": 2}], timeout=120)
        assert spark.read.parquet(str(tmp_path / "out")).count() == 2
    finally:
        query.stop()


@pytest.mark.timeout(300)
def test_rows_are_shipped_to_a_receiver(spark, spool, tmp_path):
    with Receiver(spool=spool) as receiver:
        rows = spark.range(100).selectExpr("id n", "timestamp_seconds(id) at", "array(id) list").repartition(2)
        rows.write.format("lumberjack").mode("append").save(receiver.address)
        ready = spark.range(3).selectExpr("concat('{\"ready\":', id, '}') event")
        ready.write.format("lumberjack").mode("append").option("protocol", "1").save(receiver.address)
        source = where(spool, tmp_path, "folder")
        stream = spark.readStream.format("lumberjack").schema("n long, ready int").options(**source).load()
        (tmp_path / "second").mkdir()
        with Spool(tmp_path / "second" / "spool") as second, Receiver(spool=second) as other:
            to = stream.where("ready >= 0").selectExpr("string(ready) ready").writeStream.format("lumberjack")
            to = to.option("checkpointLocation", str(tmp_path / "checkpoint")).option("frames", "map")
            to.trigger(availableNow=True).start(other.address).awaitTermination()
            pairs = [row["fields"] for row in read_all(tmp_path / "second" / "spool")]
    found = [json.loads(str(row["event"])) for row in read_all(tmp_path / "spool")]
    assert sorted(row["n"] for row in found if "n" in row) == list(range(100))
    assert {"n": 1, "at": "1970-01-01T00:00:01+00:00", "list": [1]} in found
    assert sorted(row["ready"] for row in found if "ready" in row) == [0, 1, 2]
    assert sorted(pairs) == [[("ready", "0")], [("ready", "1")], [("ready", "2")]]


def test_options_that_do_not_go_together_are_named_before_anything_is_opened(spool, tmp_path):
    folder = where(spool, tmp_path, "folder")
    with pytest.raises(SparkError, match=r"the option reader .* requires the HOST:PORT of a receiver"):
        stream(**folder, reader="nightly")
    with pytest.raises(SparkError, match=r"the option fingerprint .* cannot be combined with the other options"):
        stream(**folder, fingerprint="ab" * 32)
    with pytest.raises(SparkError, match=r"unknown option 'colour' .* options: .*ca,.*path,.*key_file,.*storage.NAME"):
        reader(**folder, colour="red")


def read_all(folder: Path) -> list[dict[str, object]]:
    return [row for batch in SpoolReader(folder).read() for row in batch.to_pylist()]


_QUERY = """
import json, sys
from penstock.spark import local_session
out, checkpoint, options = sys.argv[1:]
with local_session("source", master="local[2]", config={"spark.log.level": "FATAL"}) as spark:
    rows = spark.readStream.format("lumberjack").schema("n long").options(
        checkpointLocation=checkpoint, **json.loads(options)
    ).load()
    rows.writeStream.format("parquet").option("checkpointLocation", checkpoint).start(out).awaitTermination()
"""


class Shipper(threading.Thread):
    """Sends numbers until it is told to stop, and knows which of them were acknowledged."""

    def __init__(self, address: str, *, pause: float = 0.005) -> None:
        super().__init__()
        self.sent, self.stopped, self.pause = 0, threading.Event(), pause
        self.sender = Sender(address, window=64, ack_timeout=5)

    def run(self) -> None:
        with contextlib.suppress(LumberjackError):
            while not self.stopped.is_set():
                self.sender.send([{"n": self.sent + at} for at in range(50)], wait=False)
                self.sent += 50
                self.stopped.wait(self.pause)

    def wait_for(self, events: int) -> None:
        wanted, deadline = self.sender.acknowledged + events, time.monotonic() + 120
        while self.sender.acknowledged < wanted:
            assert time.monotonic() < deadline, f"only {self.sender.acknowledged} of {wanted} are acknowledged"
            time.sleep(0.02)

    def finish(self) -> None:
        self.stopped.set()
        self.join()
        self.sender.close(60)


def listener(port: int) -> int:
    """The process that listens on a TCP port of this machine."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    (inode,) = {line[9] for line in lines if line[1].endswith(f":{port:04X}") and line[3] == "0A"}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if any(str(file.readlink()) == f"socket:[{inode}]" for file in (process / "fd").iterdir()):
                return int(process.name)
    raise AssertionError(f"nobody listens on {port}")


class Beside:
    """`penstock lumberjack receive`, a process beside Spark, which is killed and started again on its spool."""

    def __init__(self, folder: Path) -> None:
        self.address, self.read_address = free_address(), free_address()
        self.folder, self.process = folder, None
        (folder / "key").write_text(KEY)

    def start(self) -> dict[str, str]:
        """Give the options of a source that follows it."""
        command = [sys.executable, "-m", "penstock", "lumberjack", "receive", "--spool", str(self.folder / "spool")]
        command += ["--listen", self.address, "--read-listen", self.read_address, "--log-level", "error"]
        command += ["--read-key-file", str(self.folder / "key")]
        environment = {**os.environ, "PENSTOCK_STATE": str(self.folder)}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert self.process.stdout.readline().startswith("listening")
        fingerprint = self.process.stdout.readline().split()[3]
        key = str(self.folder / "key")
        return {"address": self.read_address, "fingerprint": fingerprint, "read_key_file": key}

    def end(self, how: signal.Signals = signal.SIGKILL) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.communicate()


@pytest.mark.timeout(300)
def test_a_follower_loses_nothing_and_repeats_nothing_when_the_receiver_is_killed(tmp_path):
    receiver = Beside(tmp_path)
    shipper = Shipper(receiver.address)
    shipper.start()
    offset, read = {}, []
    for killed in (True, True, False):
        following = stream(**receiver.start(), maxRowsPerTrigger="500")
        offset = offset or following.initialOffset()
        shipper.wait_for(1_000)
        if not killed:
            shipper.finish()
        for _ in range(2 if killed else 10_000):
            end = following.latestOffset(offset, following.getDefaultReadLimit())
            if end == offset and not killed:
                break
            read += numbers(following.partitions(offset, end))
            offset = end
        receiver.end(signal.SIGKILL if killed else signal.SIGTERM)
    assert read == list(range(shipper.sent)), "an event is missing, or came twice"


class Query:
    """A program with a streaming query into files of Parquet, which is killed and started again on its checkpoint."""

    def __init__(self, folder: Path) -> None:
        self.out, self.checkpoint = folder / "out", folder / "checkpoint"
        self.process = None

    def start(self, **options: str) -> None:
        options = {"maxRowsPerTrigger": "2000", **options}
        command = [sys.executable, "-c", _QUERY, str(self.out), str(self.checkpoint), json.dumps(options)]
        self.process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        """It, and Spark, and the source's process."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def has_failed(self) -> bool:
        return self.process.wait(240) != 0

    def wait_for(self, events: int) -> None:
        """Until so many events are in its files."""
        deadline = time.monotonic() + 240
        while (found := len(committed(self.out))) < events:
            assert self.process.poll() is None, "the query has ended"
            assert time.monotonic() < deadline, f"only {found} of {events} rows came"
            time.sleep(0.2)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(sys.platform != "linux", reason="NOT TESTED: kills of a source; it is found in Linux's /proc")
@pytest.mark.usefixtures("start_spark")
def test_events_come_once_into_files_whoever_is_killed_while_they_are_sent(tmp_path):
    port, query = free_port(), Query(tmp_path)
    shipper = Shipper(f"127.0.0.1:{port}")
    shipper.start()
    try:
        for killed in ("everything", "the source", "nobody"):
            query.start(listen=f"127.0.0.1:{port}", spool=str(tmp_path / "spool"))
            shipper.wait_for(3_000)
            if killed == "everything":
                query.kill()
            elif killed == "the source":
                # The query fails with its source, and so does the program.
                os.kill(listener(port), signal.SIGKILL)
                assert query.has_failed()
            else:
                shipper.finish()
                query.wait_for(shipper.sent)
    finally:
        shipper.stopped.set()
        shipper.sender.abandon()
        query.kill()
    assert sorted(committed(query.out)) == list(range(shipper.sent)), "an event is missing, or came twice"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("start_spark")
def test_events_of_a_receiver_beside_spark_come_once_into_files_whoever_is_killed(tmp_path):
    receiver, query = Beside(tmp_path), Query(tmp_path)
    # What comes while Spark starts is to be read in a few batches.
    shipper = Shipper(receiver.address, pause=0.05)
    shipper.start()
    try:
        options = receiver.start()
        for killed in ("the receiver", "the query", "nobody"):
            query.start(**options, reader="test", maxRowsPerTrigger="20000")
            query.wait_for(len(committed(query.out)) + 1_000)
            if killed == "the receiver":
                receiver.end()
                # The query cannot read on, and says so.
                assert query.has_failed()
                assert receiver.start() == options
                shipper.wait_for(1_000)
            elif killed == "the query":
                query.kill()
                shipper.wait_for(1_000)
            else:
                shipper.finish()
                query.wait_for(shipper.sent)
    finally:
        shipper.stopped.set()
        shipper.sender.abandon()
        query.kill()
        receiver.end()
    assert sorted(committed(query.out)) == list(range(shipper.sent)), "an event is missing, or came twice"


def committed(out: Path) -> list[int]:
    """The rows of the files that the file sink has committed: what a reader of it sees."""
    import pyarrow.parquet as pq

    names: set[str] = set()
    for log in (out / "_spark_metadata").glob("[0-9]*"):
        names |= {json.loads(line)["path"].rpartition("/")[2] for line in log.read_text().splitlines()[1:]}
    return [number for name in names for number in pq.read_table(out / name).column("n").to_pylist()]


def test_lost_events_fail_a_query_until_it_is_told_to_leave_them_out(spark, tmp_path):
    with Spool(tmp_path / "spool") as spool:
        fill(spool, *({"n": number} for number in range(6)), window=1)
    (segment,) = (tmp_path / "spool").glob("*.segment")
    data = bytearray(segment.read_bytes())
    data[data.index(b'{"n":3}') + 3] ^= 1
    segment.write_bytes(data)
    read = spark.read.format("lumberjack").option("path", str(tmp_path / "spool"))
    with pytest.raises(
        Exception,
        match=r"rows 3 to 3 are lost: bytes \d+ to \d+ of 00000000000000000001.segment are not what was written",
    ):
        read.load().collect()
    found = read.option("skipDamaged", "true").load().collect()
    assert [json.loads(row.event)["n"] for row in found] == [0, 1, 2, 4, 5]
