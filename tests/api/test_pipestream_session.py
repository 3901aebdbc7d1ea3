"""Sessions over real QUIC, both ends in this process."""

import hashlib
import io
import os
import pickle
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock import PipeStreamError
from penstock.pipestream import (
    AgreedEvent,
    ClosedEvent,
    DigestEvent,
    Entity,
    ErrorCode,
    LostEvents,
    ResolvedEvent,
    Scope,
    Server,
    Session,
    Status,
    merkle_root,
)

WAIT = 20.0


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    """Where the development certificate of these tests is kept."""
    return tmp_path_factory.mktemp("state")


@pytest.fixture
def background():
    pool = ThreadPoolExecutor()
    yield pool.submit
    # What waits here ends when the sessions of the test do, which may be after this.
    pool.shutdown(wait=False)


@pytest.fixture
def serve(state):
    """Make servers that end with the test."""
    servers = []

    def make(**options):
        servers.append(Server(state_dir=state, **options))
        return servers[-1]

    yield make
    for server in servers:
        server.close(grace=0)


@pytest.fixture
def pair(serve):
    """Connect a client to a server of the application; give both ends of the session."""
    sessions = []

    def make(server_options=None, **options):
        server = serve(**(server_options or {}))
        client = Session.connect(server.address, fingerprint=server.fingerprint, **options)
        sessions.extend([client, server.accept(WAIT)])
        return sessions[-2:]

    yield make
    for session in sessions:
        session.abort()


def complete_all(session):
    """Take every entity and give its payload by name."""
    taken = {}
    for entity in session:
        taken[entity.header.metadata.get("name", str(entity.key))] = entity.read()
        entity.complete()
    return taken


def test_every_kind_of_payload_arrives(pair, background, tmp_path):
    client, server = pair()
    file = tmp_path / "payload"
    file.write_bytes(b"by name" * 100_000)
    taken = background(complete_all, server)
    with client:
        sent = [
            client.send(b"bytes", metadata={"name": "bytes"}),
            client.send(bytearray(b"more bytes"), metadata={"name": "bytearray"}),
            client.send(file, metadata={"name": "path"}),
            client.send(str(file), metadata={"name": "str"}),
            client.send(io.BytesIO(b"x" * 3_000_000), metadata={"name": "file"}),
            client.send(metadata={"name": "nothing"}),
        ]
        with file.open("rb") as opened:
            opened.seek(7)
            sent.append(client.send(opened, metadata={"name": "open file"}))
        assert [entity.wait(WAIT) for entity in sent] == [Status.COMPLETE] * 7
        assert all(entity.reason is None for entity in sent)
    assert taken.result(WAIT) == {
        "bytes": b"bytes",
        "bytearray": b"more bytes",
        "path": b"by name" * 100_000,
        "str": b"by name" * 100_000,
        "file": b"x" * 3_000_000,
        "nothing": b"",
        "open file": b"by name" * 99_999,
    }
    assert client.closed is not None
    assert client.closed.code == ErrorCode.NO_ERROR


def test_a_header_says_what_the_sender_said(pair):
    client, server = pair()
    sent = client.send(b"hello", layer=2, content_type="text/plain", metadata={"a": "1", "b": "ä"})
    entity = server.receive(WAIT)
    header = entity.header
    assert (header.layer, header.content_type, header.payload_length) == (2, "text/plain", 5)
    assert header.checksum == hashlib.sha256(b"hello").digest()
    assert header.metadata == {"a": "1", "b": "ä"}
    assert entity.key == sent.key
    assert (entity.scope_id, entity.entity_id, entity.parent_id, entity.depth) == (0, 1, 0, 0)
    assert (entity.parent, entity.child_scope, entity.is_dehydrated) == (None, None, False)
    assert isinstance(entity, Entity)
    assert isinstance(sent, Entity)
    assert repr(sent) == "SentEntity(scope_id=0, entity_id=1)"


def test_a_payload_is_read_as_a_file_is(pair, background):
    client, server = pair()
    data = os.urandom(500_000)
    background(client.send, data)
    entity = server.receive(WAIT)
    read = [entity.read(10), entity.read(0), entity.read(100_000), next(iter(entity)), entity.read()]
    assert [len(piece) for piece in read[:3]] == [10, 0, 100_000]
    assert b"".join(read) == data
    assert entity.read() == b""
    assert list(entity) == []
    entity.complete()
    with pytest.raises(PipeStreamError, match="completed"):
        entity.complete()


