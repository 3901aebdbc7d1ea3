"""Paths in, parts and composites out, every byte in the sink: the whole chain on real Spark and real QUIC."""

import hashlib
import json
from functools import partial

import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everybody does

from penstock.spark import COMPOSITE_SCHEMA, PART_SCHEMA, dehydrate, rehydrate

pytestmark = pytest.mark.timeout(300)

NESTED = {
    ("readme.txt",): "text/plain",
    ("inner.zip",): "application/zip",
    ("inner.zip", "letter.eml"): "message/rfc822",
    ("inner.zip", "letter.eml", "report.pdf"): "application/pdf",
    ("inner.zip", "letter.eml", "report.pdf", "page 1"): "text/plain",
    ("inner.zip", "letter.eml", "report.pdf", "page 2"): "text/plain",
    ("inner.zip", "page.html"): "text/html",
    ("table.csv",): "text/csv",
}


@pytest.fixture
def take_apart(spark, sink, rows_of):
    """The rows of a folder, from this module's session to this test's sink."""
    return partial(rows_of, spark, sink)


def test_every_part_has_a_row_a_receipt_and_its_bytes_in_the_sink(
    take_apart, corpus, tmp_path, receipts_of, differences
):
    rows = take_apart(corpus).collect()
    files = {path.relative_to(corpus).as_posix(): path for path in corpus.rglob("*") if path.is_file()}
    receipts = receipts_of(tmp_path / "receipts")
    assert {row.document for row in rows if row.depth == 0} == set(files) == set(receipts)
    for row in rows:
        assert row.status in {"COMPLETE", "FAILED"}
        assert (row.reason is None) == (row.status == "COMPLETE"), row
        assert row.content is None
        if row.depth == 0:
            data = files[row.document].read_bytes()
            assert (row.bytes, row.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    found = {tuple(row.path): row.type for row in rows if row.document == "nested.zip" and row.depth > 0}
    assert {path: found.get(path) for path in NESTED} == NESTED
    assert differences(tmp_path / "receipts", tmp_path / "sink") == []


def test_rows_receipts_and_composites_tell_the_same(take_apart, corpus, tmp_path, receipts_of):
    rows = take_apart(corpus).cache()
    composites = {row.document: row for row in rows.mapInArrow(rehydrate(), COMPOSITE_SCHEMA).collect()}
    by_document: dict[str, list] = {}
    for row in rows.collect():
        by_document.setdefault(row.document, []).append(row)
    for document, receipt in receipts_of(tmp_path / "receipts").items():
        own, *parts = by_document[document]
        composite = composites[document]
        for name in ("sha256", "bytes", "status", "reason"):
            assert receipt[name] == own[name] == composite[name]
        assert receipt["content_root"] == composite.content_root
        assert composite.parts == len(parts) == len(receipt["parts"])
        for row, part, node in zip(parts, receipt["parts"], composite.tree, strict=True):
            for name in ("path", "type", "sha256", "bytes", "status", "reason"):
                assert row[name] == part[name] == node[name]
            assert (row.scope, row.entity, row.attempts) == (part["scope"], part["entity"], part["attempts"])
    assert "First page" in composites["nested.zip"].text
    assert "Some words." in composites["nested.zip"].text


def test_a_shuffle_is_undone_by_the_number_of_each_row(take_apart, corpus, tmp_path):
    rows = take_apart(corpus).withColumn("position", F.monotonically_increasing_id())
    rows.write.parquet(str(tmp_path / "rows"))
    shuffled = rows.sparkSession.read.parquet(str(tmp_path / "rows")).orderBy(F.rand(3))
    direct = {
        row.document for row in rows.sparkSession.read.parquet(str(tmp_path / "rows")).select("document").collect()
    }
    grouped = shuffled.groupBy("key").applyInArrow(rehydrate(order_by="position"), COMPOSITE_SCHEMA).collect()
    assert {row.document for row in grouped} == direct
    receipts = {json.loads(path.read_text())["content_root"] for path in (tmp_path / "receipts").iterdir()}
    assert {row.content_root for row in grouped} == receipts


def test_what_is_broken_or_encrypted_is_a_row_with_a_reason(take_apart, corpus):
    rows = take_apart(corpus).where("status != 'COMPLETE'").collect()
    documents = {row.document for row in rows}
    assert documents == {"broken.zip", "encrypted.zip"}
    assert any("encrypted" in row.reason for row in rows if row.path == ["secret.txt"])


def test_a_document_that_cannot_be_read_is_a_row_with_a_reason(spark, sink, corpus, tmp_path, differences, receipts_of):
    missing = [str(corpus / "gone.txt"), str(corpus / "sub folder"), "ftp://bucket/key"]
    there = [str(corpus / "notes.txt"), (corpus / "page.html").as_uri()]
    paths = spark.createDataFrame([(path,) for path in [missing[0], there[0], *missing[1:], there[1]]], "path string")
    apart = dehydrate(
        sink.address, fingerprint=sink.fingerprint, root=str(corpus), receipts=str(tmp_path / "receipts"), in_flight=2
    )
    rows = paths.coalesce(1).mapInArrow(apart, PART_SCHEMA).where("depth = 0").collect()
    assert [(row.document, row.status) for row in rows] == [
        ("gone.txt", "FAILED"),
        ("notes.txt", "COMPLETE"),
        ("sub folder", "FAILED"),
        ("ftp://bucket/key", "FAILED"),
        ("page.html", "COMPLETE"),
    ]
    assert all(row.reason and row.sha256 is None for row in rows if row.status == "FAILED")
    assert set(receipts_of(tmp_path / "receipts")) == {row.document for row in rows}
    assert differences(tmp_path / "receipts", tmp_path / "sink") == []


def test_documents_keep_their_order_however_many_are_on_their_way(spark, sink, many):
    paths = sorted(str(path) for path in many.iterdir())
    frame = spark.createDataFrame(
        [(path, f"name {number}") for number, path in enumerate(paths)], "path string, document string"
    )
    apart = dehydrate(sink.address, fingerprint=sink.fingerprint, in_flight=16)
    rows = frame.coalesce(1).mapInArrow(apart, PART_SCHEMA).select("document", "depth", "path").collect()
    assert [row.document for row in rows if row.depth == 0] == [f"name {number}" for number in range(len(paths))]
    assert [row.path for row in rows[1:51]] == [[f"{number}.txt"] for number in range(50)]
    assert len(rows) == 51 * len(paths)


def test_a_task_is_one_session_which_is_closed_before_its_last_rows_come(take_apart, corpus, tmp_path):
    take_apart(corpus).collect()
    sessions = [path for path in (tmp_path / "sink").iterdir() if path.is_dir()]
    assert len(sessions) == 2
    for session in sessions:
        last = (session / "entities.jsonl").read_text().splitlines()[-1]
        assert json.loads(last) == {"closed": 0}


def test_a_partition_without_rows_opens_no_session(spark, tmp_path):
    nobody = dehydrate("127.0.0.1:1", fingerprint="ab" * 32, receipts=str(tmp_path / "receipts"))
    assert spark.createDataFrame([], "path string").mapInArrow(nobody, PART_SCHEMA).collect() == []
    assert not (tmp_path / "receipts").exists()


def test_a_consumer_that_stops_early_ends_the_task_and_leaves_no_receipt(take_apart, many, tmp_path):
    assert len(take_apart(many, in_flight=2).limit(3).collect()) == 3
    assert take_apart(many / "000.zip").count() == 51
    assert list((tmp_path / "receipts").glob(".*")) == []
