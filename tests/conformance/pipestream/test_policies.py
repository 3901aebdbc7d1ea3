"""Decision 19 and section 8.3: what policies make of children that fail, and of their parents."""

import struct
from hashlib import sha256
from typing import Any

import pytest

from .fixtures import Join, Program
from .layer2 import Action, Mode, Policy, deferred, yielded
from .protobuf import field, varint
from .waiting import LAYER_2, WaitingClient, digest_of
from .wire import Capabilities, Code, Error, Frame, Stat, Status

BAD: dict[str, Any] = {"checksum": bytes(32)}
# No test waits until it is over: what has to wait for something else has all the time of the test.
LONG = 600_000
SHORT = 50


def family(client: WaitingClient, policy: Policy | None, children: int) -> None:
    """A parent in scope 0 and so many announced children in scope 2."""
    client.parent(policy)
    client.announce(*range(1, children + 1), scope=2, depth=1)


def ends(client: WaitingClient, parent: Stat, *children: Stat) -> None:
    """After the barrier: the digest of these children, S=1, and the parent's status."""
    client.barrier(2, 1)
    assert client.released(2, 1) == digest_of(2, *children)
    assert client.terminal(1) == Status(parent, 1, cursor=2)


OUTCOMES = [
    (Mode.UNSPECIFIED, None, 2, 0, Stat.COMPLETE),
    (Mode.UNSPECIFIED, None, 2, 1, Stat.FAILED),
    (Mode.STRICT, None, 3, 0, Stat.COMPLETE),
    (Mode.STRICT, None, 2, 1, Stat.FAILED),
    (Mode.LENIENT, None, 1, 3, Stat.COMPLETE),
    (Mode.LENIENT, None, 0, 2, Stat.FAILED),
    (Mode.BEST_EFFORT, None, 1, 1, Stat.COMPLETE),
    (Mode.BEST_EFFORT, None, 0, 2, Stat.COMPLETE),
    (Mode.QUORUM, 0.5, 1, 1, Stat.COMPLETE),
    (Mode.QUORUM, 0.5, 1, 2, Stat.FAILED),
    (Mode.QUORUM, 0.6, 6, 4, Stat.COMPLETE),
    (Mode.QUORUM, 0.67, 2, 1, Stat.FAILED),
    (Mode.QUORUM, 0.0, 0, 1, Stat.COMPLETE),
    (Mode.QUORUM, 1.0, 2, 0, Stat.COMPLETE),
    (Mode.QUORUM, 1.0, 2, 1, Stat.FAILED),
]


@pytest.mark.parametrize(
    ("mode", "ratio", "good", "bad", "outcome"), OUTCOMES, ids=lambda value: getattr(value, "name", None)
)
def test_the_mode_says_what_becomes_of_the_parent(
    join: Join, mode: Mode, ratio: float | None, good: int, bad: int, outcome: Stat
) -> None:
    client = join()
    family(client, Policy(mode, ratio=ratio), good + bad)
    for entity in range(1, good + bad + 1):
        client.child(entity, **({} if entity <= good else BAD))
    ends(client, outcome, *[Stat.COMPLETE] * good, *[Stat.FAILED] * bad)


@pytest.mark.parametrize("mode", Mode, ids=lambda mode: mode.name)
def test_no_children_are_success_in_every_mode(join: Join, mode: Mode) -> None:
    client = join()
    family(client, Policy(mode, ratio=1.0 if mode is Mode.QUORUM else None), 0)
    ends(client, Stat.COMPLETE)


def test_without_a_policy_a_parent_is_strict_and_failures_are_final(join: Join) -> None:
    client = join()
    family(client, None, 2)
    client.child(1, **BAD)
    client.child(2)
    client.fails(1, Code.INTEGRITY_ERROR, scope=2)
    ends(client, Stat.FAILED, Stat.FAILED, Stat.COMPLETE)


def test_below_layer_2_a_policy_is_strict(join: Join) -> None:
    client = join(Capabilities(), named=False)
    client.layer_2 = False
    client.name = client.quic.session_id
    policy = Policy(Mode.BEST_EFFORT, on_failure=Action.SKIP)
    family(client, policy, 2)
    client.child(1, **BAD)
    client.child(2)
    client.fails(1, Code.INTEGRITY_ERROR, scope=2)
    ends(client, Stat.FAILED, Stat.FAILED, Stat.COMPLETE)


