"""The sink's disk is full: entities fail with INTERNAL_ERROR, nothing is half-written, and the connection goes on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..conformance.pipestream.client import Client
from ..conformance.pipestream.entity import Chunk
from ..conformance.pipestream.fixtures import Program
from ..conformance.pipestream.invariants import check_session
from ..conformance.pipestream.programs import Serve
from ..conformance.pipestream.reactor import Reactor
from ..conformance.pipestream.wire import Capabilities, Code, Error, Stat
from .metrics import metric
from .small_disk import SmallDisk, disk

__all__ = ["disk"]

MIB = 1 << 20


@pytest.fixture
def full(disk: SmallDisk, reactor: Reactor, tmp_path: Path) -> Iterator[Program]:
    """A server whose sink is on the small disk; its bystander has sent an entity before the disk is filled."""
    serve = Serve(tmp_path / "serve", "--metrics", "127.0.0.1:0", sink=disk.mount / "sink")
    program = Program(serve, reactor)
    yield program
    program.forget()
    program.bystander.close()
    serve.stop()
    program.bystander.vanish()


def whole(program: Program, client: Client, expected: dict[int, str]) -> None:
    """After the end: a line for each entity, files of the complete ones only."""
    client.close(0)
    program.closed(client, 0)
    check_session(program.serve.sink, client.session_id)
    assert {line["entity"]: line["status"] for line in program.entities(client)} == expected


def test_a_payload_that_does_not_fit_fails_its_entity_with_internal_error(disk: SmallDisk, full: Program) -> None:
    client = full.connect()
    client.deliver(1, b"fits")
    client.completes(1)
    client.deliver(2, bytes(6 * MIB))
    client.fails(2, Code.INTERNAL_ERROR)
    # Its bytes are gone at once, or there would be no room for the next one.
    client.deliver(3, bytes(MIB))
    client.completes(3)
    assert not list((disk.mount / "sink" / client.session_id).glob(".tmp*"))
    assert metric(full.serve, 'penstock_sink_errors_total{kind="no_space"}') == 1
    assert metric(full.serve, 'penstock_sink_errors_total{kind="other"}') == 0
    whole(full, client, {1: "COMPLETE", 2: "FAILED", 3: "COMPLETE"})


def test_a_full_disk_fails_entities_and_the_connection_goes_on_when_there_is_room_again(
    disk: SmallDisk, full: Program
) -> None:
    client = full.connect()
    client.deliver(1, b"before")
    client.completes(1)
    disk.fill()
    client.announce(2, 3, 4)
    for entity in (2, 3, 4):
        client.entity(entity, b"x" * 50_000)
    for entity in (2, 3, 4):
        client.fails(entity, Code.INTERNAL_ERROR)
        assert not full.file(client, entity).exists()
    disk.free()
    client.deliver(5, b"after")
    client.completes(5)
    full.undisturbed()
    expected = {1: "COMPLETE", 2: "FAILED", 3: "FAILED", 4: "FAILED", 5: "COMPLETE"}
    whole(full, client, expected)


def test_a_line_that_does_not_fit_is_no_complete(disk: SmallDisk, full: Program) -> None:
    """There is room for the payload's folder entry at best, and none for the list's line."""
    client = full.connect()
    client.deliver(1, b"before")
    client.completes(1)
    disk.fill()
    client.deliver(2, b"", metadata={"m": "m" * 20_000})
    assert client.terminal(2).stat == Stat.FAILED
    assert Code(client.expect(Error).code) is Code.INTERNAL_ERROR
    disk.free()
    client.deliver(3, b"after")
    client.completes(3)
    whole(full, client, {1: "COMPLETE", 2: "FAILED", 3: "COMPLETE"})


def test_chunks_that_do_not_fit_fail_their_entity(disk: SmallDisk, full: Program) -> None:
    client = full.connect()
    payload = bytes(6 * MIB)
    client.announce(1)
    for index in range(2):
        piece = payload[: 3 * MIB]
        chunk = Chunk(2, index, index * 3 * MIB)
        client.entity(1, piece, chunk=chunk, payload_length=len(payload), checksum=bytes(32))
    client.fails(1, Code.INTERNAL_ERROR)
    client.deliver(2, bytes(MIB))
    client.completes(2)
    assert disk.mount.exists()
    whole(full, client, {1: "FAILED", 2: "COMPLETE"})


def test_a_dehydrated_tree_on_a_full_disk_fails_up_to_its_root(disk: SmallDisk, full: Program) -> None:
    client = full.connect()
    disk.fill()
    client.dehydrate(1, 2)
    client.deliver(1, b"x" * 50_000, scope=2, parent=1, depth=1)
    client.barrier(2, 1)
    client.fails(1, Code.INTERNAL_ERROR, scope=2)
    assert client.released(2, 1).failed == 1
    assert client.terminal(1).stat == Stat.FAILED
    disk.free()
    client.deliver(2, b"after")
    client.completes(2)
    client.close(0)
    full.closed(client, 0)
    check_session(full.serve.sink, client.session_id)


def test_a_session_that_cannot_have_a_folder_is_refused_and_the_next_is_not(disk: SmallDisk, full: Program) -> None:
    disk.take_names()
    # A session gets its folder once both ends have agreed, because at layer 2 it gets its name then.
    client = Client(full.reactor, full.serve.address, capabilities=None).open()
    client.send(Capabilities())
    client.closes(Code.INTERNAL_ERROR)
    client.vanish()
    disk.free_names()
    full.undisturbed()
    other = full.connect()
    other.deliver(1, b"there is room again")
    other.completes(1)
    whole(full, other, {1: "COMPLETE"})


def test_a_file_that_cannot_be_made_fails_its_entity_with_internal_error(disk: SmallDisk, full: Program) -> None:
    client = full.connect()
    disk.take_names()
    client.deliver(1, b"x" * 50_000)
    client.fails(1, Code.INTERNAL_ERROR)
    disk.free_names()
    client.deliver(2, b"there is room again")
    client.completes(2)
    whole(full, client, {1: "FAILED", 2: "COMPLETE"})
