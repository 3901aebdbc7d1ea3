"""Connections that go away in the middle, one way or another: the sink holds whole entities or nothing."""

import os
import random

from ..conformance.pipestream.fixtures import Connect, Program
from ..conformance.pipestream.invariants import check_session, closed_code
from ..conformance.pipestream.wire import Code, Stat

LONG = bool(os.environ.get("PENSTOCK_LONG_TESTS"))


def test_vanished_connections_in_every_state_leave_whole_entities_only(program: Program, connect: Connect) -> None:
    """Many at once, because each takes its idle time-out."""
    chance = random.Random(17)
    payload = chance.randbytes(60_000)
    clients = [connect(idle_timeout=1.0) for _ in range(60 if LONG else 12)]
    for number, client in enumerate(clients):
        with client.corked():
            client.announce(1, 2)
            client.entity(1, payload)
            client.entity(2, payload[: number * 5000], end=False, payload_length=len(payload))
            if number % 3 == 0:
                client.dehydrate(3, 2)
                client.announce(1, scope=2, depth=1)
        program.reactor.run(lambda: False, 0.001 * number)
        client.vanish()
    for client in clients:
        program.closed(client)
        assert closed_code(program.serve.sink, client.session_id) == Code.IDLE_TIMEOUT
        check_session(program.serve.sink, client.session_id)
        for line in program.entities(client):
            assert line["entity"] == 1 or line["status"] == "FAILED"


def test_closes_with_errors_in_every_state_leave_whole_entities_only(program: Program, connect: Connect) -> None:
    payload = random.Random(18).randbytes(100_000)
    for number in range(60 if LONG else 15):
        client = connect()
        client.announce(1, 2)
        client.entity(1, payload)
        client.entity(2, payload[: number * 1000], end=False, payload_length=len(payload))
        program.reactor.run(lambda: False, 0.0005 * number)
        client.close(number + 1)
        program.closed(client, number + 1)
        check_session(program.serve.sink, client.session_id)


def test_resets_at_every_point_of_a_stream_fail_their_entities_only(program: Program, connect: Connect) -> None:
    client = connect()
    payload = b"0123456789" * 20
    count = 40
    client.announce(*range(1, count + 1))
    for entity in range(1, count + 1):
        stream = client.entity(entity, payload[: entity * 5], end=False, payload_length=len(payload))
        client.settled()
        client.reset(stream, Code.INTERNAL_ERROR)
        client.status(Stat.FAILED, entity)
    for entity in range(1, count + 1):
        assert client.terminal(entity).stat == Stat.FAILED
    client.deliver(count + 1, payload)
    client.completes(count + 1)
    client.close(0)
    program.closed(client, 0)
    assert {line["status"] for line in program.entities(client) if line["entity"] <= count} == {"FAILED"}


def test_a_reset_alone_is_a_failure_that_the_server_reports(connect: Connect) -> None:
    """Section 5.4: an endpoint whose peer aborted a stream SHOULD emit the terminal status."""
    client = connect()
    client.announce(1)
    stream = client.entity(1, b"half", end=False, payload_length=8)
    client.settled()
    client.reset(stream, Code.INTERNAL_ERROR)
    assert client.terminal(1).stat == Stat.FAILED


def test_streams_that_end_too_early_at_every_byte(connect: Connect) -> None:
    payload = b"0123456789"
    client = connect()
    client.announce(*range(1, len(payload) + 1))
    for entity in range(1, len(payload) + 1):
        client.entity(entity, payload[: entity - 1], payload_length=len(payload))
    for entity in range(1, len(payload) + 1):
        client.fails(entity, Code.ENTITY_INVALID)
    client.deliver(len(payload) + 1, payload)
    client.completes(len(payload) + 1)
