"""A client under test against a good server of the test's: what it says, in which order, and how it ends."""

import io
import json
import zipfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from .entity import Header
from .fixtures import Sender
from .peer import TIMEOUT
from .receiver import Receiver
from .wire import Barrier, Capabilities, Checkpoint, Code, Error, Stat, Status

TREE: dict[str, Any] = {
    "a.txt": b"first",
    "inner.zip": {"b.txt": b"second", "deep.zip": {"c.txt": b"third"}},
    "d.txt": b"4",
}


def archive(members: Mapping[str, Any]) -> bytes:
    """A zip; a mapping inside is a zip inside."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name, value in members.items():
            file.writestr(name, value if isinstance(value, bytes) else archive(value))
    return out.getvalue()


def closed(receiver: Receiver) -> int:
    """The code with which the client closes the connection; its process may have answered before the packet is here."""
    assert receiver.reactor.run(receiver.has_ended, TIMEOUT), receiver.story()
    ended = receiver.closed_by_peer
    assert ended is not None
    assert ended.frame_type is None, ended
    return ended.error_code


def statuses(receiver: Receiver, stat: Stat) -> list[Status]:
    return [frame for frame in receiver.frames if isinstance(frame, Status) and frame.stat == stat]


def check_conduct(receiver: Receiver) -> None:
    """What any client must have done, whatever it sent (decisions 1, 6, 7, 9, 10, 11)."""
    frames = receiver.frames
    assert isinstance(frames[0], Capabilities)
    announced = [(frame.scope, frame.entity) for frame in statuses(receiver, Stat.PENDING)]
    for scope in {scope for scope, _ in announced}:
        assert scope % 2 == 0
        ids = [entity for other, entity in announced if other == scope]
        assert ids == list(range(1, len(ids) + 1))
    for frame in statuses(receiver, Stat.DEHYDRATING):
        pending = frames[frames.index(frame) - 1]
        assert pending == Status(Stat.PENDING, frame.entity, frame.scope, frame.depth)
    for (scope, entity), (header, payload) in receiver.entities.items():
        assert (scope, entity) in announced
        check_header(receiver, header, payload)
    for position, barrier in enumerate(frames):
        if isinstance(barrier, Barrier):
            assert not barrier.released
            later = [other for other in frames[position:] if isinstance(other, Status) and other.stat == Stat.PENDING]
            assert barrier.barrier not in {other.scope for other in later}
            if barrier.barrier:
                assert receiver.scopes[barrier.barrier].parent is not None


def check_header(receiver: Receiver, header: Header, payload: bytes) -> None:
    assert (header.payload_length, header.checksum) == (len(payload), sha256(payload).digest())
    assert header.layer <= 3
    assert "penstock.document" in header.metadata
    assert isinstance(json.loads(header.metadata["penstock.path"]), list)
    dehydrated = (header.scope, header.entity) in receiver.dehydrating
    assert (header.metadata.get("pipestream.dehydrated") == "1") == dehydrated
    depth = {frame.depth for frame in statuses(receiver, Stat.PENDING) if frame.scope == header.scope}
    if header.scope == 0:
        assert depth == {0}
        return
    parent = receiver.scopes[header.scope].parent
    assert parent is not None
    assert header.parent == parent[1]
    assert depth == {receiver.scopes[parent[0]].depth + 1}
    if parent[0] != 0:
        assert header.metadata["pipestream.parent-scope"] == str(parent[0])


def test_a_file_is_sent_whole_and_the_connection_closed_with_no_error(sender: Sender) -> None:
    receiver = sender.receiver()
    process = sender.send(receiver, sender.file("plain.bin", bytes(range(256)) * 5000), "--no-dehydrate")
    receiver.accepts()
    process.exits(0)
    assert closed(receiver) == Code.NO_ERROR
    ((header, payload),) = receiver.entities.values()
    assert payload == bytes(range(256)) * 5000
    assert (header.metadata["penstock.document"], header.metadata["penstock.path"]) == ("plain.bin", "[]")
    check_conduct(receiver)


def test_the_client_speaks_first_and_announces_before_it_streams(sender: Sender) -> None:
    receiver = sender.receiver(capabilities=None)
    sender.send(receiver, "--no-dehydrate", sender.file())
    receiver.accepts()
    assert isinstance(receiver.frames[0], Capabilities)
    assert receiver.alpn == "pipestream/1"
    receiver.nothing_happens(0.3)
    assert not receiver.streams, "an entity stream before the agreement"


def test_a_tree_is_sent_with_scopes_and_barriers_and_its_digests_agree(sender: Sender) -> None:
    receiver = sender.receiver()
    path = sender.file("tree.zip", archive(TREE))
    process = sender.send(receiver, path, "--receipts", sender.folder / "receipts")
    receiver.accepts()
    process.exits(0)
    assert closed(receiver) == Code.NO_ERROR
    check_conduct(receiver)
    assert len(receiver.scopes) == 4
    assert all(scope.released for number, scope in receiver.scopes.items() if number)
    payloads = {
        payload for header, payload in receiver.entities.values() if "pipestream.dehydrated" not in header.metadata
    }
    assert payloads == {b"first", b"second", b"third", b"4"}
    (receipt,) = (sender.folder / "receipts").iterdir()
    check_receipt(receipt, receiver, path)


def check_receipt(path: Path, receiver: Receiver, document: Path) -> None:
    """The receipt says the digests that this server computed, and the session ID that both ends derived."""
    receipt = json.loads(path.read_text("utf-8"))
    data = document.read_bytes()
    assert (receipt["version"], receipt["document"], receipt["status"]) == (1, document.name, "COMPLETE")
    assert (receipt["sha256"], receipt["bytes"]) == (sha256(data).hexdigest(), len(data))
    assert receipt["session"] == receiver.session_id
    key = sha256(document.name.encode() + b"\0" + receipt["sha256"].encode()).hexdigest()[:32]
    assert path.name == f"{key}.json"
    roots = {scope["scope"]: scope["merkle_root"] for scope in receipt["scopes"]}
    assert roots == {number: scope.digest(number).root.hex() for number, scope in receiver.scopes.items() if number}
    paths = [part["path"] for part in receipt["parts"]]
    deep = ["inner.zip", "deep.zip"]
    assert paths == [["a.txt"], ["inner.zip"], ["inner.zip", "b.txt"], deep, [*deep, "c.txt"], ["d.txt"]]


def test_at_layer_0_children_stay_in_scope_0_and_a_checkpoint_closes_them(sender: Sender) -> None:
    receiver = sender.receiver(capabilities=Capabilities(layer1=False))
    process = sender.send(receiver, sender.file("tree.zip", archive(TREE)))
    receiver.accepts()
    process.exits(0)
    assert closed(receiver) == Code.NO_ERROR
    check_conduct(receiver)
    assert set(receiver.scopes) == {0}
    assert len(receiver.dehydrating) == 1, "single-level: inner containers are kept whole"
    assert [header.parent for header, _ in receiver.entities.values()] == [0, 1, 1, 1]
    checkpoint = receiver.expect(Checkpoint)
    assert receiver.frames.index(checkpoint) > receiver.frames.index(Status(Stat.PENDING, 4))


def test_a_window_of_2_is_never_exceeded(sender: Sender) -> None:
    unresolved: list[int] = []
    waiting: list[Header] = []

    def on_entity(receiver: Receiver, header: Header, _: bytes) -> bool:
        # The terminal statuses come late, one for every two entities and the last ones first.
        scope = receiver.scopes[0]
        unresolved.append(len(scope.announced) - len(scope.statuses))
        waiting.append(header)
        if len(waiting) == 2 or header.entity == 7:
            for late in reversed(waiting):
                receiver.resolve(0, late.entity, Stat.COMPLETE)
            waiting.clear()
        return True

    receiver = sender.receiver(capabilities=Capabilities(max_window_size=2), on_entity=on_entity)
    files = [sender.file(f"{number}.bin", bytes([number]) * 10) for number in range(7)]
    process = sender.send(receiver, "--no-dehydrate", *files)
    receiver.accepts()
    process.exits(0)
    # Nothing is resolved before two wait, so two were in flight; and never more.
    assert max(unresolved) <= 2
    check_conduct(receiver)


def test_an_entity_that_the_server_fails_makes_exit_1_and_the_reason_is_told(sender: Sender) -> None:
    def on_entity(receiver: Receiver, header: Header, _: bytes) -> bool:
        if header.entity == 2:
            receiver.send(Error(Code.ENTITY_INVALID, 0, 2, "the test does not like it"))
            receiver.resolve(0, 2, Stat.FAILED)
            return True
        return False

    receiver = sender.receiver(on_entity=on_entity)
    files = [sender.file(f"{number}.bin", bytes([number]) * 10) for number in range(3)]
    process = sender.send(receiver, "--no-dehydrate", *files)
    receiver.accepts()
    process.exits(1)
    assert closed(receiver) == Code.NO_ERROR
    assert len(receiver.entities) == 3, "the others are sent all the same"
    assert "the test does not like it" in process.stderr + process.output[0].read_text("utf-8")


def test_a_child_that_the_server_fails_makes_exit_1(sender: Sender) -> None:
    def on_entity(receiver: Receiver, header: Header, payload: bytes) -> bool:
        if payload == b"third":
            receiver.resolve(header.scope, header.entity, Stat.FAILED)
            return True
        return False

    receiver = sender.receiver(on_entity=on_entity)
    process = sender.send(receiver, sender.file("tree.zip", archive(TREE)))
    receiver.accepts()
    process.exits(1)
    assert closed(receiver) == Code.NO_ERROR
    check_conduct(receiver)


def test_a_stream_that_the_server_stops_fails_its_entity_only(sender: Sender) -> None:
    def on_stream_begun(receiver: Receiver) -> None:
        for stream_id, stream in receiver.streams.items():
            if stream.header and stream.header.entity == 1 and not stream.ended:
                receiver.stop(stream_id, Code.ENTITY_INVALID)

    receiver = sender.receiver()
    # More than the server's windows take at once, so that the stream is still open.
    files = [sender.file("large.bin", bytes(24 << 20)), sender.file("small.bin")]
    process = sender.send(receiver, "--no-dehydrate", *files)
    receiver.accepts()
    receiver.wait(lambda: any(stream.header for stream in receiver.streams.values()), "a stream")
    on_stream_begun(receiver)
    process.exits(1)
    assert closed(receiver) == Code.NO_ERROR
    assert [frame.entity for frame in statuses(receiver, Stat.FAILED)] == [1], "an owner says FAILED when it gives up"
    (reset,) = (stream.reset for stream in receiver.streams.values() if stream.header and stream.header.entity == 1)
    assert reset == Code.ENTITY_INVALID, "RESET_STREAM with the code of STOP_SENDING"
    assert any(header.metadata["penstock.document"] == "small.bin" for header, _ in receiver.entities.values())


def test_private_frames_heartbeats_and_late_statuses_change_nothing(sender: Sender) -> None:
    def on_entity(receiver: Receiver, header: Header, _: bytes) -> bool:
        receiver.send(Status(Stat.UNSPECIFIED, 0xFFFF_FFFF), bytes.fromhex("c6000000025000"))
        receiver.send(Status(Stat.CHECKPOINT, 1), Status(Stat.PROCESSING, header.entity))
        receiver.resolve(0, header.entity, Stat.COMPLETE)
        # A terminal status for a resolved entity is ignored.
        receiver.send(Status(Stat.FAILED, header.entity), Status(Stat.PROCESSING, header.entity))
        return True

    receiver = sender.receiver(on_entity=on_entity)
    process = sender.send(receiver, "--no-dehydrate", sender.file())
    receiver.accepts()
    process.exits(0)
    assert closed(receiver) == Code.NO_ERROR


def result(receiver: Receiver, payload: bytes = b"a result", **fields: Any) -> None:
    """An entity of the server's in its root scope."""
    receiver.announce(1, scope=1)
    receiver.entity(1, payload, scope=1, **fields)


