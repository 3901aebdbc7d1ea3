"""The plans beyond one task for each document: their receipts say the same, and verify."""

import io
import json
import tarfile
import zipfile

import pytest

from penstock import receipts as receipts_module
from penstock.documents import Limits
from penstock.spark import dehydrate, ingest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

OF_A_SESSION = {"session", "scope", "entity", "attempts", "file"}


def zip_file(members, *, bomb=0):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, octets in members:
            archive.writestr(zipfile.ZipInfo(name), octets, zipfile.ZIP_DEFLATED)
        if bomb:
            archive.writestr("bomb", bytes(bomb))
    return file.getvalue()


def tar_file(members, mode="w"):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:
        for name, octets in members:
            member = tarfile.TarInfo(name)
            member.size = len(octets)
            archive.addfile(member, io.BytesIO(octets))
    return file.getvalue()


@pytest.fixture
def outsized(corpus):
    """The corpus, and archives that are worth dividing: nested, broken, with bombs, and with names that repeat."""
    nested = (corpus / "nested.zip").read_bytes()
    texts = [(f"{number:03}.txt", f"{number} ".encode() * 900) for number in range(60)]
    mails = b"".join(
        b"From a@b Thu Jan  1 00:00:00 2026\n" + (b"Subject: %d\n\nbody %d\n\n" % (number, number))
        for number in range(25)
    )
    files = {
        "deep.zip": zip_file([*texts, ("nested.zip", nested), ("000.txt", b"again"), ("none.zip", zip_file([]))]),
        "bombs.zip": zip_file([*texts[:20], ("b/broken.zip", nested[:500])], bomb=4 << 20),
        "deep.tar.gz": tar_file([*texts, ("nested.zip", nested), ("000.txt", b"again"), ("e", b"")], "w:gz"),
        "one.tar": tar_file([("only.zip", zip_file([*texts, ("nested.zip", nested)]))]),
        "cut.tar": tar_file(texts)[:20_000],
        "box.mbox": mails,
    }
    for name, octets in files.items():
        (corpus / name).write_bytes(octets)
    encrypted = bytearray((corpus / "deep.zip").read_bytes())
    encrypted[encrypted.index(b"PK\x01\x02") + 8] |= 1
    (corpus / "partly.zip").write_bytes(encrypted)
    return corpus


@pytest.fixture
def run(spark, sink, tmp_path):
    """Take a folder apart by a plan: the rows, and the receipts of documents by their names."""

    def run(plan, folder, receipts="receipts", limits=None, previous=None, **options):
        documents = spark.read.format("documents").option("minPartitions", "2").load(str(folder))
        where = tmp_path / receipts
        apart = dehydrate(
            sink.address, fingerprint=sink.fingerprint, receipts=str(where), limits=limits,
            previous=None if previous is None else str(tmp_path / previous),
        )  # fmt: skip
        rows = ingest(documents, apart, plan=plan, **{"partitions": 3, "group_bytes": 20_000, **options})
        return rows.collect(), {
            receipt["document"]: receipt for receipt in map(json.loads, (f.read_text() for f in where.glob("*.json")))
        }

    return run


def what_is_said(receipt):
    """A receipt without what depends on the sessions."""
    kept = {name: value for name, value in receipt.items() if name not in OF_A_SESSION | {"root", "scopes", "parts"}}
    parts = [{name: value for name, value in part.items() if name not in OF_A_SESSION} for part in receipt["parts"]]
    return {**kept, "parts": parts, "depths": sorted({scope["depth"] for scope in receipt["scopes"]})}


def rows_of(rows):
    """What the rows say, each document's in their order."""
    found = {}
    for row in rows:
        own = row.asDict()
        found.setdefault(row.document, []).append({n: v for n, v in own.items() if n not in OF_A_SESSION})
    return found


def sessions_of(receipt):
    return {part["session"] for part in receipt["parts"]} | {receipt["session"]}


def differences(tmp_path, receipts="receipts"):
    return [
        difference.text
        for _, found in receipts_module.verify_all(tmp_path / receipts, tmp_path / "sink")
        for difference in found
    ]


def test_every_plan_makes_the_same_rows_and_receipts(run, outsized, tmp_path):
    limits = Limits(max_ratio=200)
    rows, expected = run("task", outsized, "task", limits)
    assert expected["bombs.zip"]["status"] == "FAILED"
    for plan, options in (("shuffle", {}), ("peel", {"peel_bytes": 1000}), ("auto", {"peel_bytes": 1000})):
        found_rows, found = run(plan, outsized, plan, limits, **options)
        assert found.keys() == expected.keys()
        for name, receipt in expected.items():
            assert what_is_said(found[name]) == what_is_said(receipt), (plan, name)
        assert rows_of(found_rows) == rows_of(rows), plan
        assert differences(tmp_path, plan) == []
        for name in ("deep.zip", "deep.tar.gz", "one.tar", "bombs.zip", "partly.zip", "cut.tar"):
            assert len(sessions_of(found[name])) > 2, (plan, name)
    assert differences(tmp_path, "task") == []
