"""Decisions 14, 15 and 16: headers, payloads and chunks. What concerns the connection, and what only an entity."""

import struct
from hashlib import sha256
from typing import Any

import pytest

from .client import Client
from .entity import EMPTY_SHA256, Chunk, Header
from .fixtures import Connect, Program
from .test_codec import Vector, load
from .wire import Code, Error, Stat, Status

PAYLOAD = b"0123456789"
WHOLE: dict[str, Any] = {"payload_length": len(PAYLOAD), "checksum": sha256(PAYLOAD).digest()}

Pieces = list[tuple[Chunk, bytes]]


def only_the_entity_failed(program: Program, client: Client, code: Code) -> None:
    """Entity 1 failed with the code, in the sink too, and the connection goes on (decision 14)."""
    client.fails(1, code)
    client.deliver(2, b"the next one")
    client.completes(2)
    assert client.terminal(1).cursor in (2, None)
    client.wait(lambda: len(program.entities(client)) == 2, "the lines")
    line = next(line for line in program.entities(client) if line["entity"] == 1)
    assert (line["status"], line["file"]) == ("FAILED", None)
    assert f"PIPESTREAM_{code.name}" in line["reason"]
    assert not program.file(client, 1).exists()


@pytest.mark.parametrize(
    "vector", [v for v in load("headers-invalid") if not v.get("entity_only")], ids=lambda v: v["name"]
)
def test_a_header_that_does_not_parse_closes_with_the_vectors_code(connect: Connect, vector: Vector) -> None:
    client = connect()
    client.announce(1)
    client.stream(bytes.fromhex(vector["hex"]), end=bool(vector.get("truncated")))
    client.closes(Code[vector["code"]])


def test_a_header_of_one_mebibyte_is_taken(connect: Connect) -> None:
    client = connect()
    client.announce(1)
    room = (1 << 20) - len(Header(1, metadata={"m": "m" * 1_048_000}).message())
    header = Header(1, metadata={"m": "m" * (1_048_000 + room)}).message()
    assert len(header) == 1 << 20
    client.stream(struct.pack(">I", len(header)) + header)
    client.completes(1)


HEADERS: dict[str, tuple[dict[str, Any], Code]] = {
    "a checksum of 31 bytes": ({"checksum": bytes(31)}, Code.ENTITY_INVALID),
    "a checksum of 33 bytes": ({"checksum": bytes(33)}, Code.ENTITY_INVALID),
    "an empty checksum": ({"checksum": b""}, Code.ENTITY_INVALID),
    "no checksum": ({"checksum": None}, Code.ENTITY_INVALID),
    "data layer 4": ({"layer": 4}, Code.ENTITY_INVALID),
    "data layer 4294967295": ({"layer": 0xFFFF_FFFF}, Code.ENTITY_INVALID),
    "more bytes than payload_length": ({"payload_length": len(PAYLOAD) - 1}, Code.ENTITY_INVALID),
    "bytes where payload_length is 0": ({"payload_length": 0}, Code.ENTITY_INVALID),
    "a checksum that does not match": ({"checksum": EMPTY_SHA256}, Code.INTEGRITY_ERROR),
}


@pytest.mark.parametrize(("fields", "code"), HEADERS.values(), ids=HEADERS)
def test_only_the_entity_fails(program: Program, connect: Connect, fields: dict[str, Any], code: Code) -> None:
    client = connect()
    client.announce(1)
    client.entity(1, PAYLOAD, **fields)
    only_the_entity_failed(program, client, code)


STOPPED: dict[str, tuple[dict[str, Any], Code]] = {
    "a checksum of 31 bytes": ({"checksum": bytes(31)}, Code.ENTITY_INVALID),
    "data layer 4": ({"layer": 4}, Code.ENTITY_INVALID),
    "more bytes than payload_length": ({"payload_length": len(PAYLOAD) - 1}, Code.ENTITY_INVALID),
    "no chunks": ({"chunk": Chunk(0, 0, 0)}, Code.ENTITY_INVALID),
}