ACTIONS = [
    (Action.UNSPECIFIED, Stat.FAILED),
    (Action.FAIL, Stat.FAILED),
    (Action.SKIP, Stat.SKIPPED),
    (Action.DEFER, Stat.DEFERRED),
]


@pytest.mark.parametrize("mode", [Mode.STRICT, Mode.LENIENT], ids=lambda mode: mode.name)
@pytest.mark.parametrize(("action", "stat"), ACTIONS, ids=lambda value: value.name)
def test_on_failure_says_what_becomes_of_the_child(join: Join, mode: Mode, action: Action, stat: Stat) -> None:
    client = join()
    family(client, Policy(mode, on_failure=action, on_timeout=Action.SKIP), 3)
    client.child(1)
    client.child(2, **BAD)
    client.child(3)
    assert client.terminal(2, 2).stat == stat
    error = client.expect(Error)
    assert (error.scope, error.entity, Code(error.code)) == (2, 2, Code.INTEGRITY_ERROR)
    ends(client, Stat.COMPLETE if mode is Mode.LENIENT else Stat.FAILED, Stat.COMPLETE, stat, Stat.COMPLETE)


TIMEOUTS = [
    (Action.UNSPECIFIED, Stat.ABANDONED),
    (Action.FAIL, Stat.ABANDONED),
    (Action.SKIP, Stat.SKIPPED),
    (Action.DEFER, Stat.DEFERRED),
]


@pytest.mark.parametrize(("action", "stat"), TIMEOUTS, ids=lambda value: value.name)
def test_on_timeout_says_what_becomes_of_a_child_that_takes_too_long(join: Join, action: Action, stat: Stat) -> None:
    client = join()
    # The other action would be seen, were a time-out taken for a failure.
    other = Action.SKIP if action in (Action.UNSPECIFIED, Action.FAIL) else Action.FAIL
    family(client, Policy(Mode.LENIENT, timeout_ms=SHORT, on_timeout=action, on_failure=other), 1)
    stream = client.child(1, b"half of ", end=False, payload_length=100)
    status = client.terminal(1, 2)
    assert (status.stat, status.cursor) == (stat, 2)
    error = client.expect(Error)
    assert (error.scope, error.entity, Code(error.code)) == (2, 1, Code.IDLE_TIMEOUT)
    client.wait(lambda: stream in client.stopped, "STOP_SENDING")
    ends(client, Stat.FAILED, stat)


def test_a_child_that_is_only_announced_takes_too_long_as_well(join: Join) -> None:
    client = join()
    family(client, Policy(Mode.BEST_EFFORT, timeout_ms=SHORT, on_timeout=Action.SKIP), 1)
    # Its time begins with the frame after its PENDING (or with its header).
    client.barrier(2, 1)
    assert client.terminal(1, 2).stat == Stat.SKIPPED
    assert client.released(2, 1) == digest_of(2, Stat.SKIPPED)
    client.completes(1)


def test_an_explicit_timeout_of_0_is_none(join: Join) -> None:
    client = join()
    family(client, Policy(timeout_ms=0, on_timeout=Action.SKIP), 1)
    stream = client.child(1, b"half", end=False, payload_length=8, checksum=sha256(b"halfhalf").digest())
    client.parent(Policy(timeout_ms=SHORT, on_timeout=Action.SKIP), entity=2, scope=4)
    client.announce(1, scope=4, depth=1)
    client.child(1, b"half", scope=4, parent=2, end=False, payload_length=8)
    # The younger one's time is over, and that of the older one is not.
    assert client.terminal(1, 4).stat == Stat.SKIPPED
    client.settled()
    assert not client.statuses(1, 2)
    client.more(stream, b"half", end=True)
    client.completes(1, scope=2)
    client.barrier(2, 1)
    client.completes(1)


