"""Peers that ask for much and give little: memory stays bounded, and whoever behaves is served."""

import os
import random
import struct
from hashlib import sha256

import pytest

from ..conformance.pipestream.entity import Chunk, Header
from ..conformance.pipestream.fixtures import LINUX, Connect, Program
from ..conformance.pipestream.peer import CONTROL
from ..conformance.pipestream.wire import Barrier, Checkpoint, Code, Error, Frame, Stat, Status, variable

LONG = bool(os.environ.get("PENSTOCK_LONG_TESTS"))
MIB = 1 << 20


def grown(program: Program) -> int:
    """MiB that the server's memory has risen at most in this test."""
    return (program.serve.memory(peak=True) - program.memory_before) // MIB if LINUX else 0


def test_10000_announcements_without_streams(program: Program, connect: Connect) -> None:
    client = connect()
    client.announce(*range(1, 10_001))
    client.settled()
    program.undisturbed()
    assert grown(program) < 32
    # The first and the last are still good for an entity.
    client.entity(1, b"first")
    client.entity(10_000, b"last")
    client.completes(1, 10_000)
    client.close(0)
    program.closed(client, 0)
    lines = program.entities(client)
    assert len({line["entity"] for line in lines}) == 10_000
    assert sorted(line["entity"] for line in lines if line["status"] == "COMPLETE") == [1, 10_000]


def test_10000_announcements_without_streams_on_each_of_many_connections(program: Program, connect: Connect) -> None:
    clients = [connect() for _ in range(50 if LONG else 5)]
    # A kibibyte for each announcement is more than enough.
    program.memory_allowed = max(program.memory_allowed, len(clients) * 10 * MIB)
    for client in clients:
        client.announce(*range(1, 10_001))
    for client in clients:
        client.settled()
    assert grown(program) < len(clients) * 10


def test_dehydrating_parents_whose_children_never_come(program: Program, connect: Connect) -> None:
    client = connect()
    for number in range(1, 1001):
        client.send(Status(Stat.PENDING, number), Status(Stat.DEHYDRATING, number))
    client.settled()
    assert grown(program) < 32


def test_scopes_that_are_never_bound(program: Program, connect: Connect) -> None:
    client = connect()
    frames = [Status(Stat.PENDING, entity, scope, 1) for scope in range(2, 2002, 2) for entity in range(1, 6)]
    client.send(*frames, *(Barrier(False, scope, 1) for scope in range(2, 2002, 2)))
    # No entity could bind them.
    client.closes(Code.SCOPE_INVALID)
    assert grown(program) < 32


def test_headers_whose_announcements_never_come_are_bounded(program: Program, connect: Connect) -> None:
    client = connect()
    metadata = {"m": "m" * 900_000}
    for entity in range(2, 60 if LONG else 30):
        client.stream(Header(entity, metadata=metadata).encode(), end=False)
    program.reactor.run(client.has_ended, 10)
    program.undisturbed()
    assert grown(program) < 80


def test_slow_senders_on_many_connections(program: Program, connect: Connect) -> None:
    """Each drips a byte at a time; the bystander is served meanwhile, and they come to their ends as well."""
    payload = b"drop by drop"
    clients = [connect() for _ in range(200 if LONG else 30)]
    whole = {client: client.stream(b"", end=False) for client in clients}
    data = Header(1, payload_length=12, checksum=sha256(payload).digest()).encode() + payload
    for client in clients:
        client.announce(1)
    for position in range(len(data)):
        for client in clients:
            client.more(whole[client], data[position : position + 1], end=position + 1 == len(data))
        program.reactor.run(lambda: True, 0)
        if position % 20 == 0:
            program.undisturbed()
    for client in clients:
        client.completes(1)
        assert program.file(client, 1).read_bytes() == payload


def test_slow_headers_and_slow_control_streams(program: Program, connect: Connect) -> None:
    clients = [connect() for _ in range(10)]
    for client in clients:
        client.announce(1)
        client.stream(b"\x00\x10\x00\x00", end=False)
        client.stream(b"\x00", end=False)
        client.drip(CONTROL, variable(0xC6, bytes(100))[:50])
    program.undisturbed()
    assert grown(program) < 32


