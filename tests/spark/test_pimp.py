"""The data source "pimp": rows that become jobs, each chunk once however often a task runs, and jobs that are rows."""

import doctest
import json
import pickle
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructType

from penstock.errors import PimpError, SparkError
from penstock.pimp import Buffer, Job, new_job_id
from penstock.spark import PimpDataSource, stop_when_cancelled
from penstock.spark.pimp import reach
from penstock.spark.pimp.reader import PimpReader
from penstock.spark.pimp.writer import PimpWriter

from ..pimp.conftest import buffer, job

__all__ = ["buffer", "job"]
COLUMNS = StructType().add("n", LongType())


def given(job: Job, **options: str) -> dict[str, str]:
    """Give the options of a job, with both keys."""
    assert job.key is not None
    return {"path": job.url, "key": job.key, "read_key": "reader", **options}


def writer(job: Job, **options: str) -> PimpWriter:
    made = PimpDataSource(given(job, **options)).writer(COLUMNS, overwrite=False)
    return pickle.loads(pickle.dumps(made))  # noqa: S301


def rows(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": list(numbers)})


def read(job: Job) -> list[Any]:
    return [json.loads(line)["n"] for line in job.consumer().read().splitlines()]


def test_options_are_checked_on_the_driver(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_KEY", raising=False)
    url = f"https://buffer.example/pimp/{new_job_id()}"
    wrong = [
        ({}, "requires the job's key"),
        ({"key": "k"}, "requires an address.*https://HOST:PORT/pimp/JOB"),
        ({"key": "k", "path": "nowhere"}, "no URL"),
        ({"key": "k", "path": f"http://buffer.example/pimp/{new_job_id()}"}, "plain HTTP"),
        ({"key": "k", "path": url, "allowed_hosts": "a.example, b.example"}, "allowed_hosts"),
        ({"key": "k", "path": url, "allowed_hosts": ""}, "the option allowed_hosts .* names nothing"),
        (given(job, jobs="each"), "query or partition"),
        (given(job, rows="csv"), "jsonl or ipc"),
        (given(job, colour="blue"), "unknown option 'colour'"),
        (given(job) | {"key": "another"}, "cannot be created"),
    ]
    for options, message in wrong:
        with pytest.raises(SparkError, match=message):
            PimpDataSource(options).writer(COLUMNS, overwrite=False)
    with pytest.raises(SparkError, match="only appends"):
        PimpDataSource(given(job)).writer(COLUMNS, overwrite=True)
    gone = f"{job.url.removesuffix(job.id)}{new_job_id()}"
    for name in ("path", "address", "Address"):
        with pytest.raises(SparkError, match=f"cannot read {gone}: "):
            PimpReader.schema_of({name: gone})


def test_an_attempt_that_comes_later_has_the_same_chunks_and_the_earlier_one_writes_no_more(job: Job) -> None:
    target = writer(job, jobs="partition", chunkBytes="1024").target
    own = reach.own_job(target.job, "0")
    first = reach.take_over_job(own, target.job)
    early = first.sender(
        content_type="application/x-ndjson",
        encoding="identity",
        chunk_bytes=1024,
        max_chunks_per_batch=1,
        flush_interval=None,
    )
    early.send(f'{{"n":{number}}}\n' for number in range(400))
    seen, reader = b"", first.consumer()
    while len(seen) < 3 * 1024:
        seen += reader.receive(timeout=30) or b""
    # The attempt is lost, having written some of its chunks; another one begins and comes to the end.
    sink = writer(job, jobs="partition", chunkBytes="1024")
    message = sink.write(iter([rows(*range(300)), rows(*range(300, 1000))]))
    with pytest.raises(PimpError) as refused, early:
        early.send(b'{"n":0}\n' * 1000)
    assert refused.value.code == "UNAUTHORIZED"
    # And once more: nothing changes.
    assert sink.write(iter([rows(*range(1000))])) == message
    sink.commit([message, None])
    (line,) = job.consumer().read().splitlines()
    assert json.loads(line) == {"partition": 0, "url": message.url, "rows": 1000, "bytes": message.size}
    assert read(Job(json.loads(line)["url"], read_key="reader")) == list(range(1000))


def test_a_cancelled_job_stops_the_task_that_writes_it(job: Job) -> None:
    taken = 0

    def endless() -> Iterator[pa.RecordBatch]:
        nonlocal taken
        while True:
            taken += 1
            yield rows(*range(1000))
            if taken == 3:
                Job(job.url, read_key="reader").cancel()

    for options in ({"jobs": "query"}, {"jobs": "partition"}):
        with pytest.raises((PimpError, SparkError)) as stopped:
            writer(job, **options).write(endless())
        assert isinstance(stopped.value, PimpError)
        assert stopped.value.code == "CANCELLED"
    own = Job.create(job.url.partition("/pimp/")[0], read_key="reader")
    sink = writer(own, jobs="partition", chunkBytes="1024")
    reach.take_over_job(reach.own_job(sink.target.job, "0"), sink.target.job).cancel()
    with pytest.raises(PimpError) as stopped:
        sink.write(iter([rows(*range(1000))] * 100))
    assert stopped.value.code == "CANCELLED"


def test_a_task_that_waits_for_rows_is_stopped_too(job: Job) -> None:
    def slow() -> Iterator[pa.RecordBatch]:
        yield rows(1)
        job.cancel()
        # Longer than anybody waits for a test.
        threading.Event().wait(600)

    for options in ({"jobs": "query"}, {"jobs": "partition"}):
        with pytest.raises(PimpError) as stopped:
            writer(job, **options).write(slow())
        assert stopped.value.code == "CANCELLED"


def test_an_attempt_with_other_rows_fails_its_job(job: Job) -> None:
    sink = writer(job, jobs="partition", chunkBytes="1024")
    message = sink.write(iter([rows(*range(1000))]))
    with pytest.raises(PimpError, match="another writer"):
        sink.write(iter([rows(*range(500), 7)]))
    assert message.url is not None
    assert read(Job(message.url, read_key="reader")) == list(range(1000)), "it was whole before"
    broken = Job.create(job.url.partition("/pimp/")[0], read_key="reader")
    with broken.sender(meta=reach.LISTS) as sender:
        sender.send('{"no url": 1}\n')
    with pytest.raises(SparkError, match="has an invalid list of jobs"):
        PimpReader.of({"path": broken.url, "read_key": "reader"}, COLUMNS).partitions()


def test_a_query_that_fails_tells_its_readers(job: Job) -> None:
    writer(job).abort([])
    with pytest.raises(PimpError, match="the Spark query failed"):
        job.consumer().read()


def test_rows_become_a_job_and_rows_again(spark: SparkSession, buffer: Buffer, tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    frame = spark.range(0, 1000, 1, 3).selectExpr("id AS n", "concat('n', id) AS name")
    for jobs in ("query", "partition"):
        for kind in ("jsonl", "ipc"):
            job = Job.create(buffer.url)
            assert job.key is not None
            key_file.write_text(job.key)
            sink = frame.write.format("pimp").option("key_file", str(key_file)).options(jobs=jobs, rows=kind)
            sink.mode("append").save(job.url)
            source = spark.read.format("pimp")
            if kind == "jsonl":
                assert source.load(job.url).columns == ["value"]
                source = source.schema(frame.schema)
            loaded = source.load(job.url)
            assert loaded.rdd.getNumPartitions() == (3 if jobs == "partition" else 1)
            assert loaded.schema.fieldNames() == ["n", "name"]
            assert [row.n for row in loaded.sort("n").collect()] == list(range(1000))
    job = Job.create(buffer.url)
    with job.sender() as sender:
        sender.send(b"\xff\x00")
    assert [bytes(row.value) for row in spark.read.format("pimp").load(job.url).collect()] == [b"\xff\x00"]


def test_rows_of_every_type_and_none_at_all_come_back(spark: SparkSession, buffer: Buffer) -> None:
    every = spark.sql(
        "SELECT CAST('abc' AS BINARY) AS bytes, DATE'2024-02-29' AS day, TIMESTAMP'2024-02-29 12:30:00.25' AS moment,"
        " TIMESTAMP_NTZ'2024-02-29 12:30:00' AS plain, CAST(1.50 AS DECIMAL(10, 2)) AS price,"
        " map('a', 1, 'b', NULL) AS m, array(named_struct('n', 1, 'o', CAST('x' AS BINARY))) AS parts,"
        " repeat('x', 3000000) AS long,"
        " CAST(NULL AS BINARY) AS nothing"
    )
    none, sparse = every.limit(0), spark.range(2).repartition(4)
    large = spark.range(1).selectExpr("id", "repeat('x', 3000000) AS long")
    cases = [
        (every, "jsonl", "query"),
        (every, "ipc", "partition"),
        (none, "ipc", "query"),
        (none, "jsonl", "partition"),
    ]
    cases += [(sparse, "ipc", "partition"), (large, "jsonl", "query")]
    for frame, kind, jobs in cases:
        job = Job.create(buffer.url)
        sink = frame.write.format("pimp").options(key=job.key, rows=kind, jobs=jobs).mode("append")
        sink.save(job.url)
        source = spark.read.format("pimp")
        loaded = (source if kind == "ipc" else source.schema(frame.schema)).load(job.url)
        assert sorted(map(str, loaded.collect())) == sorted(map(str, frame.collect())), (kind, jobs)
    with pytest.raises(Exception, match="another writer"):
        spark.range(9).write.format("pimp").option("key", job.key).mode("append").save(job.url)


def known(job: Job) -> bool:
    try:
        job.status()
    except PimpError as error:
        return error.code != "NOT_FOUND"
    return True


def cancel(job: Job) -> None:
    """Cancel as a page in a browser does."""
    headers = {"Authorization": "Bearer reader"}
    asked = urllib.request.Request(f"{job.url}/cancel", headers=headers, method="POST")  # noqa: S310
    with urllib.request.urlopen(asked, timeout=30) as answer:  # noqa: S310
        assert json.loads(answer.read()) == {"cancelled": True}


def test_a_cancelled_job_stops_the_stream_that_writes_it(spark: SparkSession, job: Job, tmp_path: Path) -> None:
    frame = spark.readStream.format("rate").option("rowsPerSecond", 10).load().selectExpr("value AS n")
    sink = frame.writeStream.format("pimp").options(key=job.key, read_key="reader", checkpointLocation=str(tmp_path))
    query = sink.trigger(processingTime="200 milliseconds").start(job.url)
    try:
        assert job.consumer().receive(timeout=60), "a micro-batch is there"
        cancel(job)
        with pytest.raises(Exception, match="the consumer has cancelled the job"):
            query.awaitTermination(120)
    finally:
        query.stop()
    with pytest.raises(PimpError, match="cancelled by the consumer"):
        job.consumer().read()


def slowly_marking(begun: Path) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Pass rows on in hours, and make a file when the first has come."""

    def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for at in range(batch.num_rows):
                yield batch.slice(at, 1)
                begun.touch()
                time.sleep(1)

    return slowly


@contextmanager
def a_consumer(job: Job, begun: Path) -> Iterator[None]:
    """Cancel the job from elsewhere, once the rows for it have begun to come."""
    over = threading.Event()

    def consume() -> None:
        while not begun.exists() and not over.wait(0.05):
            pass
        cancel(job)

    thread = threading.Thread(target=consume)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def tasks_running(spark: SparkSession) -> list[int]:
    return list(spark.sparkContext.statusTracker().getActiveStageIds())


@pytest.mark.timeout(300)
@pytest.mark.parametrize("jobs", ["query", "partition"])
def test_a_cancelled_job_stops_the_query_whose_rows_are_slow_in_coming(
    spark: SparkSession, job: Job, tmp_path: Path, jobs: str
) -> None:
    rows_slowly = spark.range(0, 100_000, 1, 2).mapInArrow(slowly_marking(tmp_path / "begun"), "id LONG")
    sink = rows_slowly.write.format("pimp").options(**given(job, jobs=jobs)).mode("append")
    with a_consumer(job, tmp_path / "begun"), pytest.raises(PimpError) as stopped, stop_when_cancelled(spark, job):
        sink.save()
    assert stopped.value.code == "CANCELLED"
    assert stopped.value.__cause__ is not None, "what Spark raised"
    # Tasks end a little later than their query, and the tags of the block are gone.
    while tasks_running(spark):
        time.sleep(0.05)
    assert not list(spark.sparkContext.getJobTags())
    with pytest.raises(PimpError) as told:
        job.consumer().read()
    assert told.value.code == "FAILED"
    # It is too late for the next one.
    with pytest.raises(PimpError, match="cancelled"), stop_when_cancelled(spark, job):
        raise AssertionError("nothing is begun")


def test_who_stops_queries_leaves_what_nobody_cancels(spark: SparkSession, buffer: Buffer) -> None:
    (found,) = doctest.DocTestFinder().find(stop_when_cancelled, "stop_when_cancelled", globs={"spark": spark})
    results = doctest.DocTestRunner().run(found)
    assert (results.failed, results.attempted) == (0, 3)
    job = Job.create(buffer.url)
    with pytest.raises(ZeroDivisionError), stop_when_cancelled(spark, job):
        _ = 1 // 0
    assert job.status().state == "CREATED"
    with stop_when_cancelled(spark, job):
        job.finish()
        while any(thread.name == "penstock-pimp-watch" for thread in threading.enumerate()):
            time.sleep(0.05)
        # It is over, and what the block does besides goes on.
        job.delete()
        assert spark.range(5).count() == 5
    with pytest.raises(PimpError) as none, stop_when_cancelled(spark, Job(job.url.replace(job.id, new_job_id()))):
        raise AssertionError("nothing is begun")
    assert none.value.code == "NOT_FOUND"


@pytest.mark.timeout(300)
def test_a_job_that_is_lost_stops_its_query_too(spark: SparkSession, job: Job, tmp_path: Path) -> None:
    rows_slowly = spark.range(0, 100_000, 1, 1).mapInArrow(slowly_marking(tmp_path / "begun"), "id LONG")
    begun, over = tmp_path / "begun", threading.Event()

    def delete() -> None:
        while not begun.exists() and not over.wait(0.05):
            pass
        job.delete()

    thread = threading.Thread(target=delete)
    thread.start()
    try:
        with pytest.raises(PimpError) as lost, stop_when_cancelled(spark, job):
            rows_slowly.write.format("pimp").options(**given(job)).mode("append").save()
    finally:
        over.set()
        thread.join()
    assert lost.value.code in {"NOT_FOUND", "EXPIRED"}


def test_micro_batches_are_there_once_and_in_their_order(spark: SparkSession, buffer: Buffer, tmp_path: Path) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    job, parts = Job.create(buffer.url, ttl=200), Job.create(buffer.url)
    frame = spark.readStream.schema(StructType().add("value", StringType())).text(str(inbox))

    def run(target: Job, **options: str) -> None:
        assert target.key is not None
        sink = frame.writeStream.format("pimp").option("key", target.key).options(**options)
        sink = sink.option("checkpointLocation", str(tmp_path / target.id)).trigger(availableNow=True)
        assert sink.start(target.url).awaitTermination(120)

    for number in range(2):
        (inbox / f"{number}.txt").write_text(f"line {number}\n")
        run(job)
        run(parts, jobs="partition")
    # The last micro-batch runs again, as after a crash before it was noted as committed.
    for name in ("1", ".1.crc"):
        (tmp_path / job.id / "commits" / name).unlink(missing_ok=True)
    run(job)
    assert job.status().next_index == 1 + 2 * 8
    job.finish()
    assert [json.loads(line)["value"] for line in job.consumer().read().splitlines()] == ["line 0", "line 1"]
    parts.finish()
    found = spark.read.format("pimp").load(parts.url)
    assert sorted(json.loads(row.value)["value"] for row in found.collect()) == ["line 0", "line 1"]
