"""SinkReader: what a sink has kept, from its folder and from the server."""

import json
import pickle
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import PipeStreamError
from penstock.pipestream import ROW_SCHEMA, Server, Session, SinkReader, Status

KEY = "a secret of 16 bytes or more"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(sink=tmp_path / "sink", read_key=KEY, state_dir=tmp_path) as server:
        yield server


def send(server: Server, *payloads: bytes, **header: object) -> str:
    """Send a session, and wait until its last line is written."""
    with Session.connect(server.address, fingerprint=server.fingerprint) as session:
        for payload in payloads:
            session.send(payload, **header)
    remote = reader(server)
    deadline = time.monotonic() + 60
    while session.id not in {closed.session for closed in remote.sessions()}:
        assert time.monotonic() < deadline, "the session is not closed"
    return session.id


def reader(server: Server, key: str = KEY) -> SinkReader:
    return SinkReader.connect(server.address, fingerprint=server.fingerprint, read_key=key)


@pytest.mark.parametrize("where", ["folder", "server"])
def test_rows_have_what_the_sender_said_and_sent(server, tmp_path, where):
    metadata = {"penstock.document": "a.zip", "penstock.path": json.dumps(["b", "c"]), "more": "ü\n"}
    session = send(server, b"one", b"", bytes(300_000), content_type="text/plain", metadata=metadata)
    sink = SinkReader(tmp_path / "sink") if where == "folder" else reader(server)
    (closed,) = sink.sessions()
    assert (closed.session, closed.rows, closed.bytes) == (session, 3, 300_003)
    (batch,) = sink.read()
    assert batch.schema.equals(ROW_SCHEMA)
    # Entities are on streams of their own, so a later one may be whole first.
    rows = sorted(batch.to_pylist(), key=lambda row: row["entity"])
    assert [row["content"] for row in rows] == [b"one", b"", bytes(300_000)]
    assert {**rows[0], "sha256": None} == {
        "session": session,
        "scope": 0,
        "entity": 1,
        "parent": None,
        "layer": 0,
        "type": "text/plain",
        "bytes": 3,
        "sha256": None,
        "status": "COMPLETE",
        "reason": None,
        "document": "a.zip",
        "path": ["b", "c"],
        "metadata": sorted(metadata.items()),
        "file": f"{session}/0/1",
        "content": b"one",
        "attempts": 1,
        "claim": None,
        "doc_id": None,
        "owner": None,
    }


@pytest.mark.parametrize("where", ["folder", "server"])
def test_contents_that_are_too_large_or_not_wanted_are_null(server, tmp_path, where):
    session = send(server, b"small", b"larger")
    sink = SinkReader(tmp_path / "sink") if where == "folder" else reader(server)
    (batch,) = sink.read(max_content=5)
    # Entities are on streams of their own, so the second may be whole first.
    rows = {row["entity"]: row for row in batch.to_pylist()}
    assert [rows[1]["content"], rows[2]["content"]] == [b"small", None]
    assert rows[2]["reason"] == f"its 6 bytes are more than the 5 that a row may have; they are in {session}/0/2"
    (batch,) = sink.read(content=False)
    assert batch.column("content").to_pylist() == batch.column("reason").to_pylist() == [None, None]


@pytest.mark.parametrize("where", ["folder", "server"])
def test_pieces_cover_every_row_once(server, tmp_path, where):
    payloads = [bytes([number]) * 1000 for number in range(100)]
    session = send(server, *payloads)
    sink = SinkReader(tmp_path / "sink") if where == "folder" else reader(server)
    pieces = list(sink.plan(session, max_bytes=10_000, rows=7))
    assert len(pieces) >= 15
    assert sum(piece.rows for piece in pieces) == 100
    read = [data for batch in sink.read(pieces) for data in batch.column("content").to_pylist()]
    assert sorted(read) == sorted(payloads)
    later = list(sink.plan(session, start=pieces[3].end, max_bytes=10_000, rows=7))
    assert later == pieces[4:]
    wanted = list(sink.plan(session, names=[f"{session}/0/3", f"{session}/0/99"]))
    assert [batch.column("entity").to_pylist() for batch in sink.read(wanted)] == [[3], [99]]


def test_the_journal_is_the_same_for_everybody_and_outlives_the_server(tmp_path):
    sessions, seen = [], []
    for _ in range(2):
        with Server(sink=tmp_path / "sink", read_key=KEY, state_dir=tmp_path) as server:
            sessions += [send(server, b"bytes") for _ in range(3)]
            seen.append(reader(server).follow(0))
    local = SinkReader(tmp_path / "sink").follow(0)
    assert local == seen[1]
    assert [closed.session for closed in local[2]] == sessions
    assert (seen[0][0], seen[0][2]) == (local[0], local[2][:3])
    assert SinkReader(tmp_path / "sink").follow(4, 1) == (local[0], 6, local[2][4:5])


