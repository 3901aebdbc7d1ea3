"""Decision 19 where it meets trees, chunks, checkpoints, windows and the ends of connections."""

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest

from .entity import Chunk
from .fixtures import Join, Program
from .layer2 import Action, Mode, Policy, decode_deferred
from .protobuf import field
from .test_policies import BAD, LONG, SHORT, again, ends, family, retrying
from .waiting import Back, WaitingClient, digest_of
from .wire import Barrier, Capabilities, Checkpoint, Code, Error, Stat, Status

ALL = 0xFFFF_FFFF


def grandchild(client: WaitingClient, policy: Policy, inner: Policy | None = None) -> None:
    """Entity 1 of scope 2 is dehydrated into scope 4, whose one child has a wrong checksum."""
    client.parent(policy)
    client.dehydrate(1, 4, scope=2, depth=1, parent=1, policy=None if inner is None else inner.message(), metadata={})
    client.announce(1, scope=4, depth=2)
    client.child(1, scope=4, metadata={"pipestream.parent-scope": "2"}, **BAD)
    client.barrier(4, 1)


INNER = [
    (Action.FAIL, Stat.FAILED),
    (Action.SKIP, Stat.SKIPPED),
    (Action.DEFER, Stat.DEFERRED),
    # What has children cannot come again by itself.
    (Action.RETRY, Stat.FAILED),
]


@pytest.mark.parametrize(("action", "stat"), INNER, ids=lambda value: value.name)
def test_a_parent_that_fails_is_what_the_policy_above_makes_of_it(join: Join, action: Action, stat: Stat) -> None:
    client = join()
    grandchild(client, Policy(Mode.BEST_EFFORT, on_failure=action))
    assert client.released(4, 1) == digest_of(4, Stat.FAILED)
    assert client.terminal(1, 2).stat == stat
    client.barrier(2, 1)
    assert client.released(2, 1) == digest_of(2, stat)
    client.completes(1)


def test_a_content_parent_is_complete_for_the_policy_above(join: Join) -> None:
    client = join()
    grandchild(client, Policy(Mode.STRICT), Policy(Mode.BEST_EFFORT))
    assert client.released(4, 1) == digest_of(4, Stat.FAILED)
    ends(client, Stat.COMPLETE, Stat.COMPLETE)


def test_an_entity_of_the_root_scope_that_fails_has_failed_at_once(join: Join) -> None:
    client = join()
    client.deliver(1, b"x", **BAD)
    client.fails(1, Code.INTEGRITY_ERROR)
    assert client.terminal(1).cursor == 2


def test_a_failure_is_final_when_the_parent_has_failed_already(join: Join) -> None:
    client = join()
    policy = Policy(on_failure=Action.RETRY, retry_delay_ms=0, timeout_ms=LONG)
    client.parent(policy, payload=b"its own", checksum=bytes(32))
    error = client.expect(Error)
    assert (error.scope, error.entity) == (0, 1)
    client.announce(1, scope=2, depth=1)
    client.child(1, **BAD)
    assert client.hears(Stat.FAILED, entity=1, scope=2).cursor == 2
    ends(client, Stat.FAILED, Stat.FAILED)


def test_chunks_may_be_tried_again_as_chunks_or_whole(program: Program, join: Join) -> None:
    payload = b"in two chunks"
    right = sha256(payload).digest()

    def chunks(checksum: bytes) -> None:
        for index, part in enumerate((payload[:5], payload[5:])):
            chunk = Chunk(2, index, 5 * index)
            client.child(1, part, payload_length=len(payload), checksum=checksum, chunk=chunk)

    client = join()
    retrying(client, max_retries=3)
    chunks(bytes(32))
    client.fails_for_now(1, Code.INTEGRITY_ERROR)
    client.status(Stat.RETRYING, 1, 2, depth=1)
    chunks(right[::-1])
    client.fails_for_now(1, Code.INTEGRITY_ERROR, times=2)
    client.status(Stat.RETRYING, 1, 2, depth=1)
    chunks(right)
    client.hears(Stat.FAILED, Stat.FAILED, Stat.COMPLETE, entity=1, scope=2)
    assert program.file(client, 1, 2).read_bytes() == payload
    ends(client, Stat.COMPLETE, Stat.COMPLETE)


