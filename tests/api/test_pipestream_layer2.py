"""Layer 2 from Python: entities that wait, are set aside, come again and are left out, between two real ends."""

import asyncio
import threading
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from penstock import PipeStreamError
from penstock.aio import pipestream as aio
from penstock.pipestream import (
    AttemptFailedEvent,
    CompletionPolicy,
    DeferredEvent,
    ErrorCode,
    OutcomeEvent,
    ResolutionState,
    ResolvedEvent,
    Server,
    Session,
    Status,
    YieldedEvent,
    YieldReason,
)

WAIT = 30.0


@pytest.fixture
def server(tmp_path):
    with Server(state_dir=tmp_path, claims=tmp_path / "claims") as server:
        yield server


@contextmanager
def serving(server, act, sessions=1):
    """Have ``act(entity)`` done with every entity of so many sessions, in a thread; what it raises is raised here."""
    failures = []

    def serve():
        try:
            for _ in range(sessions):
                session = server.accept(WAIT)
                for entity in session:
                    act(entity)
        except (PipeStreamError, AssertionError) as error:
            failures.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    yield
    thread.join(WAIT)
    assert not failures, failures
    assert not thread.is_alive()


def connect(server, **options):
    return Session.connect(server.address, fingerprint=server.fingerprint, **{"layers": 2, **options})


@pytest.mark.parametrize("layers", [1, 2])
def test_what_cannot_be_set_aside_has_failed_where_nobody_catches_that(server, layers):
    held, raised = [], []

    def act(entity):
        # Nobody must have to forget it.
        held.append(entity)
        try:
            with entity:
                entity.defer("a person must look at it", life=-1 if layers == 2 else None)
        except PipeStreamError as error:
            raised.append(error.kind)

    with serving(server, act), connect(server, layers=layers) as session:
        entity = session.send(b"x")
        assert entity.wait(WAIT) is Status.FAILED
        assert "the receiver failed" in str(entity.reason)
    assert raised == ["misuse"]


def test_what_cannot_be_set_aside_has_failed_in_asyncio_too(tmp_path):
    held = []

    async def receive(session):
        async for entity in session:
            held.append(entity)
            with pytest.raises(PipeStreamError):
                async with entity:
                    await entity.defer("a person must look at it", life=-1)

    async def main():
        async with aio.Server(state_dir=tmp_path, claims=tmp_path / "claims") as server:
            connecting = aio.Session.connect(server.address, fingerprint=server.fingerprint, layers=2)
            async with connecting as session:
                receiving = asyncio.create_task(receive(await server.accept()))
                entity = await session.send(b"x")
                assert await entity.wait(WAIT) is Status.FAILED
            await receiving

    asyncio.run(asyncio.wait_for(main(), WAIT))


def test_a_claim_check_is_redeemed_once_in_another_session(server):
    def act(entity):
        if "pipestream.claim" in entity.header.metadata:
            entity.complete()
        else:
            claim = entity.defer("a person must look at it", life=600)
            assert (claim.session, claim.status) == (entity.session.id, Status.DEFERRED)

    with serving(server, act, sessions=2):
        with connect(server) as first:
            entity = first.send(b"a scan", content_type="image/png", metadata={"penstock.document": "scan.png"})
            assert entity.wait(WAIT) is Status.DEFERRED
            (deferred,) = [event for event in first.events(0.2) if isinstance(event, DeferredEvent)]
            claim = first.claim(entity.claim)
            assert (deferred.claim.id, deferred.key) == (entity.claim, entity.key)
            assert (claim.scope, claim.entity, claim.status) == (0, entity.entity_id, Status.DEFERRED)
            assert 500 < (claim.expires - datetime.now(UTC)).total_seconds() < 601
        (row,) = server.claims()
        assert (row.document, row.type, row.reason) == ("scan.png", "image/png", "a person must look at it")
        with connect(server) as second:
            with pytest.raises(PipeStreamError) as caught:
                second.redeem(claim, second.id)
            assert caught.value.code == ErrorCode.CLAIM_NOT_FOUND
            redeemed = second.redeem(claim, first.id)
            assert redeemed.status is Status.PROCESSING
            with pytest.raises(PipeStreamError) as caught:
                second.redeem(claim, first.id)
            assert caught.value.name == "PIPESTREAM_CLAIM_NOT_FOUND"
            assert second.send(b"a scan", metadata={"pipestream.claim": redeemed.hex}).wait(WAIT) is Status.COMPLETE
            assert second.claim(claim.hex).status is Status.COMPLETE
    assert server.claims()[0].claim.status is Status.COMPLETE
    assert (server.counters.deferred, server.counters.claims) == (1, 1)


