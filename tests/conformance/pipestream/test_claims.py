"""Decision 20, sections 6.5.2 and 10.8: what is set aside under a claim check, asked about, and redeemed once."""

import time
from collections.abc import Callable, Iterator
from functools import reduce
from itertools import pairwise
from operator import and_, or_
from pathlib import Path
from typing import Any

import pytest

from .fixtures import Join, Program, Waits
from .layer2 import (
    Action,
    Claim,
    ClaimQuery,
    ClaimRedeem,
    ClaimResponse,
    Mode,
    Policy,
    Validation,
    decode_validation,
)
from .programs import Serve
from .reactor import Reactor
from .waiting import Back, WaitingClient, digest_of
from .wire import Code, Error, Frame, Stat

BAD: dict[str, Any] = {"checksum": bytes(32)}
ASIDE = "application/x-aside"
ASIDES = [["--defer-type", ASIDE]]
DAY = 86_400 * 1_000_000
# How far the clocks of this process and of the server may be apart: it is one machine, and it may be slow.
SLOW = 600 * 1_000_000


def micros() -> int:
    return time.time_ns() // 1000


def set_aside(client: WaitingClient, children: int = 1, scope: int = 2) -> list[int]:
    """Claim checks of children whose bytes were wrong, so that they have to come again."""
    parent = scope // 2
    client.parent(Policy(Mode.BEST_EFFORT, on_failure=Action.DEFER), entity=parent, scope=scope)
    client.announce(*range(1, children + 1), scope=scope, depth=1)
    for entity in range(1, children + 1):
        client.child(entity, scope=scope, parent=parent, **BAD)
    claims = [client.set_aside(entity, scope)[0] for entity in range(1, children + 1)]
    client.barrier(scope, parent)
    assert client.released(scope, parent) == digest_of(scope, *[Stat.DEFERRED] * children)
    client.completes(parent)
    return claims


def redeemed(client: WaitingClient, claim: int, session: str | None = None) -> Claim:
    """What came in answer to a redemption that was granted."""
    response = client.redeem(claim, session or client.name)
    assert isinstance(response, ClaimResponse), response
    assert (response.claim, response.found, response.status) == (claim, True, Stat.PROCESSING)
    assert response.check is not None
    return response.check


def brings(client: WaitingClient, entity: int, claim: int, payload: bytes = b"again", **fields: Any) -> None:
    """What was redeemed, in scope 0."""
    client.deliver(entity, payload, metadata={"pipestream.claim": f"{claim:016x}"}, **fields)


def test_deferred_carries_a_claim_check_that_is_good_for_a_day_at_most(join: Join) -> None:
    client = join()
    client.parent(Policy(on_failure=Action.DEFER))
    client.announce(1, scope=2, depth=1)
    client.child(1, **BAD)
    claim, expiry = client.set_aside(1, 2)
    assert client.terminal(1, 2).cursor == 2, "DEFERRED is terminal"
    assert claim
    assert micros() - SLOW < expiry <= micros() + DAY + SLOW
    response = client.query(claim)
    untouched = response.check.validation if response.check else None
    assert response == ClaimResponse(claim, True, Claim(claim, 1, 2, expiry, untouched), Stat.DEFERRED)
    assert untouched is not None
    assert decode_validation(untouched) == Validation()


@pytest.mark.parametrize("program", ASIDES, indirect=True)
def test_what_is_set_aside_without_a_failure_is_kept_and_counts_as_deferred(program: Program, join: Join) -> None:
    client = join()
    client.parent(Policy(Mode.LENIENT))
    client.announce(1, 2, scope=2, depth=1)
    client.child(1, b"not yet", content_type=ASIDE)
    client.child(2)
    claim, _ = client.set_aside(1, 2)
    client.barrier(2, 1)
    assert client.released(2, 1) == digest_of(2, Stat.DEFERRED, Stat.COMPLETE)
    client.completes(1)
    assert client.query(claim).status == Stat.DEFERRED
    assert not [frame for frame in client.heard if isinstance(frame, Error)]
    assert program.file(client, 1, 2).read_bytes() == b"not yet"


@pytest.mark.parametrize("program", ASIDES, indirect=True)
def test_below_layer_2_nothing_is_set_aside(program: Program) -> None:
    client = program.connect()
    client.deliver(1, b"at once", content_type=ASIDE)
    client.completes(1)


