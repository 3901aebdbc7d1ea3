"""What headers do not tell: padded scopes, opaque types, pseudonyms; and receipts that verify all the same."""

import hashlib
import hmac
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import samples

from penstock import PipeStreamError, receipts
from penstock.documents import DocumentResult, DocumentSender, Privacy
from penstock.pipestream import REFERENCE_TYPE, References, Server, Session, SinkReader

NESTED = samples.zip_file(
    {
        "secret-name.tar.gz": samples.gzip_file(samples.tar_file({"x.txt": b"text", "y.bin": bytes(70_000)})),
        "m.eml": samples.mail("s", "b", {"hidden.pdf": samples.pdf(["one", "two"])}),
        "broken-name.gz": b"\x1f\x8b\x08 and no more",
    }
)

Send = Callable[..., tuple[DocumentResult, list[dict[str, Any]], list[str]]]


@pytest.fixture
def send(tmp_path: Path) -> Send:
    def send(
        privacy: Privacy | None,
        data: bytes = NESTED,
        *,
        references: References | None = None,
        previous: DocumentResult | None = None,
        **options: Any,
    ) -> tuple[DocumentResult, list[dict[str, Any]], list[str]]:
        sink = tmp_path / "sink"
        with (
            Server(sink=sink, references=references, state_dir=tmp_path / "state") as server,
            Session.connect(server.address, fingerprint=server.fingerprint) as session,
        ):
            sender = DocumentSender(session, privacy=privacy, **options)
            earlier = None if previous is None else previous.receipt()
            result = sender.send("in/secret-name.zip", data, previous=earlier).wait(60)
        path = receipts.write(result, tmp_path / "receipts")
        differences = [difference.text for difference in receipts.verify(path, sink)]
        log = (sink / session.id / "entities.jsonl").read_text().splitlines()
        return result, [json.loads(line) for line in log][:-1], differences

    return send


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "pseudonyms.key"
    path.write_bytes(b"a key for pseudonyms\n")
    return path


def test_the_number_of_children_is_padded_in_every_scope(send: Send, tmp_path: Path) -> None:
    plain, _, none = send(None)
    padded, lines, differences = send(Privacy(pad_children=8))
    assert (none, differences) == ([], [])
    assert padded.content_root == plain.content_root, "padding is no part"
    receipt = padded.receipt()
    assert {scope["processed"] for scope in receipt["scopes"]} == {8}
    assert len(receipt["scopes"]) == len(plain.receipt()["scopes"])
    fillers = [line for line in lines if line["metadata"].get("penstock.padding") == "1"]
    assert len(fillers) == sum(len(scope["padding"]) for scope in receipt["scopes"])
    assert len(fillers) == sum(8 - scope["processed"] for scope in plain.receipt()["scopes"])
    assert {line["status"] for line in fillers} == {"COMPLETE"}
    assert all("penstock.path" not in line["metadata"] for line in fillers)
    reader = SinkReader(tmp_path / "sink")
    rows = [row for batch in reader.read(list(reader.plan(padded.session))) for row in batch.to_pylist()]
    assert len(rows) == 1 + padded.parts, "no reader sees it"


def test_padding_that_a_receipt_makes_up_is_found_out(send: Send, tmp_path: Path) -> None:
    result, _, _ = send(Privacy(pad_children=8))
    path = tmp_path / "receipts" / f"{result.key}.json"
    receipt = json.loads(path.read_text())
    at = next(at for at, scope in enumerate(receipt["scopes"]) if scope["depth"] == 3)
    scope = receipt["scopes"][at]
    scope["padding"][0]["file"] = scope["padding"][1]["file"]
    path.write_text(json.dumps(receipt))
    texts = [difference.text for difference in receipts.verify(path, tmp_path / "sink")]
    assert any(f"scopes[{at}].padding[0]" in text for text in texts)
    dropped = scope.pop("padding")
    path.write_text(json.dumps(receipt))
    texts = [difference.text for difference in receipts.verify(path, tmp_path / "sink")]
    assert any(f"scopes[{at}].processed: must be" in text for text in texts)
    assert any(dropped[-1]["file"] in text for text in texts), "a file that nobody has listed"


def test_types_stay_at_the_sender(send: Send) -> None:
    result, lines, differences = send(Privacy(opaque_types=True))
    assert differences == []
    assert {line["content_type"] for line in lines if line["content_type"]} == {"application/octet-stream"}
    assert "application/pdf" in {part["type"] for part in result.receipt()["parts"]}


