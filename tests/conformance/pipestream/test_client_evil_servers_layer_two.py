"""A client under test against evil servers of layer 2: the code it closes with, and exit 1."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from .entity import Header, merkle_root
from .fixtures import Owner, Sender
from .layer2 import Claim, ClaimQuery, ClaimRedeem, ClaimResponse, Resume, Session, deferred, yielded
from .peer import TIMEOUT
from .test_client import closed
from .test_codec import Vector, load
from .waiting_receiver import WaitingReceiver
from .wire import Code, Digest, Error, Frame, Stat, Status

Evil = Callable[[WaitingReceiver], object]
TWO = ("first", "second")
OTHER = "0" * 32


def refused(owner: Owner, receiver: WaitingReceiver, code: Code, *, policy: str | None = None) -> None:
    """The client closes with this code, and its application hears of it."""
    answer = owner.answers(receiver, children=list(TWO) if policy else None, policy=policy)
    assert receiver.reactor.run(receiver.has_ended, TIMEOUT)
    assert (closed(receiver), Code(closed(receiver)).name) == (code, code.name), receiver.quic.ended
    assert answer["error"] == code


def at_session(does: Evil) -> Callable[[WaitingReceiver, Frame], bool]:
    """What happens instead of the server's SESSION."""

    def on_frame(receiver: WaitingReceiver, frame: Frame) -> bool:
        if isinstance(frame, Session):
            receiver.name = frame.session
            does(receiver)
        return isinstance(frame, Session)

    return on_frame


def at_the_entity(does: Evil) -> Callable[[WaitingReceiver, Header, bytes], bool]:
    """What happens instead of the first entity's COMPLETE."""

    def on_entity(receiver: WaitingReceiver, _: Header, __: bytes) -> bool:
        does(receiver)
        return True

    return on_entity


BEGINNINGS: dict[str, Evil] = {
    "another name": lambda server: server.send(Session(OTHER)),
    "no name": lambda server: server.send(Session("")),
    "a name in capitals": lambda server: server.send(Session(server.name.upper().replace("0", "A"))),
    "SESSION twice": lambda server: server.send(Session(server.name), Session(server.name)),
    "that it goes on, without a number": lambda server: server.send(Session(server.name, None, 0)),
    "YIELDED before SESSION": lambda server: server.send(Status(Stat.YIELDED, 1, extension=yielded(1, b"t"))),
    "DEFERRED before SESSION": lambda server: server.send(Status(Stat.DEFERRED, 1, extension=deferred(1, 1))),
    "SKIPPED before SESSION": lambda server: server.status(Stat.SKIPPED, 1, cursor=2),
    "a query before SESSION": lambda server: server.send(ClaimQuery(1)),
    "RESUME before SESSION": lambda server: server.send(Resume(1, 1, b"t")),
}


@pytest.mark.parametrize("does", BEGINNINGS.values(), ids=BEGINNINGS)
def test_a_bad_answer_to_session_is_refused(sender: Sender, owner: Owner, does: Evil) -> None:
    refused(owner, sender.waiting(on_frame=at_session(does)), Code.ENTITY_INVALID)