def test_claim_checks_cannot_be_guessed(join: Join) -> None:
    client = join()
    claims = set_aside(client, 64)
    assert len(set(claims)) == 64
    # Of 64 random numbers every bit is 0 in one and 1 in another, but for one case in 2^57.
    assert reduce(or_, claims) == (1 << 64) - 1
    assert reduce(and_, claims) == 0
    steps = {(after - before) % (1 << 64) for before, after in pairwise(claims)}
    assert len(steps) == 63


@pytest.mark.parametrize("elsewhere", [False, True], ids=["in its session", "in another session"])
def test_a_claim_check_is_redeemed_and_its_entity_comes_again(program: Program, join: Join, elsewhere: bool) -> None:
    first = join()
    (claim,) = set_aside(first)
    client = join() if elsewhere else first
    if elsewhere:
        first.close()
        program.closed(first, 0)
    entity = 1 if elsewhere else 2
    check = redeemed(client, claim, first.name)
    assert (check.claim, check.entity, check.scope) == (claim, 1, 2)
    assert client.query(claim).status == Stat.PROCESSING
    brings(client, entity, claim)
    client.completes(entity)
    assert client.query(claim).status == Stat.COMPLETE
    assert client.redeem(claim, first.name) is Code.CLAIM_NOT_FOUND
    assert program.file(client, entity).read_bytes() == b"again"


@pytest.mark.parametrize("program", ASIDES, indirect=True)
def test_what_was_redeemed_is_not_set_aside_again(program: Program, join: Join) -> None:
    client = join()
    client.deliver(1, b"not yet", content_type=ASIDE)
    claim, _ = client.set_aside(1)
    redeemed(client, claim)
    brings(client, 2, claim, b"now", content_type=ASIDE)
    client.completes(2)
    # One redemption is good for one entity, and a claim check that was not redeemed for none.
    brings(client, 3, claim, b"once more", content_type=ASIDE)
    other, _ = client.set_aside(3)
    brings(client, 4, other, b"not redeemed", content_type=ASIDE)
    client.set_aside(4)
    assert program.file(client, 2).read_bytes() == b"now"
    assert client.query(claim).status == Stat.COMPLETE
    assert client.query(other).status == Stat.DEFERRED


def test_a_claim_check_is_redeemed_once_whoever_comes(join: Join) -> None:
    first, second = join(), join()
    (claim,) = set_aside(first)
    before = [len(client.heard) for client in (first, second)]
    # Both at once: exactly one of them gets it.
    for client in (first, second):
        client.send(ClaimRedeem(claim, first.name))
    for client, heard in zip((first, second), before, strict=True):
        client.wait(lambda client=client, heard=heard: len(client.heard) > heard, "an answer")
    answers = [client.heard[-1] for client in (first, second)]
    found = [answer.status for answer in answers if isinstance(answer, ClaimResponse)]
    refused = [Code(answer.code) for answer in answers if isinstance(answer, Error)]
    assert (found, refused) == ([Stat.PROCESSING], [Code.CLAIM_NOT_FOUND])


def test_what_was_redeemed_ends_the_claim_check_as_it_ends_itself(join: Join) -> None:
    client = join()
    skipped, failed = set_aside(client, 2)
    for claim in (skipped, failed):
        redeemed(client, claim)
    client.announce(2)
    client.status(Stat.SKIPPED, 2)
    assert client.terminal(2).stat == Stat.SKIPPED
    # It never had a header: nobody knows that it stood for a claim check.
    assert client.query(skipped).status == Stat.PROCESSING
    brings(client, 3, failed, **BAD)
    client.fails(3, Code.INTEGRITY_ERROR)
    assert client.query(failed).status == Stat.FAILED


def test_what_a_session_has_redeemed_and_not_sent_fails_with_it(program: Program, join: Join) -> None:
    first = join()
    (claim,) = set_aside(first)
    second = join()
    redeemed(second, claim, first.name)
    second.close()
    program.closed(second, 0)
    first.wait(lambda: first.query(claim).status == Stat.FAILED, "FAILED")


def test_a_query_for_what_nobody_has_set_aside_finds_nothing(join: Join, friend: WaitingClient) -> None:
    client = join()
    claim, _ = friend.set_aside(1, 2)
    for other in (0, 1, claim ^ 1, claim ^ 1 << 63, (1 << 64) - 1):
        assert client.query(other) == ClaimResponse(other, False)
    # Asking is allowed to anybody; redeeming is not.
    assert client.query(claim).found


