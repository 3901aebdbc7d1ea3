"""Envelopes, URIs and header keys from Python: the vectors that Rust reads too, and what Python adds."""

import asyncio
import json
import pickle
from pathlib import Path

import pytest

from penstock import PipeStreamError
from penstock._header_key import header_key
from penstock.aio import pipestream as aio_pipestream
from penstock.pipestream import OwnershipContext, PipeDoc, PipeStreamURI, Server, Session, SinkReader, Status

VECTORS = Path(__file__).parents[1] / "vectors" / "pipestream"
KEY, OTHER = "5a" * 32, "c3" * 32
OWNER = OwnershipContext(owner_id="alice", group_id="finance", scopes=["read", "audit"])
DOC_ID = "6f9619ff-8b86-8d01-b42d-00c04fc964ff"


def test_every_envelope_of_the_vectors_is_read_and_written():
    vectors = json.loads((VECTORS / "pipe-doc.json").read_text())
    for vector in vectors["valid"]:
        ownership = None if vector["ownership"] is None else OwnershipContext(**vector["ownership"])
        doc = PipeDoc(doc_id=vector["doc_id"], entity_id=vector["entity_id"], ownership=ownership)
        assert PipeDoc.decode(bytes.fromhex(vector["hex"])) == doc, vector["name"]
        assert doc.encode().hex() == vector["hex"], vector["name"]
        assert PipeDoc.of_metadata({"pipestream.doc": vector["entry"]}, doc.entity_id) == doc, vector["name"]
        assert pickle.loads(pickle.dumps(doc)) == doc  # noqa: S301 - our own
    for vector in vectors["invalid"]:
        with pytest.raises(PipeStreamError, match=r"pipestream\.doc: ") as caught:
            PipeDoc.of_metadata({"pipestream.doc": vector["entry"]}, vector["entity_id"])
        assert caught.value.code == 5, vector["name"]
        assert vector["error"] in caught.value.message
    assert len(vectors["valid"]) >= 4
    assert len(vectors["invalid"]) >= 8
    assert PipeDoc.of_metadata({}, 1) is None


def test_an_envelope_that_could_not_be_read_is_not_written():
    for wrong in (PipeDoc(doc_id="", entity_id=1), PipeDoc(doc_id="d" * 257, entity_id=1)):
        with pytest.raises(PipeStreamError, match="doc_id"):
            wrong.encode()
    with pytest.raises(TypeError, match="sequence of str"):
        OwnershipContext(scopes="read")
    with pytest.raises(ValueError, match="entity_id"):
        PipeDoc(doc_id="d", entity_id=-1)


def test_every_uri_of_the_vectors_is_read_and_written():
    vectors = json.loads((VECTORS / "uri.json").read_text())
    for vector in vectors["valid"]:
        uri = PipeStreamURI.parse(vector["uri"])
        assert (uri.authority, uri.session_id) == (vector["authority"], vector["session_id"]), vector["uri"]
        assert (list(uri.scope_path), uri.entity_id) == (vector["scope_path"], vector["entity_id"]), vector["uri"]
        assert str(uri) == vector["written"]
        assert pickle.loads(pickle.dumps(uri)) == uri  # noqa: S301 - our own
    for vector in vectors["invalid"]:
        with pytest.raises(PipeStreamError, match="not a pipestream URI"):
            PipeStreamURI.parse(vector["uri"])
    assert len(vectors["valid"]) >= 10
    assert len(vectors["invalid"]) >= 20


def test_a_uri_says_the_servers_address_where_it_names_a_port():
    for text, address in (("h:1", "h:1"), ("h", None), ("[::1]:9", "[::1]:9"), ("[::1]", None), ("10.0.0.1", None)):
        assert PipeStreamURI.parse(f"pipestream://{text}/s").address == address


def test_a_session_has_the_name_that_its_uri_says(tmp_path):
    name = "0123456789abcdef" * 2
    with Server(sink=tmp_path / "sink", state_dir=tmp_path) as server:
        uri = f"pipestream://{server.address}/{name}"
        with Session.connect(uri, fingerprint=server.fingerprint) as session:
            assert (session.id, session.agreement.layer) == (name, 2)
            session.send(b"x")
        assert (tmp_path / "sink" / name / "entities.jsonl").is_file()
        for wrong, why in (
            (f"{uri}/0/1", "a scope or an entity"),
            (f"pipestream://{server.address}/short", "32 digits"),
            (f"pipestream://localhost/{name}", "has no port"),
            ("pipestream://", "not a pipestream URI"),
        ):
            with pytest.raises(PipeStreamError, match=why):
                Session.connect(wrong, fingerprint=server.fingerprint)
        with pytest.raises(PipeStreamError, match="layer 2"):
            Session.connect(uri, fingerprint=server.fingerprint, layers=1)


