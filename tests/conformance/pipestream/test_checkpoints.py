"""Decision 13: what a CHECKPOINT covers, and how it is answered."""

import time

import pytest

from .client import Client
from .entity import EMPTY_SHA256
from .fixtures import Connect
from .wire import Checkpoint, Code, Stat, Status

SATISFIED, TIMED_OUT = 1, 2


def answer(client: Client, name: str) -> Checkpoint:
    return client.expect(Checkpoint, lambda frame: frame.checkpoint_id == name)


def unanswered(client: Client, name: str) -> bool:
    client.settled()
    return not any(isinstance(frame, Checkpoint) and frame.checkpoint_id == name for frame in client.frames)


def test_the_answer_is_the_same_message_with_bit_0(connect: Connect) -> None:
    client = connect()
    client.deliver(1, b"x")
    client.completes(1)
    asked = Checkpoint("größer", (1 << 64) - 1, 1, 0, 0, 5000)
    client.send(asked)
    assert client.expect(Checkpoint) == Checkpoint("größer", (1 << 64) - 1, 1, 0, SATISFIED, 5000)


def test_nothing_at_all_is_satisfied(connect: Connect) -> None:
    client = connect()
    client.send(Checkpoint("empty"))
    assert answer(client, "empty").flags == SATISFIED


def test_n_covers_n_and_nothing_after_it(connect: Connect) -> None:
    client = connect()
    client.announce(1, 2, 3)
    client.entity(1, b"x")
    client.completes(1)
    client.send(Checkpoint("one", 1, 1), Checkpoint("two", 2, 2))
    assert answer(client, "one").flags == SATISFIED
    assert unanswered(client, "two")
    client.entity(2, b"x")
    assert answer(client, "two").flags == SATISFIED


@pytest.mark.parametrize("entity", [0, 3, 4, 1_000_000], ids=["0", "the next", "beyond the next", "far beyond it"])
def test_0_or_an_id_beyond_the_next_means_all_assigned_so_far(connect: Connect, entity: int) -> None:
    client = connect()
    client.announce(1, 2)
    client.send(Checkpoint("all", 1, entity))
    client.announce(3)
    client.entity(1, b"x")
    client.completes(1)
    assert unanswered(client, "all")
    client.entity(2, b"x")
    # Entity 3 was assigned after it.
    assert answer(client, "all").flags == SATISFIED


def test_failed_entities_are_terminal_as_well(connect: Connect) -> None:
    client = connect()
    client.deliver(1, b"x", checksum=EMPTY_SHA256)
    client.announce(2)
    client.status(Stat.FAILED, 2)
    client.send(Checkpoint("all"))
    assert answer(client, "all").flags == SATISFIED


def test_a_checkpoint_that_timed_out_says_bit_1_and_the_session_goes_on(connect: Connect) -> None:
    client = connect()
    client.announce(1)
    asked = time.monotonic()
    client.send(Checkpoint("late", timeout_ms=300))
    assert answer(client, "late").flags == TIMED_OUT
    assert 0.25 < time.monotonic() - asked < 5
    client.entity(1, b"x")
    client.completes(1)
    client.send(Checkpoint("in time", timeout_ms=300))
    assert answer(client, "in time").flags == SATISFIED


def test_manifest_entries_of_the_scope_must_be_resolved(connect: Connect) -> None:
    client = connect()
    client.dehydrate(1, 2)
    client.announce(1, scope=2, depth=1)
    client.send(Checkpoint("the tree"))
    client.entity(1, b"x", scope=2, parent=1)
    client.completes(1, scope=2)
    assert unanswered(client, "the tree")
    client.barrier(2, 1)
    found = answer(client, "the tree")
    assert found.flags == SATISFIED
    assert client.frames.index(client.terminal(1)) < client.frames.index(found)


def test_checkpoints_are_answered_as_they_are_satisfied(connect: Connect) -> None:
    client = connect()
    client.announce(1, 2)
    client.send(Checkpoint("both", 1, 2), Checkpoint("the first", 2, 1))
    client.entity(1, b"x")
    assert answer(client, "the first").flags == SATISFIED
    assert unanswered(client, "both")
    client.entity(2, b"x")
    assert answer(client, "both").flags == SATISFIED


@pytest.mark.parametrize("scope", [65_536, 0xFFFF_FFFF, 3], ids=str)
def test_a_scope_that_is_not_there_closes_with_scope_invalid(connect: Connect, scope: int) -> None:
    client = connect()
    client.send(Checkpoint("nowhere", scope=scope))
    client.closes(Code.SCOPE_INVALID)


def test_a_thousand_checkpoints_are_answered(connect: Connect) -> None:
    client = connect()
    client.send(*(Checkpoint(f"number {number}", number) for number in range(1000)))
    client.wait(lambda: len([f for f in client.frames if isinstance(f, Checkpoint)]) == 1000, "a thousand answers")
    assert all(frame.flags == SATISFIED for frame in client.frames if isinstance(frame, Checkpoint))
    client.deliver(1, b"x")
    assert client.terminal(1) == Status(Stat.COMPLETE, 1, cursor=2)
