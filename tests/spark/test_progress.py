"""How far a job or a streaming query is, as it is shown."""

import io
import json
import queue
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from penstock._demo.sink import SinkProcess
from penstock.spark import PART_SCHEMA, ProgressListener, QueryProgress, dehydrate, progress


def test_a_job_shows_tasks_and_what_has_arrived(spark: SparkSession, sink: SinkProcess, tmp_path: Path) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    for number in range(6):
        (inbox / f"{number}.txt").write_text("text\n" * number)
    paths = spark.read.format("documents").load(str(inbox))
    parts = paths.mapInArrow(dehydrate(sink.address, fingerprint=sink.fingerprint), PART_SCHEMA)
    shown = Console(file=io.StringIO())
    with progress(spark, metrics=sink.metrics, name="parts", console=shown) as seen:
        rows = parts.count()
    assert seen.arrived is not None
    assert (seen.arrived.documents, seen.arrived.failed) == (6, 0)
    assert seen.arrived.complete >= rows
    assert seen.tasks == seen.done > 0
    lines = shown.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines[0] == "parts"
    assert lines[-1].startswith("parts: done in")
    assert f"{seen.arrived.complete} entities, 0 failed" in lines[-1]


def test_jobs_that_end_between_two_looks_are_counted(spark: SparkSession) -> None:
    numbers = spark.sparkContext.parallelize(range(3), 3)
    with progress(spark, console=Console(file=io.StringIO())) as seen:
        for _ in range(40):
            numbers.count()
    assert (seen.tasks, seen.done, seen.failed_attempts) == (120, 120, 0)


def test_only_jobs_of_the_block_are_counted_and_failures_come_out(spark: SparkSession) -> None:
    spark.range(10).count()
    shown = Console(file=io.StringIO(), force_terminal=True, width=100)
    with progress(spark, console=shown) as seen:
        pass
    assert (seen.tasks, seen.arrived) == (0, None)
    with pytest.raises(ZeroDivisionError), progress(spark, console=shown):
        raise ZeroDivisionError
    with pytest.raises(OSError, match="refused"), progress(spark, metrics="127.0.0.1:1"):
        pytest.fail("metrics that do not answer are said at once")


def test_a_streaming_query_tells_of_each_batch(spark: SparkSession, tmp_path: Path) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    (inbox / "lines.txt").write_text("a\nb\nc\n")
    batches: queue.SimpleQueue[QueryProgress] = queue.SimpleQueue()
    lines, shown = io.StringIO(), io.StringIO()
    listener = ProgressListener(batches.put, json_lines=lines, console=Console(file=shown))
    spark.streams.addListener(listener)
    try:
        stream = spark.readStream.text(str(inbox)).writeStream.format("noop").queryName("lines")
        query = stream.option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True).start()
        query.awaitTermination(120)
        assert listener.wait(60)
        batch = batches.get_nowait()
    finally:
        spark.streams.removeListener(listener)
    assert (batch.name, batch.query, batch.batch, batch.rows) == ("lines", str(query.id), 0, 3)
    assert str(inbox) in batch.sources[0]
    assert json.loads(lines.getvalue().splitlines()[0])["rows"] == 3
    assert shown.getvalue().startswith("lines")