def test_a_claim_check_that_nobody_redeems_is_settled_by_its_server(server):
    with serving(server, lambda entity: entity.defer("later")), connect(server) as session:
        claim = session.send(b"x")
        claim.wait(WAIT)
        server.settle(claim.claim, Status.SKIPPED)
        assert session.claim(claim.claim).status is Status.SKIPPED
        with pytest.raises(PipeStreamError) as caught:
            session.claim(claim.claim ^ 1)
        assert caught.value.name == "PIPESTREAM_CLAIM_NOT_FOUND"
        with pytest.raises(PipeStreamError) as caught:
            server.settle(claim.claim ^ 1)
        assert caught.value.name == "PIPESTREAM_CLAIM_NOT_FOUND"
        with pytest.raises(ValueError, match="16 lower-case hex digits"):
            session.claim("17")


def test_a_server_that_keeps_claim_checks_nowhere_issues_none_and_knows_none(tmp_path):
    def act(entity):
        with pytest.raises(PipeStreamError, match="stores no claim checks"):
            entity.defer("later")
        # It was not taken.
        entity.complete()

    with Server(state_dir=tmp_path) as server, serving(server, act), connect(server) as session:
        assert session.send(b"x").wait(WAIT) is Status.COMPLETE
        with pytest.raises(PipeStreamError) as caught:
            session.redeem(1, session.id)
        assert caught.value.code == ErrorCode.CLAIM_NOT_FOUND
        with pytest.raises(PipeStreamError) as caught:
            session.claim(1)
        assert caught.value.code == ErrorCode.CLAIM_NOT_FOUND
        assert server.claims() == []


def test_what_a_policy_would_set_aside_fails_where_claim_checks_are_kept_nowhere(tmp_path):
    policy = CompletionPolicy.parse("best-effort,on-failure=defer")
    with (
        Server(state_dir=tmp_path) as server,
        serving(server, lambda entity: entity.complete() if entity.is_dehydrated else entity.fail("no text in it")),
        connect(server, policy=policy) as session,
    ):
        with session.dehydrate() as scope:
            part = scope.send(b"x")
        assert (part.wait(WAIT), scope.wait(WAIT)) == (Status.FAILED, Status.COMPLETE)
        assert "no text in it" in part.reason.message
        assert "stores no claim checks" in part.reason.message


def test_a_queue_for_claim_checks_needs_somewhere_to_keep_them(tmp_path):
    with pytest.raises(PipeStreamError, match="defer_to requires sink= or claims="):
        Server(state_dir=tmp_path, defer_to="quicx://127.0.0.1:1")
    with pytest.raises(PipeStreamError, match="defer_to requires sink= or claims="):
        aio.Server(state_dir=tmp_path, defer_to="quicx://127.0.0.1:1")


def test_claim_checks_in_a_folder_outlive_their_server(tmp_path):
    claims = tmp_path / "claims"
    with Server(state_dir=tmp_path, claims=claims) as server:
        with serving(server, lambda entity: entity.defer("later")), connect(server) as session:
            session.send(b"x").wait(WAIT)
        known = server.claims()
    with Server(state_dir=tmp_path, claims=claims) as server:
        assert server.claims() == known