def test_a_policy_governs_children_not_grandchildren(join: Join) -> None:
    client = join()
    client.parent(Policy(Mode.BEST_EFFORT, on_failure=Action.SKIP))
    client.dehydrate(1, 4, scope=2, depth=1, parent=1)
    metadata = {"pipestream.parent-scope": "2"}
    client.announce(1, scope=4, depth=2)
    client.child(1, scope=4, metadata=metadata, **BAD)
    client.fails(1, Code.INTEGRITY_ERROR, scope=4)
    client.barrier(4, 1)
    assert client.released(4, 1) == digest_of(4, Stat.FAILED)
    # The inner parent failed by its own policy, STRICT; what that makes of it is the outer one's.
    assert client.terminal(1, 2).stat == Stat.SKIPPED
    client.barrier(2, 1)
    assert client.released(2, 1) == digest_of(2, Stat.SKIPPED)
    client.completes(1)


# ---- RETRY


def retrying(client: WaitingClient, children: int = 1, **fields: Any) -> None:
    policy = Policy(on_failure=Action.RETRY, retry_delay_ms=0, **{"max_retries": 2, "timeout_ms": LONG} | fields)
    family(client, policy, children)


def again(client: WaitingClient, entity: int = 1, **fields: Any) -> int:
    """RETRYING, and the entity on a new stream under the same ID."""
    client.status(Stat.RETRYING, entity, 2, depth=1)
    return client.child(entity, **fields)


@pytest.mark.parametrize("numbered", [False, True], ids=["not numbered", "numbered"])
def test_a_failure_with_retries_left_is_not_terminal_and_the_entity_comes_again(
    program: Program, join: Join, numbered: bool
) -> None:
    client = join()
    retrying(client, 2)
    attempts = [{"metadata": {"pipestream.attempt": str(number)}} if numbered else {} for number in (1, 2, 3)]
    client.child(1, **BAD, **attempts[0])
    client.fails_for_now(1, Code.INTEGRITY_ERROR)
    client.child(2)
    assert client.terminal(2, 2).cursor is None, "entity 1 is still open"
    again(client, **BAD, **attempts[1])
    client.fails_for_now(1, Code.INTEGRITY_ERROR, times=2)
    again(client, payload=b"at last", **attempts[2])
    assert client.hears(Stat.FAILED, Stat.FAILED, Stat.COMPLETE, entity=1, scope=2).cursor == 3
    assert program.file(client, 1, 2).read_bytes() == b"at last"
    ends(client, Stat.COMPLETE, Stat.COMPLETE, Stat.COMPLETE)


@pytest.mark.parametrize(("said", "retries"), [(None, 3), (0, 0), (1, 1)], ids=["the default of 3", "0", "1"])
def test_the_failure_after_the_last_retry_is_terminal(join: Join, said: int | None, retries: int) -> None:
    client = join()
    retrying(client, max_retries=said)
    client.child(1, **BAD)
    for times in range(1, retries + 1):
        client.fails_for_now(1, Code.INTEGRITY_ERROR, times=times)
        again(client, **BAD)
    assert client.hears(*[Stat.FAILED] * (retries + 1), entity=1, scope=2).cursor == 2
    ends(client, Stat.FAILED, Stat.FAILED)


def test_a_time_out_may_be_tried_again_and_is_abandoned_after_the_last_retry(join: Join) -> None:
    client = join()
    family(client, Policy(Mode.BEST_EFFORT, 1, 0, SHORT, on_timeout=Action.RETRY), 1)
    client.child(1, b"half", end=False, payload_length=8)
    client.fails_for_now(1, Code.IDLE_TIMEOUT)
    again(client, payload=b"half", end=False, payload_length=8)
    assert client.hears(Stat.FAILED, Stat.ABANDONED, entity=1, scope=2).cursor == 2
    ends(client, Stat.COMPLETE, Stat.ABANDONED)


def test_an_owner_that_never_comes_again_is_abandoned(join: Join) -> None:
    client = join()
    family(client, Policy(Mode.BEST_EFFORT, 1, 0, SHORT, on_timeout=Action.FAIL, on_failure=Action.RETRY), 1)
    # So small that it is whole before its time is over, however slow the machine: its header has come with it.
    client.child(1, **BAD)
    client.wait(lambda: bool(client.statuses(1, 2)), "a status")
    assert client.terminal(1, 2).stat in (Stat.FAILED, Stat.ABANDONED)
    client.wait(lambda: client.statuses(1, 2)[-1].stat == Stat.ABANDONED, "ABANDONED")
    ends(client, Stat.COMPLETE, Stat.ABANDONED)


