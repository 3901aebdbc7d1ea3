"""References to objects of S3: fetched into a folder and into the store, and checked by entity tag and version."""

import json
from dataclasses import replace

import pytest

from penstock.pipestream import ErrorCode, FileStorageReference, References, Server, Session

LARGE = bytes(range(256)) * (40 << 10)


@pytest.fixture(params=["folder", "store"])
def sink(request, s3, tmp_path):
    """A sink of either kind: its options, and what reads a file of it."""
    if request.param == "folder":
        return {"sink": tmp_path / "sink"}, lambda file: (tmp_path / "sink" / file).read_bytes()
    return {"sink": s3.uri("sink"), "storage": s3.storage}, lambda file: s3.get(f"sink/{file}")


def test_objects_are_fetched_and_must_be_what_the_reference_says(s3, sink, tmp_path):
    options, read = sink
    s3.put("in/small", b"hello world")
    s3.put("in/large", LARGE)
    s3.put("other/small", b"elsewhere")
    etag = s3.client.head_object(Bucket="bucket", Key="in/small")["ETag"]
    small = FileStorageReference.of_url(s3.uri("in/small"), etag=etag, size=11)
    sent = [
        small,
        FileStorageReference.of_url(s3.uri("in/large"), region="elsewhere"),
        replace(small, attrs={"etag": '"other"'}),
        FileStorageReference.of_url(s3.uri("in/missing")),
        FileStorageReference.of_url(s3.uri("other/small")),
    ]
    references = References(fetch_from=[s3.uri("in")], storage=s3.storage)
    with (
        Server(**options, references=references, state_dir=tmp_path) as server,
        Session.connect(server.address, fingerprint=server.fingerprint) as session,
    ):
        entities = [session.send_reference(each) for each in sent]
        ends = [(entity.wait().name, entity.reason and entity.reason.code) for entity in entities]
    assert ends == [
        ("COMPLETE", None),
        ("COMPLETE", None),
        ("FAILED", ErrorCode.INTEGRITY_ERROR),
        ("FAILED", ErrorCode.ENTITY_INVALID),
        ("FAILED", ErrorCode.ENTITY_INVALID),
    ]
    lines = {line.get("entity"): line for line in map(json.loads, read(f"{session.id}/entities.jsonl").splitlines())}
    assert read(lines[1]["file"]) == b"hello world"
    assert read(lines[2]["file"]) == LARGE
    assert FileStorageReference.decode(read(lines[1]["reference"]["message"])) == small
    assert not [path for method, path in s3.requests if path.startswith("other/") and method != "PUT"]


def test_a_store_that_fails_is_not_told_of_to_the_peer(s3, tmp_path):
    s3.put("in/a", b"a")
    s3.refuse = lambda _method, path: path.startswith("in/a")
    references = References(fetch_from=[s3.uri("in")], storage=s3.storage)
    with (
        Server(sink=tmp_path / "sink", references=references, state_dir=tmp_path) as server,
        Session.connect(server.address, fingerprint=server.fingerprint) as session,
    ):
        entity = session.send_reference(FileStorageReference.of_url(s3.uri("in/a")))
        assert entity.wait(90).name == "FAILED"
    assert entity.reason.code == ErrorCode.INTERNAL_ERROR
    assert "127.0.0.1" not in entity.reason.message


def test_an_object_that_is_replaced_while_it_is_read_fails(s3, tmp_path):
    s3.put("in/large", LARGE)

    def replaced(method, _path, data):
        if method == "GET" and data and not s3.list("in/replaced"):
            s3.put("in/replaced", b"")
            s3.put("in/large", LARGE[::-1])

    s3.watch = replaced
    references = References(fetch_from=[s3.uri("in")], storage=s3.storage)
    with (
        Server(sink=tmp_path / "sink", references=references, state_dir=tmp_path) as server,
        Session.connect(server.address, fingerprint=server.fingerprint) as session,
    ):
        entity = session.send_reference(FileStorageReference.of_url(s3.uri("in/large")))
        assert (entity.wait().name, entity.reason.code) == ("FAILED", ErrorCode.INTEGRITY_ERROR)