@pytest.mark.parametrize(("fields", "code"), STOPPED.values(), ids=STOPPED)
def test_a_failed_entitys_stream_is_stopped_with_the_code(connect: Connect, fields: dict[str, Any], code: Code) -> None:
    client = connect()
    client.announce(1)
    stream = client.entity(1, PAYLOAD, end=False, **fields)
    client.fails(1, code)
    client.wait(lambda: stream in client.stopped, "STOP_SENDING")
    assert Code(client.stopped[stream]) is code


def test_fewer_bytes_than_payload_length_fail_the_entity(program: Program, connect: Connect) -> None:
    client = connect()
    client.announce(1)
    client.entity(1, PAYLOAD[:-1], **WHOLE)
    only_the_entity_failed(program, client, Code.ENTITY_INVALID)


@pytest.mark.parametrize("program", [["--max-payload", "1048576"]], indirect=True)
def test_a_payload_above_the_limit_is_too_large(program: Program, connect: Connect) -> None:
    client = connect()
    client.announce(1)
    stream = client.entity(1, b"", end=False, payload_length=(1 << 20) + 1)
    client.wait(lambda: stream in client.stopped, "STOP_SENDING")
    assert Code(client.stopped[stream]) is Code.ENTITY_TOO_LARGE
    only_the_entity_failed(program, client, Code.ENTITY_TOO_LARGE)


@pytest.mark.parametrize("program", [["--max-payload", "1048576"]], indirect=True)
def test_a_payload_at_the_limit_is_taken(connect: Connect) -> None:
    client = connect()
    client.deliver(1, bytes(1 << 20))
    client.completes(1)


@pytest.mark.parametrize("length", [1 << 40, (1 << 64) - 1], ids=["a tebibyte", "2^64-1"])
def test_no_memory_is_taken_for_a_length_that_is_only_said(program: Program, connect: Connect, length: int) -> None:
    client = connect()
    client.announce(1)
    client.entity(1, PAYLOAD, payload_length=length)
    only_the_entity_failed(program, client, client_code(client))


def client_code(client: Client) -> Code:
    """Too large, or too short, as the server's own limit has it."""
    error = client.expect(Error, lambda frame: frame.entity == 1)
    assert error.code in (Code.ENTITY_TOO_LARGE, Code.ENTITY_INVALID)
    return Code(error.code)


def send_chunks(client: Client, pieces: Pieces, **fields: Any) -> None:
    client.announce(1)
    for chunk, data in pieces:
        client.entity(1, data, chunk=chunk, **(WHOLE | fields))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)], ids=str)
def test_chunks_come_in_any_order(program: Program, connect: Connect, order: tuple[int, ...]) -> None:
    client = connect()
    pieces = [(Chunk(3, 0, 0), PAYLOAD[:4]), (Chunk(3, 1, 4), PAYLOAD[4:5]), (Chunk(3, 2, 5), PAYLOAD[5:])]
    send_chunks(client, [pieces[index] for index in order])
    client.completes(1)
    assert program.file(client, 1).read_bytes() == PAYLOAD


def test_one_chunk_of_one_is_the_whole(program: Program, connect: Connect) -> None:
    client = connect()
    send_chunks(client, [(Chunk(1, 0, 0), PAYLOAD)])
    client.completes(1)
    assert program.file(client, 1).read_bytes() == PAYLOAD


def test_an_entity_waits_for_its_last_chunk(connect: Connect) -> None:
    client = connect()
    send_chunks(client, [(Chunk(2, 1, 4), PAYLOAD[4:])])
    client.settled()
    assert not [frame for frame in client.frames if isinstance(frame, Status)]
    client.entity(1, PAYLOAD[:4], chunk=Chunk(2, 0, 0), **WHOLE)
    client.completes(1)


