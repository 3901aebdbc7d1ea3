"""A client under test against evil servers: the code it closes with, exit 1, and that it never waits for ever."""

import socket
from collections.abc import Callable
from dataclasses import replace

import pytest

from .entity import Header
from .fixtures import Sender
from .peer import CONTROL
from .receiver import Receiver
from .test_client import TREE, archive, closed
from .wire import Barrier, Capabilities, Code, Digest, Frame, Stat, Status, variable

Evil = Callable[[Receiver], object]


def refused(sender: Sender, receiver: Receiver, code: Code, *, tree: bool = False) -> None:
    """The client closes with this code, and the job has failed, with one line on stderr that says why."""
    arguments = [sender.file("tree.zip", archive(TREE))] if tree else ["--no-dehydrate", sender.file()]
    process = sender.send(receiver, *arguments)
    receiver.reactor.run(lambda: receiver.handshake_done, 60)
    process.exits(1)
    assert (closed(receiver), Code(closed(receiver)).name) == (code, code.name), receiver.quic.ended
    assert process.stderr.strip()
    assert "Traceback" not in process.stderr


def at_capabilities(does: Evil) -> Callable[[Receiver, Frame], bool]:
    """What happens instead of the server's CAPABILITIES."""

    def on_frame(receiver: Receiver, frame: Frame) -> bool:
        if isinstance(frame, Capabilities):
            does(receiver)
            return True
        return False

    return on_frame


def at_the_entity(does: Evil) -> Callable[[Receiver, Header, bytes], bool]:
    """What happens instead of the first entity's COMPLETE."""

    def on_entity(receiver: Receiver, _: Header, __: bytes) -> bool:
        does(receiver)
        return True

    return on_entity


BEGINNINGS: dict[str, tuple[Evil, Code]] = {
    "STATUS before CAPABILITIES": (lambda server: server.status(Stat.COMPLETE, 1), Code.ENTITY_INVALID),
    "a private frame before CAPABILITIES": (lambda server: server.send(variable(0xC6, b"")), Code.ENTITY_INVALID),
    "no layer 0": (lambda server: server.send(Capabilities(layer0=False)), Code.LAYER_UNSUPPORTED),
    "CAPABILITIES twice": (lambda server: server.send(Capabilities(), Capabilities()), Code.ENTITY_INVALID),
    "CAPABILITIES that do not parse": (lambda server: server.send(variable(0x80, b"\x08")), Code.ENTITY_INVALID),
    "stream 0 finished": (lambda server: server.send(b"", end=True), Code.CONTROL_RESET),
    "stream 0 reset": (lambda server: server.reset(CONTROL, 0), Code.CONTROL_RESET),
}


@pytest.mark.parametrize(("does", "code"), BEGINNINGS.values(), ids=BEGINNINGS)
def test_a_bad_beginning_is_refused(sender: Sender, does: Evil, code: Code) -> None:
    refused(sender, sender.receiver(on_frame=at_capabilities(does)), code)


def _bidirectional(server: Receiver) -> None:
    server.quic.send_stream_data(server.quic.get_next_available_stream_id(), b"hello")
    server.flush()


SPEECHES: dict[str, tuple[Evil, Code]] = {
    "an unknown frame": (lambda server: server.send(b"\x00"), Code.ENTITY_INVALID),
    "a reserved Stat": (lambda server: server.send(bytes.fromhex("50d000000000000100000000")), Code.ENTITY_INVALID),
    "a frame of 16777216 bytes": (lambda server: server.send(bytes.fromhex("c701000000")), Code.ENTITY_TOO_LARGE),
    "the end inside a frame": (lambda server: server.send(b"\x50\x30", end=True), Code.ENTITY_INVALID),
    "stream 0 finished": (lambda server: server.send(b"", end=True), Code.CONTROL_RESET),
    "stream 0 reset": (lambda server: server.reset(CONTROL, 0), Code.CONTROL_RESET),
    "another bidirectional stream": (_bidirectional, Code.ENTITY_INVALID),
    "a frame of layer 2": (lambda server: server.send(variable(0xC1, b"")), Code.LAYER_UNSUPPORTED),
    "a status of layer 2": (lambda server: server.status(Stat.SKIPPED, 1, cursor=2), Code.LAYER_UNSUPPORTED),
    "a cursor beyond the next ID": (lambda server: server.status(Stat.COMPLETE, 1, cursor=9), Code.ENTITY_INVALID),
    "a cursor behind the cursor": (
        lambda server: server.status(Stat.COMPLETE, 1, cursor=0xFFFF_FFFC),
        Code.ENTITY_INVALID,
    ),
    "a STATUS of an entity never announced": (lambda server: server.status(Stat.COMPLETE, 7), Code.ENTITY_INVALID),
    "a STATUS of a reserved ID": (lambda server: server.status(Stat.COMPLETE, 0xFFFF_FFFE), Code.ENTITY_INVALID),
    "a STATUS of a scope never opened": (lambda server: server.status(Stat.COMPLETE, 1, scope=4), Code.SCOPE_INVALID),
    "another depth": (lambda server: server.status(Stat.COMPLETE, 1, depth=1), Code.ENTITY_INVALID),
    "PENDING in a scope of the client's": (lambda server: server.announce(2), Code.SCOPE_INVALID),
    "a header in a scope of the client's": (lambda server: server.entity(1), Code.SCOPE_INVALID),
    "PENDING that is not the next": (lambda server: server.announce(2, scope=1), Code.ENTITY_INVALID),
    "COMPLETE for its own entity": (
        lambda server: server.send(Status(Stat.PENDING, 1, 1), Status(Stat.COMPLETE, 1, 1)),
        Code.ENTITY_INVALID,
    ),
    "BARRIER S=0 for the client's scope": (lambda server: server.send(Barrier(False, 0, 0)), Code.SCOPE_INVALID),
    "a header that does not parse": (lambda server: server.stream(b"\x00\x00\x00\x01\xff"), Code.ENTITY_INVALID),
    "a header of 4294967295 bytes": (lambda server: server.stream(b"\xff" * 4), Code.ENTITY_TOO_LARGE),
}