def test_a_reader_survives_a_pickle_even_after_it_was_used(server):
    send(server, b"bytes")
    sink = reader(server)
    expected = [batch.to_pylist() for batch in sink.read()]
    again = pickle.loads(pickle.dumps(sink))  # noqa: S301 - made a line above
    assert [batch.to_pylist() for batch in again.read()] == expected
    assert KEY not in repr(sink)


def test_wrong_keys_and_servers_without_one_are_named(server, tmp_path):
    with pytest.raises(PipeStreamError, match="the read key is wrong") as refused:
        reader(server, "another secret of 16 bytes").sessions()
    assert refused.value.kind == "misuse"
    with Server(sink=tmp_path / "other", state_dir=tmp_path) as closed:
        with pytest.raises(PipeStreamError, match="without a read key"):
            reader(closed).sessions()
        with pytest.raises(PipeStreamError, match="must have at least 16"):
            Server(sink=tmp_path / "third", read_key="short", state_dir=tmp_path)
        with pytest.raises(PipeStreamError, match="for servers with a sink"):
            Server(read_key=KEY, state_dir=tmp_path)
    with pytest.raises(PipeStreamError, match="cannot read the sink"):
        SinkReader(tmp_path / "nowhere").sessions()


def test_a_session_is_removed_from_a_folder_only(server, tmp_path):
    session = send(server, b"bytes")
    with pytest.raises(PipeStreamError, match="cannot remove"):
        reader(server).remove(session)
    local = SinkReader(tmp_path / "sink")
    for name in (session, session, "nobody"):
        local.remove(name)
    with pytest.raises(PipeStreamError, match="no session's name"):
        local.remove("../sink")
    assert local.sessions() == []
    assert not (tmp_path / "sink" / session).exists()


def test_a_prepared_session_is_read_only_once_its_transaction_is_committed(server, tmp_path):
    transaction = {"penstock.transaction": "a key"}
    sinks = (SinkReader(tmp_path / "sink"), reader(server))
    sessions = []
    for _ in range(2):
        with Session.connect(server.address, fingerprint=server.fingerprint) as session:
            session.send(b"bytes", metadata=transaction)
        sessions.append(session.id)
    deadline = time.monotonic() + 60
    while len(list((tmp_path / "sink" / ".transactions").glob("*/*"))) < 2:
        assert time.monotonic() < deadline, "the sessions are not prepared"
        time.sleep(0.01)
    send(server, b"no part of it")
    for sink in sinks:
        assert not {closed.session for closed in sink.sessions()} & set(sessions)
        assert sink.follow()[1] == 1
    with Session.connect(server.address, fingerprint=server.fingerprint) as session:
        payload = json.dumps({"sessions": sessions}).encode()
        session.send(payload, content_type="application/vnd.penstock.commit+json", metadata=transaction).wait()
    for sink in sinks:
        rows = [row for batch in sink.read() for row in batch.to_pylist()]
        assert sorted(row["session"] for row in rows if row["content"] == b"bytes") == sorted(sessions)
        assert len(rows) == 3, "the commit itself is no row"


def test_a_transaction_that_is_being_closed_is_not_read_before_all_of_it_is(server, tmp_path):
    transaction = {"penstock.transaction": "a key"}
    folder = tmp_path / "sink"
    sessions = []
    for _ in range(2):
        with Session.connect(server.address, fingerprint=server.fingerprint) as session:
            session.send(b"bytes", metadata=transaction)
        sessions.append(session.id)
    with Session.connect(server.address, fingerprint=server.fingerprint) as session:
        payload = json.dumps({"sessions": sessions}).encode()
        content_type = "application/vnd.penstock.commit+json"
        while session.send(payload, content_type=content_type, metadata=transaction).wait() is not Status.COMPLETE:
            pass  # a session's end may still be on its way
    server.close()
    # As a server leaves it that is killed between its first last line and its second.
    log = folder / sessions[1] / "entities.jsonl"
    log.write_bytes(log.read_bytes().removesuffix(b'{"closed":0}\n'))
    (record,) = (folder / ".transactions").glob("*/committed.json")
    (record.parent / sessions[1]).write_bytes(b"a key")
    reading, following = SinkReader(folder), SinkReader(folder)
    for _ in range(2):
        assert not set(sessions) & {closed.session for closed in reading.sessions()}
        assert not set(sessions) & {closed.session for closed in following.follow()[2]}
    with pytest.raises(PipeStreamError, match="no closed session"):
        list(SinkReader(folder).plan(sessions[0]))
    with Server(sink=folder, state_dir=tmp_path):
        assert set(sessions) <= {closed.session for closed in reading.sessions()}
        assert set(sessions) <= {closed.session for closed in following.follow()[2]}
