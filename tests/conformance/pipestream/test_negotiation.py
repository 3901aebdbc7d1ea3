"""Decisions 1, 2, 18 and 21: how a session begins."""

from hashlib import sha256

import pytest

from .client import Client
from .fixtures import Connect, Program
from .peer import ALPN, TIMEOUT
from .wire import Barrier, Capabilities, Checkpoint, Code, Digest, Error, Private, Stat, Status

DEPTH, ENTITIES, WINDOW = 7, 0xFFFF_FFFE, 2_147_483_646


def test_the_ready_lines_fingerprint_is_that_of_the_leaf(program: Program, connect: Connect) -> None:
    assert sha256(connect().certificate).hexdigest() == program.serve.fingerprint


def test_the_protocol_in_the_handshake_is_pipestream_1(connect: Connect) -> None:
    assert connect().alpn == ALPN


def test_another_protocol_in_the_handshake_is_refused(program: Program) -> None:
    client = Client(program.reactor, program.serve.address, alpn="h3")
    program.reactor.run(client.has_ended, TIMEOUT)
    ended = client.closed_by_peer
    assert ended is not None
    # CRYPTO_ERROR with the TLS alert no_application_protocol (RFC 9001 section 8.1).
    assert ended.error_code == 0x100 + 120
    client.vanish()


def test_the_session_id_is_the_tls_exporters(program: Program, connect: Connect) -> None:
    client = connect()
    client.deliver(1, b"x")
    client.completes(1)
    assert (program.serve.sink / client.session_id / "0" / "1").read_bytes() == b"x"


def test_the_server_answers_with_its_own_capabilities_first(connect: Connect) -> None:
    client = connect(capabilities=None)
    client.nothing_happens()
    client.send(Capabilities())
    client.expect(Capabilities)
    own = client.frames[0]
    assert isinstance(own, Capabilities)
    assert own.layer0
    assert own.layer1 or not own.layer2


@pytest.mark.parametrize(
    ("offered", "agreed"),
    [
        pytest.param(Capabilities(), (DEPTH, ENTITIES, WINDOW), id="numbers that are not set are the defaults"),
        pytest.param(
            Capabilities(True, True, False, 0, 0, 0), (DEPTH, ENTITIES, WINDOW), id="numbers of 0 are the defaults"
        ),
        pytest.param(Capabilities(max_scope_depth=9), (DEPTH, ENTITIES, WINDOW), id="a depth above 7 is 7"),
        pytest.param(Capabilities(max_scope_depth=3), (3, ENTITIES, WINDOW), id="the smaller depth"),
        pytest.param(Capabilities(max_entities_per_scope=10), (DEPTH, 10, WINDOW), id="the smaller number of entities"),
        pytest.param(Capabilities(max_window_size=5), (DEPTH, ENTITIES, 5), id="the smaller window"),
        pytest.param(
            Capabilities(max_window_size=0xFFFF_FFFF), (DEPTH, ENTITIES, WINDOW), id="a window above 2147483646 is that"
        ),
    ],
)
def test_both_use_the_minimum_of_each_number(
    program: Program, connect: Connect, offered: Capabilities, agreed: tuple[int, int, int]
) -> None:
    client = connect(offered)
    own = client.expect(Capabilities)
    theirs = (own.max_scope_depth or DEPTH, own.max_entities_per_scope or ENTITIES, own.max_window_size or WINDOW)
    assert theirs[0] <= DEPTH
    client.wait(lambda: bool(program.events(client, "capabilities")), "the event")
    (event,) = program.events(client, "capabilities")
    found = tuple(event[name] for name in ("max_scope_depth", "max_entities_per_scope", "max_window_size"))
    assert found == tuple(map(min, zip(agreed, theirs, strict=True)))


@pytest.mark.parametrize(
    ("flags", "layers"),
    [
        pytest.param((True, True, False), 1, id="layer 1 with layer 1"),
        pytest.param((True, False, False), 0, id="layer 0 when the other end has no more"),
        pytest.param((True, None, None), 0, id="flags that are not set are false"),
        pytest.param((True, False, True), 0, id="layer 2 without layer 1 is off"),
    ],
)
def test_both_use_the_conjunction_of_each_flag(
    program: Program, connect: Connect, flags: tuple[bool | None, ...], layers: int
) -> None:
    client = connect(Capabilities(*flags))
    client.wait(lambda: bool(program.events(client, "capabilities")), "the event")
    assert program.events(client, "capabilities")[0]["layers"] == layers
    client.deliver(1, b"x")
    client.completes(1)


@pytest.mark.parametrize("layer0", [False, None], ids=["false", "not set"])
def test_without_layer0_core_the_layer_is_unsupported(connect: Connect, layer0: bool | None) -> None:
    client = connect(capabilities=None)
    client.send(Capabilities(layer0=layer0))
    client.closes(Code.LAYER_UNSUPPORTED)


@pytest.mark.parametrize(
    "frame",
    [
        Status(Stat.PENDING, 1),
        Status(Stat.UNSPECIFIED, 0xFFFF_FFFF),
        Digest(0, 0, 0, 0, 0, bytes(32)),
        Barrier(False, 0, 0),
        Checkpoint("too early"),
        Error(1),
        Private(0xC6),
        Private(0xFF),
    ],
    ids=lambda frame: type(frame).__name__ + (f" {frame.frame_type:#x}" if isinstance(frame, Private) else ""),
)
def test_no_frame_comes_before_capabilities(
    connect: Connect, frame: Status | Digest | Barrier | Checkpoint | Error | Private
) -> None:
    client = connect(capabilities=None)
    client.send(frame)
    client.closes(Code.ENTITY_INVALID)


def test_no_entity_stream_comes_before_capabilities(connect: Connect) -> None:
    client = connect(capabilities=None)
    client.entity(1, b"too early")
    client.closes(Code.ENTITY_INVALID)


def test_a_second_capabilities_is_invalid(connect: Connect) -> None:
    client = connect()
    client.send(Capabilities())
    client.closes(Code.ENTITY_INVALID)


def test_status_may_follow_ones_own_capabilities_before_the_peers_has_come(connect: Connect) -> None:
    client = connect(capabilities=None)
    client.send(Capabilities(), Status(Stat.PENDING, 1), Status(Stat.PENDING, 2))
    client.expect(Capabilities)
    client.entity(1, b"one")
    client.entity(2, b"two")
    client.completes(1, 2)


@pytest.mark.parametrize("program", [["--layers", "0"]], indirect=True)
def test_a_server_of_layer_0_says_so(program: Program, connect: Connect) -> None:
    client = connect()
    own = client.expect(Capabilities)
    assert (own.layer0, bool(own.layer1), bool(own.layer2)) == (True, False, False)
    client.wait(lambda: bool(program.events(client, "capabilities")), "the event")
    assert program.events(client, "capabilities")[0]["layers"] == 0


@pytest.mark.parametrize("program", [["--window", "4"]], indirect=True)
def test_a_server_with_a_window_offers_it(program: Program, connect: Connect) -> None:
    client = connect()
    assert client.expect(Capabilities).max_window_size == 4
    client.wait(lambda: bool(program.events(client, "capabilities")), "the event")
    assert program.events(client, "capabilities")[0]["max_window_size"] == 4
