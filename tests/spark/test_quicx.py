"""The data source "quicx": rows that become tasks, each once, and tasks that become rows, DONE when committed."""

import json
import pickle
import threading
import time
from collections import Counter

import pyarrow as pa
import pytest
from attempts import failing_first
from pyspark.sql.types import LongType, StringType, StructType

from penstock.errors import SparkError
from penstock.quicx import Daemon, Producer, Worker
from penstock.spark import QuicxDataSource
from penstock.spark.quicx.source import TASK_COLUMNS

from ..ports import free_address

PAYLOAD = StructType().add("payload", StringType())


@pytest.fixture
def daemon():
    with Daemon() as daemon:
        yield daemon


def writer(schema: StructType = PAYLOAD, **options: str):
    return pickle.loads(pickle.dumps(QuicxDataSource(options).writer(schema, overwrite=False)))  # noqa: S301


def stream(daemon: Daemon, **options: str):
    return QuicxDataSource({"address": daemon.address, **options}).streamReader(TASK_COLUMNS)


def rows(*payloads: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"payload": list(payloads)})


def drained(daemon: Daemon, *types: str) -> list[bytes]:
    """Run all tasks that wait, and give their payloads."""
    found: list[bytes] = []
    worker = Worker(daemon.address)
    for name in types:
        worker.task(name)(found.append)
    ended = threading.Event()
    worker.task("last")(lambda _payload: ended.set())
    with worker, Producer(daemon.address) as producer:
        worker.start()
        producer.submit("last")
        assert ended.wait(60)
    return found


@pytest.mark.parametrize(
    ("options", "schema", "message"),
    [
        ({}, PAYLOAD, "requires a task type"),
        ({"type": "ocr"}, PAYLOAD, "requires an address"),
        ({"type": "", "path": "a:1"}, PAYLOAD, "1 to 255 bytes"),
        ({"type": "ocr", "path": "nowhere"}, PAYLOAD, "HOST:PORT"),
        ({"type": "ocr", "path": "sink:1"}, PAYLOAD, "is not on this machine: set fingerprint, ca or system_ca"),
        ({"type": "ocr", "path": "sink:1", "system_ca": "true", "ca": "f"}, PAYLOAD, "one of the options"),
        ({"type": "ocr", "path": "a:1", "plain": "true", "colour": "blue"}, PAYLOAD, "unknown option 'colour'"),
        ({"type": "ocr", "socket": "s", "address": "a:1"}, PAYLOAD, "mutually exclusive"),
        (
            {"type": "ocr", "path": "127.0.0.1:1"},
            StructType().add("payload", StringType()).add("more", LongType()),
            "unknown column 'more'",
        ),
        ({"path": "127.0.0.1:1"}, StructType().add("type", LongType()), "must be a string"),
        ({"type": "a", "path": "127.0.0.1:1"}, StructType().add("payload", LongType()), "binary or string"),
    ],
)
def test_wrong_options_and_columns_of_the_sink_are_named(options, schema, message):
    with pytest.raises(SparkError, match=message):
        writer(schema, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"maxRowsPerTrigger": "0"}, "from 1 to 65535"),
        ({"retry": "soon"}, "positive"),
        ({"type": "a"}, "unknown option 'type'"),
        ({"types": " , "}, "the option types of the quicx source names nothing"),
    ],
)
def test_wrong_options_of_the_stream_are_named(options, message):
    with pytest.raises(SparkError, match=message):
        QuicxDataSource({"address": "127.0.0.1:1", **options}).streamReader(TASK_COLUMNS)


def test_an_attempt_that_died_and_one_in_another_order_come_to_one_task_for_each_row(daemon):
    sink = writer(path=daemon.address, type="ocr")

    def broken():
        yield rows("a", "a", "b")
        raise RuntimeError("the attempt dies")

    with pytest.raises(RuntimeError):
        sink.write(broken())
    assert daemon.stats.queue_depth == 3
    assert sink.write(iter([rows("c", "b"), rows("a", "d", "a")])).tasks == 5
    # Another job with the same rows is another job.
    writer(path=daemon.address, type="ocr").write(iter([rows("a")]))
    assert Counter(drained(daemon, "ocr")) == {b"a": 3, b"b": 1, b"c": 1, b"d": 1}
    # What is over is known as well.
    sink.write(iter([rows("a", "b", "c", "d", "a")]))
    assert (daemon.stats.queue_depth, daemon.counters.merged) == (0, 8)