@pytest.mark.parametrize(("does", "code"), SPEECHES.values(), ids=SPEECHES)
def test_what_breaks_a_rule_closes_with_its_code(sender: Sender, does: Evil, code: Code) -> None:
    refused(sender, sender.receiver(on_entity=at_the_entity(does)), code)


DIGESTS: dict[str, Callable[[Digest], Digest]] = {
    "another root": lambda digest: replace(digest, root=bytes(32)),
    "another number of all": lambda digest: replace(digest, processed=digest.processed + 1),
    "another number of successes": lambda digest: replace(digest, succeeded=digest.succeeded - 1),
    "another number of failures": lambda digest: replace(digest, failed=digest.failed + 1),
    "another number of deferred": lambda digest: replace(digest, deferred=digest.deferred + 1),
}


@pytest.mark.parametrize("change", DIGESTS.values(), ids=DIGESTS)
def test_a_digest_that_differs_closes_with_integrity_error(sender: Sender, change: Callable[[Digest], Digest]) -> None:
    receiver = sender.receiver(edit=lambda frame: change(frame) if isinstance(frame, Digest) else frame)
    refused(sender, receiver, Code.INTEGRITY_ERROR, tree=True)


def test_complete_before_the_barrier_closes_with_entity_invalid(sender: Sender) -> None:
    def on_frame(receiver: Receiver, frame: Frame) -> bool:
        if isinstance(frame, Status) and frame.stat == Stat.DEHYDRATING:
            receiver.send(Status(Stat.COMPLETE, frame.entity, frame.scope, frame.depth, 2))
        return False

    refused(sender, sender.receiver(on_frame=on_frame), Code.ENTITY_INVALID, tree=True)


def test_a_barrier_released_without_its_digest_is_not_believed(sender: Sender) -> None:
    def on_frame(receiver: Receiver, frame: Frame) -> bool:
        if isinstance(frame, Barrier):
            receiver.send(Barrier(True, frame.barrier, frame.parent))
            return True
        return False

    receiver = sender.receiver(on_frame=on_frame)
    process = sender.send(receiver, sender.file("tree.zip", archive(TREE)))
    receiver.accepts()
    process.exits(1)
    assert closed(receiver) in (Code.INTEGRITY_ERROR, Code.ENTITY_INVALID)


@pytest.mark.parametrize("code", [0, 1, 5, 0x42], ids=hex)
def test_a_server_that_closes_early_makes_exit_1(sender: Sender, code: int) -> None:
    # NO_ERROR as well: an entity without a terminal status at a close has failed (decision 17).
    receiver = sender.receiver(on_entity=at_the_entity(lambda server: server.close(code, "of the test")))
    process = sender.send(receiver, "--no-dehydrate", sender.file())
    receiver.accepts()
    process.exits(1)
    assert process.stderr.strip()
    assert "Traceback" not in process.stderr


def test_a_server_that_closes_in_the_middle_of_a_payload_makes_exit_1(sender: Sender) -> None:
    receiver = sender.receiver()
    process = sender.send(receiver, "--no-dehydrate", sender.file("large.bin", bytes(24 << 20)))
    receiver.accepts()
    receiver.wait(lambda: any(stream.data for stream in receiver.streams.values()), "a stream")
    receiver.close(Code.INTERNAL_ERROR)
    process.exits(1)


def test_another_certificate_than_the_pinned_one_is_refused(sender: Sender) -> None:
    receiver = sender.receiver()
    process = sender.send(receiver, "--no-dehydrate", sender.file(), fingerprint="00" * 32)
    process.exits(1)
    assert not receiver.frames
    assert not receiver.streams
    assert process.stderr.strip()


def test_a_server_without_the_protocol_is_refused(sender: Sender) -> None:
    receiver = sender.receiver(alpn="h3")
    process = sender.send(receiver, "--no-dehydrate", sender.file())
    process.exits(1)
    assert not receiver.frames


def test_a_client_that_waits_for_a_status_ends_at_ctrl_c(sender: Sender) -> None:
    receiver = sender.receiver(on_entity=at_the_entity(lambda _: None))
    process = sender.send(receiver, "--no-dehydrate", sender.file())
    receiver.accepts()
    receiver.wait(lambda: bool(receiver.entities), "the entity")
    process.interrupt()
    process.exits((1, 130, -2), timeout=15)
    assert closed(receiver) is not None


def test_a_client_that_waits_for_a_barrier_ends_at_ctrl_c(sender: Sender) -> None:
    def on_frame(_: Receiver, frame: Frame) -> bool:
        return isinstance(frame, Barrier)

    receiver = sender.receiver(on_frame=on_frame)
    process = sender.send(receiver, sender.file("tree.zip", archive(TREE)))
    receiver.accepts()
    receiver.expect(Barrier)
    process.interrupt()
    process.exits((1, 130, -2), timeout=15)


def test_servers_that_never_answer_are_given_up_after_a_while(sender: Sender) -> None:
    """Both at once, because each takes its time-out: no QUIC at all, and no CAPABILITIES."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        mute = sender.receiver(capabilities=None)
        to_mute = sender.send(mute, "--no-dehydrate", sender.file())
        mute.address = silent.getsockname()
        to_silent = sender.send(mute, "--no-dehydrate", sender.file())
        to_mute.exits(1, timeout=60)
        to_silent.exits(1, timeout=60)
