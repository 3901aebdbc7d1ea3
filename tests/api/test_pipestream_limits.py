"""Limits of a PipeStream end, set from Python: what exceeds one is refused with its code, and counted."""

import time
from dataclasses import fields

import pytest

from penstock import PipeStreamError
from penstock.aio import pipestream as aio
from penstock.pipestream import ErrorCode, Limits, Server, Session, Status

WAIT = 30.0


@pytest.fixture
def serve(tmp_path):
    running = []

    def start(**limits):
        server = Server(sink=tmp_path / "sink", state_dir=tmp_path, limits=Limits(**limits))
        running.append(server)
        return server

    yield start
    for server in running:
        server.close(grace=0)


def connect(server, **options):
    return Session.connect(server.address, fingerprint=server.fingerprint, **options)


def counted(server, name):
    """Wait until a limit's counter has moved, and say which others have."""
    until = time.monotonic() + WAIT
    while not server.counters.limits[name] and time.monotonic() < until:
        time.sleep(0.01)
    return {limit for limit, count in server.counters.limits.items() if count}


def test_a_limit_is_refused_out_of_its_range_by_its_name():
    assert Limits() == Limits(max_header=1 << 20, max_scope_depth=7, max_claim_life=86_400.0)
    for each in fields(Limits):
        least, most = each.metadata["range"]
        assert least <= each.default <= most
        for wrong in (least - 1, most + 1):
            with pytest.raises(ValueError, match=f"^{each.name} must be from {least} to {most}, not "):
                Limits(**{each.name: wrong})
        Limits(**{each.name: least})
        Limits(**{each.name: most})


def test_a_client_has_no_limits_of_servers(serve):
    server = serve()
    for limits in (Limits(max_connections=2), Limits(max_claims=2), Limits(max_claim_life=2)):
        with pytest.raises(PipeStreamError, match="is a limit of servers only"):
            connect(server, limits=limits)
    with pytest.raises(PipeStreamError, match="max_claims is a limit of servers"):
        aio.Session.connect(server.address, fingerprint=server.fingerprint, limits=Limits(max_claims=2))


def test_connections_beyond_the_limit_are_refused(serve):
    server = serve(max_connections=1)
    with connect(server):
        with pytest.raises(PipeStreamError):
            connect(server)
        assert counted(server, "connections") == {"connections"}


@pytest.mark.parametrize("end", ["server", "client"])
def test_both_ends_keep_to_the_smaller_depth_and_number_of_entities(serve, end):
    limits = {"max_scope_depth": 1, "max_entities_per_scope": 3}
    server = serve(**limits if end == "server" else {})
    with connect(server, limits=Limits(**limits) if end == "client" else None) as session:
        assert (session.agreement.max_scope_depth, session.agreement.max_entities_per_scope) == (1, 3)
        with session.dehydrate() as scope:
            with pytest.raises(PipeStreamError) as caught:
                scope.dehydrate()
            assert caught.value.code == ErrorCode.DEPTH_EXCEEDED
            for _ in range(3):
                scope.send(b"x")
            with pytest.raises(PipeStreamError) as caught:
                scope.send(b"x")
            assert caught.value.code == ErrorCode.WINDOW_EXCEEDED
        assert scope.wait(WAIT) is Status.COMPLETE


@pytest.mark.parametrize(
    ("limits", "children", "allowed"),
    [
        ({"max_children": 2}, 3, 2),
        ({"max_children_per_mib": 2}, 3, 2),
        ({"max_children": 2, "max_children_per_mib": 1_000}, 3, 2),
    ],
    ids=["for a parent", "for a MiB", "the stricter one"],
)
@pytest.mark.parametrize("layers", [0, 1, 2])
def test_a_parent_with_too_many_children_fails(serve, limits, children, allowed, layers):
    server = serve(**limits)
    with connect(server, layers=layers) as session:
        for count in (allowed, children):
            with session.dehydrate() as scope:
                for _ in range(count):
                    scope.send(b"x")
            status, reason = scope.wait(WAIT), scope.entity.reason
            assert status is (Status.COMPLETE if count == allowed else Status.FAILED)
        assert reason.code == ErrorCode.ENTITY_INVALID
    assert counted(server, "children") == {"children"}


