"""A client under test against good servers of layer 2: what it says of its session, its policies, and what waits."""

import json
import time
from collections.abc import Callable
from functools import reduce
from operator import and_, or_
from pathlib import Path
from typing import Any

import pytest

from .entity import Header
from .fixtures import Owner, Sender
from .layer2 import SESSION_ID, Action, ClaimRedeem, Mode, Policy, Resume, Session, decode_policy
from .programs import Send
from .test_client import archive, check_conduct, closed, statuses
from .waiting import digest_of
from .waiting_receiver import WaitingReceiver
from .wire import Capabilities, Code, Digest, Stat, Status

TWO = {"a.txt": b"first", "b.txt": b"second"}
Hook = Callable[[WaitingReceiver, Header, bytes], bool]
FAR = 4_000_000_000_000_000


def on(payload: bytes, does: Hook, times: int = 1) -> Hook:
    """Does so with the first `times` streams of that payload; all others are received as ever."""
    left = [times]

    def on_entity(receiver: WaitingReceiver, header: Header, data: bytes) -> bool:
        if data != payload or not left[0]:
            return False
        left[0] -= 1
        return does(receiver, header, data)

    return on_entity


def sends(sender: Sender, receiver: WaitingReceiver, *arguments: str | Path, tree: dict[str, Any] = TWO) -> Send:
    """The client with a zip of two, the same one in each run of a test, and its receipts."""
    path = sender.folder / "two.zip"
    if not path.exists():
        path.write_bytes(archive(tree))
    process = sender.send(receiver, path, "--receipts", sender.folder / "receipts", *arguments)
    receiver.accepts()
    return process


def receipt(sender: Sender) -> dict[str, Any]:
    (path,) = (sender.folder / "receipts").glob("*.json")
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def parts(sender: Sender) -> list[tuple[str, int]]:
    """Status and number of attempts of each part."""
    return [(part["status"], part["attempts"]) for part in receipt(sender)["parts"]]


def test_the_client_names_its_session_before_anything_else(sender: Sender) -> None:
    receiver = sender.waiting()
    process = sends(sender, receiver, "--layers", "2")
    process.exits(0)
    assert closed(receiver) == Code.NO_ERROR
    assert isinstance(receiver.frames[0], Capabilities)
    assert receiver.frames[0].layer2
    first = receiver.frames[1]
    assert isinstance(first, Session)
    assert SESSION_ID.fullmatch(first.session)
    assert first.sent is None
    assert receipt(sender)["session"] == first.session
    check_conduct(receiver)


def test_names_are_random(sender: Sender, owner: Owner) -> None:
    names = [int(owner.answers(sender.waiting())["session"], 16) for _ in range(32)]
    # Each bit is 0 in one and 1 in another, but for one case in 2^24.
    assert reduce(or_, names) == (1 << 128) - 1
    assert reduce(and_, names) == 0


def test_below_layer_2_the_client_names_nothing(sender: Sender) -> None:
    receiver = sender.waiting(capabilities=Capabilities())
    process = sends(sender, receiver, "--layers", "2")
    process.exits(0)
    assert not [frame for frame in receiver.frames if isinstance(frame, Session)]
    assert receipt(sender)["session"] == receiver.quic.session_id


POLICIES: dict[str, Policy] = {
    "lenient": Policy(Mode.LENIENT),
    "best-effort,on-timeout=defer,timeout=60": Policy(Mode.BEST_EFFORT, timeout_ms=60_000, on_timeout=Action.DEFER),
    "quorum:0.8,on-failure=skip": Policy(Mode.QUORUM, ratio=0.800000011920929, on_failure=Action.SKIP),
    "strict,on-failure=retry,max-retries=7,retry-delay=0.25,timeout=0": Policy(
        Mode.STRICT, max_retries=7, retry_delay_ms=250, timeout_ms=0, on_failure=Action.RETRY
    ),
}
DEFAULTS = {
    "max_retries": 3,
    "retry_delay_ms": 1000,
    "timeout_ms": 300_000,
    "on_timeout": Action.FAIL,
    "on_failure": Action.FAIL,
}


def effective(policy: Policy) -> Policy:
    """With the defaults of section 8.3 for what it does not set."""
    values = {name: DEFAULTS.get(name) if value is None else value for name, value in vars(policy).items()}
    return Policy(**values)


@pytest.mark.parametrize("text", POLICIES)
def test_a_policy_stands_in_the_parents_header(sender: Sender, owner: Owner, text: str) -> None:
    receiver = sender.waiting()
    assert owner.answers(receiver, children=["first"], policy=text)["status"] == "COMPLETE"
    policy = receiver.entities[0, 1][0].policy
    assert policy is not None
    assert effective(decode_policy(policy)) == effective(POLICIES[text])


