"""Decision 12: children at layer 0 stay in the scope of their parent, and a CHECKPOINT closes them."""

from typing import Any

import pytest

from .client import Client
from .entity import EMPTY_SHA256
from .fixtures import Connect, Program
from .wire import Capabilities, Checkpoint, Code, Error, Stat, Status

# Either end may be the one that has layer 0 only.
pytestmark = pytest.mark.parametrize(
    ("program", "offer"),
    [
        pytest.param([], Capabilities(layer1=False), id="the client's layer 0"),
        pytest.param(["--layers", "0"], Capabilities(), id="the server's layer 0"),
    ],
    indirect=["program"],
)


def family(client: Client, **bad: Any) -> None:
    """Parent 1 with the children 2 and 3."""
    client.dehydrate(1, None)
    client.deliver(2, b"two", parent=1)
    client.deliver(3, b"three", parent=1, **bad)


def test_a_checkpoint_completes_the_parents_before_it_is_answered(
    program: Program, connect: Connect, offer: Capabilities
) -> None:
    client = connect(offer)
    family(client)
    client.completes(2, 3)
    client.settled()
    before = [frame for frame in client.frames if isinstance(frame, Status) and frame.entity == 1]
    client.send(Checkpoint("the family", 9))
    answer = client.expect(Checkpoint, lambda frame: frame.checkpoint_id == "the family")
    assert answer.flags == 1
    assert client.terminal(1) == Status(Stat.COMPLETE, 1, cursor=4)
    assert client.frames.index(client.terminal(1)) < client.frames.index(answer)
    # `settled` sends a checkpoint of its own, so the parent may have been completed by that one already.
    assert len(before) <= 1
    assert program.file(client, 2).read_bytes() == b"two"
    assert [line["parent"] for line in program.entities(client) if line["entity"] != 1] == [1, 1]


def test_a_parent_is_not_completed_before_a_checkpoint(connect: Connect, offer: Capabilities) -> None:
    client = connect(offer)
    family(client)
    client.completes(2, 3)
    client.nothing_happens(0.2)


def test_a_child_that_is_not_complete_fails_its_parent(connect: Connect, offer: Capabilities) -> None:
    client = connect(offer)
    family(client, checksum=EMPTY_SHA256)
    client.send(Checkpoint("the family"))
    assert client.expect(Checkpoint).flags == 1
    client.fails(3, Code.INTEGRITY_ERROR)
    assert client.terminal(1).stat == Stat.FAILED


def test_a_parents_failure_does_not_wait(connect: Connect, offer: Capabilities) -> None:
    client = connect(offer)
    client.dehydrate(1, None, b"its own", checksum=EMPTY_SHA256)
    assert client.terminal(1) == Status(Stat.FAILED, 1, cursor=2)
    assert Code(client.expect(Error).code) is Code.INTEGRITY_ERROR
    # Its children are still accepted.
    client.deliver(2, b"two", parent=1)
    client.completes(2)


def test_dehydrating_an_entity_with_a_parent_is_unsupported(connect: Connect, offer: Capabilities) -> None:
    client = connect(offer)
    client.dehydrate(1, None)
    client.dehydrate(2, None, parent=1)
    client.closes(Code.LAYER_UNSUPPORTED)


def test_more_than_1000_children_of_a_small_original_fail_the_parent(connect: Connect, offer: Capabilities) -> None:
    client = connect(offer)
    client.dehydrate(1, None)
    client.announce(*range(2, 1003))
    for entity in range(2, 1003):
        client.entity(entity, parent=1)
    error = client.expect(Error, timeout=60)
    assert (Code(error.code), error.entity) == (Code.ENTITY_INVALID, 1)
    assert client.terminal(1).stat == Stat.FAILED


def test_a_checkpoint_waits_for_children_that_are_still_coming(connect: Connect, offer: Capabilities) -> None:
    client = connect(offer)
    client.dehydrate(1, None)
    client.announce(2)
    client.send(Checkpoint("the family"))
    client.nothing_happens(0.2)
    client.entity(2, b"two", parent=1)
    assert client.expect(Checkpoint).flags == 1
    client.completes(1, 2)