def test_both_ends_agree_on_scopes_below_scopes(pair, background):
    client, server = pair()
    taken = background(complete_all, server)
    with client:
        with client.dehydrate(metadata={"name": "zip"}) as outer:
            first = outer.send(b"1", metadata={"name": "one"})
            with outer.dehydrate(b"own", metadata={"name": "inner"}) as inner:
                second = inner.send(b"2", metadata={"name": "two"})
            failed = outer.announce_failed("it is encrypted", code=ErrorCode.ENTITY_INVALID)
            assert isinstance(inner, Scope)
        assert outer.wait(WAIT) is Status.FAILED
    assert [entity.status for entity in (first, second, inner.entity, failed, outer.entity)] == [3, 3, 3, 4, 4]
    assert failed.reason.message == "it is encrypted"
    assert failed.reason.code == ErrorCode.ENTITY_INVALID
    digest = outer.digest
    assert (digest.scope_id, digest.processed, digest.succeeded, digest.failed) == (outer.scope_id, 3, 2, 1)
    leaves = [(entity.entity_id, entity.status) for entity in (first, inner.entity, failed)]
    assert digest.merkle_root == merkle_root(leaves)
    assert inner.digest.merkle_root == merkle_root([(second.entity_id, Status.COMPLETE)])
    assert (first.depth, second.depth, second.parent_id) == (1, 2, inner.entity.entity_id)
    assert taken.result(WAIT) == {"zip": b"", "one": b"1", "inner": b"own", "two": b"2"}


def test_an_exception_in_a_scope_fails_its_entity_and_only_it(pair, background):
    client, server = pair()
    taken = background(complete_all, server)
    with client:
        scope = client.dehydrate(metadata={"name": "zip"})
        child = scope.send(b"1", metadata={"name": "child"})
        with pytest.raises(ZeroDivisionError), scope:
            raise ZeroDivisionError
        assert scope.wait(WAIT) is Status.FAILED
        assert scope.entity.reason.message == "the sender failed: ZeroDivisionError"
        # A child whose parent failed before its header came fails with it (decision 10).
        assert child.wait(WAIT).is_terminal
        assert client.send(b"2", metadata={"name": "other"}).wait(WAIT) is Status.COMPLETE
    assert taken.result(WAIT)["other"] == b"2"


def test_results_come_back_in_the_servers_own_scope(pair, background):
    client, server = pair()

    def answer():
        for entity in server:
            data = entity.read()
            # Announced before its source is resolved, so that the client's close waits for it (decision 17).
            server.send(data.upper(), metadata={"for": str(entity.entity_id)})
            entity.complete()

    answered = background(answer)
    with client:
        for name in (b"a", b"b", b"c"):
            client.send(name)
        results = {}
        for _ in range(3):
            result = client.receive(WAIT)
            assert result.scope_id == 1
            results[result.header.metadata["for"]] = result.read()
            result.complete()
        assert results == {"1": b"A", "2": b"B", "3": b"C"}
    answered.result(WAIT)
    assert server.closed.code == ErrorCode.NO_ERROR


def test_chunks_become_one_payload(pair, background):
    client, server = pair()
    data = os.urandom(1_000_003)
    taken = background(complete_all, server)
    with client:
        assert client.send(data, chunk_size=100_000, metadata={"name": "big"}).wait(WAIT) is Status.COMPLETE
    assert taken.result(WAIT) == {"big": data}


def test_a_rejected_entity_says_why_at_the_sender(pair, background):
    client, server = pair()

    def reject():
        with server.receive(WAIT) as entity:
            entity.fail("no such tenant", code=0x41)
        with pytest.raises(ValueError, match="broken"), server.receive(WAIT):
            raise ValueError("broken")
        del_me = server.receive(WAIT)
        del del_me
        server.fail(server.receive(WAIT), ErrorCode.ENTITY_INVALID, "by key")

    rejected = background(reject)
    sent = [client.send(b"x") for _ in range(4)]
    assert [entity.wait(WAIT) for entity in sent] == [Status.FAILED] * 4
    assert [(entity.reason.code, entity.reason.message) for entity in sent] == [
        (0x41, "no such tenant"),
        (1, "the receiver failed: ValueError"),
        (1, "the consumer dropped the entity"),
        (5, "by key"),
    ]
    assert sent[0].reason.name == "PIPESTREAM_PRIVATE_USE"
    rejected.result(WAIT)
    client.close(WAIT)


def test_the_sender_gives_an_entity_up(pair):
    client, server = pair()
    sent = client.send(b"x" * 10_000_000)
    entity = server.receive(WAIT)
    sent.fail("the user pressed stop", code=ErrorCode.INTERNAL_ERROR)
    with pytest.raises(PipeStreamError):
        entity.read()
    assert sent.wait(WAIT) is Status.FAILED
    assert sent.reason.message == "the user pressed stop"


def settled(count):
    """Wait until a count stands still, and give it."""
    same, before = 0, -1
    while same < 20:
        time.sleep(0.05)
        now = count()
        same, before = (same + 1, now) if now == before else (0, now)
    return before