def test_a_documents_policy_stands_in_the_header_of_each_container(sender: Sender) -> None:
    text, tree = "quorum:0.8,on-failure=skip", {"a.txt": b"first", "in.zip": {"b.txt": b"second"}}
    receiver = sender.waiting()
    process = sends(sender, receiver, "--policy", text, tree=tree)
    process.exits(0)
    dehydrated = [header for header, _ in receiver.entities.values() if "pipestream.dehydrated" in header.metadata]
    assert len(dehydrated) == 2
    for header in dehydrated:
        assert header.policy is not None
        assert effective(decode_policy(header.policy)) == effective(POLICIES[text])
    check_conduct(receiver)


def test_what_failed_is_announced_and_comes_again_after_the_delay(sender: Sender) -> None:
    at: list[float] = []

    def not_yet(receiver: WaitingReceiver, header: Header, _: bytes) -> bool:
        at.append(time.monotonic())
        return receiver.fail_for_now(header)

    receiver = sender.waiting(on_entity=on(b"second", not_yet, times=2))
    process = sends(sender, receiver, "--policy", "strict,on-failure=retry,retry-delay=0.3")
    receiver.wait(lambda: len(at) == 2, "the second attempt")
    process.exits(0)
    assert closed(receiver) == Code.NO_ERROR
    # Not before the delay is over: a slow machine makes it only longer.
    assert at[1] - at[0] >= 0.3
    scope = next(number for number in receiver.scopes if number)
    assert statuses(receiver, Stat.RETRYING) == [Status(Stat.RETRYING, 2, scope, 1)] * 2
    assert parts(sender) == [("COMPLETE", 1), ("COMPLETE", 3)]
    attempts = receiver.entities[scope, 2][0].metadata.get("pipestream.attempt")
    assert attempts in (None, "3")


ENDS = [
    ("strict", Stat.FAILED, Stat.FAILED),
    ("lenient", Stat.FAILED, Stat.COMPLETE),
    ("quorum:0.5", Stat.ABANDONED, Stat.COMPLETE),
    ("quorum:0.6", Stat.ABANDONED, Stat.FAILED),
    ("best-effort,on-failure=skip", Stat.SKIPPED, Stat.COMPLETE),
    ("strict,on-failure=skip", Stat.SKIPPED, Stat.FAILED),
]


@pytest.mark.parametrize(("policy", "child", "parent"), ENDS, ids=lambda value: getattr(value, "name", value))
def test_client_and_server_come_to_the_same_outcome(
    sender: Sender, owner: Owner, policy: str, child: Stat, parent: Stat
) -> None:
    # A time-out is what ABANDONED stands for.
    code = Code.IDLE_TIMEOUT if child is Stat.ABANDONED else Code.INTEGRITY_ERROR
    receiver = sender.waiting(on_entity=on(b"first", lambda server, header, _: server.end(header, child, code)))
    answer = owner.answers(receiver, children=["first", "second"], policy=policy)
    assert (answer["status"], answer["error"]) == (parent.name, None)
    assert answer["parts"] == [[child.name, 1], ["COMPLETE", 1]]
    assert closed(receiver) == Code.NO_ERROR


def test_a_child_that_was_skipped_is_in_the_receipt_and_makes_exit_1(sender: Sender) -> None:
    receiver = sender.waiting(on_entity=on(b"first", lambda server, header, _: server.end(header, Stat.SKIPPED)))
    process = sends(sender, receiver, "--policy", "lenient,on-failure=skip")
    process.exits(1)
    assert closed(receiver) == Code.NO_ERROR
    scope = next(number for number in receiver.scopes if number)
    found = receipt(sender)
    assert found["status"] == "COMPLETE"
    assert [part["status"] for part in found["parts"]] == ["SKIPPED", "COMPLETE"]
    assert found["scopes"][0]["merkle_root"] == digest_of(scope, Stat.SKIPPED, Stat.COMPLETE).root.hex()


def test_the_failure_after_the_last_retry_is_final(sender: Sender, owner: Owner) -> None:
    tries: list[int] = []

    def never(receiver: WaitingReceiver, header: Header, _: bytes) -> bool:
        tries.append(header.entity)
        return receiver.fail_for_now(header) if len(tries) < 3 else receiver.end(header, Stat.FAILED)

    receiver = sender.waiting(on_entity=on(b"first", never, times=9))
    policy = "lenient,on-failure=retry,max-retries=2,retry-delay=0"
    answer = owner.answers(receiver, children=["first", "second"], policy=policy)
    assert (answer["status"], answer["error"]) == ("COMPLETE", None)
    assert answer["parts"] == [["FAILED", 3], ["COMPLETE", 1]]
    assert len(tries) == 3


CLAIM = 0xFEDC_BA98_7654_3210


def deferring(sender: Sender) -> WaitingReceiver:
    """A run whose first part is set aside."""
    receiver = sender.waiting(on_entity=on(b"first", lambda server, header, _: server.defer(header, CLAIM, FAR)))
    process = sends(sender, receiver, "--policy", "best-effort")
    process.exits(1)
    assert closed(receiver) == Code.NO_ERROR
    assert [part["status"] for part in receipt(sender)["parts"]] == ["DEFERRED", "COMPLETE"]
    assert receipt(sender)["parts"][0]["claim"] == f"{CLAIM:016x}"
    return receiver