SPEECHES: dict[str, tuple[Evil, Code]] = {
    "YIELDED without a token": (lambda server: server.status(Stat.YIELDED, 1, e=False), Code.ENTITY_INVALID),
    "YIELDED for reason 0": (
        lambda server: server.status(Stat.YIELDED, 1, extension=yielded(0, b"t")),
        Code.ENTITY_INVALID,
    ),
    "YIELDED for reason 6": (
        lambda server: server.status(Stat.YIELDED, 1, extension=yielded(6, b"t")),
        Code.ENTITY_INVALID,
    ),
    "YIELDED of an entity never announced": (
        lambda server: server.status(Stat.YIELDED, 7, extension=yielded(1, b"t")),
        Code.ENTITY_INVALID,
    ),
    "DEFERRED without a claim check": (
        lambda server: server.status(Stat.DEFERRED, 1, e=False, cursor=2),
        Code.ENTITY_INVALID,
    ),
    "SKIPPED with an extension": (
        lambda server: server.status(Stat.SKIPPED, 1, extension=bytes(16)),
        Code.ENTITY_INVALID,
    ),
    "SKIPPED of an entity never announced": (
        lambda server: server.status(Stat.SKIPPED, 7, cursor=2),
        Code.ENTITY_INVALID,
    ),
    "ABANDONED in a scope never opened": (
        lambda server: server.status(Stat.ABANDONED, 1, scope=4),
        Code.SCOPE_INVALID,
    ),
    "RETRYING, which is its owner's to say": (lambda server: server.status(Stat.RETRYING, 1), Code.ENTITY_INVALID),
    "a cursor beyond the next ID": (lambda server: server.status(Stat.SKIPPED, 1, cursor=9), Code.ENTITY_INVALID),
    "an answer that nobody asked for": (lambda server: server.send(ClaimResponse(1, False)), Code.ENTITY_INVALID),
    "a claim check that nobody asked for": (
        lambda server: server.send(ClaimResponse(1, True, Claim(1, 1, 0, 1), Stat.DEFERRED)),
        Code.ENTITY_INVALID,
    ),
    "SESSION once more": (lambda server: server.send(Session(server.name)), Code.ENTITY_INVALID),
    "SESSION of another name": (lambda server: server.send(Session(OTHER)), Code.ENTITY_INVALID),
    "a redemption of no session": (lambda server: server.send(ClaimRedeem(1, "")), Code.ENTITY_INVALID),
}


@pytest.mark.parametrize(("does", "code"), SPEECHES.values(), ids=SPEECHES)
def test_what_breaks_a_rule_closes_with_its_code(sender: Sender, owner: Owner, does: Evil, code: Code) -> None:
    refused(owner, sender.waiting(on_entity=at_the_entity(does)), code)


MALFORMED = [vector for vector in load("frames-layer2-invalid") if vector["name"].startswith(("0xC2", "0xC5 that"))]


@pytest.mark.parametrize("vector", MALFORMED, ids=lambda vector: vector["name"])
def test_frames_that_are_none_close_with_the_vectors_code(sender: Sender, owner: Owner, vector: Vector) -> None:
    def say(server: WaitingReceiver) -> None:
        server.send(bytes.fromhex(vector["hex"]), end=bool(vector.get("truncated")))

    refused(owner, sender.waiting(on_entity=at_the_entity(say)), Code[vector["code"]])


def test_a_query_of_the_servers_is_answered(sender: Sender, owner: Owner) -> None:
    def ask(receiver: WaitingReceiver, _: Header, __: bytes) -> bool:
        receiver.send(ClaimQuery(7), ClaimRedeem(8, OTHER))
        return False

    receiver = sender.waiting(on_entity=ask)
    owner.begin(receiver)
    assert receiver.expect(ClaimResponse) == ClaimResponse(7, False)
    assert Code(receiver.expect(Error).code) is Code.CLAIM_NOT_FOUND
    answer = owner.own.answer()
    assert (answer["status"], answer["error"]) == ("COMPLETE", None)


def failing(stat: Stat, parent: Stat, code: Code = Code.INTEGRITY_ERROR) -> Callable[[Sender], WaitingReceiver]:
    """A server that ends the first part so, and then its container otherwise than its policy says."""

    def make(sender: Sender) -> WaitingReceiver:
        def on_entity(receiver: WaitingReceiver, header: Header, payload: bytes) -> bool:
            return payload == b"first" and receiver.end(header, stat, code)

        def edit(frame: Frame) -> Frame:
            is_parent = isinstance(frame, Status) and frame.scope == 0 and frame.terminal
            return replace(frame, stat=parent) if is_parent else frame

        return sender.waiting(on_entity=on_entity, edit=edit)

    return make


BREAKS = [
    ("strict", Stat.FAILED),
    ("strict,on-failure=skip", Stat.SKIPPED),
    ("quorum:0.6", Stat.FAILED),
]


@pytest.mark.parametrize(("policy", "stat"), BREAKS, ids=lambda value: getattr(value, "name", value))
def test_complete_that_breaks_the_policy_closes_with_entity_invalid(
    sender: Sender, owner: Owner, policy: str, stat: Stat
) -> None:
    refused(owner, failing(stat, Stat.COMPLETE)(sender), Code.ENTITY_INVALID, policy=policy)


