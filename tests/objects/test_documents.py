"""Documents at URIs: listed, named, and read a piece at a time."""

import hashlib
import io
import json
import zipfile

import pyarrow as pa
import pytest

from penstock import receipts
from penstock.documents import dehydrate as dehydrate_document
from penstock.errors import SparkError
from penstock.spark import DocumentsSource, dehydrate
from penstock.spark.documents_source import DocumentsReader


def options(s3, path, **more):
    return {"path": path, **{f"storage.{name}": value for name, value in s3.storage.items()}, **more}


def reader(given) -> DocumentsReader:
    source = DocumentsSource(given)
    return source.reader(source.schema())


def rows(given):
    found = reader(given)
    return [row for part in found.partitions() for batch in found.read(part) for row in batch.to_pylist()]


def archive(*members: tuple[str, bytes]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        for name, content in members:
            file.writestr(name, content)
    return data.getvalue()


def test_what_lies_below_a_uri_is_listed_and_named_relative_to_it(s3):
    for key in ("in/a.txt", "in/b/c d%20e.txt", "in/b/ü.txt", "inside.txt", "other/x"):
        s3.put(key, key.encode())
    found = {row["document"]: row for row in rows(options(s3, s3.uri("in")))}
    assert set(found) == {"a.txt", "b/c d%20e.txt", "b/ü.txt"}
    assert found["b/ü.txt"]["path"] == s3.uri("in/b/ü.txt")
    assert found["a.txt"]["length"] == len("in/a.txt")
    assert [row["document"] for row in rows(options(s3, s3.uri("in/b/ü.txt")))] == ["ü.txt"]
    assert rows(options(s3, s3.uri("in/")))[0]["path"].startswith(s3.uri("in/"))


def test_what_cannot_be_listed_is_named(s3):
    for path, more, expected in [
        (s3.uri("nothing"), {}, "does not exist"),
        ("s3://nobody/in", {}, "s3://nobody/in"),
        ("s3://", {}, "names no bucket"),
        (s3.uri("in"), {"storage.endpiont": "x"}, "no storage option endpiont"),
    ]:
        with pytest.raises(SparkError, match=expected):
            reader(options(s3, path, **more))


def test_a_task_reads_objects_writes_into_the_store_and_leaves_receipts_there(s3):
    nested = archive(("inner.zip", archive(("a.txt", b"text"), ("b.html", b"<p>markup"))), ("c.txt", b"more"))
    s3.put("in/nested.zip", nested)
    s3.put("in/note.txt", b"a note")
    batch = pa.RecordBatch.from_pylist([{"path": s3.uri(f"in/{name}")} for name in ("nested.zip", "note.txt", "gone")])
    apart = dehydrate(s3.uri("sink"), receipts=s3.uri("receipts"), root=s3.uri("in"), storage=s3.storage)
    given = pa.Table.from_batches(apart(iter([batch]))).to_pylist()
    documents = {row["document"]: row for row in given if row["depth"] == 0}
    assert {name: row["status"] for name, row in documents.items()} == {
        "nested.zip": "COMPLETE",
        "note.txt": "COMPLETE",
        "gone": "FAILED",
    }
    assert documents["nested.zip"]["sha256"] == hashlib.sha256(nested).hexdigest()
    assert ["inner.zip", "b.html"] in [row["path"] for row in given]
    assert len(s3.list("receipts/")) == 3
    for _, differences in receipts.verify_all(s3.uri("receipts"), s3.uri("sink"), storage=s3.storage):
        assert [difference.text for difference in differences] == []
    (session,) = {json.loads(s3.get(key))["session"] for key in s3.list("receipts/")}
    assert json.loads(s3.get(f"sink/{session}/entities.jsonl").splitlines()[-1]) == {"closed": 0}
    assert s3.list("sink/.open/") == []


def test_a_task_whose_list_cannot_be_put_fails_and_leaves_no_receipt(s3):
    s3.put("in/note.txt", b"a note")
    s3.refuse = lambda method, path: method == "PUT" and path.endswith("entities.jsonl")
    batch = pa.RecordBatch.from_pylist([{"path": s3.uri("in/note.txt")}])
    apart = dehydrate(s3.uri("sink"), receipts=s3.uri("receipts"), storage=s3.storage)
    with pytest.raises(SparkError, match="its list could not be closed"):
        list(apart(iter([batch])))
    assert s3.list("receipts/") == []


def test_options_that_do_not_fit_a_uri_are_refused_on_the_driver(s3):
    with pytest.raises(SparkError, match="cannot be used with a sink that is a URI"):
        dehydrate(s3.uri("sink"), fingerprint="ab" * 32)
    with pytest.raises(SparkError, match="there is no storage option region for it"):
        dehydrate("gs://bucket/sink", storage={"region": "x"})
    with pytest.raises(SparkError, match="cannot be sinks"):
        dehydrate("hdfs://host/sink")


class Counted(io.BytesIO):
    """A file that counts how often it is read, and how much is asked for."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.reads: list[int] = []

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self.reads.append(len(data))
        return data


def test_a_large_file_is_read_in_place_in_large_pieces():
    members = [(f"{number}.bin", bytes([number]) * (5 << 20)) for number in range(16)]
    data = archive(*members)
    file = Counted(b"before" + data)
    file.seek(6)
    parts = list(dehydrate_document("large.zip", file))
    assert parts[0].sha256 == hashlib.sha256(data).hexdigest()
    assert {part.path: part.sha256 for part in parts[1:]} == {
        (name,): hashlib.sha256(content).hexdigest() for name, content in members
    }
    assert len(file.reads) < 30, "about two passes in pieces of 8 MiB"
    assert sum(file.reads) < 2.2 * len(data)


def test_a_large_file_that_fails_on_the_way_is_failed_with_its_reason():
    class Failing(Counted):
        def read(self, size: int | None = -1) -> bytes:
            if len(self.reads) == 2:
                raise OSError("the store is gone")
            return super().read(size)

    (part,) = dehydrate_document("large.bin", Failing(bytes(80 << 20)))
    assert part.status == "FAILED"
    assert "the store is gone" in str(part.reason)
