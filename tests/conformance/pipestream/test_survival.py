"""Sessions that survive their connection (proto: Session): clients whose UDP is cut, and that are back later."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .fixtures import Join, Program, Waits
from .invariants import log_of
from .layer2 import Action, ClaimQuery, Mode, Policy, Session
from .peer import TIMEOUT
from .programs import Serve
from .reactor import Reactor
from .test_trust import Authority
from .test_yields import goes_on, waiting
from .waiting import LATER, Back, WaitingClient, digest_of
from .wire import Capabilities, Code, Frame, Stat, Status

BAD: dict[str, Any] = {"checksum": bytes(32)}
HALF: dict[str, Any] = {"end": False, "payload_length": 8}


def unheard(until: Callable[[], bool]) -> None:
    """Waits while nothing is read: what the server says is on its way, and lost."""
    deadline = time.monotonic() + TIMEOUT
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def begins(join: Join) -> Callable[..., WaitingClient]:
    """A client whose session survives."""

    def begin(**options: Any) -> WaitingClient:
        client = join(survives=True, **options)
        assert client.expect(Session).received is not None, "the server's end survives as well"
        return client

    return begin


@pytest.fixture
def returns(program: Program, join: Join) -> Callable[..., Back]:
    """Cuts a client off, without a word, and gives one that is back with its session."""

    def back(client: WaitingClient, **options: Any) -> Back:
        client.vanish()
        # Its session is over when that of the one that is back is.
        program.clients.remove(client)
        joined = join(kind=Back, of=client, **options)
        assert isinstance(joined, Back)
        return joined

    return back


Begins = Callable[..., WaitingClient]
Returns = Callable[..., Back]


def test_what_was_terminal_is_not_asked_for_again(program: Program, begins: Begins, returns: Returns) -> None:
    client = begins()
    client.deliver(1, b"one")
    client.completes(1)
    back = returns(client)
    assert back.again == []
    # Neither end says anything of entity 1, and the next one is entity 2.
    back.deliver(2, b"two")
    assert back.hears(Stat.COMPLETE, entity=2).cursor == 3
    back.hears(Stat.COMPLETE, entity=1)
    assert [frame for frame in back.frames if isinstance(frame, Status) and frame.entity == 1] == []
    back.close()
    program.closed(back, 0)
    assert [line["entity"] for line in program.entities(back)] == [1, 2]


def test_what_was_said_while_nobody_listened_is_said_again(program: Program, begins: Begins, returns: Returns) -> None:
    client = begins()
    client.announce(1, 2)
    client.settled()
    with client.corked():
        client.entity(1, b"one")
        client.entity(2, b"two")
    unheard(lambda: all(program.file(client, entity).exists() for entity in (1, 2)))
    assert not client.statuses(1)
    back = returns(client)
    # The streams are not opened again: their payloads are there.
    back.completes(1, 2)
    back.settled()
    for entity in (1, 2):
        back.hears(Stat.COMPLETE, entity=entity)
    assert len(program.entities(back)) == 2


def test_a_payload_that_was_cut_off_comes_again(program: Program, begins: Begins, returns: Returns) -> None:
    client = begins()
    client.announce(1)
    client.entity(1, b"half", **HALF)
    client.settled()
    back = returns(client)
    back.settled()
    assert not back.statuses(1), "a stream that was lost with its connection is no failure"
    back.entity(1, b"halfhalf")
    back.hears(Stat.COMPLETE, entity=1)
    assert program.file(back, 1).read_bytes() == b"halfhalf"


def test_a_stream_whose_payload_is_there_already_is_stopped_with_no_error(
    program: Program, begins: Begins, returns: Returns
) -> None:
    client = begins()
    client.announce(1)
    client.settled()
    client.entity(1, b"one")
    unheard(program.file(client, 1).exists)
    back = returns(client)
    stream = back.entity(1, b"one", end=False, payload_length=1000)
    back.wait(lambda: stream in back.stopped, "STOP_SENDING")
    assert back.stopped[stream] == Code.NO_ERROR
    back.hears(Stat.COMPLETE, entity=1)
    assert program.file(back, 1).read_bytes() == b"one"


def test_a_frame_that_was_cut_off_is_taken_once(program: Program, begins: Begins, returns: Returns) -> None:
    client = begins()
    client.deliver(1, b"one")
    client.completes(1)
    # Said, but never sent: a frame is lost with its connection, and half of another with it.
    client.said.append(Status(Stat.PENDING, 2).encode())
    half = Status(Stat.PENDING, 3).encode()
    client.said.append(half)
    client.quic.send_stream_data(0, client.said[-2] + half[:5])
    client.flush()
    back = returns(client)
    # However much of it the server had read: no frame is taken in halves, and none twice.
    assert back.again in ([half], [Status(Stat.PENDING, 2).encode(), half])
    for entity in (2, 3):
        back.entity(entity, b"x")
        back.hears(Stat.COMPLETE, entity=entity)
    assert {line["entity"] for line in program.entities(back)} == {1, 2, 3}


def test_scopes_policies_and_digests_go_on(begins: Begins, returns: Returns) -> None:
    client = begins()
    policy = Policy(Mode.LENIENT, 1, 0, on_failure=Action.RETRY)
    client.parent(policy)
    client.announce(1, 2, 3, scope=2, depth=1)
    client.child(1)
    client.child(2, **BAD)
    client.completes(1, scope=2)
    client.fails_for_now(2, Code.INTEGRITY_ERROR)
    back = returns(client)
    back.status(Stat.RETRYING, 2, 2, depth=1)
    back.child(2, **BAD)
    # It has failed once before: that was not forgotten.
    back.hears(Stat.FAILED, Stat.FAILED, entity=2, scope=2)
    again = returns(back)
    again.child(3)
    again.barrier(2, 1)
    assert again.released(2, 1) == digest_of(2, Stat.COMPLETE, Stat.FAILED, Stat.COMPLETE)
    again.completes(1)


def test_the_answer_to_a_question_is_heard_once(begins: Begins, returns: Returns) -> None:
    client = begins()
    client.parent(Policy(on_failure=Action.DEFER))
    client.announce(1, scope=2, depth=1)
    client.child(1, **BAD)
    claim, _ = client.set_aside(1, 2)
    assert client.query(claim).found
    before = len(client.heard)
    client.send(ClaimQuery(claim))
    back = returns(client)
    back.wait(lambda: len(back.heard) > before, "the answer")
    back.settled()
    assert len(back.heard) == before + 2, "the answer and that to the CHECKPOINT"
    assert back.query(claim).status == Stat.DEFERRED


def test_a_session_may_lose_its_connection_often(program: Program, begins: Begins, returns: Returns) -> None:
    client: WaitingClient = begins()
    for entity in range(1, 9):
        client.announce(entity)
        client = returns(client)
        client.entity(entity, f"entity {entity}".encode())
        client.hears(Stat.COMPLETE, entity=entity)
    client.close()
    program.closed(client, 0)
    assert [line["entity"] for line in program.entities(client)] == list(range(1, 9))


def test_who_closes_to_go_on_later_is_back_all_the_same(begins: Begins, returns: Returns) -> None:
    client = begins()
    client.announce(1)
    client.settled()
    client.close(LATER, "later")
    back = returns(client)
    back.entity(1, b"x")
    back.hears(Stat.COMPLETE, entity=1)


def test_an_end_in_good_order_is_an_end(program: Program, join: Join, begins: Begins) -> None:
    client = begins()
    client.deliver(1, b"x")
    client.completes(1)
    client.close()
    program.closed(client, 0)
    other = join(named=False)
    other.send(Session(client.name, len(client.heard), len(client.said)))
    other.closes(Code.CLAIM_NOT_FOUND)


def test_a_session_that_does_not_survive_ends_with_its_connection(program: Program, join: Join) -> None:
    client = join()
    assert client.expect(Session).sent is None
    client.announce(1)
    client.settled()
    client.close(Code.INTERNAL_ERROR)
    program.closed(client, Code.INTERNAL_ERROR)
    other = join(named=False)
    other.send(Session(client.name, len(client.heard), len(client.said)))
    other.closes(Code.CLAIM_NOT_FOUND)


def test_session_may_be_said_again_to_acknowledge(begins: Begins, returns: Returns) -> None:
    client = begins()
    client.deliver(1, b"x")
    client.completes(1)
    client.send(Session(client.name, len(client.heard)))
    client.settled()
    back = returns(client)
    back.send(Session(back.name, len(back.heard)), Session(back.name, len(back.heard)))
    back.settled()
    back.deliver(2, b"y")
    back.completes(2)


def test_heartbeats_belong_to_the_connection_and_unknown_frames_to_the_session(
    begins: Begins, returns: Returns
) -> None:
    client = begins()
    client.send(Status(Stat.UNSPECIFIED, 0xFFFF_FFFF), bytes.fromhex("c6000000025000"))
    client.announce(1)
    client.send(Status(Stat.UNSPECIFIED, 0xFFFF_FFFF))
    client.settled()
    back = returns(client)
    assert back.again == []
    back.entity(1, b"x")
    back.completes(1)


# ---- peers that break the rules


def test_a_session_that_nobody_knows_is_not_found(join: Join, friend: WaitingClient) -> None:
    assert friend.quic.ended is None
    client = join(named=False)
    client.send(Session(client.name, 0, 0))
    client.closes(Code.CLAIM_NOT_FOUND)


def test_a_session_that_has_just_ended_with_an_error_is_not_found(program: Program, join: Join, begins: Begins) -> None:
    client = begins()
    client.send(b"\x00")
    client.vanish()
    program.clients.remove(client)
    late = join(named=False)
    late.send(Session(client.name, 0, 0))
    late.closes(Code.CLAIM_NOT_FOUND)


def test_a_session_that_does_not_survive_cannot_be_taken_over(join: Join, friend: WaitingClient) -> None:
    client = join(named=False)
    client.send(Session(friend.name, 0, 0))
    client.closes(Code.CLAIM_NOT_FOUND)


COUNTS: dict[str, Callable[[int, int], tuple[int, int]]] = {
    "more was received than was sent": lambda received, sent: (received + 1, sent),
    "far more was received than was sent": lambda received, sent: (received + (1 << 63), sent),
    "less was received than was acknowledged": lambda received, sent: (received - 1, sent),
    "less was sent than was received": lambda received, sent: (received, sent - 1),
    "nothing was ever sent": lambda received, _: (received, 0),
}


@pytest.mark.parametrize("change", COUNTS.values(), ids=COUNTS)
def test_counts_that_cannot_be_close_with_entity_invalid(
    program: Program,
    join: Join,
    begins: Begins,
    friend: WaitingClient,
    change: Callable[[int, int], tuple[int, int]],
) -> None:
    assert friend.quic.ended is None
    client = begins()
    client.deliver(1, b"x")
    client.completes(1)
    client.send(Session(client.name, len(client.heard)))
    client.settled()
    client.vanish()
    program.clients.remove(client)
    evil = join(named=False, name=client.name)
    # The CHECKPOINT's answer was heard, and not acknowledged.
    evil.send(Session(client.name, *change(len(client.heard) - 1, len(client.said))))
    if change(1, 1)[0] == 2:
        # One more than was acknowledged is one that was sent.
        evil.expect(Session)
        evil.close(Code.INTERNAL_ERROR)
        return
    evil.closes(Code.ENTITY_INVALID)


ACKNOWLEDGEMENTS: dict[str, Callable[[WaitingClient], Frame]] = {
    "of another session": lambda client: Session("0" * 32, len(client.heard)),
    "without a number": lambda client: Session(client.name),
    "of more than was sent": lambda client: Session(client.name, len(client.heard) + 1),
    "of less than before": lambda client: Session(client.name, len(client.heard) - 1),
    "that goes on again": lambda client: Session(client.name, len(client.heard), len(client.said)),
}


@pytest.mark.parametrize("frame", ACKNOWLEDGEMENTS.values(), ids=ACKNOWLEDGEMENTS)
def test_a_bad_acknowledgement_closes_with_entity_invalid(
    begins: Begins, friend: WaitingClient, frame: Callable[[WaitingClient], Frame]
) -> None:
    assert friend.quic.ended is None
    client = begins()
    client.deliver(1, b"x")
    client.completes(1)
    client.send(Session(client.name, len(client.heard)))
    client.send(frame(client))
    client.closes(Code.ENTITY_INVALID)


def test_other_capabilities_than_before_are_refused(program: Program, join: Join, begins: Begins) -> None:
    client = begins()
    client.announce(1)
    client.settled()
    client.vanish()
    program.clients.remove(client)
    other = join(Capabilities(layer2=True, max_window_size=7), named=False)
    other.send(Session(client.name, len(client.heard), len(client.said)))
    other.closes(Code.LAYER_UNSUPPORTED)


def test_whoever_begins_anew_under_a_name_that_is_taken_disturbs_nobody(
    join: Join, begins: Begins, returns: Returns
) -> None:
    client = begins()
    client.announce(1)
    client.settled()
    for received in (None, 0):
        other = join(named=False)
        other.send(Session(client.name, received))
        other.closes(Code.ENTITY_INVALID)
    back = returns(client)
    back.entity(1, b"x")
    back.completes(1)


def test_nothing_is_said_before_the_servers_session(begins: Begins, returns: Returns) -> None:
    client = begins()
    client.deliver(1, b"x")
    client.completes(1)
    back = returns(client)
    kinds = [type(frame) for frame in back.frames]
    assert kinds[:2] == [Capabilities, Session]


def test_frames_before_ones_own_session_close_with_entity_invalid(
    join: Join, program: Program, begins: Begins, friend: WaitingClient
) -> None:
    assert friend.quic.ended is None
    client = begins()
    client.vanish()
    program.clients.remove(client)
    early = join(named=False, name=client.name)
    early.send(ClaimQuery(1))
    early.closes(Code.ENTITY_INVALID)
    # That was a connection like any other: the session knows nothing of it.
    back = join(kind=Back, of=client)
    back.deliver(1, b"x")
    back.completes(1)


def test_the_connection_before_is_closed_and_heard_no_more(program: Program, join: Join, begins: Begins) -> None:
    client = begins()
    client.announce(1)
    client.settled()
    program.clients.remove(client)
    back = join(kind=Back, of=client)
    client.quic.send_stream_data(0, b"\x00")
    client.flush()
    client.closes(Code.NO_ERROR)
    back.entity(1, b"x")
    back.completes(1)
    client.vanish()


def test_only_who_shows_the_same_certificate_is_back(reactor: Reactor, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "an authority")
    mine, other = authority.sign("mine"), authority.sign("other")
    serve = Serve(tmp_path / "serve", "--client-ca", str(authority.file))
    client = WaitingClient(reactor, serve.address, survives=True, certificate=mine).open()
    client.announce(1)
    client.settled()
    client.vanish()
    thief = WaitingClient(reactor, serve.address, named=False, certificate=other).open()
    thief.send(Session(client.name, len(client.heard), len(client.said)))
    thief.closes(Code.CLAIM_NOT_FOUND)
    back = Back(reactor, serve.address, of=client, certificate=mine).open()
    back.entity(1, b"x")
    back.completes(1)
    back.close()
    for one in (thief, back):
        one.vanish()
    assert serve.stop() == 0


# ---- over processes, and with tokens


def test_a_token_is_good_over_another_connection_of_its_session(waits: Waits) -> None:
    client = waits(survives=True)
    token = waiting(client)
    client.vanish()
    back = waits(kind=Back, of=client)
    goes_on(back, token)
    assert back.resume(1, token) is Code.CLAIM_NOT_FOUND


def test_a_yield_that_nobody_heard_is_heard_by_the_next_connection(waits: Waits) -> None:
    client = waits(survives=True)
    client.deliver(1, b"a form", metadata={"conformance": "yield 4"})
    client.vanish()
    back = waits(kind=Back, of=client)
    if not back.statuses(1):
        # It had not come whole.
        back.entity(1, b"a form", metadata={"conformance": "yield 4"})
    _, token = back.waits(1)
    goes_on(back, token)
    back.hears(Stat.YIELDED, Stat.PROCESSING, Stat.COMPLETE, entity=1)


@pytest.fixture
def serves(tmp_path: Path) -> Iterator[Callable[[], Serve]]:
    """Starts the server again over the same sink and the same state, as often as one likes."""
    running: list[Serve] = []

    def start() -> Serve:
        running.append(Serve(tmp_path, "--state", str(tmp_path / "state")))
        return running[-1]

    yield start
    for serve in running:
        if serve.alive:
            serve.stop()


def test_a_session_goes_on_with_the_next_process(serves: Callable[[], Serve], reactor: Reactor) -> None:
    serve = serves()
    client = WaitingClient(reactor, serve.address, survives=True).open()
    policy = Policy(Mode.BEST_EFFORT, on_failure=Action.DEFER)
    client.parent(policy)
    client.announce(1, 2, 3, scope=2, depth=1)
    client.child(1)
    client.child(2, **BAD)
    client.completes(1, scope=2)
    claim, _ = client.set_aside(2, 2)
    serve.kill()
    client.child(3, b"lost")
    client.vanish()

    serve = serves()
    back = Back(reactor, serve.address, of=client).open()
    assert isinstance(back, Back)
    # Streams of what has no terminal status are lost with their connection, that of the parent, too.
    back.entity(1, metadata={"pipestream.dehydrated": "1", "pipestream.child-scope": "2"}, policy=policy.message())
    back.child(3, b"not lost")
    back.barrier(2, 1)
    assert back.released(2, 1) == digest_of(2, Stat.COMPLETE, Stat.DEFERRED, Stat.COMPLETE)
    back.completes(1)
    assert back.query(claim).status == Stat.DEFERRED
    # What was acknowledged was not said again, and nothing twice.
    back.hears(Stat.COMPLETE, entity=1, scope=2)
    back.hears(Stat.DEFERRED, entity=2, scope=2)
    back.close()
    reactor.run(lambda: log_of(serve.sink, back.name)[-1:] == [{"closed": 0}], TIMEOUT)
    *lines, last = log_of(serve.sink, back.name)
    assert last == {"closed": 0}
    assert sorted((line["scope"], line["entity"]) for line in lines) == [(0, 1), (2, 1), (2, 2), (2, 3)]
    assert (serve.sink / back.name / "2" / "3").read_bytes() == b"not lost"
    back.vanish()