def test_an_entity_waits_until_its_owner_has_it_go_on(server):
    states = []

    def act(entity):
        states.append(entity.wait(YieldReason.AWAITING_APPROVAL, b"page 3", WAIT))
        entity.complete()

    with serving(server, act), connect(server) as session:
        entity = session.send(b"a form")
        yielded = next(event for event in session.events(WAIT) if isinstance(event, YieldedEvent))
        assert (yielded.key, yielded.reason) == (entity.key, YieldReason.AWAITING_APPROVAL)
        refused = session.resume(yielded.key, yielded.token[:-1] + bytes([yielded.token[-1] ^ 1]), WAIT)
        assert refused.code == ErrorCode.CLAIM_NOT_FOUND
        assert session.resume(entity, yielded.token, WAIT) is None
        assert entity.wait(WAIT) is Status.COMPLETE
    assert states == [b"page 3"]
    assert server.counters.yields == 1


def test_a_token_of_an_older_state_is_refused_and_processing_begins_anew(server):
    states, going = [], threading.Event()

    def act(entity):
        read = entity.read(3)
        with pytest.raises(PipeStreamError) as caught:
            entity.wait(YieldReason.RATE_LIMITED, read, 0.0)
        assert caught.value.kind == "deadline"
        read += entity.read(4)
        going.set()
        states.append(entity.wait_resumed(WAIT))
        # What is here now makes another state, and what is still to be read is no part of it.
        states.append(entity.wait(YieldReason.RATE_LIMITED, read, WAIT))
        states.append(read + entity.read())
        entity.complete()

    with serving(server, act), connect(server) as session:
        entity = session.send(b"abcdefghij")
        yields = (event for event in session.events(WAIT) if isinstance(event, YieldedEvent))
        stale = next(yields).token
        assert going.wait(WAIT)
        refused = session.resume(entity, stale, WAIT)
        assert refused.code == ErrorCode.INTEGRITY_ERROR
        assert session.resume(entity, stale, WAIT).code == ErrorCode.CLAIM_NOT_FOUND
        assert session.resume(entity, next(yields).token, WAIT) is None
        assert entity.wait(WAIT) is Status.COMPLETE
    assert states == [None, b"abcdefg", b"abcdefghij"]


def test_claim_checks_tell_how_far_processing_was(server):
    def act(entity):
        entity.read(3)
        entity.defer("later")

    with serving(server, act), connect(server) as session:
        entity = session.send(b"abcdefghij")
        assert entity.wait(WAIT) is Status.DEFERRED
        validation = session.claim(entity.claim, WAIT).validation
    assert (validation.bytes_processed, validation.is_resumable) == (3, False)
    assert (validation.children_complete, validation.children_total) == (0, 0)


def test_failures_are_sent_again_and_the_policy_has_the_last_word(server):
    attempts = {}

    def act(entity):
        if entity.is_dehydrated:
            entity.complete()
            return
        name = entity.header.metadata["name"]
        attempts[name] = attempts.get(name, 0) + 1
        if name == "late" and attempts[name] < 3:
            entity.fail("not yet")
        elif name == "never":
            entity.skip("nobody wants it")
        else:
            entity.complete()

    policy = CompletionPolicy("quorum", min_success_ratio=0.5, on_failure="retry", retry_delay=0.01)
    with serving(server, act), connect(server, policy=policy) as session:
        with session.dehydrate() as scope:
            late = scope.send(b"x", metadata={"name": "late"})
            never = scope.send(b"y", metadata={"name": "never"})
        assert scope.wait(WAIT) is Status.COMPLETE
        assert (late.wait(WAIT), late.attempts) == (Status.COMPLETE, 3)
        assert never.wait(WAIT) is Status.SKIPPED
        events = list(session.events(0.2))
    failed = [event for event in events if isinstance(event, AttemptFailedEvent)]
    assert [(event.key, event.failures, event.owned) for event in failed] == [(late.key, 1, True), (late.key, 2, True)]
    resolved = {event.key: event.failures for event in events if isinstance(event, ResolvedEvent)}
    assert (resolved[late.key], resolved[never.key]) == (2, 0)
    (outcome,) = [event for event in events if isinstance(event, OutcomeEvent)]
    assert (outcome.key, outcome.state) == (scope.entity.key, ResolutionState.PARTIAL)
    assert attempts == {"late": 3, "never": 1}


