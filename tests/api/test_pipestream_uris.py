"""URIs, identifiers, owners and header keys on the command line, in processes of their own."""

import json

import pytest

from penstock.pipestream import Server, Session

PIN = "ab" * 32
KEY = "5a" * 32
NAME = "0123456789abcdef" * 2
DOC_ID = "6f9619ff-8b86-8d01-b42d-00c04fc964ff"
READ_KEY = "a secret of 16 bytes or more"


@pytest.fixture
def document(tmp_path):
    path = tmp_path / "note.txt"
    path.write_bytes(b"A line of text.")
    return path


@pytest.fixture
def sink(tmp_path):
    with Server(sink=tmp_path / "sink", state_dir=tmp_path, read_key=READ_KEY) as server:
        yield server


@pytest.mark.parametrize(
    ("address", "options", "why"),
    [
        (f"pipestream://localhost/{NAME}", (), "has no port"),
        (f"pipestream://127.0.0.1:1/{NAME}/0/1", (), "a scope or an entity"),
        ("pipestream://127.0.0.1:1/short", (), "32 digits"),
        ("pipestream://127.0.0.1:1", (), "not a pipestream URI"),
        (f"pipestream://127.0.0.1:1/{NAME}", ("--state", "kept"), "without a session ID"),
        (f"pipestream://127.0.0.1:1/{NAME}", ("--layers", "1"), "requires layer 2"),
        ("127.0.0.1:1", ("--doc-id", "42"), "a UUID"),
        ("127.0.0.1:1", ("--doc-id", DOC_ID, "note.txt"), "exactly one document"),
        ("127.0.0.1:1", ("--owner", ""), "owner_id has 0 bytes"),
        ("127.0.0.1:1", ("--header-key-file", "note.txt"), "64 hex digits"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error_that_says_why(penstock, document, address, options, why):
    ended = penstock("pipestream", "send", address, document, *options, "--fingerprint", PIN, cwd=document.parent)
    assert (ended.returncode, ended.stdout) == (2, ""), ended.stderr
    assert why in " ".join(ended.stderr.replace("│", " ").split())
    assert "A line of text" not in ended.stderr


def test_send_names_session_document_and_owner_and_verify_finds_them(penstock, sink, document, tmp_path):
    uri = f"pipestream://{sink.address}/{NAME}"
    options = (
        "--receipts",
        "receipts",
        "--owner",
        "alice",
        "--group",
        "g",
        "--access-scope",
        "r",
        "--access-scope",
        "w",
    )
    sent = penstock(
        "pipestream", "send", uri, document, *options, "--doc-id", DOC_ID.upper(), "--json",
        "--fingerprint", sink.fingerprint, cwd=tmp_path,
    )  # fmt: skip
    assert sent.returncode == 0, sent.stderr
    line = json.loads(sent.stdout)
    assert (line["session"], line["doc_id"], line["uri"]) == (NAME, DOC_ID, f"{uri}/0/1")
    (receipt,) = (tmp_path / "receipts").glob("*.json")
    owner = json.loads(receipt.read_text())["owner"]
    assert owner == {"owner_id": "alice", "group_id": "g", "scopes": ["r", "w"]}
    for named in (uri, f"{uri}/0", f"{uri}/0/1"):
        verified = penstock("verify", "receipts", "sink", "--uri", named, cwd=tmp_path)
        assert (verified.returncode, verified.stdout) == (0, "1 receipt verified: no differences\n"), verified.stderr
    for named in (f"{uri}/0/2", uri.replace(NAME, "f" * 32)):
        verified = penstock("verify", "receipts", "sink", "--uri", named, cwd=tmp_path)
        assert (verified.returncode, "no receipt" in verified.stderr) == (1, True)
    for arguments in (("receipts", "sink", "--uri", "http://h/s"), (uri, "sink"), ("receipts", uri)):
        assert penstock("verify", *arguments, cwd=tmp_path).returncode == 2


def test_documents_that_came_in_sessions_of_one_id_verify_each_in_its_own_folder(penstock, sink, document, tmp_path):
    uri = f"pipestream://{sink.address}/{NAME}"
    other = tmp_path / "other.txt"
    other.write_bytes(b"Another line of text.")
    for number, path in enumerate((document, other, document)):
        options = ("--receipts", f"receipts{number}", "--fingerprint", sink.fingerprint)
        sent = penstock("pipestream", "send", uri, path, *options, cwd=tmp_path)
        assert sent.returncode == 0, sent.stderr
    for number in range(3):
        verified = penstock("verify", f"receipts{number}", "sink", cwd=tmp_path)
        assert (verified.returncode, verified.stdout) == (0, "1 receipt verified: no differences\n"), verified.stderr
    folder = tmp_path / "sink" / f"{NAME}.1"
    (folder / "0" / "1").write_bytes(b"Another line of texts")
    changed = penstock("verify", "receipts1", "sink", cwd=tmp_path)
    assert (changed.returncode, "sha256" in changed.stdout + changed.stderr) == (1, True)
    assert penstock("verify", "receipts0", "sink", cwd=tmp_path).returncode == 0


def test_claims_lists_what_a_uri_names(penstock, tmp_path):
    (tmp_path / "read.key").write_text(READ_KEY)
    with Server(sink=tmp_path / "sink", state_dir=tmp_path, read_key=READ_KEY, defer_types=["text/*"]) as server:
        ids = []
        for _ in range(2):
            with Session.connect(server.address, fingerprint=server.fingerprint, layers=2) as session:
                session.send(b"x", content_type="text/plain").wait()
            ids.append(session.id)

        def listed(where):
            options = ("--read-key-file", "read.key", "--fingerprint", server.fingerprint, "--json")
            ended = penstock("pipestream", "claims", f"{where}", *options, cwd=tmp_path)
            assert ended.returncode == 0, ended.stderr
            return [json.loads(line)["session"] for line in ended.stdout.splitlines()]

        base = f"pipestream://{server.address}"
        assert sorted(listed(server.address)) == sorted(ids)
        assert listed(f"{base}/{ids[0]}") == listed(f"{base}/{ids[0]}/0/1") == [ids[0]]
        assert listed(f"{base}/{ids[0]}/0/2") == listed(f"{base}/{ids[0]}/2") == []


def test_send_and_serve_take_header_keys_from_files_and_the_environment(penstock, document, tmp_path, monkeypatch):
    (tmp_path / "header.key").write_text(KEY + "\n")
    with Server(sink=tmp_path / "sink", state_dir=tmp_path, header_key=KEY) as server:
        trust = ("--fingerprint", server.fingerprint)
        send = ("pipestream", "send", server.address, document, *trust)
        assert penstock(*send, "--header-key-file", "header.key", cwd=tmp_path).returncode == 0
        bare = penstock(*send, cwd=tmp_path)
        assert (bare.returncode, "in the clear" in bare.stderr) == (1, True)
        monkeypatch.setenv("PENSTOCK_HEADER_KEY", KEY)
        assert penstock(*send, cwd=tmp_path).returncode == 0