def test_results_in_scope_1_that_overtake_capabilities_are_taken(sender: Sender) -> None:
    receiver = sender.receiver(capabilities=None)
    process = sender.send(receiver, "--no-dehydrate", sender.file())
    receiver.accepts()
    receiver.entity(1, b"a result that came early", scope=1)
    receiver.reactor.run(lambda: False, 0.1)
    receiver.send(Capabilities(), Status(Stat.PENDING, 1, 1))
    receiver.completes(1, scope=1)
    process.exits(0)
    assert closed(receiver) == Code.NO_ERROR


def test_a_client_that_received_entities_sends_a_checkpoint_before_it_closes(sender: Sender) -> None:
    def on_entity(receiver: Receiver, _: Header, __: bytes) -> bool:
        # Announced before its source is resolved (decision 17).
        result(receiver)
        return False

    receiver = sender.receiver(on_entity=on_entity)
    process = sender.send(receiver, "--no-dehydrate", sender.file())
    receiver.accepts()
    process.exits(0)
    status = receiver.terminal(1, scope=1)
    assert (status.stat, status.cursor) == (Stat.COMPLETE, 2)
    checkpoint = receiver.expect(Checkpoint, lambda frame: frame.flags == 0 and frame.scope == 0)
    assert checkpoint.entity == 0
    assert receiver.frames.index(checkpoint) > receiver.frames.index(status)
    assert closed(receiver) == Code.NO_ERROR


def test_a_result_whose_checksum_is_wrong_fails_and_makes_exit_1(sender: Sender) -> None:
    def on_entity(receiver: Receiver, _: Header, __: bytes) -> bool:
        result(receiver, checksum=bytes(32))
        return False

    receiver = sender.receiver(on_entity=on_entity)
    process = sender.send(receiver, "--no-dehydrate", sender.file())
    receiver.accepts()
    process.exits(1)
    receiver.fails(1, Code.INTEGRITY_ERROR, scope=1)
    assert closed(receiver) == Code.NO_ERROR
