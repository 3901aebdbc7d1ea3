"""The chain with nothing but URIs: documents, sink and receipts lie in an object store."""

import re
import time
from pathlib import Path

import pyarrow as pa
import pytest
from plan_samples import zip_file
from pyspark.sql.types import BinaryType, StructType

from penstock.errors import SparkError
from penstock.pipestream import Limits, Session
from penstock.spark import PipeStreamDataSource, dehydrate
from penstock.spark.pipestream.source import ROW_COLUMNS

from ..objects.s3 import s3

__all__ = ["s3"]
pytestmark = pytest.mark.timeout(300)

PAGE = Path(__file__).parents[2] / "docs" / "objects.md"


def test_the_example_of_the_page_shares_a_store_and_nothing_else(spark, s3, corpus):
    files = {path.relative_to(corpus).as_posix(): path for path in corpus.rglob("*") if path.is_file()}
    for name, path in files.items():
        s3.put(f"in/{name}", path.read_bytes())
    (example,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    identity = '"access_key_id": "key", "secret_access_key": "secret", "region"'
    example = example.replace("http://127.0.0.1:9000", s3.endpoint).replace('"region"', identity, 1)
    for name in ("access_key_id", "secret_access_key"):
        example = example.replace('    .load("s3', f'    .option("storage.{name}", storage["{name}"])\n    .load("s3')
    names = {"spark": spark}
    exec(compile(example, str(PAGE), "exec"), names)  # noqa: S102 - our own page
    assert {row.document for row in names["parts"] if row.depth == 0} == set(files)
    assert len(s3.list("receipts/")) == len(files)
    assert s3.list("sink/.open/") == []


def test_rows_written_to_a_uri_are_read_from_it_once_the_job_has_committed(spark, s3):
    rows = spark.range(200).selectExpr("concat('row ', id) AS content", "'a.txt' AS document").repartition(3)

    def options(io):
        for name, value in s3.storage.items():
            io = io.option(f"storage.{name}", value)
        return io

    options(rows.write.format("pipestream")).mode("append").save(s3.uri("sink"))
    found = options(spark.read.format("pipestream")).load(s3.uri("sink"))
    assert {bytes(row.content).decode() for row in found.collect()} == {f"row {number}" for number in range(200)}
    assert found.count() == 200
    assert s3.list("sink/.open/") == []


def test_the_limits_of_a_session_hold_for_tasks_that_write_to_a_uri(s3, tmp_path):
    storage = {f"storage.{name}": value for name, value in s3.storage.items()}
    given = {"path": s3.uri("rows"), "max_entities_per_scope": "2", **storage}
    schema = StructType().add("content", BinaryType())
    writer = PipeStreamDataSource(given).writer(schema, overwrite=False)
    with pytest.raises(SparkError, match="has had 2 entities, all it may have"):
        writer.write(iter([pa.record_batch({"content": pa.array([b"a", b"b", b"c"], pa.binary())})]))
    (tmp_path / "three.zip").write_bytes(zip_file([(f"{number}.txt", b"text") for number in range(3)]))
    for most, status in ((2, "FAILED"), (3, "COMPLETE")):
        options = {"storage": s3.storage, "session_limits": Limits(max_children=most)}
        rows = dehydrate(s3.uri("sink"), **options)(iter([pa.record_batch({"path": [str(tmp_path / "three.zip")]})]))
        first, *_ = [row for batch in rows for row in batch.to_pylist()]
        assert first["status"] == status, first


def test_a_spool_in_a_store_is_all_that_the_next_machine_needs(s3, tmp_path, monkeypatch):
    options = {f"storage.{name}": value for name, value in s3.storage.items()}
    options |= {"listen": "127.0.0.1:0", "spool": s3.uri("spool"), "maxRowsPerTrigger": "2"}

    def machine(name):
        monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path / name))
        return PipeStreamDataSource(options).streamReader(ROW_COLUMNS)

    def send(source, *payloads):
        with Session.connect(source._server.address, fingerprint=source._server.fingerprint) as session:
            for sent in [session.send(payload) for payload in payloads]:
                sent.wait()
            # Payloads and lines are there before anybody is told that they are.
            assert len(s3.list(f"spool/{session.id}/0/")) == len(payloads)
            pieces = b"".join(s3.get(key) for key in s3.list(f"spool/.open/{session.id}/"))
            assert pieces.count(b'"COMPLETE"') == len(payloads)
        deadline = time.monotonic() + 60
        while not s3.list(f"spool/{session.id}/entities.jsonl"):
            assert time.monotonic() < deadline, "the session is not closed"
            time.sleep(0.01)

    def rows(source, start, end):
        batches = [batch for partition in source.partitions(start, end) for batch in partition.read()]
        return sorted(data for batch in batches for data in batch.column("content").to_pylist())

    first = machine("first")
    start, limit = first.initialOffset(), first.getDefaultReadLimit()
    assert first.latestOffset(start, limit)["session"] == 0
    send(first, b"a", b"b", b"c")
    middle = first.latestOffset(start, limit)
    found = rows(first, start, middle)
    assert len(found) == 2
    first.stop()
    # It has the checkpoint of the first one, and the address of the spool.
    second = machine("second")
    assert rows(second, start, middle) == found
    end = second.latestOffset(middle, limit)
    found += rows(second, middle, end)
    send(second, b"d")
    found += rows(second, end, second.latestOffset(end, limit))
    second.stop()
    assert sorted(found) == [b"a", b"b", b"c", b"d"]
