"""Claim checks of a sink in an object store: kept there, redeemed once whatever server is asked, whenever."""

import os
import subprocess
import sys

import pytest

from penstock import PipeStreamError
from penstock.pipestream import ErrorCode, Server, Session, SinkReader, Status

WAIT = 30.0


@pytest.fixture
def serve(s3, tmp_path):
    """Start a server on the sink, and another whenever it is called again."""
    running = []

    def start(**options):
        options = {"defer_types": ["image/*"], "state_dir": tmp_path, **options}
        server = Server(sink=s3.uri("sink"), storage=s3.storage, **options)
        running.append(server)
        return server

    yield start
    for server in running:
        server.close(grace=0)


def connect(server):
    return Session.connect(server.address, fingerprint=server.fingerprint, layers=2)


def set_aside(server, count=1):
    """Send what the server sets aside; give the claim checks, and the session."""
    with connect(server) as session:
        sent = [session.send(b"pixels", content_type="image/png") for _ in range(count)]
        assert [entity.wait(WAIT) for entity in sent] == [Status.DEFERRED] * count
        return [entity.claim for entity in sent], session.id


def refused(server, claim, first):
    with connect(server) as session, pytest.raises(PipeStreamError) as caught:
        session.redeem(claim, first)
    return caught.value.code == ErrorCode.CLAIM_NOT_FOUND


def test_what_was_redeemed_is_refused_after_a_restart_and_what_is_open_is_not(s3, serve):
    server = serve()
    (done, still_open), first = set_aside(server, 2)
    with connect(server) as worker:
        claim = worker.redeem(done, first)
        metadata = {"pipestream.claim": claim.hex}
        assert worker.send(b"pixels", content_type="image/png", metadata=metadata).wait(WAIT) is Status.COMPLETE
    assert refused(server, done, first)
    server.close()
    again = serve()
    assert {row.claim.id: row.claim.status for row in again.claims()} == {
        done: Status.COMPLETE,
        still_open: Status.DEFERRED,
    }
    assert SinkReader(s3.uri("sink"), storage=s3.storage).claims() == again.claims()
    assert refused(again, done, first)
    with connect(again) as worker:
        assert worker.redeem(still_open, first).status is Status.PROCESSING
        assert worker.claim(done).status is Status.COMPLETE
    assert refused(again, still_open, first)


def test_two_servers_of_a_sink_have_the_same_claim_checks_and_one_redemption_is_good(serve):
    one, other = serve(), serve()
    (claim,), first = set_aside(one)
    with connect(other) as worker:
        assert worker.claim(claim).status is Status.DEFERRED
        assert worker.redeem(claim, first).status is Status.PROCESSING
        assert refused(one, claim, first)
        assert refused(other, claim, first)
        with connect(one) as session:
            assert session.claim(claim).status is Status.PROCESSING


def test_a_folder_may_keep_the_claim_checks_of_a_store(s3, serve, tmp_path):
    claims = tmp_path / "claims"
    server = serve(claims=claims)
    (claim,), first = set_aside(server)
    with connect(server) as worker:
        worker.redeem(claim, first)
    server.close()
    assert not [key for key in s3.list() if "/.claims/" in key]
    assert refused(serve(claims=claims), claim, first)


def test_nothing_is_redeemed_while_the_store_does_not_answer(s3, serve):
    server = serve()
    (claim,), first = set_aside(server)
    s3.refuse = lambda method, path: method == "PUT" and "/.claims/redeemed/" in path
    with connect(server) as worker, pytest.raises(PipeStreamError, match="cannot redeem a claim check of"):
        worker.redeem(claim, first)
    s3.refuse = lambda _method, _path: False
    with connect(server) as worker:
        assert worker.redeem(claim, first).status is Status.PROCESSING


def test_a_server_that_is_killed_knows_at_its_next_start_what_was_redeemed(s3, tmp_path):
    def started():
        command = [sys.executable, "-m", "penstock", "pipestream", "serve", "--listen", "127.0.0.1:0"]
        command += ["--sink", s3.uri("sink"), "--defer-type", "image/*"]
        environment = {**os.environ, **s3.environment, "PENSTOCK_STATE": str(tmp_path)}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        _, address, _, fingerprint = process.stdout.readline().split()
        return process, address, fingerprint

    process, *server = started()
    try:
        with Session.connect(server[0], fingerprint=server[1], layers=2) as session:
            sent = [session.send(b"pixels", content_type="image/png") for _ in range(2)]
            assert [entity.wait(WAIT) for entity in sent] == [Status.DEFERRED] * 2
            session.redeem(sent[0].claim, session.id)
            process.kill()
            process.wait()
            session.abort()
        process, *server = started()
        with Session.connect(server[0], fingerprint=server[1], layers=2) as worker:
            with pytest.raises(PipeStreamError) as caught:
                worker.redeem(sent[0].claim, session.id)
            assert caught.value.code == ErrorCode.CLAIM_NOT_FOUND
            assert worker.redeem(sent[1].claim, session.id).status is Status.PROCESSING
    finally:
        process.kill()
        process.wait()


def test_sessions_and_claim_checks_of_a_sink_are_told_apart(s3, serve):
    server = serve()
    set_aside(server)
    server.close()
    reader = SinkReader(s3.uri("sink"), storage=s3.storage)
    assert len(reader.sessions()) == 1