@pytest.mark.parametrize(
    ("action", "status", "attempts"),
    [
        ("fail", Status.FAILED, 1),
        ("skip", Status.SKIPPED, 1),
        ("defer", Status.DEFERRED, 1),
        ("retry", Status.COMPLETE, 3),
    ],
)
def test_the_sessions_policy_is_that_of_root_entities(server, action, status, attempts):
    seen = []

    def act(entity):
        seen.append(entity.key)
        if len(seen) < 3:
            entity.fail("not yet")
        else:
            entity.complete()

    policy = CompletionPolicy("strict", on_failure=action, retry_delay=0.01)
    with serving(server, act), connect(server, policy=policy) as session:
        entity = session.send(b"x")
        assert (entity.wait(WAIT), entity.attempts) == (status, attempts)
        assert (entity.claim is not None) == (action == "defer")
    assert len(seen) == attempts


def test_an_owner_leaves_its_own_entities_out(server):
    held = []
    with serving(server, held.append), connect(server) as session:
        entity = session.send(b"x" * 1000)
        session.skip(entity, "changed my mind")
        assert entity.wait(WAIT) is Status.SKIPPED


def test_below_layer_2_nothing_of_it_is_there(server):
    with serving(server, lambda entity: entity.complete()), connect(server, layers=1) as session:
        session.send(b"x").wait(WAIT)
        for call in (
            lambda: session.claim(1),
            lambda: session.redeem(1, session.id),
            lambda: session.send(b"", dehydrate=True, policy=CompletionPolicy("lenient")),
        ):
            with pytest.raises(PipeStreamError) as caught:
                call()
            assert caught.value.kind == "misuse", caught.value


def test_asyncio_has_the_same(tmp_path):
    async def serve(server):
        states = []
        async for session in server:
            async for entity in session:
                name = entity.header.metadata.get("name")
                if name == "wait":
                    states.append(await entity.wait(YieldReason.EXTERNAL_CALL, b"s", WAIT))
                    await entity.complete()
                elif name == "defer":
                    await entity.defer("later")
                elif name == "skip":
                    await entity.skip("unwanted")
                else:
                    await entity.complete()
            if "pipestream.claim" in entity.header.metadata:
                return states
        return states

    async def main():
        async with aio.Server(state_dir=tmp_path, claims=tmp_path / "claims") as server:
            serving = asyncio.create_task(serve(server))
            trust = {"fingerprint": server.fingerprint, "layers": 2}
            async with aio.Session.connect(server.address, **trust) as first:
                waits = await first.send(b"1", metadata={"name": "wait"})
                async for event in first.events(WAIT):
                    if isinstance(event, YieldedEvent):
                        assert await first.resume(waits, event.token, WAIT) is None
                        break
                assert await waits.wait(WAIT) is Status.COMPLETE
                skipped = await first.send(b"2", metadata={"name": "skip"})
                assert await skipped.wait(WAIT) is Status.SKIPPED
                deferred = await first.send(b"3", metadata={"name": "defer"})
                assert await deferred.wait(WAIT) is Status.DEFERRED
                claim = await first.claim(deferred.claim)
            assert [row.claim.id for row in await server.claims()] == [claim.id]
            async with aio.Session.connect(server.address, **trust) as second:
                redeemed = await second.redeem(claim, first.id)
                again = await second.send(b"3", metadata={"pipestream.claim": redeemed.hex})
                assert await again.wait(WAIT) is Status.COMPLETE
                assert (await second.claim(claim)).status is Status.COMPLETE
            with pytest.raises(PipeStreamError) as caught:
                await server.settle(claim)
            assert caught.value.name == "PIPESTREAM_CLAIM_NOT_FOUND"
            return await serving

    assert asyncio.run(main()) == [b"s"]