def test_a_stream_that_overtakes_its_retrying_is_held(join: Join) -> None:
    client = join()
    retrying(client)
    client.child(1, **BAD)
    client.fails_for_now(1, Code.INTEGRITY_ERROR)
    client.child(1, b"the second attempt")
    client.settled()
    client.hears(Stat.FAILED, entity=1, scope=2)
    client.status(Stat.RETRYING, 1, 2, depth=1)
    client.hears(Stat.FAILED, Stat.COMPLETE, entity=1, scope=2)
    ends(client, Stat.COMPLETE, Stat.COMPLETE)


@pytest.mark.parametrize("stat", [Stat.ABANDONED, Stat.FAILED, Stat.SKIPPED], ids=lambda stat: stat.name)
def test_an_owner_that_gives_up_is_echoed_with_the_cursor(join: Join, stat: Stat) -> None:
    client = join()
    retrying(client)
    client.child(1, **BAD)
    client.fails_for_now(1, Code.INTEGRITY_ERROR)
    client.status(stat, 1, 2, depth=1)
    assert client.hears(Stat.FAILED, stat, entity=1, scope=2) == Status(stat, 1, 2, 1, 2)
    ends(client, Stat.FAILED, stat)


@pytest.mark.parametrize("stat", [Stat.ABANDONED, Stat.FAILED, Stat.SKIPPED], ids=lambda stat: stat.name)
def test_an_owner_may_give_up_what_it_has_only_announced(join: Join, stat: Stat) -> None:
    client = join()
    client.announce(1)
    client.status(stat, 1)
    assert client.terminal(1) == Status(stat, 1, cursor=2)
    family_of_one = Policy(Mode.BEST_EFFORT)
    client.parent(family_of_one, entity=2)
    client.announce(1, scope=2, depth=1)
    client.status(stat, 1, 2, depth=1)
    client.barrier(2, 2)
    assert client.released(2, 2) == digest_of(2, stat)
    client.completes(2)


def test_a_late_stream_of_what_was_given_up_is_stopped_and_dropped(program: Program, join: Join) -> None:
    client = join()
    client.announce(1)
    client.status(Stat.SKIPPED, 1)
    assert client.terminal(1).stat == Stat.SKIPPED
    stream = client.entity(1, b"late", end=False, payload_length=100)
    client.wait(lambda: stream in client.stopped, "STOP_SENDING")
    client.deliver(2, b"goes on")
    client.completes(2)
    assert not program.file(client, 1).exists()


# ---- peers that break the rules


RATIOS = [None, float("nan"), float("inf"), float("-inf"), -0.1, 1.0000001, 1e30]


@pytest.mark.parametrize("ratio", RATIOS, ids=str)
def test_a_quorum_without_a_ratio_from_0_to_1_fails_its_parent(
    join: Join, friend: WaitingClient, ratio: float | None
) -> None:
    assert friend.quic.ended is None
    client = join()
    family(client, Policy(Mode.QUORUM, ratio=ratio), 1)
    error = client.expect(Error)
    assert (error.scope, error.entity, Code(error.code)) == (0, 1, Code.ENTITY_INVALID)
    client.child(1)
    ends(client, Stat.FAILED, Stat.COMPLETE)
    client.deliver(2, b"goes on")
    client.completes(2)


@pytest.mark.parametrize("mode", [Mode.STRICT, Mode.LENIENT, Mode.BEST_EFFORT], ids=lambda mode: mode.name)
def test_a_ratio_that_is_no_number_means_nothing_in_another_mode(join: Join, mode: Mode) -> None:
    client = join()
    family(client, Policy(mode, ratio=float("nan")), 1)
    client.child(1)
    ends(client, Stat.COMPLETE, Stat.COMPLETE)


NO_POLICIES: dict[str, bytes] = {
    "mode 5": field(1, 5),
    "mode -1": field(1, -1),
    "on_timeout 5": field(6, 5),
    "on_failure 5": field(7, 5),
    "on_failure 255": field(7, 255),
    "a ratio that is a varint": varint(5 << 3) + b"\x01",
    "a ratio of 64 bits": varint(5 << 3 | 1) + struct.pack("<d", 0.5),
    "a mode that is text": field(1, "STRICT"),
    "cut off": field(2, 3)[:1],
}