def test_a_claim_check_is_redeemed_only_by_who_knows_its_session(join: Join, friend: WaitingClient) -> None:
    client = join()
    claim, _ = friend.set_aside(1, 2)
    for session in (client.name, "0" * 32, friend.name[:-1] + ("0" if friend.name[-1] != "0" else "1")):
        assert client.redeem(claim, session) is Code.CLAIM_NOT_FOUND
    for other in (0, claim ^ 1, (1 << 64) - 1):
        assert client.redeem(other, friend.name) is Code.CLAIM_NOT_FOUND


NO_NAMES = ["", "0" * 31, "0" * 33, "g" * 32, "A" * 32, "../" * 8]


@pytest.mark.parametrize("session", NO_NAMES, ids=lambda name: name or "empty")
def test_a_redemption_that_names_no_session_closes_with_entity_invalid(
    join: Join, friend: WaitingClient, session: str
) -> None:
    client = join()
    client.send(ClaimRedeem(friend.set_aside(1, 2)[0], session))
    client.closes(Code.ENTITY_INVALID)


UNASKED: dict[str, Frame] = {
    "found": ClaimResponse(1, True, Claim(1, 1, 0, 1), Stat.COMPLETE),
    "not found": ClaimResponse(1, False),
}


@pytest.mark.parametrize("frame", UNASKED.values(), ids=UNASKED)
def test_an_answer_that_nobody_asked_for_closes_with_entity_invalid(
    join: Join, friend: WaitingClient, frame: Frame
) -> None:
    assert friend.quic.ended is None
    client = join()
    client.send(frame)
    client.closes(Code.ENTITY_INVALID)


def test_questions_are_answered_in_their_order(join: Join) -> None:
    client = join()
    claims = set_aside(client, 3)
    before = len(client.heard)
    with client.corked():
        client.send(ClaimQuery(claims[0]), ClaimRedeem(claims[1], client.name), ClaimQuery(7))
        client.send(ClaimRedeem(claims[1], client.name), ClaimQuery(claims[1]), ClaimRedeem(8, client.name))
        client.send(ClaimQuery(claims[2]))
    client.wait(lambda: len(client.heard) == before + 7, "seven answers")
    answers = client.heard[before:]
    refused = (0, 0, Code.CLAIM_NOT_FOUND)
    assert [
        (answer.scope, answer.entity, Code(answer.code))
        if isinstance(answer, Error)
        else isinstance(answer, ClaimResponse) and (answer.claim, answer.status)
        for answer in answers
    ] == [
        (claims[0], Stat.DEFERRED),
        (claims[1], Stat.PROCESSING),
        (7, None),
        refused,
        (claims[1], Stat.PROCESSING),
        refused,
        (claims[2], Stat.DEFERRED),
    ]


@pytest.mark.parametrize("kind", ["queries", "redemptions"])
def test_floods_of_questions_disturb_nobody_else(join: Join, friend: WaitingClient, kind: str) -> None:
    client = join()
    frames = [ClaimQuery(n) if kind == "queries" else ClaimRedeem(n, client.name) for n in range(1, 20_001)]
    client.send(*frames)
    friend.deliver(2, b"meanwhile")
    friend.completes(2)
    client.wait(lambda: client.has_ended() or len(client.heard) == len(frames), "answers", timeout=60)
    # Each is answered, or there were too many open at once.
    if client.has_ended():
        client.closes(Code.WINDOW_EXCEEDED)


# ---- over processes


@pytest.fixture
def serves(tmp_path: Path) -> Iterator[Callable[..., Serve]]:
    """Starts the server again over the same sink, as often as one likes."""
    running: list[Serve] = []

    def start(*options: str) -> Serve:
        serve = Serve(tmp_path, *ASIDES[0], *options)
        running.append(serve)
        return serve

    yield start
    for serve in running:
        if serve.alive:
            serve.stop()


