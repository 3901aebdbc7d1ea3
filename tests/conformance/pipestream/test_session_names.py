"""Decision 18: at layer 2 the client names the session before anything else of layer 2 is said."""

from collections.abc import Callable
from secrets import token_hex

import pytest

from .fixtures import Connect, Join, Program
from .invariants import check_session, closed_code
from .layer2 import ClaimQuery, ClaimRedeem, ClaimResponse, Resume, Session, deferred, yielded
from .test_codec import Vector, load
from .waiting import LATER, LAYER_2, WaitingClient
from .wire import Capabilities, Code, Frame, Stat, Status

LAYER_1 = [["--layers", "1"]]


def test_the_server_answers_session_likewise_and_the_sink_has_its_name(program: Program, join: Join) -> None:
    client = join(LAYER_2, named=False)
    client.nothing_happens(0.2)
    client.introduce()
    assert client.expect(Session) == Session(client.name)
    client.deliver(1, b"x")
    client.completes(1)
    assert program.file(client, 1).read_bytes() == b"x"
    assert client.quic.session_id != client.name
    assert not (program.serve.sink / client.quic.session_id).exists()
    assert program.events(client, "capabilities")[0]["layers"] == 2


@pytest.mark.parametrize("program", LAYER_1, indirect=True)
def test_without_the_servers_layer_2_the_name_is_the_tls_exporters(program: Program, connect: Connect) -> None:
    client = connect(LAYER_2)
    own = client.expect(Capabilities)
    assert (own.layer1, bool(own.layer2)) == (True, False)
    client.deliver(1, b"x")
    client.completes(1)
    assert program.file(client, 1).read_bytes() == b"x"


BEFORE: dict[str, Frame] = {
    "a query": ClaimQuery(1),
    "a response": ClaimResponse(1, False),
    "a redemption": ClaimRedeem(1, "0" * 32),
    "RESUME": Resume(0, 1, b"a token"),
    "YIELDED": Status(Stat.YIELDED, 1, extension=yielded(1, b"a token")),
    "DEFERRED": Status(Stat.DEFERRED, 1, extension=deferred(1, 1)),
    "RETRYING": Status(Stat.RETRYING, 1),
    "SKIPPED": Status(Stat.SKIPPED, 1),
    "ABANDONED": Status(Stat.ABANDONED, 1),
}


@pytest.mark.parametrize("frame", BEFORE.values(), ids=BEFORE)
def test_nothing_of_layer_2_comes_before_session(join: Join, friend: WaitingClient, frame: Frame) -> None:
    assert friend.quic.ended is None
    client = join(named=False)
    if isinstance(frame, Status):
        client.announce(1)
    client.send(frame)
    client.closes(Code.ENTITY_INVALID)


@pytest.mark.parametrize("program", LAYER_1, indirect=True)
@pytest.mark.parametrize("frame", [Session("0" * 32), *BEFORE.values()], ids=["SESSION", *BEFORE])
def test_frames_of_layer_2_are_unsupported_where_the_server_has_none(connect: Connect, frame: Frame) -> None:
    client = connect(LAYER_2)
    client.announce(1)
    client.send(frame)
    client.closes(Code.LAYER_UNSUPPORTED)


def test_session_is_unsupported_where_the_client_has_offered_layer_1(connect: Connect) -> None:
    client = connect()
    client.send(Session("0" * 32))
    client.closes(Code.LAYER_UNSUPPORTED)


def test_a_second_session_of_another_name_closes_with_entity_invalid(join: Join, friend: WaitingClient) -> None:
    client = join()
    client.send(Session(friend.name))
    client.closes(Code.ENTITY_INVALID)


def test_session_comes_once_where_it_does_not_survive_its_connection(join: Join) -> None:
    client = join()
    client.send(Session(client.name))
    client.closes(Code.ENTITY_INVALID)