def test_an_entity_says_which_document_it_is_and_whose_in_either_api(tmp_path):
    async def send(server):
        session = aio_pipestream.Session.connect(server.address, fingerprint=server.fingerprint)
        async with session as session:
            sent = await session.send(b"y", doc_id="another", owner=OWNER)
            assert await sent.wait() is Status.COMPLETE
            return session.id

    with Server(sink=tmp_path / "sink", state_dir=tmp_path) as server:
        with Session.connect(server.address, fingerprint=server.fingerprint) as session:
            assert session.send(b"x", doc_id=DOC_ID, owner=OWNER).wait() is Status.COMPLETE
            with session.dehydrate(doc_id=DOC_ID) as scope:
                scope.send(b"a part")
            assert scope.wait() is Status.COMPLETE
            with pytest.raises(PipeStreamError, match="requires a doc_id"):
                session.send(b"x", owner=OWNER)
            with pytest.raises(PipeStreamError, match="doc_id has 257 bytes"):
                session.send(b"x", doc_id="d" * 257)
        other = asyncio.run(send(server))
    reader = SinkReader(tmp_path / "sink")
    rows = {
        (row["session"], row["scope"], row["entity"]): (row["doc_id"], row["owner"])
        for id_ in (session.id, other)
        for batch in reader.read(list(reader.plan(id_)))
        for row in batch.to_pylist()
    }
    owner = {"owner_id": "alice", "group_id": "finance", "scopes": ["read", "audit"]}
    assert rows[session.id, 0, 1] == (DOC_ID, owner)
    assert rows[session.id, 0, 2] == (DOC_ID, None)
    assert rows[session.id, 2, 1] == (None, None)
    assert rows[other, 0, 1] == ("another", owner)


def test_headers_are_sealed_in_both_directions_and_keys_can_be_rotated(tmp_path):
    with Server(state_dir=tmp_path, header_key=f"{OTHER}\n{KEY}") as server:
        client = Session.connect(server.address, fingerprint=server.fingerprint, header_key=f"{KEY}\n{OTHER}")
        with client, server.accept() as session:
            sent = client.send(b"to the server", metadata={"m": "1"}, content_type="text/plain")
            received = session.receive()
            assert (received.header.metadata, received.header.content_type) == ({"m": "1"}, "text/plain")
            session.send(b"to the client", metadata={"m": "2"}, content_type="text/html")
            back = client.receive()
            assert (back.header.metadata, back.header.content_type, back.read()) == (
                {"m": "2"},
                "text/html",
                b"to the client",
            )
            back.complete()
            received.read()
            received.complete()
            assert sent.wait() is Status.COMPLETE
            client.close()


def test_a_text_that_is_no_header_key_is_refused_and_not_shown(tmp_path):
    with pytest.raises(PipeStreamError, match="line 1 of the header key") as caught:
        Server(state_dir=tmp_path, header_key="a password")
    assert "password" not in str(caught.value)
    with pytest.raises(PipeStreamError, match="header key"):
        Session.connect("127.0.0.1:1", fingerprint="ab" * 32, header_key="")


def test_header_keys_come_from_a_file_or_the_environment(tmp_path, monkeypatch):
    file = tmp_path / "header.key"
    monkeypatch.delenv("PENSTOCK_HEADER_KEY", raising=False)
    assert header_key(None) is None
    monkeypatch.setenv("PENSTOCK_HEADER_KEY", KEY)
    assert header_key(None) == KEY
    file.write_text(f"{OTHER}\n\n{KEY}\n")
    assert header_key(file) == f"{OTHER}\n{KEY}", "a file goes before the environment"
    for wrong, why in (("", "has 0 header keys"), (f"{KEY}\nsecret", "line 2"), (f"{KEY}\n" * 17, "has 17")):
        file.write_text(wrong)
        with pytest.raises(ValueError, match=why) as caught:
            header_key(file)
        assert "secret" not in str(caught.value)
    with pytest.raises(ValueError, match="cannot be read"):
        header_key(tmp_path / "none.key")
