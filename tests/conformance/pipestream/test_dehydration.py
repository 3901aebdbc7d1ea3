"""Decisions 9, 10 and 11: parents, child scopes, barriers and digests."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from .client import Client
from .entity import EMPTY_SHA256, merkle_root
from .fixtures import Connect, Program
from .wire import Barrier, Capabilities, Checkpoint, Code, Digest, Error, Frame, Stat, Status

Evil = Callable[[Client], object]


def parent_and_children(client: Client, children: int = 3, scope: int = 2) -> None:
    """Entity 1 of scope 0, dehydrated into `scope`, whose children are announced but not sent."""
    client.dehydrate(1, scope)
    client.announce(*range(1, children + 1), scope=scope, depth=1)


def child(client: Client, entity: int, payload: bytes = b"a child", *, scope: int = 2, **fields: Any) -> int:
    return client.entity(entity, payload, scope=scope, parent=fields.pop("parent", 1), **fields)


def statuses_of(client: Client, entity: int, scope: int = 0) -> list[Status]:
    return [
        frame for frame in client.frames if isinstance(frame, Status) and (frame.entity, frame.scope) == (entity, scope)
    ]


def index(client: Client, matches: Callable[[Frame], bool]) -> int:
    return next(position for position, frame in enumerate(client.frames) if matches(frame))


def test_a_barrier_is_answered_by_digest_release_and_the_parents_status(program: Program, connect: Connect) -> None:
    client = connect()
    parent_and_children(client)
    for entity in (3, 1):
        child(client, entity)
    client.barrier(2, 1)
    client.completes(1, 3, scope=2)
    client.settled()
    assert not statuses_of(client, 1), "a dehydrated entity is never completed before its barrier"
    child(client, 2)
    digest = client.released(2, 1)
    leaves = [(1, Stat.COMPLETE), (2, Stat.COMPLETE), (3, Stat.COMPLETE)]
    assert digest == Digest(2, 3, 3, 0, 0, merkle_root(leaves))
    assert client.terminal(1) == Status(Stat.COMPLETE, 1, cursor=2)
    release = index(client, lambda frame: isinstance(frame, Barrier))
    assert index(client, lambda frame: isinstance(frame, Status) and frame.scope == 0) > release
    assert program.file(client, 2, scope=2).read_bytes() == b"a child"
    # The parent has no bytes of its own, and so no file.
    assert not program.file(client, 1).exists()
    assert {frame.depth for frame in client.frames if isinstance(frame, Status) and frame.scope == 2} == {1}


def test_a_dehydrated_parent_may_have_bytes_of_its_own(program: Program, connect: Connect) -> None:
    client = connect()
    client.dehydrate(1, 2, b"its own")
    client.deliver(1, b"a child", scope=2, parent=1, depth=1)
    client.barrier(2, 1)
    client.completes(1)
    assert program.file(client, 1).read_bytes() == b"its own"


def test_a_child_that_is_not_complete_fails_its_parent_and_enters_the_digest(connect: Connect) -> None:
    client = connect()
    parent_and_children(client)
    child(client, 1)
    child(client, 2, checksum=EMPTY_SHA256)
    client.status(Stat.FAILED, 3, scope=2, depth=1)
    client.barrier(2, 1)
    leaves = [(1, Stat.COMPLETE), (2, Stat.FAILED), (3, Stat.FAILED)]
    assert client.released(2, 1) == Digest(2, 3, 1, 2, 0, merkle_root(leaves))
    client.fails(2, Code.INTEGRITY_ERROR, scope=2)
    assert client.terminal(1) == Status(Stat.FAILED, 1, cursor=2)


def test_failure_goes_up_to_the_root(connect: Connect) -> None:
    client = connect()
    client.dehydrate(1, 2)
    client.dehydrate(1, 4, scope=2, depth=1, parent=1)
    client.dehydrate(1, 6, scope=4, depth=2, parent=1, metadata={"pipestream.parent-scope": "2"})
    client.announce(1, scope=6, depth=3)
    client.status(Stat.FAILED, 1, scope=6, depth=3)
    for scope in (2, 4, 6):
        client.barrier(scope, 1)
    for scope in (6, 4, 2):
        digest = client.released(scope, 1)
        assert digest == Digest(scope, 1, 0, 1, 0, merkle_root([(1, Stat.FAILED)]))
    assert client.terminal(1).stat == Stat.FAILED


def test_an_empty_scope_has_the_digest_of_nothing(connect: Connect) -> None:
    client = connect()
    client.dehydrate(1, 2)
    client.barrier(2, 1)
    assert client.released(2, 1) == Digest(2, 0, 0, 0, 0, EMPTY_SHA256)
    client.completes(1)


@pytest.mark.parametrize("children", [1, 2, 5, 7, 33, 300])
def test_the_digest_of_many_is_right(connect: Connect, children: int) -> None:
    client = connect()
    parent_and_children(client, children)
    leaves = []
    for entity in range(1, children + 1):
        bad: dict[str, Any] = {"checksum": EMPTY_SHA256} if entity % 5 == 0 else {}
        leaves.append((entity, Stat.FAILED if bad else Stat.COMPLETE))
        child(client, entity, **bad)
    client.barrier(2, 1)
    failed = children // 5
    assert client.released(2, 1) == Digest(2, children, children - failed, failed, 0, merkle_root(leaves))


def nested(client: Client, levels: int) -> None:
    """Parents in scopes 0, 2, 4, ... one below the other."""
    for depth in range(levels):
        above = {"pipestream.parent-scope": str(2 * depth - 2)} if depth > 1 else {}
        parent = 1 if depth else 0
        client.dehydrate(1, 2 * depth + 2, scope=2 * depth, depth=depth, parent=parent, metadata=above)


def test_scopes_go_down_to_depth_7(program: Program, connect: Connect) -> None:
    client = connect()
    nested(client, 7)
    payload = b"at depth 7"
    metadata = {"pipestream.parent-scope": "12"}
    client.deliver(1, payload, scope=14, depth=7, parent=1, metadata=metadata)
    for scope in range(2, 16, 2):
        client.barrier(scope, 1)
    client.completes(1)
    assert program.file(client, 1, scope=14).read_bytes() == payload


def test_dehydrating_at_depth_7_exceeds_the_depth_at_once(connect: Connect) -> None:
    client = connect()
    nested(client, 7)
    client.send(Status(Stat.PENDING, 1, 14, 7), Status(Stat.DEHYDRATING, 1, 14, 7))
    client.closes(Code.DEPTH_EXCEEDED)


def test_dehydrating_at_the_agreed_depth_exceeds_it(connect: Connect) -> None:
    client = connect(Capabilities(max_scope_depth=2))
    nested(client, 2)
    client.send(Status(Stat.PENDING, 1, 4, 2), Status(Stat.DEHYDRATING, 1, 4, 2))
    client.closes(Code.DEPTH_EXCEEDED)


@pytest.mark.parametrize("depth", [0, 2, 7])
def test_a_depth_that_is_not_its_scopes_closes_with_entity_invalid(connect: Connect, depth: int) -> None:
    client = connect()
    client.dehydrate(1, 2)
    client.announce(1, scope=2, depth=depth)
    client.closes(Code.ENTITY_INVALID)


def test_a_depth_in_the_root_scope_closes_with_entity_invalid(connect: Connect) -> None:
    client = connect()
    client.announce(1, depth=1)
    client.closes(Code.ENTITY_INVALID)


CHILD_SCOPES: dict[str, str | None] = {
    "missing": None,
    "empty": "",
    "no number": "two",
    "negative": "-2",
    "with a sign": "+2",
    "with a fraction": "2.0",
    "with a space": " 2",
    "in other digits": "\N{ARABIC-INDIC DIGIT TWO}",
    "65536": "65536",
    "of 40 digits": "2" * 40,
    "0, the client's root": "0",
    "1, the server's root": "1",
    "of the other parity": "3",
}


@pytest.mark.parametrize("scope", CHILD_SCOPES.values(), ids=CHILD_SCOPES)
def test_a_child_scope_that_is_none_closes_with_scope_invalid(connect: Connect, scope: str | None) -> None:
    client = connect()
    client.dehydrate(1, None, metadata={} if scope is None else {"pipestream.child-scope": scope})
    client.closes(Code.SCOPE_INVALID)


def _same_scope_twice(client: Client) -> None:
    client.dehydrate(1, 2)
    client.dehydrate(2, 2)


def _barrier_of_another(client: Client) -> None:
    client.dehydrate(1, 2)
    client.dehydrate(2, 4)
    client.barrier(2, 2)


def _child_of_another(client: Client) -> None:
    client.dehydrate(1, 2)
    client.dehydrate(2, 4)
    client.deliver(1, scope=2, parent=2, depth=1)


def _grandchild(client: Client, metadata: Mapping[str, str]) -> None:
    client.dehydrate(1, 2)
    client.dehydrate(1, 4, scope=2, depth=1, parent=1)
    client.deliver(1, scope=4, parent=1, depth=2, metadata=metadata)


BINDINGS: dict[str, Evil] = {
    "one scope for two parents": _same_scope_twice,
    "BARRIER of another parent": _barrier_of_another,
    "a child of another parent": _child_of_another,
    "a child of no parent": lambda client: (client.dehydrate(1, 2), client.deliver(1, scope=2, depth=1)),
    "a grandchild that does not say its parent's scope": lambda client: _grandchild(client, {}),
    "a grandchild of another scope": lambda client: _grandchild(client, {"pipestream.parent-scope": "0"}),
    "a grandchild of no scope": lambda client: _grandchild(client, {"pipestream.parent-scope": "two"}),
}


@pytest.mark.parametrize("does", BINDINGS.values(), ids=BINDINGS)
def test_what_disagrees_with_the_parents_header_closes_with_scope_invalid(connect: Connect, does: Evil) -> None:
    client = connect()
    does(client)
    client.closes(Code.SCOPE_INVALID)


def test_what_came_before_the_parents_header_must_agree_with_it(connect: Connect) -> None:
    client = connect()
    client.dehydrate(1, None, stream=False)
    client.dehydrate(2, None, stream=False)
    client.announce(1, scope=2, depth=1)
    child(client, 1, parent=2)
    client.settled()
    client.entity(1, metadata={"pipestream.dehydrated": "1", "pipestream.child-scope": "2"})
    client.closes(Code.SCOPE_INVALID)


UNBINDABLE: dict[str, Evil] = {
    "PENDING, nothing announced": lambda client: client.announce(1, scope=2, depth=1),
    "BARRIER, nothing announced": lambda client: client.barrier(2, 1),
    "PENDING below an entity that is not DEHYDRATING": lambda client: (
        client.announce(1),
        client.announce(1, scope=2, depth=1),
    ),
    "BARRIER of an entity that is not DEHYDRATING": lambda client: (client.announce(1), client.barrier(2, 1)),
    "BARRIER of an entity that was never announced": lambda client: (
        client.dehydrate(1, None, stream=False),
        client.barrier(2, 7),
    ),
    "two scopes for one parent, both by PENDING": lambda client: (
        client.dehydrate(1, None, stream=False),
        client.announce(1, scope=2, depth=1),
        client.announce(1, scope=4, depth=1),
    ),
    "two scopes for one parent, both by BARRIER": lambda client: (
        client.dehydrate(1, None, stream=False),
        client.dehydrate(2, None, stream=False),
        client.barrier(2, 1),
        client.barrier(4, 1),
    ),
    "two scopes for one parent, one by its header": lambda client: (
        client.dehydrate(1, 2),
        client.announce(1, scope=4, depth=1),
    ),
    "two scopes for one parent, one by its depth and one by the BARRIER": lambda client: (
        client.dehydrate(1, 2),
        client.dehydrate(2, None, stream=False),
        client.dehydrate(1, None, scope=2, depth=1, parent=1, stream=False),
        client.announce(1, scope=4, depth=1),
        client.barrier(6, 2),
    ),
    "a header that overtook its PENDING": lambda client: (
        child(client, 1, scope=2),
        client.announce(1, scope=2, depth=1),
    ),
}


@pytest.mark.parametrize("does", UNBINDABLE.values(), ids=UNBINDABLE)
def test_a_scope_that_no_parent_can_have_closes_with_scope_invalid_at_once(connect: Connect, does: Evil) -> None:
    client = connect()
    does(client)
    client.closes(Code.SCOPE_INVALID)


def test_scopes_come_again_behind_the_wrapping_point_whatever_was_passed_over(connect: Connect) -> None:
    client = connect()
    scopes = (65_534, 2, 20_000, 40_000, 60_000, 65_532)
    for entity, scope in enumerate(scopes * 3, 1):
        client.dehydrate(entity, scope)
        client.deliver(1, f"use {entity}".encode(), scope=scope, parent=entity, depth=1)
        client.barrier(scope, entity)
        # The parent is COMPLETE when its scope is released.
        client.completes(entity)


@pytest.mark.parametrize("before", [(), (4,), (4, 6, 8)], ids=["at once", "after one", "after three"])
def test_a_scope_does_not_come_again_before_the_ids_have_wrapped(connect: Connect, before: tuple[int, ...]) -> None:
    client = connect()
    for entity, scope in enumerate((2, *before), 1):
        client.dehydrate(entity, scope)
        client.barrier(scope, entity)
        client.released(scope, entity)
    client.dehydrate(len(before) + 2, 2)
    client.closes(Code.SCOPE_INVALID)


def test_children_and_barrier_wait_for_the_parents_header(connect: Connect) -> None:
    client = connect()
    client.dehydrate(1, None, stream=False)
    client.announce(1, 2, scope=2, depth=1)
    child(client, 2, b"two")
    child(client, 1, b"one")
    client.barrier(2, 1)
    client.nothing_happens(0.2)
    client.entity(1, metadata={"pipestream.dehydrated": "1", "pipestream.child-scope": "2"})
    leaves = [(1, Stat.COMPLETE), (2, Stat.COMPLETE)]
    assert client.released(2, 1) == Digest(2, 2, 2, 0, 0, merkle_root(leaves))
    client.completes(1)


def test_children_of_a_parent_that_fails_before_its_header_fail_with_it(program: Program, connect: Connect) -> None:
    client = connect()
    client.dehydrate(1, None, stream=False)
    client.announce(1, 2, scope=2, depth=1)
    child(client, 1, b"one")
    client.status(Stat.FAILED, 1)
    client.barrier(2, 1)
    leaves = [(1, Stat.FAILED), (2, Stat.FAILED)]
    assert client.released(2, 1) == Digest(2, 2, 0, 2, 0, merkle_root(leaves))
    assert client.terminal(1) == Status(Stat.FAILED, 1, cursor=2)
    assert client.terminal(1, scope=2).stat == Stat.FAILED
    assert not program.file(client, 1, scope=2).exists()
    client.deliver(2, b"the next document")
    client.completes(2)


def test_a_dehydrating_parents_failure_is_reported_at_once_and_its_status_waits(connect: Connect) -> None:
    client = connect()
    client.dehydrate(1, 2, b"its own", checksum=EMPTY_SHA256)
    error = client.expect(Error)
    assert (Code(error.code), error.scope, error.entity) == (Code.INTEGRITY_ERROR, 0, 1)
    client.announce(1, scope=2, depth=1)
    child(client, 1)
    client.completes(1, scope=2)
    client.settled()
    assert not statuses_of(client, 1)
    client.barrier(2, 1)
    assert client.released(2, 1) == Digest(2, 1, 1, 0, 0, merkle_root([(1, Stat.COMPLETE)]))
    assert client.terminal(1).stat == Stat.FAILED
    release = index(client, lambda frame: isinstance(frame, Barrier))
    assert index(client, lambda frame: isinstance(frame, Status) and frame.scope == 0) > release


def test_the_owners_failed_of_a_dehydrating_parent_is_echoed_after_the_barrier(connect: Connect) -> None:
    client = connect()
    parent_and_children(client, 1)
    client.status(Stat.FAILED, 1)
    child(client, 1)
    client.completes(1, scope=2)
    client.settled()
    assert not statuses_of(client, 1)
    client.barrier(2, 1)
    client.released(2, 1)
    assert client.terminal(1) == Status(Stat.FAILED, 1, cursor=2)


def test_a_child_announced_after_its_scopes_barrier_closes_with_entity_invalid(connect: Connect) -> None:
    client = connect()
    parent_and_children(client, 1)
    client.barrier(2, 1)
    client.announce(2, scope=2, depth=1)
    client.closes(Code.ENTITY_INVALID)


def test_late_statuses_for_a_released_scope_are_ignored(connect: Connect) -> None:
    client = connect()
    parent_and_children(client, 1)
    child(client, 1)
    client.barrier(2, 1)
    client.released(2, 1)
    client.status(Stat.FAILED, 1, scope=2, depth=1)
    client.deliver(2, b"goes on")
    client.completes(2)


def test_a_late_stream_of_a_released_scope_is_stopped_and_dropped(program: Program, connect: Connect) -> None:
    client = connect()
    parent_and_children(client, 1)
    client.status(Stat.FAILED, 1, scope=2, depth=1)
    client.barrier(2, 1)
    client.released(2, 1)
    stream = client.entity(1, b"late", end=False, scope=2, parent=1, payload_length=100)
    client.wait(lambda: stream in client.stopped, "STOP_SENDING")
    assert not program.file(client, 1, scope=2).exists()
    client.deliver(2, b"goes on")
    client.completes(2)


def test_a_root_scopes_barrier_is_answered_and_ends_its_announcements(connect: Connect) -> None:
    client = connect()
    client.deliver(1, b"x")
    client.announce(2)
    client.barrier(0, 0)
    client.completes(1)
    client.settled()
    assert not [frame for frame in client.frames if isinstance(frame, Digest | Barrier)]
    client.entity(2, b"y")
    leaves = [(1, Stat.COMPLETE), (2, Stat.COMPLETE)]
    assert client.released(0, 0) == Digest(0, 2, 2, 0, 0, merkle_root(leaves))
    client.announce(3)
    client.closes(Code.ENTITY_INVALID)


def test_more_than_1000_children_of_a_small_original_fail_the_parent(connect: Connect) -> None:
    client = connect()
    parent_and_children(client, 1001)
    error = client.expect(Error)
    assert (Code(error.code), error.scope, error.entity) == (Code.ENTITY_INVALID, 0, 1)
    client.send(*(Status(Stat.FAILED, entity, 2, 1) for entity in range(1, 1002)))
    client.barrier(2, 1)
    client.released(2, 1)
    assert client.terminal(1).stat == Stat.FAILED


def test_1000_children_for_each_mebibyte_of_the_original_are_allowed(connect: Connect) -> None:
    client = connect()
    # Rounded up: one byte more is another thousand children.
    client.dehydrate(1, 2, metadata={"pipestream.original-length": str((1 << 20) + 1)})
    client.announce(*range(1, 2001), scope=2, depth=1)
    client.settled()
    assert not [frame for frame in client.frames if isinstance(frame, Error)]
    client.announce(2001, scope=2, depth=1)
    assert Code(client.expect(Error).code) is Code.ENTITY_INVALID


def test_each_scope_has_its_own_ids(program: Program, connect: Connect) -> None:
    client = connect()
    client.dehydrate(1, 2)
    client.dehydrate(2, 4)
    for scope, parent in ((2, 1), (4, 2)):
        client.deliver(1, f"in scope {scope}".encode(), scope=scope, parent=parent, depth=1)
        client.barrier(scope, parent)
    client.completes(1, 2)
    assert [program.file(client, 1, scope=scope).read_bytes() for scope in (2, 4)] == [b"in scope 2", b"in scope 4"]


def test_scopes_need_not_be_taken_without_gaps(connect: Connect) -> None:
    client = connect()
    client.dehydrate(1, 65_534)
    client.deliver(1, b"x", scope=65_534, parent=1, depth=1)
    client.barrier(65_534, 1)
    client.released(65_534, 1)
    client.completes(1)


def test_a_checkpoint_of_a_child_scope_is_answered(connect: Connect) -> None:
    client = connect()
    parent_and_children(client, 1)
    client.send(Checkpoint("of scope 2", scope=2))
    child(client, 1)
    answer = client.expect(Checkpoint)
    assert (answer.scope, answer.flags) == (2, 1)