INVALID = [vector for vector in load("frames-layer2-invalid") if not vector.get("truncated")]
NAMES = [vector for vector in INVALID if vector["name"].startswith("0xC5")]


@pytest.mark.parametrize("vector", INVALID, ids=lambda vector: vector["name"])
def test_what_breaks_the_format_closes_with_the_vectors_code(join: Join, vector: Vector) -> None:
    client = join()
    client.send(bytes.fromhex(vector["hex"]))
    client.closes(Code[vector["code"]])


@pytest.mark.parametrize("vector", NAMES, ids=lambda vector: vector["name"])
def test_a_first_session_without_a_name_is_refused(join: Join, vector: Vector) -> None:
    client = join(named=False)
    client.send(bytes.fromhex(vector["hex"]))
    client.closes(Code[vector["code"]])


TRUNCATED = [vector for vector in load("frames-layer2-invalid") if vector.get("truncated")]


@pytest.mark.parametrize("vector", TRUNCATED, ids=lambda vector: vector["name"])
def test_stream_0_that_ends_inside_a_frame_of_layer_2_is_invalid(join: Join, vector: Vector) -> None:
    client = join()
    client.send(bytes.fromhex(vector["hex"]), end=True)
    client.closes(Code.ENTITY_INVALID)


def test_fields_of_session_that_nobody_knows_are_skipped(program: Program, join: Join) -> None:
    client = join(named=False)
    message = Session(client.name).encode()[5:] + bytes.fromhex("7801")
    client.send(b"\xc5" + len(message).to_bytes(4) + message)
    assert client.expect(Session).session == client.name
    client.deliver(1, b"x")
    client.completes(1)
    assert program.file(client, 1).exists()


HELD: dict[str, Callable[[WaitingClient], object]] = {
    "an announcement": lambda client: client.announce(1),
    "an entity stream": lambda client: client.entity(1, b"x"),
}


@pytest.mark.parametrize("name", HELD)
def test_what_does_not_belong_to_layer_2_may_come_before_session(join: Join, name: str) -> None:
    client = join(named=False)
    HELD[name](client)
    client.nothing_happens(0.2)
    client.introduce()
    for other in HELD.keys() - {name}:
        HELD[other](client)
    client.completes(1)


def test_two_sessions_of_one_name_do_not_share_a_folder(program: Program, join: Join, friend: WaitingClient) -> None:
    client = join(named=False)
    client.send(Session(friend.name))
    client.closes(Code.ENTITY_INVALID)
    friend.deliver(2, b"still mine")
    friend.completes(2)
    assert program.file(friend, 2).read_bytes() == b"still mine"


def test_a_name_that_was_used_has_a_folder_with_a_number(program: Program, join: Join) -> None:
    name = token_hex(16)
    for use, folder in enumerate((name, f"{name}.1", f"{name}.2")):
        client = join(named=False, name=name)
        client.introduce()
        payload = f"use {use} of the name".encode()
        client.deliver(1, payload)
        client.completes(1)
        client.close()
        program.reactor.run(lambda folder=folder: closed_code(program.serve.sink, folder) is not None, 20.0)
        assert closed_code(program.serve.sink, folder) == 0
        check_session(program.serve.sink, folder)
        assert (program.serve.sink / folder / "0" / "1").read_bytes() == payload
    assert (program.serve.sink / name / "0" / "1").read_bytes() == b"use 0 of the name"


@pytest.mark.parametrize("program", [["--survive", "0"]], indirect=True)
def test_a_server_that_lets_no_session_survive_says_so(program: Program, join: Join) -> None:
    client = join(survives=True)
    assert client.expect(Session) == Session(client.name)
    client.announce(1)
    client.settled()
    client.close(LATER, "later")
    program.closed(client, LATER)
    late = join(named=False)
    late.send(Session(client.name, len(client.heard), len(client.said)))
    late.closes(Code.CLAIM_NOT_FOUND)
