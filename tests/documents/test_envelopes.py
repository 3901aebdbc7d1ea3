"""Which document was sent, and whose: in headers, receipts, rows and the sink; and headers that are sealed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import samples

from penstock import receipts
from penstock.documents import PART_SCHEMA, DocumentResult, DocumentSender, Privacy
from penstock.pipestream import CompletionPolicy, OwnershipContext, PipeDoc, PipeStreamURI, Server, Session

NESTED = samples.zip_file(
    {
        "salaries.tar.gz": samples.gzip_file(samples.tar_file({"x.txt": b"text", "y.bin": bytes(70_000)})),
        "m.eml": samples.mail("s", "b", {"board.pdf": samples.pdf(["one", "two"])}),
    }
)
OWNER = OwnershipContext(owner_id="alice", group_id="finance", scopes=["read", "audit"])
KEY = "5a" * 32

Send = Callable[..., tuple[DocumentResult, list[dict[str, Any]], list[str]]]


@pytest.fixture
def send(tmp_path: Path) -> Send:
    def send(
        data: bytes = NESTED,
        *,
        previous: DocumentResult | None = None,
        doc_id: str | None = None,
        owner: OwnershipContext | None = None,
        layers: int = 1,
        header_key: str | None = None,
        **options: Any,
    ) -> tuple[DocumentResult, list[dict[str, Any]], list[str]]:
        with (
            Server(sink=tmp_path / "sink", state_dir=tmp_path / "state", header_key=header_key) as server,
            Session.connect(
                server.address, fingerprint=server.fingerprint, layers=layers, header_key=header_key
            ) as session,
        ):
            sender = DocumentSender(session, **options)
            earlier = None if previous is None else previous.receipt()
            sent = sender.send("in/a.zip", data, previous=earlier, doc_id=doc_id, owner=owner)
            result = sent.wait(60)
        path = receipts.write(result, tmp_path / "receipts")
        differences = [difference.text for difference in receipts.verify(path, tmp_path / "sink")]
        log = (tmp_path / "sink" / session.id / "entities.jsonl").read_text().splitlines()
        return result, [json.loads(line) for line in log][:-1], differences

    return send


def root_of(lines: list[dict[str, Any]]) -> dict[str, Any]:
    (root,) = (line for line in lines if line["parent"] is None and line["scope"] == 0)
    return root


@pytest.mark.parametrize("layers", [0, 1, 2])
def test_every_document_has_an_identifier_made_from_its_receipts_key(send: Send, layers: int) -> None:
    result, lines, differences = send(layers=layers)
    assert (result.status, differences) == ("COMPLETE", [])
    key, made = int(result.key, 16), UUID(result.doc_id)
    assert made.version == 8
    changed = 0xF << 76 | 0x3 << 62
    assert made.int & ~changed == key & ~changed, "all other bits are the key's"
    root = root_of(lines)
    doc = PipeDoc.of_metadata(root["metadata"], root["entity"])
    assert doc == PipeDoc(doc_id=result.doc_id, entity_id=root["entity"])
    assert root["doc_id"] == result.doc_id
    assert "owner" not in root
    assert all("doc_id" not in line and "pipestream.doc" not in line["metadata"] for line in lines if line is not root)
    receipt = result.receipt()
    assert (receipt["version"], receipt["doc_id"], "owner" in receipt) == (1, result.doc_id, False)


def test_the_callers_identifier_and_owner_stand_in_headers_receipts_rows_and_the_sink(send: Send) -> None:
    doc_id = "6f9619ff-8b86-8d01-b42d-00c04fc964ff"
    result, lines, differences = send(doc_id=doc_id, owner=OWNER)
    assert differences == []
    owner = {"owner_id": "alice", "group_id": "finance", "scopes": ["read", "audit"]}
    root = root_of(lines)
    assert (root["doc_id"], root["owner"]) == (doc_id, owner)
    assert PipeDoc.of_metadata(root["metadata"], 1) == PipeDoc(doc_id=doc_id, entity_id=1, ownership=OWNER)
    receipt = result.receipt()
    assert (receipt["doc_id"], receipt["owner"], result.owner) == (doc_id, owner, OWNER)
    batch = result.batch()
    assert batch.schema.equals(PART_SCHEMA)
    assert PART_SCHEMA.names[-2:] == ["doc_id", "owner"]
    assert {(row["doc_id"], json.dumps(row["owner"])) for row in batch.to_pylist()} == {(doc_id, json.dumps(owner))}
    sender_wide, _, none = send(b"text", owner=None)
    assert (sender_wide.owner, none) == (None, [])


def test_an_identifier_or_an_owner_that_is_none_is_refused_before_anything_is_sent(send: Send) -> None:
    for wrong in ("42", "6F9619FF-8B86-8D01-B42D-00C04FC964FF", "6f9619ff8b868d01b42d00c04fc964ff"):
        with pytest.raises(ValueError, match="doc_id is a UUID"):
            send(doc_id=wrong)
    with pytest.raises(ValueError, match=r"ownership\.owner_id has 0 bytes"):
        send(owner=OwnershipContext(owner_id=""))


def test_a_receipts_uri_names_the_root_entity_at_the_sender_s_name_for_the_server(send: Send) -> None:
    result, _, _ = send()
    uri = PipeStreamURI.parse(str(result.uri))
    assert (uri.session_id, (*uri.scope_path, uri.entity_id)) == (result.session, result.root)
    assert uri.authority.startswith("127.0.0.1:")


def test_verify_compares_identifier_owner_and_uri(send: Send, tmp_path: Path) -> None:
    result, _, _ = send(owner=OWNER)
    path = tmp_path / "receipts" / f"{result.key}.json"
    whole = json.loads(path.read_text())

    def verified(**changes: Any) -> list[str]:
        path.write_text(json.dumps({**whole, **changes}))
        return [difference.text for difference in receipts.verify(path, tmp_path / "sink")]

    assert verified() == []
    other = "6f9619ff-8b86-8d01-b42d-00c04fc964ff"
    assert any("doc_id: the receipt says" in text for text in verified(doc_id=other))
    assert any("owner: the receipt says" in text for text in verified(owner={**whole["owner"], "owner_id": "mallory"}))
    assert any("uri: must be" in text for text in verified(uri=f"pipestream://h:1/{'0' * 32}/0/1"))
    for field, wrong in (("doc_id", "7"), ("owner", {"owner_id": "x"}), ("uri", "http://h/"), ("alias", {})):
        assert any(f"{field}: must be" in text for text in verified(**{field: wrong})), field
    bare = {name: value for name, value in whole.items() if name not in ("doc_id", "owner", "uri")}
    path.write_text(json.dumps(bare))
    assert any("doc_id: the receipt says null" in d.text for d in receipts.verify(path, tmp_path / "sink"))
    # One of an earlier version, of a sink of that time: neither says it.
    log = tmp_path / "sink" / result.session / "entities.jsonl"
    new = log.read_text()
    lines = [json.loads(line) for line in new.splitlines()]
    for line in lines:
        line.pop("doc_id", None), line.pop("owner", None), line.get("metadata", {}).pop("pipestream.doc", None)
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert receipts.verify(path, tmp_path / "sink") == []
    log.write_text(new)
    # A sink whose list or header was changed.
    path.write_text(json.dumps(whole))
    log.write_text(log.read_text().replace(f'"doc_id":"{result.doc_id}"', f'"doc_id":"{other}"'))
    assert [text for text in (d.text for d in receipts.verify(path, tmp_path / "sink")) if "doc_id" in text] != []


def test_pseudonyms_hide_identifier_and_owner_and_the_receipt_tells_them(send: Send, tmp_path: Path) -> None:
    key_file = tmp_path / "pseudonyms.key"
    key_file.write_bytes(b"a key for pseudonyms\n")
    privacy = Privacy(pseudonym_key_file=key_file)
    result, lines, differences = send(owner=OWNER, privacy=privacy)
    assert differences == []
    shown = json.dumps(lines)
    root = root_of(lines)
    doc = PipeDoc.of_metadata(root["metadata"], root["entity"])
    for name in ("alice", "finance", "audit", result.doc_id):
        assert name not in shown
    assert doc is not None
    assert doc.ownership is not None
    receipt = result.receipt()
    assert receipt["owner"]["owner_id"] == "alice"
    assert receipt["alias"] == {"doc_id": root["doc_id"], "owner": root["owner"]}
    assert UUID(root["doc_id"]).version == 8
    again, lines, differences = send(owner=OWNER, privacy=privacy, previous=result)
    assert (again.status, lines, differences) == ("COMPLETE", [], []), "the same key makes the same pseudonyms"


def test_a_document_with_another_owner_announces_its_root_again_and_nothing_else(send: Send) -> None:
    first, _, _ = send(owner=OWNER)
    same, lines, differences = send(owner=OWNER, previous=first)
    assert (same.status, lines, differences, same.uri) == ("COMPLETE", [], [], first.uri)
    other = OwnershipContext(owner_id="bob")
    moved, lines, differences = send(owner=other, previous=first)
    assert (moved.status, differences, moved.owner) == ("COMPLETE", [], other)
    assert [(line["owner"]["owner_id"], line["parent"]) for line in lines] == [("bob", None)]
    assert moved.uri != first.uri


@pytest.mark.parametrize("layers", [0, 1, 2])
def test_documents_under_sealed_headers_verify(send: Send, layers: int) -> None:
    result, lines, differences = send(owner=OWNER, layers=layers, header_key=KEY)
    assert (result.status, differences) == ("COMPLETE", [])
    assert root_of(lines)["owner"]["owner_id"] == "alice"
    assert all("pipestream.sealed" not in line["metadata"] for line in lines)


def test_retries_claim_checks_and_redemption_work_under_sealed_headers(tmp_path: Path) -> None:
    data = samples.zip_file({"good.txt": b"good", "later.png": b"\x89PNG\r\n\x1a\n" + bytes(64)})
    policy = CompletionPolicy.parse("best-effort,on-failure=retry,max-retries=2,retry-delay=0")
    sink = tmp_path / "sink"
    with Server(sink=sink, state_dir=tmp_path, header_key=KEY, defer_types=["image/*"]) as server:

        def send(previous: dict[str, Any] | None = None) -> DocumentResult:
            with Session.connect(
                server.address, fingerprint=server.fingerprint, layers=2, header_key=KEY, policy=policy
            ) as session:
                return DocumentSender(session).send("a.zip", data, previous=previous).wait(60)

        first = send()
        path = receipts.write(first, tmp_path / "receipts")
        part = next(part for part in first.receipt()["parts"] if part["path"] == ["later.png"])
        assert (part["status"], len(part["claim"])) == ("DEFERRED", 16)
    assert receipts.verify(path, sink) == []
    with (
        Server(sink=sink, state_dir=tmp_path, header_key=KEY) as server,
        Session.connect(server.address, fingerprint=server.fingerprint, layers=2, header_key=KEY) as session,
    ):
        again = DocumentSender(session).send("a.zip", data, previous=first.receipt()).wait(60)
    assert (again.status, {part["status"] for part in again.receipt()["parts"]}) == ("COMPLETE", {"COMPLETE"})
    assert receipts.verify(receipts.write(again, tmp_path / "receipts"), sink) == []


def test_an_application_that_fails_an_attempt_gets_the_sealed_entity_again(tmp_path: Path) -> None:
    policy = CompletionPolicy.parse("strict,on-failure=retry,max-retries=2,retry-delay=0")
    with (
        Server(state_dir=tmp_path, header_key=KEY) as server,
        Session.connect(server.address, fingerprint=server.fingerprint, header_key=KEY, policy=policy) as session,
    ):
        with session.dehydrate(policy=policy) as scope:
            part = scope.send(b"bytes", metadata={"m": "v"})
        taken = server.accept()
        seen = []
        for entity in taken:
            entity.read()
            seen.append(entity.header.metadata.get("m"))
            if seen.count("v") == 1 and seen[-1] == "v":
                entity.fail("not yet")
                continue
            entity.complete()
            if seen.count("v") == 2:
                break
        assert part.wait() == scope.wait()
        assert seen.count("v") == 2