def test_names_and_reasons_stay_at_the_sender(send: Send, key_file: Path, tmp_path: Path) -> None:
    result, lines, differences = send(Privacy(pseudonym_key_file=key_file, pad_children=4, opaque_types=True))
    assert differences == []
    shown = json.dumps(lines)
    for name in ("secret-name", "hidden", "broken-name", "page 1", "m.eml"):
        assert name not in shown
    key = b"a key for pseudonyms"
    document = hmac.new(key, b"\0in/secret-name.zip", hashlib.sha256).hexdigest()[:32]
    assert {line["metadata"]["penstock.document"] for line in lines if line["metadata"]} == {document}
    receipt = result.receipt()
    assert receipt["privacy"] == {"pad_children": 4, "opaque_types": True, "document": document}
    ways = [json.loads(line["metadata"]["penstock.path"]) for line in lines if "penstock.path" in line["metadata"]]
    assert all(re.fullmatch("[0-9a-f]{32}", step) for way in ways for step in way)
    assert {part["alias"] for part in receipt["parts"]} >= {way[-1] for way in ways if way} != set()
    # Another pseudonym is no longer that of the sink's line.
    path = tmp_path / "receipts" / f"{result.key}.json"
    receipt["parts"][0]["alias"] = "0" * 32
    path.write_text(json.dumps(receipt))
    assert any("parts[0]" in difference.text for difference in receipts.verify(path, tmp_path / "sink"))


def test_what_was_sent_like_that_before_is_not_sent_again(send: Send, key_file: Path) -> None:
    privacy = Privacy(pseudonym_key_file=key_file, pad_children=4)
    whole = samples.zip_file({"a.txt": b"a", "b.txt": b"b"})
    first, _, _ = send(privacy, whole)
    again, lines, differences = send(privacy, whole, previous=first)
    assert (lines, differences) == ([], [])
    assert again.receipt()["scopes"] == first.receipt()["scopes"]
    more = samples.zip_file({"a.txt": b"a", "b.txt": b"b", "c.txt": b"c"})
    _, lines, differences = send(privacy, more, previous=first)
    assert (len(lines), differences) == (1 + 4, []), "the container, a part, and three that stand for nothing"
    _, lines, differences = send(None, whole, previous=first)
    assert (len(lines), differences) == (3, []), "under its name it is another one"


def test_a_document_is_sent_by_reference_and_verified_either_way(send: Send, tmp_path: Path) -> None:
    store = tmp_path / "store"
    (store / "in").mkdir(parents=True)
    (store / "in" / "secret-name.zip").write_bytes(NESTED)
    by_reference = {"dehydrate": False, "by_reference": f"file://{store}"}
    fetched, (line,), differences = send(None, references=References(fetch_from=[f"file://{store}"]), **by_reference)
    assert (fetched.status, differences) == ("COMPLETE", [])
    assert (line["content_type"], line["sha256"]) == ("application/zip", fetched.sha256)
    assert (tmp_path / "sink" / str(fetched.file)).read_bytes() == NESTED
    kept, (line,), differences = send(None, **by_reference)
    assert (kept.status, differences) == ("COMPLETE", [])
    assert (line["content_type"], line["reference"]["stored"]) == (REFERENCE_TYPE, "message")
    (tmp_path / "sink" / str(kept.file)).write_bytes(b"something else")
    texts = [difference.text for difference in receipts.verify(tmp_path / "receipts", tmp_path / "sink")]
    assert any("computed from" in text for text in texts)
    (store / "in" / "secret-name.zip").write_bytes(NESTED[:-1])
    stale, (line,), _ = send(None, references=References(fetch_from=[f"file://{store}"]), **by_reference)
    assert stale.status == "FAILED"
    assert "INTEGRITY_ERROR" in line["reason"]


def test_what_does_not_go_together_is_refused(tmp_path: Path, key_file: Path) -> None:
    with pytest.raises(ValueError, match="pad_children must be from 0 to 1000"):
        Privacy(pad_children=1001)
    short = tmp_path / "short"
    short.write_bytes(b"short")
    named = Privacy(pseudonym_key_file=key_file)
    with (
        Server(sink=tmp_path / "sink", state_dir=tmp_path) as server,
        Session.connect(server.address, fingerprint=server.fingerprint, layers=0) as flat,
    ):
        with pytest.raises(ValueError, match="needs layer 1"):
            DocumentSender(flat, privacy=Privacy(pad_children=2))
        with pytest.raises(ValueError, match="dehydrate=False"):
            DocumentSender(flat, by_reference="s3://bucket")
        with pytest.raises(ValueError, match="mutually exclusive"):
            DocumentSender(flat, dehydrate=False, by_reference="s3://bucket", privacy=named)
        with pytest.raises(PipeStreamError, match="16 bytes or more"):
            DocumentSender(flat, privacy=Privacy(pseudonym_key_file=short))
