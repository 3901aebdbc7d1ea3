"""Decision 20, sections 6.5.1 and 10.7: entities that wait, and the tokens that have them go on once."""

import os
from collections.abc import Callable

import pytest

from .fixtures import Join, Waits
from .layer2 import HMAC, Policy, Reason, Resume, decode_token
from .waiting import WaitingClient, digest_of
from .wire import Code, Error, Frame, Stat, Status

WAITS = {"conformance": "yield 4"}


def waiting(client: WaitingClient, entity: int = 1) -> bytes:
    """The token of an entity in scope 0 that waits."""
    client.deliver(entity, b"a form", metadata=WAITS)
    reason, token = client.waits(entity)
    assert reason == Reason.AWAITING_APPROVAL
    return token


def goes_on(client: WaitingClient, token: bytes, entity: int = 1, scope: int = 0) -> None:
    assert client.resume(entity, token, scope) is None
    client.completes(entity, scope=scope)


@pytest.mark.parametrize("reason", Reason, ids=lambda reason: reason.name)
def test_yielded_says_why_and_its_token_has_the_entity_go_on(waits: Waits, reason: Reason) -> None:
    client = waits()
    client.deliver(1, b"x", metadata={"conformance": f"yield {reason:d}"})
    said, token = client.waits(1)
    parsed = decode_token(token)
    assert (said, parsed.reason) == (reason, reason)
    # Whatever its receiver puts before it, the state that it was given is there.
    assert parsed.state.endswith(f"the state of {reason:d}".encode())
    assert parsed.validation.is_resumable
    assert len(parsed.validation.state_checksum) == 32
    goes_on(client, token)
    client.hears(Stat.YIELDED, Stat.PROCESSING, Stat.COMPLETE, entity=1)
    assert client.terminal(1).cursor == 2, "neither YIELDED nor PROCESSING has moved it"


def test_an_entity_may_wait_twice_and_each_token_is_good_for_its_own_time(waits: Waits) -> None:
    client = waits()
    client.deliver(1, b"x", metadata={"conformance": "yield 1 2"})
    _, first = client.waits(1)
    assert client.resume(1, first) is None
    reason, second = client.waits(1, times=2)
    assert reason == Reason.RATE_LIMITED
    assert second != first
    assert client.resume(1, first) is Code.CLAIM_NOT_FOUND
    goes_on(client, second)


def test_tokens_of_equal_entities_differ(waits: Waits) -> None:
    client = waits()
    tokens = [waiting(client, entity) for entity in range(1, 9)]
    assert len(set(tokens)) == 8
    assert len({token[-HMAC:] for token in tokens}) == 8
    # In another order than they came.
    for entity in (5, 1, 8, 2, 3, 7, 6, 4):
        goes_on(client, tokens[entity - 1], entity)


def test_a_child_may_wait_and_its_barrier_waits_with_it(waits: Waits) -> None:
    client = waits()
    client.parent(Policy())
    client.announce(1, 2, scope=2, depth=1)
    client.child(1, metadata=WAITS)
    client.child(2)
    client.barrier(2, 1)
    _, token = client.waits(1, 2)
    client.completes(2, scope=2)
    client.settled()
    assert not client.statuses(1)
    # Who names it in another scope means another entity.
    assert client.resume(1, token, 0) is Code.CLAIM_NOT_FOUND
    assert client.answer(Resume(2, 1, token)) == Status(Stat.PROCESSING, 1, 2, 1)
    assert client.released(2, 1) == digest_of(2, Stat.COMPLETE, Stat.COMPLETE)
    client.completes(1)


def flip(token: bytes, at: int) -> bytes:
    return token[:at] + bytes([token[at] ^ 1]) + token[at + 1 :] if at >= 0 else flip(token, len(token) + at)