def test_a_slow_reader_holds_the_sender_back(pair, background):
    client, server = pair()
    accepted = []

    def send():
        for number in range(300):
            data = number.to_bytes(4, "big") * (1 << 18)
            accepted.append(client.send(data, metadata={"number": str(number)}))

    sending = background(send)
    # 300 MiB are offered, nobody reads: what is in between is bounded.
    assert 0 < settled(lambda: len(accepted)) <= 100
    assert not sending.done()
    numbers = set()
    for _ in range(300):
        entity = server.receive(WAIT)
        number = int(entity.header.metadata["number"])
        assert entity.read() == number.to_bytes(4, "big") * (1 << 18)
        entity.complete()
        numbers.add(number)
    assert len(numbers) == 300
    sending.result(WAIT)
    assert [entity.wait(WAIT) for entity in accepted] == [Status.COMPLETE] * 300


def test_the_window_holds_the_sender_back(pair, background):
    client, server = pair(window=4)
    assert client.agreement.max_window_size == server.agreement.max_window_size == 4
    accepted = []
    sending = background(lambda: [accepted.append(client.send(b"x")) for _ in range(12)])
    assert settled(lambda: len(accepted)) == 4
    server.receive(WAIT).complete()
    assert settled(lambda: len(accepted)) == 5
    for _ in range(11):
        server.receive(WAIT).complete()
    sending.result(WAIT)
    assert {entity.wait(WAIT) for entity in accepted} == {Status.COMPLETE}


def test_waits_end_with_their_time_out(pair):
    client, _ = pair()
    sent = client.send(b"x")
    for wait in (sent.wait, client.receive, client.wait_closed, client.close):
        with pytest.raises(PipeStreamError) as caught:
            wait(0.05)
        assert caught.value.kind == "deadline"
    assert (sent.status, sent.reason, next(client.events(0.01)).agreement) == (1, None, client.agreement)


def test_ctrl_c_interrupts_a_wait(pair):
    client, server = pair()
    sent = client.send(b"x")
    for wait in (sent.wait, client.receive, client.wait_closed, lambda: list(client.events())):
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            wait()
        timer.join()
    server.receive(WAIT).complete()
    assert sent.wait(WAIT) is Status.COMPLETE


def test_many_threads_wait_for_one_entity(pair):
    client, server = pair()
    sent = client.send(b"x")
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(sent.wait, WAIT) for _ in range(8)]
        server.receive(WAIT).complete()
        assert [wait.result(WAIT) for wait in waiting] == [Status.COMPLETE] * 8


def test_an_exception_aborts_the_session(pair):
    client, server = pair()
    sent = client.send(b"x")
    with pytest.raises(LookupError), client:
        raise LookupError("of the application")
    assert client.closed.code == ErrorCode.INTERNAL_ERROR
    assert (sent.wait(WAIT), sent.is_dehydrated) == (Status.FAILED, False)
    assert server.wait_closed(WAIT).message == "the application failed: LookupError"
    with pytest.raises(PipeStreamError, match="the application failed: LookupError"):
        server.close()
    with pytest.raises(PipeStreamError) as caught:
        client.send(b"y")
    assert caught.value.code == ErrorCode.INTERNAL_ERROR
    assert "closed" in repr(client)


def test_what_the_user_does_wrong_is_a_misuse(pair, tmp_path):
    client, _ = pair()
    other, _ = pair()
    sent = client.send(b"x")
    wrong = [
        lambda: client.send(b"y", parent=sent),
        lambda: client.send(b"y", metadata={"pipestream.child-scope": "2"}),
        lambda: client.send(tmp_path),
        lambda: other.fail(sent, 1, "not mine"),
        lambda: client.end_children(sent),
    ]
    for make in wrong:
        with pytest.raises(PipeStreamError) as caught:
            make()
        assert caught.value.kind == "misuse", caught.value
    with pytest.raises(PipeStreamError, match="cannot open") as caught:
        client.send(tmp_path / "missing")
    assert caught.value.kind == "io"
    with pytest.raises(TypeError):
        client.send(5)
    with pytest.raises(OSError, match="closed"):
        client.send(_Broken())


class _Broken(io.RawIOBase):
    def read(self, _size=-1):
        raise OSError("closed")


def test_deeper_than_seven_is_refused_here(pair, background):
    client, server = pair()
    background(complete_all, server)
    scope = client.dehydrate()
    for _ in range(6):
        scope = scope.dehydrate()
    assert scope.send(b"x").depth == 7
    with pytest.raises(PipeStreamError) as caught:
        scope.dehydrate().dehydrate()
    assert caught.value.name == "PIPESTREAM_DEPTH_EXCEEDED"