def test_chunks_that_never_come_take_too_long(join: Join) -> None:
    client = join()
    family(client, Policy(Mode.BEST_EFFORT, timeout_ms=SHORT, on_timeout=Action.SKIP), 1)
    client.child(1, b"half", payload_length=8, chunk=Chunk(2, 0, 0))
    assert client.terminal(1, 2).stat == Stat.SKIPPED
    ends(client, Stat.COMPLETE, Stat.SKIPPED)


FAILURES: dict[str, tuple[dict[str, Any], Code]] = {
    "a wrong checksum": (BAD, Code.INTEGRITY_ERROR),
    "a checksum of 31 bytes": ({"checksum": bytes(31)}, Code.ENTITY_INVALID),
    "more bytes than it says": ({"payload_length": 1}, Code.ENTITY_INVALID),
    "fewer bytes than it says": ({"payload_length": 1000}, Code.ENTITY_INVALID),
    "data layer 4": ({"layer": 4}, Code.ENTITY_INVALID),
    "chunk 2 of 2": ({"chunk": Chunk(2, 2, 0)}, Code.ENTITY_INVALID),
    "too large": ({"payload_length": 1 << 62}, Code.ENTITY_TOO_LARGE),
}


@pytest.mark.parametrize(("fields", "code"), FAILURES.values(), ids=FAILURES)
@pytest.mark.parametrize("action", [Action.SKIP, Action.DEFER, Action.RETRY], ids=lambda action: action.name)
def test_every_failure_of_an_entity_goes_by_the_policy(
    join: Join, fields: dict[str, Any], code: Code, action: Action
) -> None:
    client = join()
    policy = Policy(Mode.BEST_EFFORT, 1, 0, LONG, on_failure=action)
    family(client, policy, 1)
    client.child(1, **fields)
    error = client.expect(Error)
    assert (error.scope, error.entity, Code(error.code)) == (2, 1, code)
    if action is Action.RETRY:
        client.fails_for_now(1, code)
        again(client)
        ends(client, Stat.COMPLETE, Stat.COMPLETE)
    else:
        ends(client, Stat.COMPLETE, Stat.SKIPPED if action is Action.SKIP else Stat.DEFERRED)


def test_a_stream_that_its_owner_resets_comes_again(join: Join) -> None:
    client = join()
    retrying(client)
    stream = client.child(1, b"half", end=False, payload_length=8)
    client.settled()
    with client.corked():
        client.reset(stream, Code.INTERNAL_ERROR)
        client.status(Stat.FAILED, 1, 2, depth=1)
    # Who resets a stream gives up (decision 8): the owner's FAILED is echoed.
    status = client.terminal(1, 2)
    client.wait(lambda: client.statuses(1, 2)[-1].cursor == 2, "the echo")
    assert status.stat == Stat.FAILED
    ends(client, Stat.FAILED, Stat.FAILED)


def test_what_has_failed_for_now_satisfies_no_checkpoint(join: Join) -> None:
    client = join()
    retrying(client)
    client.child(1, **BAD)
    client.fails_for_now(1, Code.INTEGRITY_ERROR)
    client.send(Checkpoint("waits", 1, 0, 2), Checkpoint("not long", 2, 0, 2, 0, 1))
    answer = client.expect(Checkpoint)
    assert (answer.checkpoint_id, answer.flags) == ("not long", 2)
    again(client)
    client.hears(Stat.FAILED, Stat.COMPLETE, entity=1, scope=2)
    assert client.expect(Checkpoint, lambda frame: frame.checkpoint_id == "waits").flags == 1