@pytest.mark.parametrize("kept", [[], ["--claims"]], ids=["in the sink", "in a folder"])
def test_claim_checks_and_redemptions_outlive_a_server_that_is_killed(
    serves: Callable[..., Serve], reactor: Reactor, kept: list[str], tmp_path: Path
) -> None:
    options = [*kept, str(tmp_path / "claims")] if kept else []
    serve = serves(*options)
    first = WaitingClient(reactor, serve.address).open()
    for entity in (1, 2, 3, 4):
        first.deliver(entity, b"not yet", content_type=ASIDE)
    opened, done, begun, later = (first.set_aside(entity)[0] for entity in (1, 2, 3, 4))
    redeemed(first, done)
    brings(first, 5, done)
    first.completes(5)
    redeemed(first, begun)
    serve.kill()
    first.vanish()

    serve = serves(*options)
    second = WaitingClient(reactor, serve.address).open()
    assert [second.query(claim).status for claim in (opened, done, begun, later)] == [
        Stat.DEFERRED,
        Stat.COMPLETE,
        # What had been redeemed and not sent has failed with its session.
        Stat.FAILED,
        Stat.DEFERRED,
    ]
    check = second.query(opened).check
    assert check is not None
    assert (check.entity, check.scope) == (1, 0)
    for claim in (done, begun):
        assert second.redeem(claim, first.name) is Code.CLAIM_NOT_FOUND
    assert second.redeem(opened, second.name) is Code.CLAIM_NOT_FOUND
    redeemed(second, opened, first.name)
    brings(second, 1, opened, content_type=ASIDE)
    second.completes(1)
    second.close()
    # An end in good order is no different.
    assert serve.stop() == 0

    serve = serves(*options)
    third = WaitingClient(reactor, serve.address).open()
    assert third.query(opened).status == Stat.COMPLETE
    assert third.redeem(opened, first.name) is Code.CLAIM_NOT_FOUND
    redeemed(third, later, first.name)
    third.close()
    for client in (second, third):
        client.vanish()


def test_a_session_that_outlives_the_server_still_has_what_it_has_redeemed(
    serves: Callable[..., Serve], reactor: Reactor, tmp_path: Path
) -> None:
    state = ("--state", str(tmp_path / "state"))
    serve = serves(*state)
    client = WaitingClient(reactor, serve.address, survives=True).open()
    client.deliver(1, b"not yet", content_type=ASIDE)
    claim, _ = client.set_aside(1)
    redeemed(client, claim)
    serve.kill()
    client.vanish()

    serve = serves(*state)
    back = Back(reactor, serve.address, of=client).open()
    assert isinstance(back, Back)
    assert back.redeem(claim, back.name) is Code.CLAIM_NOT_FOUND
    brings(back, 2, claim, b"now", content_type=ASIDE)
    back.completes(2)
    assert back.query(claim).status == Stat.COMPLETE
    assert (serve.sink / back.name / "0" / "2").read_bytes() == b"now"
    back.close()
    back.vanish()


@pytest.mark.parametrize("times", range(3))
def test_a_redemption_that_was_cut_off_by_a_kill_is_granted_once(
    serves: Callable[..., Serve], reactor: Reactor, times: int
) -> None:
    serve = serves()
    first = WaitingClient(reactor, serve.address).open()
    claims = []
    for entity in range(1, 9):
        first.deliver(entity, b"not yet", content_type=ASIDE)
        claims.append(first.set_aside(entity)[0])
    before = len(first.heard)
    first.send(*(ClaimRedeem(claim, first.name) for claim in claims))
    # Somewhere in the middle of the answers, or before the first.
    first.wait(lambda: len(first.heard) >= before + 2 * times, "answers")
    serve.kill()
    granted = [frame.claim for frame in first.heard[before:] if isinstance(frame, ClaimResponse)]
    first.vanish()

    serve = serves()
    second = WaitingClient(reactor, serve.address).open()
    for claim in claims:
        status = second.query(claim).status
        assert status == Stat.FAILED or (status == Stat.DEFERRED and claim not in granted)
        answer = second.redeem(claim, first.name)
        # What was granted was on disk before anybody heard of it.
        assert isinstance(answer, ClaimResponse) == (status == Stat.DEFERRED)
    second.close()
    second.vanish()


def test_an_expired_claim_check_is_not_found_and_refused_as_expired(waits: Waits) -> None:
    client = waits()
    client.deliver(1, b"soon over", metadata={"conformance": "defer 0.05"})
    client.deliver(2, b"good for long", metadata={"conformance": "defer 3600"})
    claim, expiry = client.set_aside(1)
    other, later = client.set_aside(2)
    assert later - expiry > 3000 * 1_000_000
    client.wait(lambda: micros() > expiry and not client.query(claim).found, "its end")
    assert client.redeem(claim, client.name) is Code.CLAIM_EXPIRED
    assert client.query(other).status == Stat.DEFERRED
    # What was redeemed in time ends well.
    redeemed(client, other)
    brings(client, 3, other)
    client.completes(3)
    assert client.query(other).status == Stat.COMPLETE


def test_a_claim_check_is_never_good_for_more_than_a_day(waits: Waits) -> None:
    client = waits()
    client.deliver(1, b"x", metadata={"conformance": "defer 1000000"})
    claim, expiry = client.set_aside(1)
    assert expiry <= micros() + DAY + SLOW
    assert client.query(claim).found