@pytest.mark.parametrize("policy", NO_POLICIES.values(), ids=NO_POLICIES)
def test_a_header_with_a_policy_that_is_none_closes_with_entity_invalid(
    join: Join, friend: WaitingClient, policy: bytes
) -> None:
    assert friend.quic.ended is None
    client = join()
    client.dehydrate(1, 2, policy=policy)
    client.closes(Code.ENTITY_INVALID)


OWNERS: dict[str, Frame] = {
    "YIELDED": Status(Stat.YIELDED, 1, extension=yielded(1, b"a token")),
    "DEFERRED": Status(Stat.DEFERRED, 1, extension=deferred(1, 1)),
    "RETRYING of what has not failed": Status(Stat.RETRYING, 1),
    "SKIPPED of what was never announced": Status(Stat.SKIPPED, 2),
    "ABANDONED of what was never announced": Status(Stat.ABANDONED, 2),
    "RETRYING of what was never announced": Status(Stat.RETRYING, 2),
    "COMPLETE": Status(Stat.COMPLETE, 1),
}


@pytest.mark.parametrize("frame", OWNERS.values(), ids=OWNERS)
def test_what_an_owner_may_not_say_closes_with_entity_invalid(join: Join, friend: WaitingClient, frame: Frame) -> None:
    assert friend.quic.ended is None
    client = join()
    client.announce(1)
    client.send(frame)
    client.closes(Code.ENTITY_INVALID)


@pytest.mark.parametrize("stat", [Stat.RETRYING, Stat.SKIPPED, Stat.ABANDONED], ids=lambda stat: stat.name)
def test_what_is_said_of_a_scope_never_opened_closes_with_scope_invalid(join: Join, stat: Stat) -> None:
    client = join()
    # Of the other parity: nobody may open it for us.
    client.status(stat, 1, 3, depth=1)
    client.closes(Code.SCOPE_INVALID)


def test_a_third_stream_of_an_attempt_closes_with_entity_invalid(join: Join) -> None:
    client = join()
    retrying(client)
    client.child(1, b"half", end=False, payload_length=8)
    client.child(1, b"another", payload_length=7)
    client.closes(Code.ENTITY_INVALID)


# Attempts begin with 1, and are written as numbers are.
@pytest.mark.parametrize(
    "attempt", ["0", "01", "+1", "3", "9", "two", "-1", ""], ids=lambda attempt: attempt or "empty"
)
def test_an_attempt_that_cannot_come_closes_with_entity_invalid(join: Join, attempt: str) -> None:
    client = join()
    retrying(client)
    stream = client.child(1, end=False, payload_length=100, metadata={"pipestream.attempt": attempt})
    client.wait(lambda: client.has_ended() or stream in client.stopped, "an answer")
    # With NO_ERROR what is late is stopped; with another code the connection is about to close.
    assert client.stopped.get(stream, Code.ENTITY_INVALID) == Code.ENTITY_INVALID
    client.closes(Code.ENTITY_INVALID)


def test_a_stream_of_a_past_attempt_is_stopped_and_dropped(program: Program, join: Join) -> None:
    client = join()
    retrying(client)
    first = {"metadata": {"pipestream.attempt": "1"}}
    client.child(1, **BAD, **first)
    client.fails_for_now(1, Code.INTEGRITY_ERROR)
    client.status(Stat.RETRYING, 1, 2, depth=1)
    late = client.child(1, b"late", end=False, payload_length=100, **first)
    client.wait(lambda: late in client.stopped, "STOP_SENDING")
    client.child(1, b"in time", metadata={"pipestream.attempt": "2"})
    client.hears(Stat.FAILED, Stat.COMPLETE, entity=1, scope=2)
    assert program.file(client, 1, 2).read_bytes() == b"in time"
    ends(client, Stat.COMPLETE, Stat.COMPLETE)


def test_layer_2_negotiates_the_other_numbers_as_ever(join: Join) -> None:
    client = join(Capabilities(layer2=True, max_window_size=2))
    client.announce(1, 2)
    client.status(Stat.SKIPPED, 1)
    assert client.terminal(1).cursor == 2
    # The cursor has moved, so the window has room again.
    client.announce(3)
    client.status(Stat.ABANDONED, 2)
    assert client.terminal(2).cursor == 3
    client.announce(4, 5)
    client.closes(Code.WINDOW_EXCEEDED)
    assert LAYER_2.layer2