@pytest.mark.parametrize("action", [Action.SKIP, Action.DEFER], ids=lambda action: action.name)
def test_what_was_left_out_or_set_aside_satisfies_a_checkpoint(join: Join, action: Action) -> None:
    client = join()
    family(client, Policy(on_failure=action), 1)
    client.child(1, **BAD)
    client.send(Checkpoint("satisfied", 1, 0, 2))
    assert client.expect(Checkpoint).flags == 1


def test_what_has_failed_for_now_holds_the_window(join: Join) -> None:
    client = join(Capabilities(layer2=True, max_window_size=2))
    retrying(client, 2)
    client.child(1, **BAD)
    client.child(2)
    client.completes(2, scope=2)
    client.fails_for_now(1, Code.INTEGRITY_ERROR)
    client.announce(3, scope=2, depth=1)
    client.closes(Code.WINDOW_EXCEEDED)


@pytest.mark.parametrize("action", [Action.RETRY, Action.DEFER, Action.SKIP], ids=lambda action: action.name)
def test_the_largest_numbers_of_a_policy_are_taken(join: Join, friend: WaitingClient, action: Action) -> None:
    assert friend.quic.ended is None
    client = join()
    family(client, Policy(Mode.QUORUM, ALL, ALL, ALL, 1.0, Action.RETRY, action), 1)
    client.child(1, **BAD)
    if action is Action.RETRY:
        client.fails_for_now(1, Code.INTEGRITY_ERROR)
        # Sooner than the delay says: that is the owner's affair.
        again(client)
        client.hears(Stat.FAILED, Stat.COMPLETE, entity=1, scope=2)
        ends(client, Stat.COMPLETE, Stat.COMPLETE)
    else:
        ends(client, Stat.FAILED, Stat.DEFERRED if action is Action.DEFER else Stat.SKIPPED)


def test_fields_of_a_policy_that_nobody_knows_are_skipped_and_the_last_one_of_a_kind_counts(join: Join) -> None:
    client = join()
    message = field(1, 1) + field(99, b"?") + Policy(Mode.BEST_EFFORT).message() + field(8, 7)
    client.dehydrate(1, 2, policy=message)
    client.announce(1, scope=2, depth=1)
    client.child(1, **BAD)
    ends(client, Stat.COMPLETE, Stat.FAILED)


def test_a_policy_of_an_entity_without_children_changes_nothing(join: Join) -> None:
    client = join()
    client.deliver(1, b"x", policy=Policy(Mode.BEST_EFFORT, on_failure=Action.SKIP).message(), **BAD)
    client.fails(1, Code.INTEGRITY_ERROR)


def test_children_that_come_before_their_parents_policy_wait_for_it(join: Join) -> None:
    client = join()
    client.dehydrate(1, None, stream=False)
    client.announce(1, scope=2, depth=1)
    client.child(1, **BAD)
    client.settled()
    assert not client.statuses(1, 2)
    metadata = {"pipestream.dehydrated": "1", "pipestream.child-scope": "2"}
    client.entity(1, metadata=metadata, policy=Policy(Mode.BEST_EFFORT, on_failure=Action.SKIP).message())
    ends(client, Stat.COMPLETE, Stat.SKIPPED)


def test_a_scope_of_every_status_has_their_digest(join: Join) -> None:
    client = join()
    policy = Policy(Mode.QUORUM, 0, 0, SHORT, ratio=0.2, on_timeout=Action.FAIL, on_failure=Action.DEFER)
    family(client, policy, 5)
    client.status(Stat.SKIPPED, 2, 2, depth=1)
    client.status(Stat.FAILED, 3, 2, depth=1)
    client.child(4, **BAD)
    client.child(1)
    # Whatever is slower than the time-out is ABANDONED, on a slow machine more than the fifth.
    client.barrier(2, 1)
    digest = client.released(2, 1)
    stats = [client.terminal(entity, 2).stat for entity in range(1, 6)]
    assert stats[1:3] == [Stat.SKIPPED, Stat.FAILED]
    assert stats[4] == Stat.ABANDONED
    assert digest == digest_of(2, *stats)
    assert client.terminal(1).stat == (Stat.COMPLETE if stats[0] == Stat.COMPLETE else Stat.FAILED)


