"""References: kept or fetched, from real files, with the rules about keys, and no key in any log."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from penstock import PipeStreamError
from penstock.aio import pipestream as aio
from penstock.pipestream import (
    REFERENCE_TYPE,
    EncryptionMetadata,
    ErrorCode,
    FileStorageReference,
    References,
    Server,
    Session,
)

READY = re.compile(r"listening (127\.0\.0\.1:\d+) fingerprint (sha256:[0-9a-f]{64})\n")
WRAPPED = bytes(range(100, 160))
ENCRYPTED = EncryptionMetadata(
    algorithm="AES-256-GCM",
    key_provider="vault",
    key_id="transit/keys/scans:v2",
    wrapped_key=WRAPPED,
    iv=b"twelve bytes",
    context={"tenant": "a-secret-context"},
)


@pytest.fixture
def scans(tmp_path):
    folder = tmp_path / "scans"
    (folder / "in").mkdir(parents=True)
    (folder / "in" / "a.txt").write_bytes(b"hello world")
    (tmp_path / "secret.txt").write_bytes(b"secret")
    (folder / "in" / "link").symlink_to(tmp_path / "secret.txt")
    (folder / "up").symlink_to(tmp_path)
    os.mkfifo(folder / "in" / "pipe")
    return folder


@pytest.fixture
def sent(tmp_path):
    """Send references to a server of its own; give how they ended, and the lines of the sink."""

    def send(references, *sent, approved=("vault",), **options):
        sink = tmp_path / "sink"
        with (
            Server(sink=sink, references=references, state_dir=tmp_path / "state", **options) as server,
            Session.connect(server.address, fingerprint=server.fingerprint) as session,
        ):
            entities = [session.send_reference(each, approved_key_providers=approved) for each in sent]
            ends = [(entity.wait().name, entity.reason) for entity in entities]
        lines = [json.loads(line) for line in (sink / session.id / "entities.jsonl").read_text().splitlines()]
        return ends, {line["entity"]: line for line in lines if "entity" in line}, sink

    return send


def test_a_message_is_kept_where_nothing_is_fetched(sent, scans):
    reference = FileStorageReference.of_url(f"file://{scans}/in/a.txt", encryption=ENCRYPTED)
    ((status, _),), lines, sink = sent(None, reference)
    line = lines[1]
    assert status == "COMPLETE"
    assert line["content_type"] == REFERENCE_TYPE
    assert line["reference"] == {
        "provider": "file",
        "bucket": None,
        "key": f"{scans}/in/a.txt"[1:],
        "version": None,
        "stored": "message",
        "encryption": {
            "algorithm": "AES-256-GCM",
            "key_provider": "vault",
            "key_id": "transit/keys/scans:v2",
        },
        "message": None,
    }
    assert FileStorageReference.decode((sink / line["file"]).read_bytes()) == reference, "carried untouched"


def test_what_a_fetched_reference_says_of_its_object_must_hold(sent, scans):
    url = f"file://{scans}/in/a.txt"
    right = FileStorageReference.of_url(url, size=11, content_type="text/plain")
    of = {
        "right": right,
        "size": replace(right, attrs={"size": "12"}),
        "sha256": replace(right, attrs={"sha256": "ab" * 32}),
        "etag": replace(right, attrs={"etag": "x"}),
        "missing": FileStorageReference.of_url(url + ".not"),
        "folder": FileStorageReference.of_url(f"file://{scans}/in"),
        "large": FileStorageReference.of_url(f"file://{scans}/in/large"),
    }
    (scans / "in" / "large").write_bytes(bytes(2000))
    ends, lines, sink = sent(References(fetch_from=[f"file://{scans}"]), *of.values(), max_payload=1500)
    codes = {name: reason and reason.code for name, (_, reason) in zip(of, ends, strict=True)}
    assert codes == {
        "right": None,
        "size": ErrorCode.INTEGRITY_ERROR,
        "sha256": ErrorCode.INTEGRITY_ERROR,
        "etag": ErrorCode.ENTITY_INVALID,
        "missing": ErrorCode.ENTITY_INVALID,
        "folder": ErrorCode.ENTITY_INVALID,
        "large": ErrorCode.ENTITY_TOO_LARGE,
    }
    line = lines[1]
    assert (sink / line["file"]).read_bytes() == b"hello world"
    assert (line["content_type"], line["bytes"], line["reference"]["stored"]) == ("text/plain", 11, "object")
    beside = line["reference"]["message"]
    assert FileStorageReference.decode((sink / beside).read_bytes()) == right
    files = sorted(str(path.relative_to(sink)) for path in sink.rglob("0/*"))
    assert files == sorted([line["file"], beside]), "nothing stays of those that failed"


def test_nothing_is_fetched_from_elsewhere_nor_over_links(sent, scans, tmp_path):
    urls = [
        f"file://{tmp_path}/secret.txt",
        f"file://{scans}-other/a.txt",
        f"file://{scans}/in/link",
        f"file://{scans}/up/secret.txt",
        f"file://{scans}/in/pipe",
        "s3://bucket/key",
    ]
    climbing = FileStorageReference(provider="file", key=f"{scans}/in/../../secret.txt"[1:])
    foreign = FileStorageReference(provider="http", bucket="169.254.169.254", key="latest/meta-data")
    all_of_them = [FileStorageReference.of_url(url) for url in urls] + [climbing, foreign]
    ends, lines, sink = sent(References(fetch_from=[f"file://{scans}"]), *all_of_them)
    assert [(status, reason.code) for status, reason in ends] == [("FAILED", ErrorCode.ENTITY_INVALID)] * 8
    assert [line["file"] for line in lines.values()] == [None] * 8
    assert not list(sink.rglob("0/*"))


@pytest.mark.parametrize(
    ("approved", "status"),
    [(None, "FAILED"), (["aws-kms"], "FAILED"), (["vault=transit/keys/other"], "FAILED"), (["vault"], "COMPLETE")],
)
def test_an_encrypted_object_is_fetched_only_with_an_approved_key(sent, scans, approved, status):
    reference = FileStorageReference.of_url(f"file://{scans}/in/a.txt", encryption=ENCRYPTED)
    references = References(fetch_from=[f"file://{scans}"], approved_key_providers=approved)
    ((found, reason),), lines, sink = sent(references, reference)
    assert found == status
    if status == "FAILED":
        assert reason.code == ErrorCode.ENTITY_INVALID
        assert "approved" in reason.message
    else:
        kept = FileStorageReference.decode((sink / lines[1]["reference"]["message"]).read_bytes())
        assert kept.encryption == ENCRYPTED, "whoever may unwrap the key finds it"


def test_a_receiver_that_keeps_messages_holds_them_to_its_keys_if_it_has_some(sent, scans):
    reference = FileStorageReference.of_url(f"file://{scans}/in/a.txt", encryption=ENCRYPTED)
    ((status, reason),), _, _ = sent(References(approved_key_providers=["gcp-kms"]), reference)
    assert (status, reason.code) == ("FAILED", ErrorCode.ENTITY_INVALID)


def test_a_sender_refuses_what_section_10_9_forbids(tmp_path):
    reference = FileStorageReference.of_url("s3://bucket/key", encryption=ENCRYPTED)
    unwrapped = replace(reference, encryption=replace(ENCRYPTED, wrapped_key=bytes(32)))
    with (
        Server(sink=tmp_path / "sink", state_dir=tmp_path) as server,
        Session.connect(server.address, fingerprint=server.fingerprint) as session,
    ):
        with pytest.raises(PipeStreamError, match=r"key provider .* is not approved"):
            session.send_reference(reference)
        with pytest.raises(PipeStreamError, match="is not wrapped"):
            session.send_reference(unwrapped, approved_key_providers=["vault"])
        with pytest.raises(PipeStreamError, match="has a key that is not wrapped") as error:
            session.send(b"", metadata={"data-key": "ab" * 32})
        assert "abab" not in str(error.value)
        with pytest.raises(PipeStreamError, match="has a key that is not wrapped"):
            replace(reference, attrs={"dek": "ab" * 32}).encode()
        assert session.send_reference(reference, approved_key_providers=["vault"]).wait().name == "COMPLETE"


def test_the_same_with_asyncio(tmp_path, scans):
    async def main():
        references = References(fetch_from=[f"file://{scans}"])
        async with (
            aio.Server(sink=tmp_path / "sink", references=references, state_dir=tmp_path) as server,
            aio.Session.connect(server.address, fingerprint=server.fingerprint) as session,
        ):
            reference = FileStorageReference.of_url(f"file://{scans}/in/a.txt")
            entity = await session.send_reference(reference)
            assert (await entity.wait()).name == "COMPLETE"
            with pytest.raises(PipeStreamError, match="is not approved"):
                await session.send_reference(replace(reference, encryption=ENCRYPTED))
            return session.id

    session = asyncio.run(main())
    assert (tmp_path / "sink" / session / "0" / "1").read_bytes() == b"hello world"


def test_a_message_that_is_none_fails_its_entity(tmp_path):
    with (
        Server(sink=tmp_path / "sink", state_dir=tmp_path) as server,
        Session.connect(server.address, fingerprint=server.fingerprint) as session,
    ):
        for payload, code in [
            (b"\x0a\x05s3", ErrorCode.ENTITY_INVALID),
            (bytes(70_000), ErrorCode.ENTITY_TOO_LARGE),
        ]:
            for chunk_size in (None, 1 << 15):
                entity = session.send(payload, content_type=REFERENCE_TYPE, chunk_size=chunk_size)
                assert (entity.wait().name, entity.reason.code) == ("FAILED", code)


def test_a_server_that_cannot_go_where_it_is_told_does_not_start(tmp_path):
    for prefix, why in [("ftp://host/x", "is no URL"), ("/srv", "is no URL"), ("file://host/x", "no host")]:
        with pytest.raises(PipeStreamError, match=why):
            Server(sink=tmp_path / "sink", references=References(fetch_from=[prefix]), state_dir=tmp_path)
    with pytest.raises(PipeStreamError, match="references are for servers with a sink"):
        Server(references=References(), state_dir=tmp_path)


def test_documents_go_by_reference_and_parts_under_pseudonyms_by_the_command_line(tmp_path, scans, penstock, request):
    serve = subprocess.Popen(
        [
            sys.executable, "-m", "penstock", "pipestream", "serve", "--listen", "127.0.0.1:0",
            "--sink", tmp_path / "sink", "--fetch-from", f"file://{scans}",
        ],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PENSTOCK_STATE": str(tmp_path / "state")},
    )  # fmt: skip
    request.addfinalizer(serve.kill)
    address, fingerprint = READY.fullmatch(serve.stdout.readline()).groups()
    (tmp_path / "key").write_text("a key for pseudonyms\n")
    send = ("pipestream", "send", address, scans / "in" / "a.txt", "--fingerprint", fingerprint)
    for options in (
        ("--no-dehydrate", "--by-reference", f"file://{scans}/in"),
        ("--pad-children", "8", "--opaque-types", "--pseudonym-key-file", tmp_path / "key"),
    ):
        sent = penstock(*send, *options, "--receipts", tmp_path / "receipts")
        assert sent.returncode == 0, sent.stderr
        verified = penstock("verify", tmp_path / "receipts", tmp_path / "sink")
        assert verified.returncode == 0, verified.stdout
    serve.send_signal(signal.SIGTERM)
    assert serve.wait(60) == 0
    serve.stdout.close()
    lists = [path.read_text() for path in (tmp_path / "sink").glob("*/entities.jsonl")]
    assert sorted("a.txt" in text for text in lists) == [False, True]


def test_no_log_shows_key_material(tmp_path, scans, request):
    """At the finest level, of a server that fetches, refuses and keeps; and in no file but the messages."""
    serve = subprocess.Popen(
        [
            sys.executable, "-m", "penstock", "pipestream", "serve", "--listen", "127.0.0.1:0",
            "--sink", tmp_path / "sink", "--events", tmp_path / "events.jsonl", "--log-level", "trace",
            "--fetch-from", f"file://{scans}", "--approve-key", "vault=transit/keys/scans",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PENSTOCK_STATE": str(tmp_path / "state")},
    )  # fmt: skip
    request.addfinalizer(serve.kill)
    address, fingerprint = READY.fullmatch(serve.stdout.readline()).groups()
    good = FileStorageReference.of_url(f"file://{scans}/in/a.txt", encryption=ENCRYPTED)
    good = replace(good, attrs={"sas": "a-secret-attribute"})
    other = replace(good, encryption=replace(ENCRYPTED, key_id="transit/keys/other"))
    missing = replace(good, key=f"{scans}/in/not-there"[1:])
    with Session.connect(address, fingerprint=fingerprint) as session:
        ends = [
            session.send_reference(each, approved_key_providers=["vault"]).wait() for each in (good, other, missing)
        ]
    serve.send_signal(signal.SIGTERM)
    out, log = serve.communicate(timeout=60)
    assert [end.name for end in ends] == ["COMPLETE", "FAILED", "FAILED"]
    assert "TRACE" in log
    (listed,) = (tmp_path / "sink").glob("*/entities.jsonl")
    shown = out + log + (tmp_path / "events.jsonl").read_text() + listed.read_text() + repr(good) + str(good)
    assert "transit/keys/scans" in shown
    for form in (WRAPPED.decode("latin-1"), WRAPPED.hex(), repr(WRAPPED), "a-secret", str(list(WRAPPED))[1:-1]):
        assert form not in shown
