"""Decisions 3, 4 and 5: what comes on stream 0, and what may not."""

import os
from collections.abc import Callable
from hashlib import sha256

import pytest

from .client import Client
from .entity import Header
from .fixtures import Connect, Program
from .peer import CONTROL
from .test_codec import Vector, load
from .wire import CONNECTION_LEVEL, Barrier, Capabilities, Checkpoint, Code, Error, Frame, Stat, Status, variable

LONG = bool(os.environ.get("PENSTOCK_LONG_TESTS"))
LAYER_0 = Capabilities(layer1=False)


def goes_on(client: Client, entity: int = 1) -> None:
    client.deliver(entity, b"still here")
    client.completes(entity)


@pytest.mark.parametrize(
    "vector", [v for v in load("frames-invalid") if not v.get("truncated")], ids=lambda v: v["name"]
)
def test_what_breaks_the_format_closes_with_the_vectors_code(connect: Connect, vector: Vector) -> None:
    client = connect()
    client.send(bytes.fromhex(vector["hex"]))
    client.closes(Code[vector["code"]])


@pytest.mark.parametrize("vector", [v for v in load("frames-invalid") if v.get("truncated")], ids=lambda v: v["name"])
def test_stream_0_that_ends_inside_a_frame_is_invalid(connect: Connect, vector: Vector) -> None:
    client = connect()
    client.send(bytes.fromhex(vector["hex"]), end=True)
    client.closes(Code.ENTITY_INVALID)


def test_stream_0_that_is_finished_closes_with_control_reset(connect: Connect) -> None:
    client = connect()
    client.send(b"", end=True)
    client.closes(Code.CONTROL_RESET)


def test_stream_0_that_is_reset_closes_with_control_reset(connect: Connect) -> None:
    client = connect()
    client.reset(CONTROL, 0)
    client.closes(Code.CONTROL_RESET)


def test_stream_0_that_the_peer_does_not_want_to_hear_closes_with_control_reset(connect: Connect) -> None:
    client = connect()
    client.stop(CONTROL, 0)
    # The server learns it when it wants to say something (section 5.4: unusable).
    client.deliver(1, b"x")
    client.closes(Code.CONTROL_RESET)


def test_another_bidirectional_stream_is_invalid(connect: Connect) -> None:
    client = connect()
    client.quic.send_stream_data(client.quic.get_next_available_stream_id(), b"hello")
    client.flush()
    client.closes(Code.ENTITY_INVALID)


def test_frames_may_be_split_at_every_byte(connect: Connect) -> None:
    client = connect(capabilities=None)
    payload = b"byte by byte"
    frames: list[Frame | bytes] = [
        Capabilities(),
        Status(Stat.PENDING, 1),
        Status(Stat.UNSPECIFIED, CONNECTION_LEVEL),
        Error(5, 0, 9, "nothing that concerns anybody"),
        variable(0xC6, b"\x50\x80private"),
        Status(Stat.PENDING, 2),
        Status(Stat.DEHYDRATING, 2),
        Barrier(False, 2, 2),
        Checkpoint("a checkpoint", 7, 1, 0, 0, 5000),
    ]
    data = b"".join(frame if isinstance(frame, bytes) else frame.encode() for frame in frames)
    client.drip(CONTROL, data)
    client.expect(Capabilities)
    stream = client.entity(1, payload, end=False, payload_length=len(payload))
    client.more(stream, b"", end=True)
    client.entity(2, metadata={"pipestream.dehydrated": "1", "pipestream.child-scope": "2"})
    client.completes(1, 2)
    assert client.expect(Checkpoint).flags == 1


def test_headers_and_payloads_may_be_split_at_every_byte(program: Program, connect: Connect) -> None:
    client = connect()
    client.announce(1)
    payload = bytes(range(100))
    stream = client.stream(b"", end=False)
    client.drip(stream, Header(1, payload_length=100, checksum=sha256(payload).digest()).encode() + payload)
    client.more(stream, b"", end=True)
    client.completes(1)
    assert program.file(client, 1).read_bytes() == payload


