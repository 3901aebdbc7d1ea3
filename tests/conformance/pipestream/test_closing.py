"""Decision 17, and section 5.4: ends of connections, and what they leave in the sink."""

import pytest

from .client import Client
from .fixtures import Connect, Program
from .invariants import check_session, closed_code
from .programs import Serve
from .reactor import Reactor
from .wire import Checkpoint, Code, Stat


def half_sent(client: Client) -> None:
    """Entity 1 is whole; 2 has begun, 3 has only its header, 4 is announced, 5 waits for its PENDING."""
    client.deliver(1, b"whole")
    client.completes(1)
    client.announce(2, 3, 4)
    client.entity(2, b"x" * 100_000, end=False, payload_length=200_000)
    client.entity(3, b"", end=False, payload_length=10)
    client.entity(5, b"early")
    client.settled()


def only_the_first_is_there(program: Program, client: Client) -> None:
    check_session(program.serve.sink, client.session_id)
    lines = {line["entity"]: line["status"] for line in program.entities(client)}
    assert lines == {1: "COMPLETE", 2: "FAILED", 3: "FAILED", 4: "FAILED"}
    files = [path for path in (program.serve.sink / client.session_id).rglob("*") if path.is_file()]
    assert sorted(path.name for path in files) == ["1", "entities.jsonl"]


@pytest.mark.parametrize("code", [0, 1, 5, 0x40, 0xFF, 0x1234, (1 << 62) - 1], ids=hex)
def test_what_has_no_terminal_status_at_a_close_is_failed(program: Program, connect: Connect, code: int) -> None:
    client = connect()
    half_sent(client)
    client.close(code)
    program.closed(client, code)
    only_the_first_is_there(program, client)


def test_a_connection_that_vanishes_leaves_nothing_half_written(program: Program, connect: Connect) -> None:
    # The smaller idle time-out of both ends holds.
    client = connect(idle_timeout=1.0)
    half_sent(client)
    client.vanish()
    program.closed(client)
    assert closed_code(program.serve.sink, client.session_id) == Code.IDLE_TIMEOUT
    only_the_first_is_there(program, client)


def test_an_error_leaves_nothing_half_written(program: Program, connect: Connect) -> None:
    client = connect()
    half_sent(client)
    client.send(b"\x00")
    client.closes(Code.ENTITY_INVALID)
    program.closed(client, Code.ENTITY_INVALID)
    only_the_first_is_there(program, client)


def test_the_sink_holds_no_temporary_file_but_dot_names_while_a_connection_is_open(
    program: Program, connect: Connect
) -> None:
    client = connect()
    half_sent(client)
    files = [path for path in (program.serve.sink / client.session_id).rglob("*") if path.is_file()]
    seen = {path.name for path in files if not path.name.startswith(".")}
    assert seen == {"1", "entities.jsonl"}
    assert closed_code(program.serve.sink, client.session_id) is None


def test_a_whole_payload_is_not_there_before_its_checksum_holds(program: Program, connect: Connect) -> None:
    client = connect()
    client.announce(1)
    stream = client.entity(1, b"x" * 1000, end=False)
    client.settled()
    # Every byte is there, the end of the stream is not.
    assert not program.file(client, 1).exists()
    client.more(stream, b"", end=True)
    client.completes(1)
    assert program.file(client, 1).exists()


def test_a_container_is_not_complete_in_the_sink_before_its_barrier(program: Program, connect: Connect) -> None:
    client = connect()
    client.dehydrate(1, 2)
    client.deliver(1, b"x", scope=2, parent=1, depth=1)
    client.completes(1, scope=2)
    client.close(0)
    program.closed(client, 0)
    lines = {(line["scope"], line["entity"]): line["status"] for line in program.entities(client)}
    assert lines == {(0, 1): "FAILED", (2, 1): "COMPLETE"}


def test_a_close_in_the_middle_of_everything_is_not_an_error(connect: Connect) -> None:
    client = connect()
    half_sent(client)
    client.announce(5)
    client.dehydrate(6, 2)
    client.send(Checkpoint("never answered"), b"\x50\x10")
    client.close(0)


def test_a_graceful_close_after_everything_is_terminal(program: Program, connect: Connect) -> None:
    client = connect()
    client.deliver(1, b"x")
    client.completes(1)
    client.close(Code.NO_ERROR)
    program.closed(client, Code.NO_ERROR)
    (line,) = program.entities(client)
    assert (line["status"], line["reason"]) == ("COMPLETE", None)


@pytest.mark.parametrize(("open_entities", "code"), [(0, Code.NO_ERROR), (1, Code.INTERNAL_ERROR)])
def test_sigterm_ends_the_server_with_exit_0_and_its_connections_with_an_error_if_work_is_cut_off(
    reactor: Reactor, tmp_path_factory: pytest.TempPathFactory, open_entities: int, code: Code
) -> None:
    serve = Serve(tmp_path_factory.mktemp("serve"))
    client = Client(reactor, serve.address).open()
    client.deliver(1, b"kept")
    client.completes(1)
    if open_entities:
        client.announce(2)
    client.settled()
    serve.terminate()
    client.closes(code, timeout=30)
    assert serve.wait() == 0
    check_session(serve.sink, client.session_id)
    assert (serve.sink / client.session_id / "0" / "1").read_bytes() == b"kept"
    assert closed_code(serve.sink, client.session_id) == code
    client.vanish()


def test_sigterm_lets_work_in_flight_come_to_its_end(
    reactor: Reactor, tmp_path_factory: pytest.TempPathFactory
) -> None:
    serve = Serve(tmp_path_factory.mktemp("serve"))
    client = Client(reactor, serve.address).open()
    client.announce(1)
    stream = client.entity(1, b"in flight", end=False)
    client.settled()
    serve.terminate()
    client.more(stream, b"", end=True)
    client.completes(1)
    client.close(0)
    assert serve.wait() == 0
    assert (serve.sink / client.session_id / "0" / "1").read_bytes() == b"in flight"
    check_session(serve.sink, client.session_id)
    assert client.terminal(1).stat == Stat.COMPLETE
    client.vanish()