@pytest.mark.parametrize("policy", [CompletionPolicy(), CompletionPolicy.parse("strict")])
def test_strict_needs_no_layer_2_because_it_is_what_layer_1_does(tmp_path, policy):
    with Server(sink=tmp_path / "sink", state_dir=tmp_path, layers=1) as server:
        with Session.connect(server.address, fingerprint=server.fingerprint, policy=policy) as session:
            with session.dehydrate(policy=policy) as scope:
                parts = [session.send(b"a part", parent=scope) for _ in range(2)]
            assert session.agreement.layer == 1
            assert {part.wait() for part in (*parts, scope.entity)} == {Status.COMPLETE}

        async def send():
            async with aio.Session.connect(server.address, fingerprint=server.fingerprint, policy=policy) as session:
                return await (await session.send(b"", dehydrate=False)).wait()

        assert asyncio.run(send()) is Status.COMPLETE
        for other in ("strict,timeout=60", "strict,on-failure=skip", "lenient"):
            asked = CompletionPolicy.parse(other)
            assert asked.needs_layer_two
            with pytest.raises(PipeStreamError, match="layer 2"):
                Session.connect(server.address, fingerprint=server.fingerprint, policy=asked)


def test_a_strict_policy_is_told_to_a_session_of_layer_2(server):
    def act(entity):
        entity.complete()

    with serving(server, act), connect(server, policy=CompletionPolicy()) as session:
        assert session.agreement.layer == 2
        assert session.send(b"a root").wait() is Status.COMPLETE


def test_a_container_that_waits_tells_of_its_children_and_of_the_last_checkpoint(server):
    waiting, resumed = threading.Event(), []

    def act(entity):
        if entity.is_dehydrated:
            waiting.set()
            resumed.append(entity.wait(YieldReason.AWAITING_SIBLING, b"half", WAIT))
            entity.complete()
        elif entity.header.content_type == "x/aside":
            entity.defer("later")
        else:
            entity.complete()

    with serving(server, act), connect(server) as session:
        assert session.send(b"before").wait(WAIT) is Status.COMPLETE
        assert session.checkpoint(timeout=WAIT)
        with session.dehydrate() as scope:
            assert waiting.wait(WAIT)
            token = next(event.token for event in session.events(WAIT) if isinstance(event, YieldedEvent))
            assert session.resume(scope.entity, token, WAIT) is None
        assert scope.wait(WAIT) is Status.COMPLETE
        aside = session.send(b"x", content_type="x/aside")
        assert aside.wait(WAIT) is Status.DEFERRED
        validation = session.claim(aside.claim, WAIT).validation
    assert resumed == [b"half"]
    assert validation.checkpoint_ref == "penstock-1"
    assert (validation.children_complete, validation.children_total) == (0, 0)


def test_both_ends_may_write_to_stream_0_at_fixed_intervals(tmp_path):
    with (
        Server(state_dir=tmp_path, status_interval=0.005) as server,
        serving(server, lambda entity: entity.complete()),
        connect(server, status_interval=0.005) as session,
    ):
        with session.dehydrate() as scope:
            parts = [scope.send(bytes([number])) for number in range(200)]
        assert scope.wait(WAIT) is Status.COMPLETE
        assert {part.wait(WAIT) for part in parts} == {Status.COMPLETE}


@pytest.mark.parametrize("seconds", [0.0, -1.0, 0.0001, 11.0, float("nan")])
def test_an_interval_that_cannot_be_is_refused(server, tmp_path, seconds):
    with pytest.raises(PipeStreamError, match="status_interval") as caught:
        connect(server, status_interval=seconds)
    assert caught.value.kind == "misuse"
    with pytest.raises(PipeStreamError, match="status_interval"):
        Server(state_dir=tmp_path, status_interval=seconds)
