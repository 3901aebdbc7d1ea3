"""Documents in a store are divided there, and what an earlier receipt in a store has is not sent again."""

import json
import random

import pyarrow as pa
import pytest
from plan_samples import divided, gathered, rows_of, sent, tar_file, what_is_said, zip_file

from penstock import receipts
from penstock._previous import EarlierReceipts
from penstock.pipestream import Server
from penstock.spark import dehydrate
from penstock.spark._changes import _Changes, _Folder

TEXTS = [(f"{number:02}.txt", f"{number} ".encode() * 900) for number in range(30)]


def run(s3, names, receipts_in, *, sink="sink", plan="task", previous=None):
    """Take objects below `in` apart by a plan: the rows, and the receipts by the names of the documents."""
    apart = dehydrate(
        s3.uri(sink), receipts=s3.uri(receipts_in), root=s3.uri("in"), storage=s3.storage,
        previous=None if previous is None else s3.uri(previous),
    )  # fmt: skip
    paths = [s3.uri(f"in/{name}") for name in names]
    if plan == "task":
        batch = pa.RecordBatch.from_pydict({"path": paths})
        rows = [row for batch in apart(iter([batch])) for row in batch.to_pylist()]
    else:
        rows = gathered(sent(divided(paths, apart), apart), apart)
    there = EarlierReceipts(s3.uri(receipts_in), s3.storage)
    there.prepare()
    return rows, {name: there.find(name) for name in names}


def differences(s3, receipts_in, sink="sink"):
    found = receipts.verify_all(s3.uri(receipts_in), s3.uri(sink), storage=s3.storage)
    return [difference.text for _, each in found for difference in each]


def test_a_document_in_a_store_is_divided_there(s3):
    nested = zip_file([*TEXTS, ("inner.zip", zip_file(TEXTS[:3])), ("again.txt", b"again")])
    s3.put("in/a.zip", nested)
    s3.put("in/b.tar.gz", tar_file([*TEXTS, ("c.zip", nested)], "w:gz"))
    s3.put("in/broken.zip", nested[: len(nested) // 2])
    names = ["a.zip", "b.tar.gz", "broken.zip", "nobody.zip"]
    rows, expected = run(s3, names, "task")
    found_rows, found = run(s3, names, "shuffle", plan="shuffle")
    assert {name: what_is_said(each) for name, each in found.items()} == {
        name: what_is_said(each) for name, each in expected.items()
    }
    assert rows_of(found_rows) == rows_of(rows)
    for name in ("a.zip", "b.tar.gz"):
        assert len({part["session"] for part in found[name]["parts"]}) > 2, name
    assert differences(s3, "task") == differences(s3, "shuffle") == []


def test_a_group_of_a_large_object_is_read_where_it_lies(s3):
    """Not all of the object for each group: nothing is copied, and only blocks with its children are fetched."""
    chance = random.Random(1)
    members = [(f"{number}.bin", chance.randbytes(4 << 20)) for number in range(8)]
    s3.put("in/large.zip", zip_file(members))
    apart = dehydrate(s3.uri("sink"), root=s3.uri("in"), storage=s3.storage)
    tasks = divided([s3.uri("in/large.zip")], apart)
    assert tasks.num_rows == 8
    last = tasks.slice(7)
    asked: list[int] = []
    s3.watch = lambda method, path, ranges: asked.append(ranges) if path.startswith("in/") and method == "GET" else None
    rows = sent(last, apart)
    assert rows.num_rows == 2
    # The directory at the end, and one member of 4 MiB: two blocks of 8 MiB, of the four that there are.
    assert 0 < sum(asked) <= 2 * (8 << 20)


@pytest.mark.parametrize("plan", ["task", "shuffle"])
def test_what_an_earlier_receipt_in_a_store_has_is_not_sent_again(s3, plan):
    s3.put("in/same.zip", zip_file(TEXTS))
    s3.put("in/changes.zip", zip_file([*TEXTS, ("inner.zip", zip_file(TEXTS[:2]))]))
    names = ["same.zip", "changes.zip"]
    _, first = run(s3, names, "receipts", plan=plan)
    files = {key for key in s3.list("sink/") if not key.endswith(".jsonl")}
    _, again = run(s3, names, "receipts", plan=plan, previous="receipts")
    assert {key for key in s3.list("sink/") if not key.endswith(".jsonl")} == files
    for name in names:
        assert {**again[name], "scopes": None} == {**first[name], "scopes": None}
    s3.put("in/changes.zip", zip_file([*TEXTS[1:], ("inner.zip", zip_file([("00.txt", b"new"), TEXTS[1]]))]))
    _, later = run(s3, names, "receipts", plan=plan, previous="receipts")
    old = {part["session"] for part in first["changes.zip"]["parts"]}
    new = [part["path"] for part in later["changes.zip"]["parts"] if part["session"] not in old]
    assert new == [["inner.zip"], ["inner.zip", "00.txt"]]
    gone = [change.path for change in receipts.compare(first["changes.zip"], later["changes.zip"])
            if change.kind == "removed"]  # fmt: skip
    assert gone == [("00.txt",)]
    told = _Changes(_Folder(s3.uri("receipts"), s3.storage), gone=False)(iter([pa.record_batch({"document": names})]))
    rows = [row for batch in told for row in batch.to_pylist() if row["document"] == "changes.zip"]
    assert {(row["change"], *row["path"]) for row in rows} == {
        ("changed",), ("changed", "inner.zip"), ("changed", "inner.zip", "00.txt"), ("removed", "00.txt"),
    }  # fmt: skip
    assert len([key for key in s3.list("receipts/") if "/." not in key]) == 3
    assert differences(s3, "receipts") == []


def test_the_command_line_sends_what_is_new_only(s3, tmp_path, penstock):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.zip").write_bytes(zip_file(TEXTS))
    (folder / "b.txt").write_bytes(b"a text")
    with Server(sink=tmp_path / "sink", state_dir=tmp_path) as server:
        for where in (str(tmp_path / "receipts"), s3.uri("receipts")):
            command = ["pipestream", "send", server.address, folder, "--fingerprint", server.fingerprint]
            command += ["--receipts", where, "--previous", where, "--json"]
            sessions = []
            for text in (b"a text", b"a text", b"another text"):
                (folder / "b.txt").write_bytes(text)
                ended = penstock(*command, env=s3.environment)
                assert (ended.returncode, ended.stderr) == (0, "")
                sessions.append(
                    {line["document"]: line["session"] for line in map(json.loads, ended.stdout.splitlines())}
                )
            first, second, third = sessions
            assert second == first
            assert third["a.zip"] == first["a.zip"]
            assert third["b.txt"] != first["b.txt"]
            verified = penstock("verify", where, tmp_path / "sink", env=s3.environment)
            assert (verified.returncode, verified.stdout) == (0, "3 receipts verified: no differences\n")
