"""Policies in Spark jobs, and a second job that takes up what the first one had set aside."""

import json
import zipfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock import SparkError, receipts
from penstock.pipestream import Server, Status
from penstock.spark import PART_SCHEMA, dehydrate, ingest, redeem, rehydrate
from penstock.spark.schemas import COMPOSITE_SCHEMA

pytestmark = pytest.mark.timeout(300)

PNG = b"\x89PNG\r\n\x1a\n" + bytes(64)


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    folder = tmp_path / "inbox"
    folder.mkdir()
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        for name, data in (("note.txt", b"A note."), ("scan.png", PNG), ("more.txt", b"More.")):
            archive.writestr(name, data)
    (folder / "b.txt").write_bytes(b"Not touched by the second job.")
    return folder


def _verified(tmp_path: Path) -> dict[str, list[str]]:
    found = receipts.verify_all(tmp_path / "receipts", tmp_path / "sink")
    return {path.name: [difference.text for difference in differences] for path, differences in found}


def test_a_second_job_takes_up_what_the_first_had_set_aside(spark: SparkSession, tmp_path: Path, inbox: Path) -> None:
    documents = spark.read.format("documents").load(str(inbox))
    with Server(sink=tmp_path / "sink", state_dir=tmp_path, defer_types=["image/*"]) as server:
        common = {"fingerprint": server.fingerprint, "receipts": str(tmp_path / "receipts"), "root": str(inbox)}
        apart = dehydrate(server.address, **common, policy="best-effort")
        assert apart.schema.simpleString() == PART_SCHEMA.simpleString()[:-1] + ",claim:string>"
        rows = documents.mapInArrow(apart, apart.schema).collect()
        (claim,) = server.claims()
        assert [(row.path, row.status, row.attempts, row.claim) for row in rows if row.document == "a.zip"] == [
            ([], "COMPLETE", 1, None),
            (["note.txt"], "COMPLETE", 1, None),
            (["scan.png"], "DEFERRED", 1, claim.claim.hex),
            (["more.txt"], "COMPLETE", 1, None),
        ]
        assert _verified(tmp_path).popitem()[1] == []
        # Containers keep the statuses that the policy gave them.
        frame = spark.createDataFrame(rows, apart.schema).coalesce(1)
        composites = frame.mapInArrow(rehydrate(), COMPOSITE_SCHEMA).collect()
        assert {composite.document: composite.status for composite in composites} == {
            "a.zip": "COMPLETE",
            "b.txt": "COMPLETE",
        }
        take_up = redeem(server.address, **common, policy="best-effort")
        again = documents.mapInArrow(take_up, take_up.schema).collect()
        assert {row.document for row in again} == {"a.zip"}
        assert {row.status for row in again} == {"COMPLETE"}
        assert [row.claim for row in again] == [None, None, claim.claim.hex, None]
        assert [row.claim.status for row in server.claims()] == [Status.COMPLETE]
        assert documents.mapInArrow(take_up, take_up.schema).collect() == []
    assert list(_verified(tmp_path).values()) == [[], []]
    sink = spark.read.format("pipestream").load(str(tmp_path / "sink"))
    assert [row.claim for row in sink.where("status = 'DEFERRED'").collect()] == [claim.claim.hex]


def test_parts_that_are_sent_apart_have_the_policy_too(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "inbox"
    folder.mkdir()
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        for number in range(12):
            archive.writestr(f"{number}.bin", bytes([number]) * 4000)
        archive.writestr("bad", b"2222222222")
    # Its checksum does not hold any more.
    (folder / "a.zip").write_bytes((folder / "a.zip").read_bytes().replace(b"2222222222", b"2222222223"))
    documents = spark.read.format("documents").load(str(folder))
    with Server(sink=tmp_path / "sink", state_dir=tmp_path) as server:
        apart = dehydrate(
            server.address,
            fingerprint=server.fingerprint,
            receipts=str(tmp_path / "receipts"),
            policy="lenient,on-failure=skip",
        )
        rows = ingest(documents, apart, plan="shuffle", group_bytes=20_000, partitions=2).collect()
    assert {row.status for row in rows} == {"COMPLETE", "SKIPPED"}
    (path,) = (tmp_path / "receipts").glob("*.json")
    receipt = json.loads(path.read_text())
    assert len({part["session"] for part in receipt["parts"]}) > 1
    assert (receipt["status"], receipt["policy"], receipt["outcome"]) == (
        "COMPLETE",
        "lenient,on-failure=skip",
        "PARTIAL",
    )
    assert _verified(tmp_path) == {path.name: []}


def test_a_sinks_policy_is_content_without_some_rows(spark: SparkSession, tmp_path: Path) -> None:
    rows = [("a", b"1" * 10), ("a", b"2" * 100), ("b", b"3" * 10)]
    frame = spark.createDataFrame(rows, "document string, content binary").coalesce(1)
    with Server(sink=tmp_path / "sink", state_dir=tmp_path, max_payload=50) as server:
        writer = frame.write.format("pipestream").mode("append").option("fingerprint", server.fingerprint)
        with pytest.raises(Exception, match="requires scopes=document"):
            writer.option("policy", "lenient").save(server.address)
        scoped = writer.option("scopes", "document")
        with pytest.raises(Exception, match="the option policy of the pipestream sink: a policy must be strict"):
            scoped.option("policy", "mild").save(server.address)
        scoped.option("policy", "lenient,on-failure=skip").save(server.address)
    written = spark.read.format("pipestream").load(str(tmp_path / "sink")).where("parent is not null")
    assert sorted((row.document, row.status) for row in written.collect()) == [
        ("a", "COMPLETE"),
        ("a", "SKIPPED"),
        ("b", "COMPLETE"),
    ]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"policy": "quorum"}, "policy: a quorum requires the ratio"),
        (
            {"policy": "strict,on-failure=defer", "sink": "s3://bucket/sink"},
            "defers parts, which requires a server: a sink that is a URI",
        ),
    ],
)
def test_a_policy_that_cannot_be_is_refused_on_the_driver(options: dict[str, str], problem: str) -> None:
    trust = {} if "sink" in options else {"fingerprint": "ab" * 32}
    with pytest.raises(SparkError, match=problem):
        dehydrate(**{"sink": "127.0.0.1:1", **trust, **options})