DIGESTS: dict[str, Callable[[Digest], Digest]] = {
    "FAILED for SKIPPED in the root": lambda digest: replace(digest, root=merkle_root([(1, 4), (2, 3)])),
    "COMPLETE for SKIPPED in the root": lambda digest: replace(digest, root=merkle_root([(1, 3), (2, 3)])),
    "SKIPPED among the failures": lambda digest: replace(digest, failed=1),
    "SKIPPED among the successes": lambda digest: replace(digest, succeeded=2),
    "SKIPPED among the deferred": lambda digest: replace(digest, deferred=1),
    "SKIPPED not among all": lambda digest: replace(digest, processed=1),
}


@pytest.mark.parametrize("change", DIGESTS.values(), ids=DIGESTS)
def test_a_digest_that_differs_closes_with_integrity_error(
    sender: Sender, owner: Owner, change: Callable[[Digest], Digest]
) -> None:
    def on_entity(receiver: WaitingReceiver, header: Header, payload: bytes) -> bool:
        return payload == b"first" and receiver.end(header, Stat.SKIPPED)

    edit = lambda frame: change(frame) if isinstance(frame, Digest) else frame  # noqa: E731
    receiver = sender.waiting(on_entity=on_entity, edit=edit)
    refused(owner, receiver, Code.INTEGRITY_ERROR, policy="best-effort,on-failure=skip")


RETURNS: dict[str, tuple[Callable[[WaitingReceiver], Session], Code]] = {
    "another name": (lambda server: Session(OTHER, server.taken, len(server.said)), Code.ENTITY_INVALID),
    "more received than was sent": (
        lambda server: Session(server.name, server.taken + 100, len(server.said)),
        Code.ENTITY_INVALID,
    ),
    "less sent than was received": (lambda server: Session(server.name, server.taken, 0), Code.ENTITY_INVALID),
}


def lost(does: Callable[[WaitingReceiver], object]) -> tuple[Callable[..., bool], Callable[..., bool]]:
    """Hooks of a server that loses the connection after COMPLETE, and does so when the client is back."""

    def on_frame(receiver: WaitingReceiver, frame: Frame) -> bool:
        back = isinstance(frame, Session) and frame.sent is not None
        if back:
            does(receiver)
        return back

    def on_entity(receiver: WaitingReceiver, header: Header, payload: bytes) -> bool:
        if payload != b"second":
            return False
        first = next(head for head, data in receiver.entities.values() if data == b"first")
        if first.entity not in receiver.scopes[first.scope].statuses:
            receiver.resolve(first.scope, first.entity, Stat.COMPLETE)
        del receiver.entities[header.scope, header.entity]
        # The client has heard of the first one, and answers nothing to it: a question says so.
        receiver.send(ClaimQuery(1))
        return True

    return on_frame, on_entity


@pytest.mark.parametrize(("answer", "code"), RETURNS.values(), ids=RETURNS)
def test_a_bad_answer_to_who_is_back_is_refused(
    sender: Sender, owner: Owner, answer: Callable[[WaitingReceiver], Session], code: Code
) -> None:
    on_frame, on_entity = lost(lambda server: server.send(answer(server)))
    receiver = sender.waiting(survives=True, on_frame=on_frame, on_entity=on_entity)
    owner.begin(receiver, children=list(TWO), survive=60)
    receiver.expect(ClaimResponse)
    receiver.later()
    assert owner.own.answer()["error"] == code
    assert receiver.connections == 2
    assert Code(closed(receiver)) is code


def test_a_server_that_has_forgotten_the_session_ends_it(sender: Sender, owner: Owner) -> None:
    on_frame, on_entity = lost(lambda server: server.close(Code.CLAIM_NOT_FOUND, "never heard of it"))
    receiver = sender.waiting(survives=True, on_frame=on_frame, on_entity=on_entity)
    owner.begin(receiver, children=list(TWO), survive=60)
    receiver.expect(ClaimResponse)
    receiver.later()
    answer = owner.own.answer()
    assert answer["error"] == Code.CLAIM_NOT_FOUND
    assert receiver.connections == 2


def test_the_command_ends_with_exit_1_and_says_why(sender: Sender) -> None:
    receiver = sender.waiting(on_frame=at_session(lambda server: server.send(Session(OTHER))))
    process = sender.send(receiver, "--no-dehydrate", sender.file(), "--layers", "2")
    process.exits(1)
    assert Code(closed(receiver)) is Code.ENTITY_INVALID
    assert process.stderr.strip()
    assert "Traceback" not in process.stderr