BAD_CHUNKS: dict[str, Pieces] = {
    "total_chunks is 0": [(Chunk(0, 0, 0), PAYLOAD)],
    "an index at the total": [(Chunk(2, 2, 0), PAYLOAD)],
    "an index above the total": [(Chunk(2, 4_000_000_000, 0), PAYLOAD)],
    "an index twice": [(Chunk(2, 0, 0), PAYLOAD[:4]), (Chunk(2, 0, 0), PAYLOAD[:4])],
    "a gap": [(Chunk(2, 0, 0), PAYLOAD[:4]), (Chunk(2, 1, 5), PAYLOAD[5:])],
    "a gap at the beginning": [(Chunk(1, 0, 1), PAYLOAD[1:])],
    "a gap at the end": [(Chunk(2, 0, 0), PAYLOAD[:4]), (Chunk(2, 1, 4), PAYLOAD[4:9])],
    "an overlap": [(Chunk(2, 0, 0), PAYLOAD[:6]), (Chunk(2, 1, 5), PAYLOAD[5:])],
    "more bytes than payload_length": [(Chunk(2, 0, 0), PAYLOAD), (Chunk(2, 1, 10), b"more")],
    "an offset beyond the payload": [(Chunk(2, 0, 11), b"x")],
    "an offset that overflows": [(Chunk(2, 1, (1 << 64) - 1), PAYLOAD)],
    "totals that disagree": [(Chunk(2, 0, 0), PAYLOAD[:4]), (Chunk(3, 1, 4), PAYLOAD[4:6])],
}


@pytest.mark.parametrize("pieces", BAD_CHUNKS.values(), ids=BAD_CHUNKS)
def test_bad_chunks_fail_the_entity(program: Program, connect: Connect, pieces: Pieces) -> None:
    client = connect()
    send_chunks(client, pieces)
    only_the_entity_failed(program, client, Code.ENTITY_INVALID)


DISAGREE: dict[str, dict[str, Any]] = {
    "payload_length": {"payload_length": 11},
    "checksum": {"checksum": EMPTY_SHA256},
    "layer": {"layer": 1},
    "content_type": {"content_type": "text/plain"},
    "metadata": {"metadata": {"a": "b"}},
}


@pytest.mark.parametrize("fields", DISAGREE.values(), ids=DISAGREE)
def test_chunks_whose_headers_disagree_fail_the_entity(
    program: Program, connect: Connect, fields: dict[str, Any]
) -> None:
    client = connect()
    send_chunks(client, [(Chunk(2, 0, 0), PAYLOAD[:4])])
    client.settled()
    client.entity(1, PAYLOAD[4:], chunk=Chunk(2, 1, 4), **(WHOLE | fields))
    only_the_entity_failed(program, client, Code.ENTITY_INVALID)


def test_chunks_that_are_whole_and_wrong_fail_the_entity(program: Program, connect: Connect) -> None:
    client = connect()
    pieces = [(Chunk(2, 0, 0), PAYLOAD[:4]), (Chunk(2, 1, 4), PAYLOAD[4:])]
    send_chunks(client, pieces, checksum=EMPTY_SHA256)
    only_the_entity_failed(program, client, Code.INTEGRITY_ERROR)


def test_many_empty_chunks_are_bounded(program: Program, connect: Connect) -> None:
    client = connect()
    client.announce(1)
    # More chunks than bytes: nothing may be kept for each of them.
    client.entity(1, b"x", chunk=Chunk(0xFFFF_FFFF, 0, 0), **WHOLE)
    only_the_entity_failed(program, client, Code.ENTITY_INVALID)


def test_a_failed_entity_has_one_terminal_status(connect: Connect) -> None:
    client = connect()
    client.announce(1)
    client.entity(1, PAYLOAD, checksum=EMPTY_SHA256)
    client.fails(1, Code.INTEGRITY_ERROR)
    # The owner gives it up as well; that is late and changes nothing.
    client.status(Stat.FAILED, 1)
    client.settled()
    mine = [frame for frame in client.frames if isinstance(frame, Status) and frame.entity == 1]
    assert [frame.stat for frame in mine] == [Stat.FAILED]