def test_one_more_open_parent_fails(serve):
    server = serve(max_open_parents=1)
    with connect(server) as session, session.dehydrate() as first:
        first.send(b"x").wait(WAIT)
        with session.dehydrate() as second:
            pass
        assert (second.wait(WAIT), second.entity.reason.code) == (Status.FAILED, ErrorCode.WINDOW_EXCEEDED)
        assert counted(server, "open_parents") == {"open_parents"}


def test_a_parent_that_is_open_for_too_long_fails(serve):
    server = serve(max_parent_time=0.2)
    with connect(server) as session:
        scope = session.dehydrate()
        assert counted(server, "parent_time") == {"parent_time"}
        scope.end()
        assert (scope.wait(WAIT), scope.entity.reason.code) == (Status.FAILED, ErrorCode.IDLE_TIMEOUT)


def test_a_checkpoint_has_no_more_time_than_is_allowed(tmp_path):
    with Server(state_dir=tmp_path, limits=Limits(max_checkpoint_time=0.05)) as server, connect(server) as session:
        receiver = server.accept(WAIT)
        session.send(b"x")
        entity = next(iter(receiver))
        assert session.checkpoint(timeout=3_600).is_timed_out
        entity.complete()
        assert counted(server, "checkpoint_time") == {"checkpoint_time"}


@pytest.mark.parametrize("layers", [0, 1, 2])
def test_metadata_beyond_the_limit_fails_its_entity(serve, layers):
    server = serve(max_metadata=300)
    with connect(server, layers=layers) as session:
        large = session.send(b"x", metadata={"m": "m" * 300})
        small = session.send(b"x", metadata={"m": "m" * 299})
        assert (large.wait(WAIT), small.wait(WAIT)) == (Status.FAILED, Status.COMPLETE)
        assert large.reason.code == ErrorCode.ENTITY_TOO_LARGE
    assert counted(server, "metadata") == {"metadata"}


@pytest.mark.parametrize("layers", [0, 1, 2])
def test_a_header_beyond_the_limit_closes_the_connection(serve, layers):
    server = serve(max_header=2_000)
    session = connect(server, layers=layers)
    session.send(b"x", metadata={"m": "m" * 1_700}).wait(WAIT)
    session.send(b"x", metadata={"m": "m" * 2_000})
    assert session.wait_closed(WAIT).code == ErrorCode.ENTITY_TOO_LARGE
    assert counted(server, "header") == {"header"}


def test_claim_checks_beyond_the_limit_are_not_issued_and_late_ones_are_refused(tmp_path):
    limits = Limits(max_claims=1, max_claim_life=1)
    with (
        Server(state_dir=tmp_path, claims=tmp_path / "claims", limits=limits) as server,
        connect(server, layers=2) as session,
    ):
        receiver = server.accept(WAIT)
        first, second = session.send(b"x"), session.send(b"y")
        entities = iter(receiver)
        claim = next(entities).defer("later", life=3_600)
        with pytest.raises(PipeStreamError) as caught:
            next(entities).defer("later")
        assert caught.value.code == ErrorCode.WINDOW_EXCEEDED
        assert (first.wait(WAIT), second.wait(WAIT)) == (Status.DEFERRED, Status.FAILED)
        assert second.reason.code == ErrorCode.WINDOW_EXCEEDED
        time.sleep(1.1)
        with pytest.raises(PipeStreamError) as caught:
            session.redeem(claim, session.id)
        assert caught.value.code == ErrorCode.CLAIM_EXPIRED
        assert counted(server, "claim_life") == {"claims", "claim_life"}
