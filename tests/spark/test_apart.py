"""The stages of the plans, one after the other without Spark, against a real sink."""

import copy
import json

import pyarrow as pa
import pytest
from plan_samples import (
    differences,
    divided,
    gathered,
    latest_receipts,
    rows_of,
    sent,
    sessions_of,
    what_is_said,
    write_outsized,
    zip_file,
)

from penstock import receipts as receipts_module
from penstock.documents import Limits
from penstock.pipestream import Server
from penstock.spark import dehydrate
from penstock.spark._apart import SendApart


@pytest.fixture
def server(tmp_path):
    with Server("127.0.0.1:0", sink=tmp_path / "sink") as server:
        yield server


@pytest.fixture
def run(server, tmp_path):
    """Take documents apart by a plan: the rows, and the latest receipts by the documents' names."""

    def run(plan, folder, receipts, limits=None, previous=None):
        where = tmp_path / receipts
        apart = dehydrate(
            server.address, fingerprint=server.fingerprint, receipts=str(where), limits=limits,
            previous=None if previous is None else str(tmp_path / previous),
        )  # fmt: skip
        paths = sorted(path for path in folder.iterdir() if path.is_file())
        if plan == "task":
            batch = pa.RecordBatch.from_pydict({"path": [str(path) for path in paths]})
            rows = [row for batch in apart(iter([batch])) for row in batch.to_pylist()]
        else:
            rows = gathered(sent(divided(paths, apart), apart), apart)
        return rows, latest_receipts(where)

    return run


@pytest.fixture
def outsized(corpus):
    write_outsized(corpus)
    return corpus


def test_no_bytes_go_through_the_shuffle(outsized, server):
    apart = dehydrate(server.address, fingerprint=server.fingerprint)
    tasks = divided([outsized / "deep.zip"], apart)
    assert tasks.num_rows > 5
    assert "nested.zip" not in "".join(tasks.column("task").to_pylist())
    # About as much for a group, whatever is in it.
    assert tasks.nbytes < 1000 * tasks.num_rows
    first, last = tasks.column("first").to_pylist(), tasks.column("last").to_pylist()
    assert (first, last[-1]) == ([1, *(each + 1 for each in last[:-1])], 63)


def test_limits_hold_as_in_one_task(run, outsized, tmp_path):
    """Only one task knows which part exceeds a limit on all parts together, so such a document is sent by one."""
    for number, limits in enumerate((Limits(max_total_inflated=100_000), Limits(max_depth=2), Limits(max_children=7))):
        rows, expected = run("task", outsized, f"task{number}", limits)
        found_rows, found = run("shuffle", outsized, f"shuffle{number}", limits)
        assert expected["deep.zip"]["status"] == "FAILED"
        assert {name: what_is_said(each) for name, each in found.items()} == {
            name: what_is_said(each) for name, each in expected.items()
        }
        assert rows_of(found_rows) == rows_of(rows)
        assert (len(sessions_of(found["deep.zip"])) == 1) == (number == 0)
        assert differences(tmp_path / f"shuffle{number}", tmp_path / "sink") == []


def test_a_document_that_changes_on_the_way_is_sent_as_it_is_at_the_end(outsized, server, tmp_path):
    path = outsized / "deep.zip"
    apart = dehydrate(server.address, fingerprint=server.fingerprint, receipts=str(tmp_path / "receipts"))
    tasks = divided([path], apart)
    path.write_bytes((outsized / "nested.zip").read_bytes())
    rows = gathered(sent(tasks, apart), apart)
    assert [row["path"] for row in rows][1] == ["readme.txt"]
    assert len({row["sha256"] for row in rows if row["depth"] == 0}) == 1
    assert differences(tmp_path / "receipts", tmp_path / "sink") == []


def test_groups_that_were_sent_twice_are_counted_once(outsized, server, tmp_path):
    """A task that is tried again has a session of its own, and only the rows of one attempt go on."""
    apart = dehydrate(server.address, fingerprint=server.fingerprint, receipts=str(tmp_path / "receipts"))
    tasks = divided([outsized / "deep.zip"], apart)
    lost = SendApart(apart)(iter(tasks.to_batches()))
    next(lost)
    lost.close()
    sent(tasks, apart)
    rows = gathered(sent(tasks, apart), apart)
    assert len(rows) == 1 + len(latest_receipts(tmp_path / "receipts")["deep.zip"]["parts"])
    assert differences(tmp_path / "receipts", tmp_path / "sink") == []