def test_what_was_set_aside_is_redeemed_by_the_next_run_and_sent_again(sender: Sender) -> None:
    first = deferring(sender)
    second = sender.waiting()
    second.claims = dict(first.claims)
    process = sends(sender, second, "--policy", "best-effort", "--previous", sender.folder / "receipts")
    process.exits(0)
    redemptions = [frame for frame in second.asked if isinstance(frame, ClaimRedeem)]
    assert redemptions == [ClaimRedeem(CLAIM, first.name)]
    assert second.name != first.name
    again = [(header, payload) for header, payload in second.entities.values() if payload]
    assert [payload for _, payload in again] == [b"first"], "nothing else is sent again"
    assert again[0][0].metadata["pipestream.claim"] == f"{CLAIM:016x}"
    assert [part["status"] for part in receipt(sender)["parts"]] == ["COMPLETE", "COMPLETE"]


@pytest.mark.parametrize("known", ["redeemed", "expired"])
def test_a_part_whose_claim_check_is_gone_is_sent_like_any_other(sender: Sender, known: str) -> None:
    first = deferring(sender)
    second = sender.waiting()
    if known == "redeemed":
        claim, session, _ = first.claims[CLAIM]
        second.claims = {CLAIM: (claim, session, Stat.PROCESSING)}
    process = sends(sender, second, "--policy", "best-effort", "--previous", sender.folder / "receipts")
    process.exits((0, 1))
    assert closed(second) == Code.NO_ERROR
    assert {frame.claim for frame in second.asked} <= {CLAIM}
    if process.process.returncode == 0:
        assert any(payload == b"first" for _, payload in second.entities.values())


def test_what_the_server_skips_by_itself_is_skipped(sender: Sender, owner: Owner) -> None:
    receiver = sender.waiting(on_entity=on(b"some bytes", lambda server, header, _: server.end(header, Stat.SKIPPED)))
    assert owner.answers(receiver)["status"] == "SKIPPED"
    assert closed(receiver) == Code.NO_ERROR


@pytest.mark.parametrize("token", [b"", b"t", bytes(range(256)) * 200], ids=["empty", "one byte", "51200 bytes"])
def test_a_token_comes_back_as_it_was_given(sender: Sender, owner: Owner, token: bytes) -> None:
    def wait(receiver: WaitingReceiver, header: Header, _: bytes) -> bool:
        return receiver.pause(header, 4, token)

    def on_frame(receiver: WaitingReceiver, frame: Any) -> bool:
        if isinstance(frame, Resume):
            receiver.take(frame)
            receiver.resolve(0, 1, Stat.COMPLETE)
        return isinstance(frame, Resume)

    receiver = sender.waiting(on_entity=on(b"some bytes", wait), on_frame=on_frame)
    answer = owner.answers(receiver, resume=1)
    assert receiver.resumes == [Resume(0, 1, token)]
    assert answer["yields"] == [{"reason": "AWAITING_APPROVAL", "refused": None}]
    assert (answer["status"], answer["error"]) == ("COMPLETE", None)


def test_a_refused_token_is_told(sender: Sender, owner: Owner) -> None:
    def wait(receiver: WaitingReceiver, header: Header, _: bytes) -> bool:
        return receiver.pause(header, 1, b"worthless")

    def on_frame(receiver: WaitingReceiver, frame: Any) -> bool:
        if isinstance(frame, Resume):
            receiver.end(receiver.entities[0, 1][0], Stat.SKIPPED, Code.CLAIM_NOT_FOUND)
        return isinstance(frame, Resume)

    receiver = sender.waiting(on_entity=on(b"some bytes", wait), on_frame=on_frame)
    answer = owner.answers(receiver, resume=1)
    assert answer["yields"] == [{"reason": "EXTERNAL_CALL", "refused": Code.CLAIM_NOT_FOUND}]
    assert (answer["status"], answer["error"]) == ("SKIPPED", None)


def test_a_client_goes_on_over_another_connection(sender: Sender) -> None:
    def lose(receiver: WaitingReceiver, header: Header, _: bytes) -> bool:
        # Gone before anything is said of this one, and with it what was said just now.
        del receiver.entities[header.scope, header.entity]
        receiver.later()
        return True

    receiver = sender.waiting(survives=True, on_entity=on(b"second", lose))
    process = sends(sender, receiver, "--survive", "60")
    process.exits(0)
    assert receiver.connections == 2
    assert closed(receiver) == Code.NO_ERROR
    sessions = [frame for frame in receiver.frames if isinstance(frame, Session) and frame.sent is not None]
    assert len(sessions) == 1
    assert sessions[0].session == receiver.name
    # Nothing was announced twice, and nothing was lost.
    pending = [(frame.scope, frame.entity) for frame in statuses(receiver, Stat.PENDING)]
    assert len(pending) == len(set(pending)) == 3
    assert [part["status"] for part in receipt(sender)["parts"]] == ["COMPLETE", "COMPLETE"]
    assert not [frame for frame in receiver.frames if isinstance(frame, Digest)]
