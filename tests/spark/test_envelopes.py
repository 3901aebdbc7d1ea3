"""Which document rows are of, and whose, on real Spark: options, columns, plans, sources and sinks; sealed headers."""

import json
from pathlib import Path

import pytest
from plan_samples import differences, latest_receipts, tar_file, zip_file

from penstock import receipts
from penstock.errors import SparkError
from penstock.pipestream import OwnershipContext, Server
from penstock.spark import PART_SCHEMA, dehydrate, ingest

pytestmark = pytest.mark.timeout(300)

OWNER = OwnershipContext(owner_id="alice", group_id="finance", scopes=["read"])
DOC_ID = "6f9619ff-8b86-8d01-b42d-00c04fc964ff"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "documents"
    made.mkdir()
    texts = [(f"{number:03}.txt", f"{number} ".encode() * 900) for number in range(60)]
    (made / "deep.zip").write_bytes(zip_file([*texts, ("nested.zip", zip_file(texts[:3]))]))
    (made / "deep.tar.gz").write_bytes(tar_file(texts, "w:gz"))
    (made / "note.txt").write_bytes(b"A line of text.")
    return made


@pytest.mark.parametrize("plan", ["task", "shuffle", "auto"])
def test_every_plan_sends_what_rows_and_options_say_of_a_document(spark, sink, folder, tmp_path, plan):
    where = tmp_path / "receipts"
    apart = dehydrate(sink.address, fingerprint=sink.fingerprint, receipts=str(where), owner=OWNER)
    paths = sorted(folder.iterdir())
    schema = "path string, doc_id string, owner struct<owner_id:string,group_id:string,scopes:array<string>>"
    named = [(str(path), DOC_ID if path.name == "deep.zip" else None, None) for path in paths]
    named = [(*row[:2], ("bob", None, []) if row[0].endswith("note.txt") else None) for row in named]
    documents = spark.createDataFrame(named, schema)
    rows = ingest(documents, apart, plan=plan, partitions=3, group_bytes=20_000, peel_bytes=1000).collect()
    found = latest_receipts(where)
    assert found.keys() == {path.name for path in paths}
    for name, receipt in found.items():
        whose = "bob" if name == "note.txt" else "alice"
        assert receipt["owner"]["owner_id"] == whose
        assert (receipt["doc_id"] == DOC_ID) == (name == "deep.zip")
        assert receipt["uri"].startswith(f"pipestream://{sink.address}/{receipt['session']}/")
        said = {(row.doc_id, row.owner.owner_id) for row in rows if row.document == name}
        assert said == {(receipt["doc_id"], whose)}
    assert differences(where, tmp_path / "sink") == []
    # Every root entity says whose it is: those that stand for containers in sessions of some children, too.
    shown = spark.read.format("pipestream").load(str(tmp_path / "sink")).where("parent is null").collect()
    assert {row.owner.owner_id for row in shown} == {"alice", "bob"}
    assert {row.doc_id for row in shown} == {receipt["doc_id"] for receipt in found.values()}


def test_rows_that_were_read_from_a_sink_keep_their_documents_when_they_are_written(spark, sink, folder, tmp_path):
    apart = dehydrate(sink.address, fingerprint=sink.fingerprint, owner=OWNER)
    documents = spark.createDataFrame([(str(folder / "note.txt"),)], "path string")
    documents.mapInArrow(apart, PART_SCHEMA).collect()
    first = spark.read.format("pipestream").load(str(tmp_path / "sink")).where("document = 'note.txt'")
    columns = first.select("content", "document", "path", "type", "metadata", "doc_id", "owner")
    trust = {"address": sink.address, "fingerprint": sink.fingerprint}
    for scopes in ("none", "document"):
        columns.write.format("pipestream").mode("append").options(**trust, scopes=scopes).save()
    copies = spark.read.format("pipestream").load(str(tmp_path / "sink")).where("parent is null").collect()
    (said,) = {(row.doc_id, row.owner.owner_id) for row in copies}
    assert (len(copies), said[1]) == (3, "alice")
    nobody = columns.selectExpr("content", "cast(null as string) doc_id", "owner")
    with pytest.raises(Exception, match="an owner and neither doc_id nor document"):
        nobody.write.format("pipestream").mode("append").options(**trust).save()


@pytest.mark.parametrize("scopes", ["none", "document"])
def test_documents_that_are_written_without_an_id_have_one_by_their_names(spark, sink, tmp_path, scopes):
    sent = spark.createDataFrame([("1", "a"), ("2", "a"), ("3", "b"), ("4", None)], "content string, document string")
    trust = {"address": sink.address, "fingerprint": sink.fingerprint}
    for _ in range(2):
        sent.write.format("pipestream").mode("append").options(**trust, scopes=scopes).save()
    roots = spark.read.format("pipestream").load(str(tmp_path / "sink")).where("parent is null").collect()
    ids = {(row.document, row.doc_id) for row in roots}
    assert len(ids) == 3
    assert {name: doc_id is None for name, doc_id in ids} == {"a": False, "b": False, None: True}
    assert len({doc_id for _, doc_id in ids}) == 3


def test_documents_and_rows_travel_under_sealed_headers(spark, folder, tmp_path):
    key = tmp_path / "header.key"
    key.write_text("5a" * 32)
    where = tmp_path / "receipts"
    with Server(sink=tmp_path / "sealed", state_dir=tmp_path, header_key=key.read_text()) as server:
        trust = {"fingerprint": server.fingerprint, "header_key_file": str(key)}
        apart = dehydrate(server.address, receipts=str(where), **trust)
        documents = spark.createDataFrame([(str(path),) for path in sorted(folder.iterdir())], "path string")
        rows = ingest(documents, apart, plan="shuffle", partitions=3, group_bytes=20_000)
        assert rows.where("status = 'COMPLETE'").count() > 10
        sent = spark.createDataFrame([("text", "d")], "content string, document string")
        sent.write.format("pipestream").mode("append").options(address=server.address, **trust).save()
        bare = dehydrate(server.address, fingerprint=server.fingerprint)
        note = spark.createDataFrame([(str(folder / "note.txt"),)], "path string")
        (refused,) = note.mapInArrow(bare, PART_SCHEMA).collect()
        assert (refused.status, "in the clear" in refused.reason) == ("FAILED", True)
    assert [text for _, found in receipts.verify_all(where, tmp_path / "sealed") for text in found] == []
    lists = [json.loads(line) for log in (tmp_path / "sealed").glob("*/entities.jsonl") for line in log.open()]
    assert any(line.get("metadata", {}).get("penstock.document") == "d" for line in lists)


def test_wrong_options_are_refused_on_the_driver():
    with pytest.raises(SparkError, match=r"owner: .*owner_id has 0 bytes"):
        dehydrate("127.0.0.1:1", fingerprint="ab" * 32, owner=OwnershipContext(owner_id=""))
    with pytest.raises(SparkError, match="header_key_file"):
        dehydrate("s3://bucket/sink", header_key_file="f")