def test_whatever_is_changed_in_a_receipt_over_several_sessions_is_named(run, outsized, tmp_path):
    for path in outsized.iterdir():
        if path.is_file() and path.name not in ("deep.tar.gz", "bombs.zip"):
            path.unlink()
    run("shuffle", outsized, "receipts")
    for path in (tmp_path / "receipts").glob("*.json"):
        whole = json.loads(path.read_text())
        apart = [number for number, scope in enumerate(whole["scopes"]) if scope["session"] != whole["session"]]
        assert len(apart) >= 2
        for number, change in enumerate(CHANGES):
            receipt = copy.deepcopy(whole)
            change(receipt, apart)
            tampered = tmp_path / "tampered" / path.name
            tampered.parent.mkdir(exist_ok=True)
            tampered.write_text(json.dumps(receipt))
            assert receipts_module.verify(tampered, tmp_path / "sink"), (path, number)


def _put_off(receipt, apart):
    first, second = (receipt["scopes"][number] for number in apart[:2])
    first["session"] = second["session"]


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
    _put_off,
    _move,
]


def texts(**changed):
    return [(name, changed.get(name, name).encode() * 3000) for name in "abcdefgh" if changed.get(name) != ""]


def inner(**changed):
    return zip_file([("x", b"x"), ("nested.zip", zip_file(texts(**changed)))])


@pytest.mark.parametrize("plan", ["task", "shuffle"])
def test_what_an_earlier_receipt_has_is_not_sent_again(run, tmp_path, plan):
    folder = tmp_path / "again"
    folder.mkdir()
    (folder / "same.zip").write_bytes(zip_file([("s", zip_file(texts()))]))
    (folder / "changes.zip").write_bytes(zip_file([*texts(), ("kept.zip", inner()), ("new.zip", inner())]))
    first_rows, first = run(plan, folder, "receipts")
    again_rows, again = run(plan, folder, "receipts", previous="receipts")
    # Nothing is new: the receipts are the same to the last field.
    assert rows_of(again_rows) == rows_of(first_rows)
    for name, receipt in first.items():
        assert {**again[name], "scopes": None} == {**receipt, "scopes": None}
        assert sorted(map(str, again[name]["scopes"])) == sorted(map(str, receipt["scopes"]))
    (folder / "changes.zip").write_bytes(
        zip_file([*texts(b="B", d=""), ("kept.zip", inner()), ("new.zip", inner(c="C"))])
    )
    _, later = run(plan, folder, "receipts", previous="receipts")
    _, fresh = run(plan, folder, "fresh")
    earlier = {(part["session"], part["scope"], part["entity"]) for part in first["changes.zip"]["parts"]}
    places = [(part["session"], part["scope"], part["entity"]) for part in later["changes.zip"]["parts"]]
    parts = zip(places, later["changes.zip"]["parts"], strict=True)
    sent = [part["path"] for place, part in parts if place not in earlier]
    assert sent == [["b"], ["new.zip"], ["new.zip", "nested.zip"], ["new.zip", "nested.zip", "c"]]
    for name, receipt in fresh.items():
        assert what_is_said(later[name])["parts"] == what_is_said(receipt)["parts"]
        assert later[name]["content_root"] == receipt["content_root"]
    # Both versions have a receipt, and both verify.
    assert len(list((tmp_path / "receipts").glob("*.json"))) == 3
    assert differences(tmp_path / "receipts", tmp_path / "sink") == []
    kinds = {
        (change.kind, *change.path)
        for change in receipts_module.compare(first["changes.zip"], later["changes.zip"])
        if change.kind != "unchanged"
    }
    assert kinds == {
        ("changed",), ("changed", "b"), ("removed", "d"), ("changed", "new.zip"),
        ("changed", "new.zip", "nested.zip"), ("changed", "new.zip", "nested.zip", "c"),
    }  # fmt: skip
    _assert_tampering_is_named(later["changes.zip"], tmp_path)


def test_what_failed_is_sent_again_with_its_containers_and_nothing_else(run, tmp_path):
    folder = tmp_path / "again"
    folder.mkdir()
    members = [*texts(), ("large.zip", zip_file([("ok", b"ok"), ("zeros", bytes(300_000))]))]
    (folder / "a.zip").write_bytes(zip_file(members))
    _, first = run("task", folder, "receipts", Limits(max_inflated=100_000))
    assert first["a.zip"]["status"] == "FAILED"
    _, later = run("task", folder, "receipts", previous="receipts")
    assert (later["a.zip"]["status"], later["a.zip"]["sha256"]) == ("COMPLETE", first["a.zip"]["sha256"])
    new = [part["path"] for part in later["a.zip"]["parts"] if part["session"] == later["a.zip"]["session"]]
    assert new == [["large.zip"], ["large.zip", "zeros"]]
    assert differences(tmp_path / "receipts", tmp_path / "sink") == []


def _assert_tampering_is_named(receipt, tmp_path):
    (path,) = (each for each in (tmp_path / "receipts").glob("*.json") if json.loads(each.read_text()) == receipt)
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