def test_barriers_say_nothing_before_every_child_is_terminal(join: Join) -> None:
    client = join()
    retrying(client)
    client.child(1, **BAD)
    client.barrier(2, 1)
    client.fails_for_now(1, Code.INTEGRITY_ERROR)
    client.settled()
    assert not [frame for frame in client.heard if isinstance(frame, Barrier)]
    again(client)
    assert client.released(2, 1) == digest_of(2, Stat.COMPLETE)
    client.completes(1)


# ---- while the client is away


def test_time_goes_on_while_the_client_is_away(program: Program, join: Join) -> None:
    client = join(survives=True)
    policy = Policy(Mode.BEST_EFFORT, timeout_ms=SHORT, on_timeout=Action.DEFER)
    family(client, policy, 1)
    client.child(1, b"half", end=False, payload_length=8)
    client.settled()
    client.vanish()
    program.clients.remove(client)
    back = join(kind=Back, of=client)
    status = back.terminal(1, 2) if not client.statuses(1, 2) else client.statuses(1, 2)[-1]
    assert (status.stat, status.cursor) == (Stat.DEFERRED, 2)
    claim, _ = decode_deferred(status.extension)
    assert back.query(claim).status == Stat.DEFERRED
    ends(back, Stat.COMPLETE, Stat.DEFERRED)


def test_somebody_else_may_redeem_while_the_client_is_away(program: Program, join: Join) -> None:
    client = join(survives=True)
    family(client, Policy(Mode.BEST_EFFORT, on_failure=Action.DEFER), 1)
    client.child(1, **BAD)
    claim, _ = client.set_aside(1, 2)
    client.vanish()
    program.clients.remove(client)
    other = join()
    assert not isinstance(other.redeem(claim, client.name), Code)
    other.deliver(1, b"right", metadata={"pipestream.claim": f"{claim:016x}"})
    other.completes(1)
    back = join(kind=Back, of=client)
    assert back.query(claim).status == Stat.COMPLETE
    assert back.redeem(claim, client.name) is Code.CLAIM_NOT_FOUND
    ends(back, Stat.COMPLETE, Stat.DEFERRED)


def test_what_is_never_acknowledged_exceeds_the_window(join: Join, friend: WaitingClient) -> None:
    assert friend.quic.ended is None
    client = join(survives=True)
    # An answer is as long as its question; 16 MiB of them are kept.
    name = "x" * (1 << 20)
    say: Callable[[int], None] = lambda number: client.send(Checkpoint(name, number, timeout_ms=1))  # noqa: E731
    for number in range(1, 24):
        if client.has_ended():
            break
        before = len(client.heard)
        say(number)
        client.reactor.run(lambda before=before: client.has_ended() or len(client.heard) > before, 30)
    client.closes(Code.WINDOW_EXCEEDED)


def test_what_is_acknowledged_is_forgotten(join: Join) -> None:
    client = join(survives=True)
    name = "x" * (1 << 20)
    for number in range(1, 24):
        assert client.answer(Checkpoint(name, number, timeout_ms=1)) == Checkpoint(name, number, flags=1, timeout_ms=1)
        client.acknowledge()
    assert client.quic.ended is None


def test_a_status_of_the_same_kind_may_cross(join: Join) -> None:
    client = join()
    family(client, Policy(Mode.BEST_EFFORT, on_failure=Action.SKIP), 1)
    client.child(1, **BAD)
    # Said before the receiver's SKIPPED was heard: the receiver's first terminal STATUS stands.
    client.send(*(Status(stat, 1, 2, 1) for stat in (Stat.ABANDONED, Stat.FAILED, Stat.SKIPPED)))
    client.wait(lambda: bool(client.statuses(1, 2)), "a status")
    client.barrier(2, 1)
    digest = client.released(2, 1)
    (status,) = client.statuses(1, 2)
    assert status.stat in (Stat.ABANDONED, Stat.SKIPPED)
    assert digest == digest_of(2, status.stat)
    client.completes(1)
