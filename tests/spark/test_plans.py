"""The plans beyond one task for each document, on real Spark: their rows and receipts say the same, and verify."""

import os
from pathlib import Path

import pytest
from plan_samples import differences, latest_receipts, rows_of, sessions_of, what_is_said, write_outsized

from penstock._demo.fetch import fetch
from penstock.documents import Limits
from penstock.spark import changes, dehydrate, ingest

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def run(spark, sink, tmp_path):
    """Take a folder apart by a plan: the rows, and the receipts of documents by their names."""

    def run(plan, folder, receipts, limits=None, previous=None, **options):
        documents = spark.read.format("documents").option("minPartitions", "2").load(str(folder))
        where = tmp_path / receipts
        apart = dehydrate(
            sink.address, fingerprint=sink.fingerprint, receipts=str(where), limits=limits, previous=previous
        )
        rows = ingest(documents, apart, plan=plan, **{"partitions": 3, "group_bytes": 20_000, **options})
        return rows.collect(), latest_receipts(where)

    return run


def test_every_plan_makes_the_same_rows_and_receipts(run, corpus, tmp_path):
    write_outsized(corpus)
    limits = Limits(max_ratio=200)
    rows, expected = run("task", corpus, "task", limits)
    assert expected["bombs.zip"]["status"] == "FAILED"
    for plan, options in (("shuffle", {}), ("peel", {"peel_bytes": 1000}), ("auto", {"peel_bytes": 1000})):
        found = _assert_same(run(plan, corpus, plan, limits, **options), (rows, expected), plan)
        assert differences(tmp_path / plan, tmp_path / "sink") == []
        for name in ("deep.zip", "deep.tar.gz", "one.tar", "bombs.zip", "partly.zip", "cut.tar"):
            assert len(sessions_of(found[name])) > 2, (plan, name)
        assert len(sessions_of(found["overlapping.zip"])) == 1
    assert differences(tmp_path / "task", tmp_path / "sink") == []


def _assert_same(found, expected, plan):
    """The same rows and receipts but for sessions and IDs; give the receipts."""
    found_rows, found_receipts = found
    assert found_receipts.keys() == expected[1].keys()
    for name, receipt in expected[1].items():
        assert what_is_said(found_receipts[name]) == what_is_said(receipt), (plan, name)
    assert rows_of(found_rows) == rows_of(expected[0]), plan
    return found_receipts


_FETCHED = [Path(__file__).parents[2] / folder for folder in ("target/bench-documents", "demo-output/documents")]
"""Where `make bench` and `make demo` leave what they fetch."""


@pytest.fixture
def real(tmp_path):
    """A folder with documents of the demo: two where the machine has them, all of them in the long tests."""
    long = bool(os.environ.get("PENSTOCK_LONG_TESTS"))
    if long:
        fetch(_FETCHED[0])
    names = ("*.tar.gz",) if long else ("mail_parser-*.tar.gz", "python_docx-*.tar.gz")
    there = [path for name in names for folder in _FETCHED for path in folder.glob(name)]
    if not there:
        pytest.skip("NOT TESTED: documents of the demo; none was fetched: `make demo` does, and PENSTOCK_LONG_TESTS=1")
    folder = tmp_path / "real"
    folder.mkdir()
    for path in there:
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


def test_every_plan_makes_the_same_of_real_documents(run, real, tmp_path):
    expected = run("task", real, "task")
    sizes = sorted(path.stat().st_size for path in real.iterdir())
    plans = {
        "shuffle": ("shuffle", {"group_bytes": 1 << 20}),
        "peeled by option": ("peel", {"peel_bytes": 1, "group_bytes": 200_000}),
        "peeled by size": ("auto", {"peel_bytes": sizes[-1], "group_bytes": 500_000}),
    }
    for name, (plan, options) in plans.items():
        found = _assert_same(run(plan, real, name, **options), expected, name)
        divided = {document for document, receipt in found.items() if len(sessions_of(receipt)) > 1}
        large = {path.name for path in real.iterdir() if path.stat().st_size == sizes[-1]}
        assert divided == (large if plan == "auto" else set(found)), name
        assert differences(tmp_path / name, tmp_path / "sink") == []


def test_an_index_is_told_what_to_drop(run, spark, corpus, tmp_path):
    _, first = run("peel", corpus, "receipts")
    where = str(tmp_path / "receipts")
    (corpus / "page.html").write_bytes(b"<html><body>Other words.</body></html>")
    (corpus / "report.pdf").unlink()
    run("peel", corpus, "receipts", previous=where)
    documents = spark.read.format("documents").load(str(corpus))
    found = changes(documents, where).collect()
    assert {(row.change, row.document, *row.path) for row in found if row.change != "added"} == {
        ("changed", "page.html"), ("removed", "report.pdf"),
        ("removed", "report.pdf", "page 1"), ("removed", "report.pdf", "page 2"),
    }  # fmt: skip
    # The documents that have no other version are new to an index.
    added = [row for row in found if row.document == "nested.zip"]
    assert [row.change for row in added] == ["added"] * (len(first["nested.zip"]["parts"]) + 1)
    assert {row.change for row in changes(documents, where, gone=False).collect()} == {"added", "changed"}
    assert len(first) == len(list((tmp_path / "receipts").glob("*.json"))) - 1


def test_documents_of_other_columns_are_taken_too(spark, sink, corpus, tmp_path):
    """Without lengths and names, and with a path that is not there."""
    write_outsized(corpus)
    paths = [(str(corpus / name),) for name in ("deep.zip", "notes.txt", "nobody")]
    apart = dehydrate(sink.address, fingerprint=sink.fingerprint, receipts=str(tmp_path / "receipts"))
    rows = ingest(spark.createDataFrame(paths, ["path"]), apart, peel_bytes=2000, group_bytes=20_000, partitions=2)
    found = {row.document: row.status for row in rows.collect() if row.depth == 0}
    assert found == {"deep.zip": "COMPLETE", "notes.txt": "COMPLETE", "nobody": "FAILED"}
    assert len(sessions_of(latest_receipts(tmp_path / "receipts")["deep.zip"])) == 3