def test_a_row_is_its_payload_or_json_and_its_type_and_key_are_columns(daemon):
    schema = StructType().add("type", StringType()).add("payload", StringType()).add("key", StringType())
    batch = pa.RecordBatch.from_pydict({"type": ["a", "b"], "payload": ["x", "y"], "key": ["1", "2"]})
    for _job in range(2):
        writer(schema, path=daemon.address).write(iter([batch]))
    schema = StructType().add("n", LongType()).add("type", StringType())
    batch = pa.RecordBatch.from_pydict({"n": [1, 2], "type": ["a", "a"]})
    writer(schema, path=daemon.address).write(iter([batch]))
    writer(schema, path=daemon.address, type="b").write(iter([batch]))
    found = drained(daemon, "a", "b")
    assert Counter(found) == Counter(
        [b"x", b"y", b'{"n": 1}', b'{"n": 2}', b'{"n": 1, "type": "a"}', b'{"n": 2, "type": "a"}']
    )
    with pytest.raises(SparkError, match="no payload"):
        writer(path=daemon.address, type="a").write(iter([pa.RecordBatch.from_pydict({"payload": [None]})]))


def test_a_full_queue_is_waited_for_and_one_that_stays_full_is_an_error():
    with Daemon(pool_bytes=64 << 10) as daemon:
        sink = writer(path=daemon.address, type="ocr", retry="1")
        with pytest.raises(SparkError, match=r"did not accept the tasks: .*no free block"):
            sink.write(iter([rows(*(f"{n:03}" + "x" * 1_000 for n in range(200)))]))
        waits = writer(path=daemon.address, type="ocr", retry="60")
        found, ended = set(), threading.Event()
        worker = Worker(daemon.address)

        @worker.task("ocr")
        def note(payload):
            if payload.endswith(b"y"):
                found.add(payload[:3])
            if len(found) == 200:
                ended.set()

        with worker:
            worker.start()
            assert waits.write(iter([rows(*(f"{n:03}" + "y" * 1_000 for n in range(200)))])).tasks == 200
            assert ended.wait(60)


def given_back(daemon: Daemon) -> None:
    """Wait until the daemon has noticed that its worker is gone."""
    while daemon.stats.workers_total:
        time.sleep(0.005)


def taken(source, start):
    """Plan a micro-batch, and give its end and the payloads of its rows."""
    end = source.latestOffset(start, source.getDefaultReadLimit())
    partitions = pickle.loads(pickle.dumps(source.partitions(start, end)))  # noqa: S301
    return end, [row["payload"] for part in partitions for batch in part.read() for row in batch.to_pylist()]


def test_tasks_are_done_when_their_micro_batch_is_committed_and_not_before(daemon):
    source = stream(daemon, maxRowsPerTrigger="4", types="none, ocr ,")
    with Producer(daemon.address) as producer:
        producer.submit_many("ocr", [b"%d" % n for n in range(6)])
        producer.submit("other", b"x")
    source.prepareForTriggerAvailableNow()
    start = source.initialOffset()
    first, payloads = taken(source, start)
    assert payloads == [b"0", b"1", b"2", b"3"]
    second, payloads = taken(source, first)
    assert (payloads, daemon.counters.done) == ([], 0), "no more than it may hold"
    source.commit(first)
    third, payloads = taken(source, second)
    assert (payloads, daemon.counters.done) == ([b"4", b"5"], 4)
    # Nothing comes any more, and the last ones are committed by an empty micro-batch.
    tick, payloads = taken(source, third)
    assert tick != third
    assert payloads == []
    source.commit(third)
    assert taken(source, tick) == (tick, [])
    source.stop()
    assert (daemon.counters.done, daemon.stats.queue_depth) == (6, 1)


