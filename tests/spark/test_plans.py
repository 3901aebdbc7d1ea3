"""The plans beyond one task for each document: their receipts say the same, and verify."""

import copy
import io
import json
import shutil
import tarfile
import zipfile

import pytest

from penstock import receipts as receipts_module
from penstock._previous import find_receipt
from penstock.documents import Limits
from penstock.spark import changes, dehydrate, ingest

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
        collected = rows.collect()
        found = [json.loads(file.read_text()) for file in where.glob("*.json")]
        latest = {receipt["document"]: find_receipt(where, receipt["document"]) for receipt in found}
        return collected, latest

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


def test_limits_hold_as_in_one_task(run, outsized, tmp_path):
    """Only one task knows which part exceeds a limit on all parts together, so such a document is sent by one."""
    for number, limits in enumerate((Limits(max_total_inflated=100_000), Limits(max_depth=2), Limits(max_children=7))):
        _, expected = run("task", outsized, f"task{number}", limits)
        _, found = run("shuffle", outsized, f"shuffle{number}", limits)
        assert expected["deep.zip"]["status"] == "FAILED"
        assert {name: what_is_said(each) for name, each in found.items()} == {
            name: what_is_said(each) for name, each in expected.items()
        }
        assert differences(tmp_path, f"shuffle{number}") == []


def test_whatever_is_changed_in_a_receipt_over_several_sessions_is_named(run, outsized, tmp_path):
    for path in outsized.iterdir():
        if path.name not in ("deep.tar.gz", "bombs.zip"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    run("shuffle", outsized)
    for path in (tmp_path / "receipts").glob("*.json"):
        whole = json.loads(path.read_text())
        apart = [
            number for number, scope in enumerate(whole["scopes"]) if scope["session"] != whole["session"]
        ]  # fmt: skip
        assert len(apart) >= 2
        for change in CHANGES:
            receipt = copy.deepcopy(whole)
            change(receipt, apart)
            tampered = tmp_path / "tampered" / path.name
            tampered.parent.mkdir(exist_ok=True)
            tampered.write_text(json.dumps(receipt))
            assert receipts_module.verify(tampered, tmp_path / "sink"), change


def _swap_sessions(receipt, apart):
    first, second = (receipt["scopes"][number] for number in apart[:2])
    first["session"], second["session"] = second["session"], first["session"]


def _move(receipt, apart):
    """The last part of a group's scope into another session."""
    scope, other = (receipt["scopes"][number] for number in apart[:2])
    part = next(p for p in receipt["parts"] if (p["session"], p["scope"]) == (scope["session"], scope["scope"]))
    part["session"] = other["session"]


CHANGES = [
    lambda receipt, apart: receipt["scopes"].pop(apart[0]),
    lambda receipt, apart: receipt["scopes"].append(receipt["scopes"][apart[0]]),
    lambda receipt, apart: receipt["scopes"][apart[0]].update(parent=[0, 77]),
    lambda receipt, apart: receipt["scopes"][apart[0]].update(merkle_root="0" * 64),
    lambda receipt, apart: receipt["scopes"][apart[0]].update(depth=7),
    lambda receipt, _: receipt["parts"].pop(),
    lambda receipt, _: receipt.update(status="COMPLETE" if receipt["status"] == "FAILED" else "FAILED"),
    lambda receipt, apart: receipt.update(session=receipt["scopes"][apart[0]]["session"]),
    _swap_sessions,
    _move,
]


def test_what_an_earlier_receipt_has_is_not_sent_again(run, spark, corpus, tmp_path):
    def texts(**changed):
        return [(name, changed.get(name, name).encode() * 3000) for name in "abcdefgh" if changed.get(name) != ""]

    def inner(**changed):
        return zip_file([("x", b"x"), ("nested.zip", zip_file(texts(**changed)))])

    folder = tmp_path / "again"
    folder.mkdir()
    same, other = zip_file([("s", zip_file(texts()))]), corpus / "letter.eml"
    (folder / "same.zip").write_bytes(same)
    (folder / "letter.eml").write_bytes(other.read_bytes())
    (folder / "changes.zip").write_bytes(zip_file([*texts(), ("kept.zip", inner()), ("new.zip", inner())]))
    for plan in ("task", "shuffle"):
        (folder / "changes.zip").write_bytes(zip_file([*texts(), ("kept.zip", inner()), ("new.zip", inner())]))
        first_rows, first = run(plan, folder, plan)
        again_rows, again = run(plan, folder, plan, previous=plan)
        # Nothing is new: the receipts are the same to the last field.
        assert rows_of(again_rows) == rows_of(first_rows)
        for name, receipt in first.items():
            assert {**again[name], "scopes": None} == {**receipt, "scopes": None}
            assert sorted(map(str, again[name]["scopes"])) == sorted(map(str, receipt["scopes"]))
        (folder / "changes.zip").write_bytes(
            zip_file([*texts(b="B", d=""), ("kept.zip", inner()), ("new.zip", inner(c="C"))])
        )
        _, later = run(plan, folder, plan, previous=plan)
        _, fresh = run(plan, folder, f"{plan} fresh")
        earlier = {(part["session"], part["scope"], part["entity"]) for part in first["changes.zip"]["parts"]}
        sent = [
            part["path"]
            for part in later["changes.zip"]["parts"]
            if (part["session"], part["scope"], part["entity"]) not in earlier
        ]
        assert sent == [["b"], ["new.zip"], ["new.zip", "nested.zip"], ["new.zip", "nested.zip", "c"]], plan
        for name, receipt in fresh.items():
            assert what_is_said(later[name])["parts"] == what_is_said(receipt)["parts"]
            assert later[name]["content_root"] == receipt["content_root"]
        # Both versions have a receipt, and both verify.
        assert len(list((tmp_path / plan).glob("*.json"))) == 4
        assert differences(tmp_path, plan) == []
        documents = spark.read.format("documents").load(str(folder)).where("document != 'letter.eml'")
        found = changes(documents, str(tmp_path / plan)).where("document = 'changes.zip'").collect()
        assert {(row.change, *row.path) for row in found} == {
            ("changed",), ("changed", "b"), ("removed", "d"), ("changed", "new.zip"),
            ("changed", "new.zip", "nested.zip"), ("changed", "new.zip", "nested.zip", "c"),
        }  # fmt: skip
        gone = changes(documents, str(tmp_path / plan)).where("document = 'letter.eml'").collect()
        assert {row.change for row in gone} == {"removed"}
        assert len(gone) == len(first["letter.eml"]["parts"]) + 1
        for path in (tmp_path / plan).glob("*.json"):
            kept = json.loads(path.read_text())
            if kept["document"] == "changes.zip" and kept["sha256"] == later["changes.zip"]["sha256"]:
                _assert_tampering_is_named(kept, path, tmp_path)


def _assert_tampering_is_named(receipt, path, tmp_path):
    tampered = tmp_path / "tampered" / path.name
    tampered.parent.mkdir(exist_ok=True)
    for index, part in enumerate(receipt["parts"]):
        for change in ({"session": receipt["session"]}, {"entity": 99}, {"scope": 77}, {"sha256": "0" * 64}):
            changed = copy.deepcopy(receipt)
            changed["parts"][index].update(change)
            if changed != receipt:
                tampered.write_text(json.dumps(changed))
                assert receipts_module.verify(tampered, tmp_path / "sink"), (part["path"], change)
    for index in range(len(receipt["scopes"])):
        changed = copy.deepcopy(receipt)
        del changed["scopes"][index]
        tampered.write_text(json.dumps(changed))
        assert receipts_module.verify(tampered, tmp_path / "sink"), receipt["scopes"][index]
