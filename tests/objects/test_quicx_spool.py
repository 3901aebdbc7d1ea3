"""Payloads of tasks as objects: put there by the producer, read by the worker, gone when the task is done."""

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructType

from penstock.errors import QuicxError, SparkError
from penstock.quicx import Daemon, Producer, Worker, purge_spool
from penstock.spark import QuicxDataSource
from penstock.spark.quicx.source import TASK_COLUMNS


def objects(s3) -> list[str]:
    """The names of what lies in the spool, without the mark that makes an empty prefix a folder."""
    return [key for key in s3.list("spool") if not key.endswith("/")]


def test_a_large_payload_is_an_object_as_long_as_its_task_is_there(s3):
    found = []
    with Daemon() as daemon, Producer(daemon.address, spool=s3.uri("spool"), storage=s3.storage) as producer:
        worker = Worker(daemon.address, spool=s3.uri("spool"), storage=s3.storage)
        worker.task("a")(found.append)
        first = producer.submit("a", b"x" * 10_000)
        assert len(objects(s3)) == 1
        with worker:
            worker.start()
            assert producer.observe(first, 60).ok
            assert producer.future("a", b"small").result(60).ok
    assert found == [b"x" * 10_000, b"small"]
    assert objects(s3) == []


def test_old_payloads_are_purged(s3):
    with Daemon() as daemon, Producer(daemon.address, spool=s3.uri("spool"), storage=s3.storage) as producer:
        producer.submit_many("a", [b"x" * 10_000, b"y" * 10_000])
    assert purge_spool(s3.uri("spool"), 3_600, storage=s3.storage) == 0
    assert len(objects(s3)) == 2
    # The store's clock may be a little ahead of ours.
    assert purge_spool(s3.uri("spool"), -3_600, storage=s3.storage) == 2
    assert objects(s3) == []


def test_rows_and_tasks_of_spark_have_the_same_spool(s3):
    options = {"spool": s3.uri("spool"), **{f"storage.{name}": value for name, value in s3.storage.items()}}
    with Daemon() as daemon:
        source = QuicxDataSource({"path": daemon.address, "type": "a", **options})
        sink = source.writer(StructType().add("payload", StringType()), overwrite=False)
        for _attempt in range(2):
            sink.write(iter([pa.RecordBatch.from_pydict({"payload": ["y" * 9_000, "small"]})]))
        assert len(objects(s3)) == 1, "an attempt that is run again has the same object"
        reader = QuicxDataSource({"path": daemon.address, **options}).streamReader(TASK_COLUMNS)
        reader.prepareForTriggerAvailableNow()
        start = reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        rows = [row for part in reader.partitions(start, end) for batch in part.read() for row in batch.to_pylist()]
        assert [row["payload"] for row in rows] == [b"y" * 9_000, b"small"]
        reader.commit(end)
        reader.stop()
        assert (objects(s3), daemon.counters.done) == ([], 2)


def test_a_store_that_is_none_or_does_not_answer_is_named(s3):
    with pytest.raises(QuicxError, match="no bucket"):
        Worker(spool="s3://")
    with pytest.raises(SparkError, match="no storage option colour"):
        QuicxDataSource({"path": "127.0.0.1:1", "spool": s3.uri("x"), "storage.colour": "x"}).streamReader(TASK_COLUMNS)
    with (
        Daemon() as daemon,
        Producer(daemon.address, spool="s3://elsewhere/x", storage=s3.storage) as producer,
        pytest.raises(QuicxError, match="cannot be stored in the spool"),
    ):
        producer.submit("a", b"x" * 10_000)
