"""Decisions 6, 7, 8 and 14: announcements, IDs, windows, cursors, and who may say what of an entity."""

from collections.abc import Callable

import pytest

from .client import Client
from .fixtures import Connect, Program
from .wire import Barrier, Capabilities, Code, Error, Stat, Status

Evil = Callable[[Client], object]


def test_an_announced_entity_is_received_and_completed_with_the_cursor(program: Program, connect: Connect) -> None:
    client = connect()
    metadata = {"penstock.document": "a/ü.txt", "x": ""}
    client.deliver(1, b"some bytes", content_type="text/plain", metadata=metadata, layer=2)
    assert client.terminal(1) == Status(Stat.COMPLETE, 1, cursor=2)
    assert program.file(client, 1).read_bytes() == b"some bytes"
    (line,) = program.entities(client)
    expected = {"scope": 0, "entity": 1, "parent": None, "layer": 2, "content_type": "text/plain", "bytes": 10}
    assert {name: line[name] for name in expected} == expected
    assert (line["metadata"], line["status"], line["reason"]) == (metadata, "COMPLETE", None)
    assert line["file"] == f"{client.session_id}/0/1"


def test_an_entity_without_bytes_is_an_entity(program: Program, connect: Connect) -> None:
    client = connect()
    client.deliver(1)
    client.completes(1)
    assert program.file(client, 1).read_bytes() == b""


def test_a_payload_of_some_mebibytes_arrives_as_it_is(program: Program, connect: Connect) -> None:
    client = connect()
    payload = bytes(range(256)) * (3 << 12)
    client.deliver(1, payload)
    client.completes(1)
    assert program.file(client, 1).read_bytes() == payload


def test_a_stream_that_overtakes_its_pending_waits_for_it(connect: Connect) -> None:
    client = connect()
    client.entity(1, b"early")
    client.nothing_happens(0.2)
    client.announce(1)
    assert client.terminal(1) == Status(Stat.COMPLETE, 1, cursor=2)


def test_the_cursor_moves_to_the_lowest_unresolved_id_only(connect: Connect) -> None:
    client = connect()
    client.announce(1, 2, 3)
    client.entity(3, b"three")
    assert client.terminal(3) == Status(Stat.COMPLETE, 3)
    client.entity(1, b"one")
    assert client.terminal(1) == Status(Stat.COMPLETE, 1, cursor=2)
    client.entity(2, b"two")
    assert client.terminal(2) == Status(Stat.COMPLETE, 2, cursor=4)


def test_processing_and_rehydrating_change_nothing(connect: Connect) -> None:
    client = connect()
    client.announce(1)
    client.send(Status(Stat.PROCESSING, 1), Status(Stat.REHYDRATING, 1), Status(Stat.PROCESSING, 1))
    client.entity(1, b"x")
    client.completes(1)
    client.send(Status(Stat.PROCESSING, 1), Status(Stat.REHYDRATING, 1))
    client.deliver(2, b"y")
    client.completes(2)


def _pending_behind_the_cursor(client: Client) -> None:
    client.deliver(1)
    client.completes(1)
    client.announce(1)


def _second_stream(client: Client) -> None:
    client.announce(1)
    for _ in range(2):
        client.entity(1, b"x", end=False, payload_length=2)


BAD_IDS: dict[str, Evil] = {
    "PENDING that is not the next": lambda client: client.announce(2),
    "PENDING twice": lambda client: client.announce(1, 1),
    "PENDING behind the cursor": _pending_behind_the_cursor,
    "PENDING of 0, NULL_ENTITY": lambda client: client.announce(0),
    "PENDING of 0xFFFFFFFD": lambda client: client.announce(0xFFFF_FFFD),
    "PENDING of 0xFFFFFFFE, SCOPE_MARKER": lambda client: client.announce(0xFFFF_FFFE),
    "PENDING of 0xFFFFFFFF, CONNECTION_LEVEL": lambda client: client.announce(0xFFFF_FFFF),
    "a header of 0, NULL_ENTITY": lambda client: client.entity(0),
    "a header of 0xFFFFFFFD": lambda client: client.entity(0xFFFF_FFFD),
    "a header of 0xFFFFFFFE, SCOPE_MARKER": lambda client: client.entity(0xFFFF_FFFE),
    "a header of 0xFFFFFFFF, CONNECTION_LEVEL": lambda client: client.entity(0xFFFF_FFFF),
    "FAILED for an entity that was never announced": lambda client: client.status(Stat.FAILED, 1),
    "PROCESSING for an entity that was never announced": lambda client: client.status(Stat.PROCESSING, 1),
    "DEHYDRATING for an entity that was never announced": lambda client: client.status(Stat.DEHYDRATING, 1),
    "a second stream without chunk_info": _second_stream,
}


@pytest.mark.parametrize("does", BAD_IDS.values(), ids=BAD_IDS)
def test_a_bad_id_closes_with_entity_invalid(connect: Connect, does: Evil) -> None:
    client = connect()
    does(client)
    client.closes(Code.ENTITY_INVALID)


BAD_SCOPES: dict[str, Evil] = {
    "PENDING in the server's root scope": lambda client: client.announce(1, scope=1),
    "PENDING in another scope of the server's": lambda client: client.announce(1, scope=3, depth=1),
    "a header in the server's root scope": lambda client: client.entity(1, scope=1),
    "a header in another scope of the server's": lambda client: client.entity(1, scope=3, parent=1),
    "a header in scope 65536": lambda client: client.entity(1, scope=65_536),
    "a header in scope 4294967295": lambda client: client.entity(1, scope=0xFFFF_FFFF),
    "BARRIER S=0 for a scope of the server's": lambda client: client.barrier(3, 1),
    "COMPLETE in a scope that the server never opened": lambda client: client.status(Stat.COMPLETE, 1, scope=3),
}