@pytest.mark.parametrize("frame_type", [0x80, 0x81, 0xC0, 0xC6], ids=hex)
def test_a_huge_length_with_few_bytes_behind_takes_no_memory(
    program: Program, connect: Connect, frame_type: int
) -> None:
    clients = [connect() for _ in range(40)]
    for client in clients:
        client.send(struct.pack(">BI", frame_type, (16 << 20) - 1) + b"few bytes")
    for client in clients:
        client.reactor.run(lambda: False, 0.005)
    program.undisturbed()
    # 40 times 16 MiB would be 640.
    assert grown(program) < 48


def test_a_header_length_at_the_limit_with_few_bytes_behind_takes_no_memory(program: Program, connect: Connect) -> None:
    client = connect()
    for _ in range(200):
        client.stream(struct.pack(">I", MIB) + b"\x08\x01", end=False)
    client.settled()
    assert grown(program) < 48


def test_streams_that_never_say_what_they_are(program: Program, connect: Connect) -> None:
    client = connect()
    # As many as the server lets be open; more wait at our end.
    for _ in range(1000):
        client.stream(b"\x00", end=False)
    client.settled()
    program.undisturbed()
    assert grown(program) < 48


def test_many_chunks_of_one_entity(program: Program, connect: Connect) -> None:
    client = connect()
    total = 2000 if LONG else 400
    payload = b"x" * total
    client.announce(1)
    checksum = sha256(payload).digest()
    for index in reversed(range(total)):
        chunk = Chunk(total, index, index)
        client.entity(1, b"x", chunk=chunk, payload_length=total, checksum=checksum)
    client.completes(1)
    assert program.file(client, 1).read_bytes() == payload


def test_more_checkpoints_than_anybody_needs(program: Program, connect: Connect) -> None:
    client = connect()
    client.announce(1)
    client.send(*(Checkpoint("c" * 1000, number, timeout_ms=600_000) for number in range(5000)))
    # Kept, or refused: the decisions name no limit; but never without bound.
    program.reactor.run(client.has_ended, 2)
    program.undisturbed()
    assert grown(program) < 48


def test_long_error_messages_are_not_kept(program: Program, connect: Connect) -> None:
    client = connect()
    client.announce(*range(1, 101))
    for entity in range(1, 101):
        client.send(Error(5, 0, entity, "e" * 50_000))
    client.settled()
    assert grown(program) < 32


def test_a_peer_that_does_not_read_its_control_stream(program: Program, connect: Connect) -> None:
    """Every CHECKPOINT wants an answer of a kibibyte, and the client takes 4 KiB in all."""
    client = connect(max_stream_data=8192)
    client.quic._write_stream_limits = lambda *_, **__: None  # type: ignore[method-assign]
    count = 20_000 if LONG else 8_000
    for start in range(0, count, 100):
        client.send(*(Checkpoint("c" * 1000, start + number) for number in range(100)))
        program.reactor.run(client.has_ended, 0.01)
    program.reactor.run(client.has_ended, 3)
    program.undisturbed()
    assert grown(program) < 64


def test_more_entities_at_once_than_streams(program: Program, connect: Connect) -> None:
    client = connect()
    count = 3000 if LONG else 1000
    with client.corked():
        client.announce(*range(1, count + 1))
        for entity in range(1, count + 1):
            client.entity(entity, b"%d" % entity)
    client.wait(lambda: client.frames[-1:] != [] and done(client.frames) == count, "all statuses", 60)
    client.completes(1, count)
    client.close(0)
    program.closed(client, 0)
    assert len(program.entities(client)) == count


def done(frames: list[Frame]) -> int:
    return len({frame.entity for frame in frames if isinstance(frame, Status) and frame.terminal})


def test_garbage_of_every_kind(connect: Connect) -> None:
    """Connections that talk nonsense, one after another; each is closed with a code of the registry."""
    chance = random.Random(7)
    for _ in range(200 if LONG else 40):
        client = connect()
        client.announce(1)
        if chance.random() < 0.5:
            client.send(bytes(chance.choices(range(256), k=300)))
        else:
            client.stream(struct.pack(">I", 200) + bytes(chance.choices(range(256), k=300)))
        client.reactor.run(client.has_ended, 0.5)
        ended = client.closed_by_peer
        assert ended is None or (ended.frame_type is None and Code(ended.error_code)), ended