def test_layer_0_has_one_level(pair, background):
    client, server = pair(layers=0)
    assert client.agreement.layer == server.agreement.layer == 0
    taken = background(complete_all, server)
    with client:
        with client.dehydrate(metadata={"name": "zip"}) as scope:
            child = scope.send(b"1", metadata={"name": "child"})
            with pytest.raises(PipeStreamError):
                scope.dehydrate()
        assert scope.wait(WAIT) is Status.COMPLETE
        assert (child.scope_id, child.parent_id, scope.digest) == (0, scope.entity.entity_id, None)
        assert client.checkpoint().is_satisfied
    assert taken.result(WAIT) == {"zip": b"", "child": b"1"}


def test_a_checkpoint_times_out_and_the_session_goes_on(pair):
    client, server = pair()
    sent = client.send(b"x")
    answer = client.checkpoint(timeout=0.1)
    assert (answer.is_satisfied, answer.is_timed_out) == (False, True)
    server.receive(WAIT).complete()
    assert sent.wait(WAIT) is Status.COMPLETE
    assert client.checkpoint(sent.entity_id).is_satisfied


def test_events_tell_a_session(pair, background):
    client, server = pair()
    background(complete_all, server)
    with client, client.dehydrate() as scope:
        scope.send(b"1")
    events = list(client.events())
    assert isinstance(events[0], AgreedEvent)
    assert [event.reason.code for event in events if isinstance(event, ClosedEvent)] == [0]
    assert events[-1].by_peer is False
    resolved = [event for event in events if isinstance(event, ResolvedEvent)]
    assert [(event.key.scope_id, event.status, event.owned) for event in resolved] == [
        (2, Status.COMPLETE, True),
        (0, Status.COMPLETE, True),
    ]
    assert [event.digest for event in events if isinstance(event, DigestEvent)] == [scope.digest]
    assert not [event for event in events if isinstance(event, LostEvents)]
    assert pickle.loads(pickle.dumps(events)) == events  # noqa: S301 - made a line above


def test_live_objects_refuse_a_pickle(pair, serve):
    client, server = pair()
    scope = client.dehydrate()
    for live in (client, scope, scope.entity, server.receive(WAIT), serve()):
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(live)


def test_closing_a_server_ends_those_who_wait_for_clients(serve, background):
    server = serve()
    waiting = background(list, server)
    settled(lambda: waiting.done())
    server.close()
    assert waiting.result(WAIT) == []
    assert server.accept(WAIT) is None
    server.close()


def test_one_server_has_many_clients(serve, background):
    server = serve()

    def take():
        with ThreadPoolExecutor() as pool:
            return sum(len(taken) for taken in pool.map(complete_all, server))

    taken = background(take)

    def send(number):
        with Session.connect(server.address, fingerprint=server.fingerprint) as session:
            for name in range(20):
                session.send(b"x" * number, metadata={"name": str(name)})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(send, range(8)))
    server.close()
    assert taken.result(WAIT) == 160
    assert server.counters.connections_total == 8
    assert (server.counters.entities, server.counters.completed) == (160, 160)


def test_a_payload_above_the_limit_fails_alone(serve, tmp_path):
    server = serve(sink=tmp_path / "sink", max_payload=1_000)
    with Session.connect(server.address, fingerprint=server.fingerprint) as session:
        large, small = session.send(b"x" * 1_001), session.send(b"x" * 1_000)
        assert (large.wait(WAIT), small.wait(WAIT)) == (Status.FAILED, Status.COMPLETE)
        assert large.reason.name == "PIPESTREAM_ENTITY_TOO_LARGE"
    assert (tmp_path / "sink" / session.id / "0" / "2").read_bytes() == b"x" * 1_000
    assert not (tmp_path / "sink" / session.id / "0" / "1").exists()
    with pytest.raises(PipeStreamError, match="the sink takes"):
        server.accept()


# From Python 3.12 on, a fork beside threads warns; that it goes well is what is tested.
@pytest.mark.filterwarnings(r"ignore:This process \(pid=\d+\) is multi-threaded, use of fork\(\):DeprecationWarning")
def test_a_forked_child_connects_anew_and_its_parent_goes_on(serve, tmp_path):
    server = serve(sink=tmp_path / "sink")
    connect = {"fingerprint": server.fingerprint}
    with Session.connect(server.address, **connect) as session:
        assert session.send(b"before").wait(WAIT) is Status.COMPLETE
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with pytest.raises(PipeStreamError, match="fork"):
                    session.send(b"not here")
                with Session.connect(server.address, **connect) as own:
                    assert own.send(b"in the child").wait(WAIT) is Status.COMPLETE
                del session
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert session.send(b"after").wait(WAIT) is Status.COMPLETE
    sent = {path.read_bytes() for path in (tmp_path / "sink").glob("*/0/*")}
    assert sent == {b"before", b"in the child", b"after"}