ALTERED: dict[str, Callable[[bytes], bytes]] = {
    "its first byte": lambda token: flip(token, 0),
    "the middle of its message": lambda token: flip(token, (len(token) - HMAC) // 2),
    "the last byte of its message": lambda token: flip(token, -HMAC - 1),
    "the first byte of its HMAC": lambda token: flip(token, -HMAC),
    "its last byte": lambda token: flip(token, -1),
    "without its last byte": lambda token: token[:-1],
    "with one byte more": lambda token: token + b"\0",
    "an unknown field more": lambda token: token[:-HMAC] + bytes.fromhex("7801") + token[-HMAC:],
    "only its message": lambda token: token[:-HMAC],
    "only its HMAC": lambda token: token[-HMAC:],
    "an HMAC of zeros": lambda token: token[:-HMAC] + bytes(HMAC),
    "zeros": lambda token: bytes(len(token)),
    "at random": lambda token: os.urandom(len(token)),
    "empty": lambda _: b"",
    "twice": lambda token: token * 2,
    "of a mebibyte": lambda token: token + bytes(1 << 20),
}


@pytest.mark.parametrize("alter", ALTERED.values(), ids=ALTERED)
def test_an_altered_token_is_refused_and_changes_nothing(waits: Waits, alter: Callable[[bytes], bytes]) -> None:
    client = waits()
    token = waiting(client)
    assert client.resume(1, alter(token)) is Code.CLAIM_NOT_FOUND
    client.settled()
    assert [status.stat for status in client.statuses(1)] == [Stat.YIELDED]
    goes_on(client, token)


def test_a_token_is_good_once(waits: Waits) -> None:
    client = waits()
    token = waiting(client)
    goes_on(client, token)
    assert client.resume(1, token) is Code.CLAIM_NOT_FOUND
    client.hears(Stat.YIELDED, Stat.PROCESSING, Stat.COMPLETE, entity=1)


def test_a_token_that_is_said_twice_at_once_is_good_once(waits: Waits) -> None:
    client = waits()
    token = waiting(client)
    client.send(Resume(0, 1, token), Resume(0, 1, token))
    error = client.expect(Error)
    assert (error.scope, error.entity, Code(error.code)) == (0, 1, Code.CLAIM_NOT_FOUND)
    client.completes(1)
    client.hears(Stat.YIELDED, Stat.PROCESSING, Stat.COMPLETE, entity=1)


def test_a_token_is_good_for_its_entity_only(waits: Waits) -> None:
    client = waits()
    tokens = [waiting(client, entity) for entity in (1, 2)]
    assert client.resume(1, tokens[1]) is Code.CLAIM_NOT_FOUND
    assert client.resume(2, tokens[0]) is Code.CLAIM_NOT_FOUND
    for entity, token in enumerate(tokens, 1):
        goes_on(client, token, entity)


def test_a_token_is_good_in_its_session_only(waits: Waits) -> None:
    mine, other = waits(), waits()
    token, foreign = waiting(mine), waiting(other)
    assert mine.resume(1, foreign) is Code.CLAIM_NOT_FOUND
    assert other.resume(1, token) is Code.CLAIM_NOT_FOUND
    goes_on(mine, token)
    goes_on(other, foreign)


def test_a_token_of_what_has_ended_is_worthless(waits: Waits) -> None:
    client = waits()
    token = waiting(client)
    client.status(Stat.ABANDONED, 1)
    assert client.terminal(1) == Status(Stat.ABANDONED, 1, cursor=2)
    assert client.resume(1, token) is Code.CLAIM_NOT_FOUND


@pytest.mark.parametrize("stat", [Stat.FAILED, Stat.SKIPPED, Stat.ABANDONED], ids=lambda stat: stat.name)
def test_an_owner_may_give_up_what_waits(waits: Waits, stat: Stat) -> None:
    client = waits()
    waiting(client)
    client.status(stat, 1)
    assert client.hears(Stat.YIELDED, stat, entity=1) == Status(stat, 1, cursor=2)


def test_what_waits_too_long_is_abandoned(waits: Waits) -> None:
    client = waits()
    # Long enough for a few bytes to be whole, and if not: it is over all the same.
    client.parent(Policy(timeout_ms=300))
    client.announce(1, scope=2, depth=1)
    client.child(1, metadata=WAITS)
    assert client.terminal(1, 2).stat == Stat.ABANDONED
    for status in client.statuses(1, 2)[:-1]:
        assert status.stat == Stat.YIELDED
        assert client.resume(1, status.extension[4:] if status.extension else b"", 2) is Code.CLAIM_NOT_FOUND


NOTHING_WAITS: dict[str, Frame] = {
    "an entity that was only announced": Resume(0, 1, b"a token"),
    "an entity never announced": Resume(0, 9, b"a token"),
    "entity 0": Resume(0, 0, b"a token"),
    "a reserved ID": Resume(0, 0xFFFF_FFFF, b"a token"),
    "a scope never opened": Resume(4, 1, b"a token"),
}


@pytest.mark.parametrize("frame", NOTHING_WAITS.values(), ids=NOTHING_WAITS)
def test_where_nothing_waits_a_token_is_refused(waits: Waits, frame: Resume) -> None:
    client = waits()
    client.announce(1)
    assert client.resume(frame.entity, frame.token, frame.scope) is Code.CLAIM_NOT_FOUND
    client.entity(1, b"x")
    client.completes(1)


@pytest.mark.parametrize("scope", [1, 3, 65_536], ids=["1, the server's root", "of the other parity", "65536"])
def test_a_token_for_a_scope_that_is_none_closes_with_scope_invalid(waits: Waits, scope: int) -> None:
    client = waits()
    token = waiting(client)
    client.send(Resume(scope, 1, token))
    client.closes(Code.SCOPE_INVALID)


def test_tokens_at_a_server_that_never_waits_are_refused(join: Join, friend: WaitingClient) -> None:
    assert friend.quic.ended is None
    client = join()
    client.announce(1)
    assert client.resume(1, os.urandom(100)) is Code.CLAIM_NOT_FOUND
    client.entity(1, b"x")
    client.completes(1)


def test_a_flood_of_tokens_disturbs_nobody_else(waits: Waits) -> None:
    client, other = waits(), waits()
    token = waiting(client)
    client.send(*[Resume(0, 1, flip(token, at % len(token))) for at in range(5000)])
    foreign = waiting(other)
    goes_on(other, foreign)
    client.wait(lambda: len(client.heard) == 1 + 5000, "5000 refusals", timeout=60)
    assert {frame.code for frame in client.heard if isinstance(frame, Error)} == {Code.CLAIM_NOT_FOUND}
    goes_on(client, token)


def test_what_is_skipped_or_fails_by_itself_says_so(waits: Waits) -> None:
    client = waits()
    client.deliver(1, b"x", metadata={"conformance": "skip"})
    client.deliver(2, b"x", metadata={"conformance": "fail"})
    assert client.terminal(1).stat == Stat.SKIPPED
    client.fails(2, Code.INTERNAL_ERROR)