@pytest.mark.parametrize("does", BAD_SCOPES.values(), ids=BAD_SCOPES)
def test_a_scope_that_is_not_the_senders_closes_with_scope_invalid(connect: Connect, does: Evil) -> None:
    client = connect()
    does(client)
    client.closes(Code.SCOPE_INVALID)


FALSE_SPEECH: dict[str, Evil] = {
    "COMPLETE by the owner": lambda client: client.status(Stat.COMPLETE, 1),
    "BARRIER S=1 by the owner": lambda client: client.send(Barrier(True, 0, 0)),
    "a cursor beyond the next ID": lambda client: client.status(Stat.FAILED, 1, cursor=4),
    "a cursor behind the cursor": lambda client: client.status(Stat.FAILED, 1, cursor=0xFFFF_FFFC),
}


@pytest.mark.parametrize("does", FALSE_SPEECH.values(), ids=FALSE_SPEECH)
def test_an_owner_who_speaks_for_the_receiver_closes_with_entity_invalid(connect: Connect, does: Evil) -> None:
    client = connect()
    client.announce(1, 2)
    does(client)
    client.closes(Code.ENTITY_INVALID)


def test_the_owners_failed_is_echoed_with_the_cursor(connect: Connect) -> None:
    client = connect()
    client.announce(1, 2)
    client.status(Stat.FAILED, 1)
    assert client.terminal(1) == Status(Stat.FAILED, 1, cursor=2)
    client.entity(2, b"x")
    client.completes(2)


def test_the_owners_reason_reaches_the_sink(program: Program, connect: Connect) -> None:
    client = connect()
    client.announce(1)
    client.send(Error(Code.INTERNAL_ERROR, 0, 1, "the archive is encrypted"), Status(Stat.FAILED, 1))
    client.terminal(1)
    client.wait(lambda: bool(program.entities(client)), "the line")
    assert "the archive is encrypted" in program.entities(client)[0]["reason"]


def test_a_reset_stream_fails_its_entity_only(connect: Connect) -> None:
    client = connect()
    client.announce(1)
    stream = client.entity(1, b"half", end=False, payload_length=8)
    client.settled()
    client.reset(stream, Code.INTERNAL_ERROR)
    client.status(Stat.FAILED, 1)
    assert client.terminal(1) == Status(Stat.FAILED, 1, cursor=2)
    client.deliver(2, b"x")
    client.completes(2)


def test_a_stream_that_is_reset_inside_its_header_is_no_error(connect: Connect) -> None:
    client = connect()
    client.announce(1)
    stream = client.stream(b"\x00\x00\x00\x40half a header", end=False)
    client.settled()
    client.reset(stream, Code.INTERNAL_ERROR)
    client.status(Stat.FAILED, 1)
    assert client.terminal(1).stat == Stat.FAILED
    client.deliver(2, b"x")
    client.completes(2)


def test_the_first_terminal_status_stands(program: Program, connect: Connect) -> None:
    client = connect()
    client.deliver(1, b"x")
    client.completes(1)
    # It crossed the receiver's on the way.
    client.status(Stat.FAILED, 1)
    client.deliver(2, b"y")
    client.completes(2)
    assert [frame.stat for frame in client.frames if isinstance(frame, Status) and frame.entity == 1] == [Stat.COMPLETE]
    assert program.file(client, 1).exists()


def test_a_late_stream_of_a_resolved_entity_is_stopped_and_dropped(program: Program, connect: Connect) -> None:
    client = connect()
    client.announce(1)
    client.status(Stat.FAILED, 1)
    client.terminal(1)
    stream = client.entity(1, b"late", end=False, payload_length=100)
    client.wait(lambda: stream in client.stopped, "STOP_SENDING")
    client.deliver(2, b"x")
    client.completes(2)
    assert not program.file(client, 1).exists()


@pytest.mark.parametrize("program", [["--window", "4"]], indirect=True)
def test_a_pending_outside_the_window_closes_with_window_exceeded(connect: Connect) -> None:
    client = connect()
    client.announce(1, 2, 3, 4)
    client.settled()
    client.announce(5)
    client.closes(Code.WINDOW_EXCEEDED)


@pytest.mark.parametrize("program", [["--window", "4"]], indirect=True)
def test_the_window_moves_with_the_cursor(connect: Connect) -> None:
    client = connect()
    client.announce(1, 2, 3, 4)
    # Resolved, but not at the cursor: the window stays where it is.
    client.entity(2, b"x")
    client.completes(2)
    client.entity(1, b"x")
    client.completes(1)
    client.announce(5, 6)
    for entity in (3, 4, 5, 6):
        client.entity(entity, b"x")
    client.completes(3, 4, 5, 6)


@pytest.mark.parametrize("program", [["--window", "4"]], indirect=True)
def test_resolved_ids_before_the_cursor_still_fill_the_window(connect: Connect) -> None:
    client = connect()
    client.announce(1, 2, 3, 4)
    client.entity(2, b"x")
    client.completes(2)
    client.announce(5)
    client.closes(Code.WINDOW_EXCEEDED)


def test_the_window_that_the_client_offered_holds(connect: Connect) -> None:
    client = connect(Capabilities(max_window_size=2))
    client.announce(1, 2, 3)
    client.closes(Code.WINDOW_EXCEEDED)


def test_more_entities_than_agreed_in_a_scope_close_with_window_exceeded(connect: Connect) -> None:
    client = connect(Capabilities(max_entities_per_scope=3))
    for entity in (1, 2, 3):
        client.deliver(entity)
        client.completes(entity)
    client.announce(4)
    client.closes(Code.WINDOW_EXCEEDED)