def test_what_was_not_committed_comes_again_and_what_the_log_of_commits_names_does_not(daemon, tmp_path):
    with Producer(daemon.address) as producer:
        producer.submit_many("ocr", [b"%d" % n for n in range(3)])
    source = stream(daemon, maxRowsPerTrigger="2", checkpointLocation=str(tmp_path))
    source.prepareForTriggerAvailableNow()
    first, payloads = taken(source, source.initialOffset())
    assert payloads == [b"0", b"1"]
    # As Spark leaves it when a query is stopped after its last micro-batch.
    for folder, lines in (("offsets", ["v1", "{}", json.dumps(first)]), ("commits", ["v1", "{}"])):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "0").write_text("\n".join(lines))
    source.stop()
    given_back(daemon)
    source = stream(daemon)
    source.prepareForTriggerAvailableNow()
    assert daemon.counters.done == 2
    end, payloads = taken(source, first)
    assert payloads == [b"2"]
    # The process dies, and Spark repeats the micro-batch.
    source.stop()
    given_back(daemon)
    source = stream(daemon)
    assert source.partitions(first, end) == []
    source.prepareForTriggerAvailableNow()
    assert taken(source, end)[1] == [b"2"]
    source.stop()


def test_a_daemon_that_comes_back_is_gone_on_with(tmp_path):
    address = free_address()
    with Daemon(address, journal=tmp_path) as daemon, Producer(address) as producer:
        producer.submit_many("ocr", [b"0", b"1", b"2"])
        source = stream(daemon, maxRowsPerTrigger="2")
        source.prepareForTriggerAvailableNow()
        first, payloads = taken(source, source.initialOffset())
        assert payloads == [b"0", b"1"]
        daemon.close(drain=0)
    with Daemon(address, journal=tmp_path) as daemon:
        source.commit(first)
        assert daemon.counters.done == 0, "it is not held any more: it comes again"
        end, payloads = taken(source, first)
        assert payloads == [b"0", b"1"]
        source.commit(end)
        assert taken(source, end)[1] == [b"2"]
        source.stop()
        assert daemon.counters.done == 2


@pytest.fixture(scope="module")
def retrying(start_spark):
    with start_spark("local[2,3]") as session:
        yield session


@pytest.mark.timeout(300)
def test_spark_submits_each_row_once_over_attempts_that_fail_and_takes_each_task_once(retrying, daemon, tmp_path):
    texts = retrying.range(0, 3_000, 1, 3).selectExpr("repeat(cast(id as string), 100) as payload")
    failing = texts.mapInArrow(failing_first(), "payload string")
    failing.write.format("quicx").mode("append").option("type", "ocr").save(daemon.address)
    assert (daemon.stats.queue_depth, daemon.counters.submitted) == (3_000, 3_000)
    tasks = retrying.readStream.format("quicx").options(types="ocr", maxRowsPerTrigger="1200").load(daemon.address)
    out = tasks.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = out.trigger(availableNow=True).start(str(tmp_path / "out"))
    query.awaitTermination()
    counts = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
    assert max(counts) <= 1_200
    found = retrying.read.parquet(str(tmp_path / "out")).collect()
    assert Counter(bytes(row.payload).decode() for row in found) == Counter(str(n) * 100 for n in range(3_000))
    # All of them, though nothing has come since the last micro-batch.
    assert (daemon.counters.done, daemon.stats.pmad_bytes_used) == (3_000, 0)


@pytest.mark.timeout(300)
def test_the_last_micro_batch_before_a_pause_and_before_a_stop_is_done(retrying, daemon, tmp_path):
    checkpoint = str(tmp_path / "checkpoint")
    tasks = retrying.readStream.format("quicx").options(checkpointLocation=checkpoint).load(daemon.address)
    out = tasks.writeStream.format("parquet").option("checkpointLocation", checkpoint)
    query = out.start(str(tmp_path / "out"))
    with Producer(daemon.address) as producer:
        # An outcome is known when the micro-batch is committed, and nothing comes after these.
        futures = [producer.future("a", b"%d" % n) for n in range(3)]
        assert all(future.result(120).ok for future in futures)
        last = producer.submit("a", b"last")
        while retrying.read.parquet(str(tmp_path / "out")).count() < 4:
            query.processAllAvailable()
        query.stop()
        assert producer.observe(last, timeout=60).ok
    assert daemon.stats.pmad_bytes_used == 0
