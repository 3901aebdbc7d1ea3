"""kill -9 of the server: what it said is complete is there, nothing else is, and the next one cleans up."""

import os
import random
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from ..conformance.pipestream.client import Client
from ..conformance.pipestream.invariants import check_sink, closed_code, log_of
from ..conformance.pipestream.programs import Serve
from ..conformance.pipestream.reactor import Reactor
from ..conformance.pipestream.wire import Stat, Status

LONG = bool(os.environ.get("PENSTOCK_LONG_TESTS"))


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    serve = Serve(tmp_path / "first", sink=tmp_path / "sink", home=tmp_path)
    yield serve
    serve.kill()


def final_files(sink: Path, session: str) -> dict[str, Path]:
    """Files with names that no temporary file has."""
    found = (path for path in (sink / session).rglob("*") if path.is_file())
    return {path.name: path for path in found if not path.name.startswith(".") and path.name != "entities.jsonl"}


def restarted(serve: Serve, tmp_path: Path, reactor: Reactor, session: str) -> None:
    """Another server on the same sink: leftovers are gone, whole entities stay, and it works."""
    before = {name: path.read_bytes() for name, path in final_files(serve.sink, session).items()}
    again = Serve(tmp_path / "second", sink=serve.sink, home=tmp_path)
    try:
        check_sink(serve.sink, {session})
        after = {name: path.read_bytes() for name, path in final_files(serve.sink, session).items()}
        named = {Path(line["file"]).name for line in log_of(serve.sink, session) if line.get("file")}
        # A file that no line names was never said to be complete: it may go, or stay whole.
        assert {name: before[name] for name in named} == {name: after[name] for name in named}
        assert after.items() <= before.items()
        assert closed_code(serve.sink, session) is None, "nobody closed that session"
        assert again.fingerprint == serve.fingerprint, "a development certificate is made once and kept"
        client = Client(reactor, again.address).open()
        client.deliver(1, b"again")
        client.completes(1)
        client.close(0)
    finally:
        again.stop()
    client.vanish()


def test_a_server_killed_in_the_middle_of_an_entity_leaves_no_partial_file(
    serve: Serve, tmp_path: Path, reactor: Reactor
) -> None:
    client = Client(reactor, serve.address).open()
    client.deliver(1, b"whole")
    client.completes(1)
    client.announce(2)
    client.entity(2, bytes(300_000), end=False, payload_length=400_000)
    client.settled()
    serve.kill()
    client.vanish()
    assert {name: path.read_bytes() for name, path in final_files(serve.sink, client.session_id).items()} == {
        "1": b"whole"
    }
    restarted(serve, tmp_path, reactor, client.session_id)


@pytest.mark.parametrize("after", [1, 20, 60] if not LONG else range(1, 100, 7))
def test_what_a_killed_server_said_is_complete_is_there(
    serve: Serve, tmp_path: Path, reactor: Reactor, after: int
) -> None:
    chance = random.Random(after)
    payloads = {entity: chance.randbytes(chance.randrange(60_000)) for entity in range(1, 201)}
    client = Client(reactor, serve.address).open()
    client.announce(*payloads)
    for entity, payload in payloads.items():
        client.entity(entity, payload)

    def complete() -> set[int]:
        return {frame.entity for frame in client.frames if isinstance(frame, Status) and frame.stat == Stat.COMPLETE}

    client.wait(lambda: len(complete()) >= after, "some entities")
    serve.kill()
    client.vanish()
    session = client.session_id
    files = final_files(serve.sink, session)
    for name, path in files.items():
        assert path.read_bytes() == payloads[int(name)], f"entity {name} is half-written"
    lines = {line["entity"]: line for line in log_of(serve.sink, session)}
    for entity in complete():
        assert str(entity) in files
        assert lines[entity]["status"] == "COMPLETE"
        assert lines[entity]["sha256"] == sha256(payloads[entity]).hexdigest()
    for entity, line in lines.items():
        assert line["status"] == "COMPLETE"
        assert str(entity) in files, "a line without its file"
    restarted(serve, tmp_path, reactor, session)


def test_sessions_of_a_server_that_runs_are_left_alone_by_another_on_the_same_sink(
    serve: Serve, tmp_path: Path, reactor: Reactor
) -> None:
    client = Client(reactor, serve.address).open()
    client.announce(1)
    payload = bytes(50_000)
    stream = client.entity(1, payload[:1000], end=False, payload_length=len(payload), checksum=sha256(payload).digest())
    client.settled()
    other = Serve(tmp_path / "other", sink=serve.sink, home=tmp_path)
    try:
        client.more(stream, payload[1000:], end=True)
        client.completes(1)
        assert (serve.sink / client.session_id / "0" / "1").read_bytes() == payload
    finally:
        other.stop()
    client.close(0)
    client.reactor.run(lambda: closed_code(serve.sink, client.session_id) == 0, 15)
    assert closed_code(serve.sink, client.session_id) == 0
    client.vanish()


def test_clients_learn_that_a_killed_server_is_gone(serve: Serve, reactor: Reactor) -> None:
    client = Client(reactor, serve.address, idle_timeout=1.0).open()
    serve.kill()
    assert client.reactor.run(client.has_ended, 15)
    client.vanish()