def test_private_frames_from_0xc6_are_skipped_by_their_length(connect: Connect) -> None:
    client = connect()
    # What they hold looks like frames that would close the connection.
    client.send(*(variable(frame_type, b"\x00" * (frame_type - 0xC0)) for frame_type in range(0xC6, 0x100)))
    goes_on(client)


def test_a_private_frame_of_many_bytes_is_skipped_without_being_kept(program: Program, connect: Connect) -> None:
    client = connect()
    size = (16 << 20) - 1 if LONG else 3 << 20
    client.send(variable(0xC7, bytes(size)))
    client.send(Checkpoint("after it", timeout_ms=1))
    client.expect(Checkpoint, timeout=90)
    goes_on(client)
    assert program.serve.alive


@pytest.mark.parametrize("frame_type", range(0xC1, 0xC6), ids=hex)
def test_frames_of_layer_2_are_unsupported_without_it(connect: Connect, frame_type: int) -> None:
    client = connect()
    client.send(variable(frame_type, b""))
    client.closes(Code.LAYER_UNSUPPORTED)


@pytest.mark.parametrize(
    "status",
    [
        Status(Stat.YIELDED, 1, extension=b"\x01\x00\x00\x01t"),
        Status(Stat.DEFERRED, 1, extension=bytes(16)),
        Status(Stat.RETRYING, 1),
        Status(Stat.SKIPPED, 1),
        Status(Stat.ABANDONED, 1),
    ],
    ids=lambda status: Stat(status.stat).name,
)
def test_statuses_of_layer_2_are_unsupported_without_it(connect: Connect, status: Status) -> None:
    client = connect()
    client.announce(1)
    client.send(status)
    client.closes(Code.LAYER_UNSUPPORTED)


def _dehydrated_child(client: Client) -> None:
    client.dehydrate(1, None)
    client.dehydrate(2, None, parent=1)


LAYER_1: dict[str, Callable[[Client], object]] = {
    "a depth other than 0": lambda client: client.status(Stat.PENDING, 1, depth=1),
    "a STATUS in a child scope": lambda client: client.status(Stat.PENDING, 1, scope=2),
    "an entity in a child scope": lambda client: client.entity(1, scope=2, parent=1),
    "BARRIER for a child scope": lambda client: client.barrier(2, 1),
    "SCOPE_DIGEST for a child scope": lambda client: client.send(bytes.fromhex("54000002") + bytes(64)),
    "DEHYDRATING of an entity with a parent": _dehydrated_child,
}


@pytest.mark.parametrize("does", LAYER_1.values(), ids=LAYER_1)
def test_what_belongs_to_layer_1_is_unsupported_without_it(connect: Connect, does: Callable[[Client], object]) -> None:
    client = connect(LAYER_0)
    does(client)
    client.closes(Code.LAYER_UNSUPPORTED)


def test_a_status_checkpoint_is_ignored(connect: Connect) -> None:
    client = connect()
    client.status(Stat.CHECKPOINT, 77)
    goes_on(client)


def test_heartbeats_are_ignored(connect: Connect) -> None:
    client = connect()
    client.send(*[Status(Stat.UNSPECIFIED, CONNECTION_LEVEL)] * 100)
    goes_on(client)


def test_flags_and_reserved_bits_are_ignored(connect: Connect) -> None:
    client = connect()
    client.status(Stat.PENDING, 1, flags=0x7FFF, reserved=0xFFFF)
    client.entity(1, b"x")
    client.completes(1)
    client.send(Barrier(False, 0, 0, reserved=0x7F))
    client.released(0, 0)


def test_a_peers_error_frame_changes_nothing(connect: Connect) -> None:
    client = connect()
    client.send(Error(Code.INTERNAL_ERROR, 0, 1, "of an entity that is not there"), Error(0x4000), Error(0, 70_000, 1))
    goes_on(client)


def test_unknown_fields_are_ignored(connect: Connect) -> None:
    client = connect(capabilities=None)
    message = Capabilities().encode()[5:] + bytes.fromhex("9a06026869")
    client.send(variable(0x80, message))
    client.announce(1)
    client.expect(Capabilities)
    header = Header(1).message() + bytes.fromhex("9a06026869")
    client.stream(len(header).to_bytes(4) + header)
    client.completes(1)
