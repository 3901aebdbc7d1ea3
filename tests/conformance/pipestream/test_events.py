"""`serve --events F`: what each line says. That every line of the whole run has exactly the fields of the table is
checked after every test."""

from hashlib import sha256
from typing import Any

from .client import Client
from .entity import EMPTY_SHA256, merkle_root
from .fixtures import Connect, Program
from .invariants import EVENTS
from .wire import Capabilities, Checkpoint, Code, Stat


def without_where(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in event.items() if name not in ("session", "time")} for event in events]


def closed(program: Program, client: Client, code: int) -> None:
    client.close(code, "of the test")
    program.closed(client, code)
    program.reactor.run(lambda: bool(program.events(client, "closed")), 15)


def status(
    entity: int, name: str, by: str, scope: int = 0, depth: int = 0, cursor: int | None = None
) -> dict[str, Any]:
    where = {"scope": scope, "entity": entity, "depth": depth, "cursor": cursor}
    return {"event": "status", "status": name, "by": by, **where}


def test_a_session_with_everything_has_every_event_with_its_values(program: Program, connect: Connect) -> None:
    client = connect(Capabilities(max_scope_depth=3, max_entities_per_scope=1000, max_window_size=100))
    client.dehydrate(1, 2)
    client.deliver(1, b"a child", scope=2, parent=1, depth=1, content_type="text/plain")
    client.completes(1, scope=2)
    client.barrier(2, 1)
    client.completes(1)
    client.deliver(2, b"x", checksum=EMPTY_SHA256)
    client.fails(2, Code.INTEGRITY_ERROR)
    client.send(Checkpoint("all", 1))
    client.expect(Checkpoint)
    closed(program, client, 0)
    events = program.events(client)
    found = without_where(events)
    assert found[0] == {
        "event": "capabilities",
        "layers": 1,
        "max_scope_depth": 3,
        "max_entities_per_scope": 1000,
        "max_window_size": 100,
    }
    assert {event["event"] for event in found} == set(EVENTS)
    for expected in (
        status(1, "PENDING", "peer"),
        status(1, "DEHYDRATING", "peer"),
        status(1, "PENDING", "peer", scope=2, depth=1),
        status(1, "COMPLETE", "us", scope=2, depth=1, cursor=2),
        status(1, "COMPLETE", "us", cursor=2),
        status(2, "FAILED", "us", cursor=3),
        {"event": "barrier", "barrier": 2, "parent": 1, "released": False},
        {"event": "barrier", "barrier": 2, "parent": 1, "released": True},
        {"event": "checkpoint", "checkpoint_id": "all", "scope": 0, "satisfied": True},
    ):
        assert found.count(expected) == 1, expected
    (digest,) = (event for event in found if event["event"] == "digest")
    root = merkle_root([(1, Stat.COMPLETE)]).hex()
    counters = {"processed": 1, "succeeded": 1, "failed": 0, "deferred": 0}
    assert digest == {"event": "digest", "scope": 2, "merkle_root": root, **counters}
    (error,) = (event for event in found if event["event"] == "error")
    assert (error["code"], error["scope"], error["entity"]) == (Code.INTEGRITY_ERROR, 0, 2)
    assert error["message"]
    assert found[-1]["event"] == "closed"
    assert (found[-1]["code"], found[-1]["reason"]) == (0, "of the test")
    times = [event["time"] for event in events]
    assert times == sorted(times)


def test_an_entitys_event_names_its_file(program: Program, connect: Connect) -> None:
    client = connect()
    client.dehydrate(1, 2)
    client.deliver(1, b"a child", scope=2, parent=1, depth=1, content_type="text/plain")
    client.completes(1, scope=2)
    client.barrier(2, 1)
    client.completes(1)
    closed(program, client, 0)
    entities = {(event["scope"], event["entity"]): event for event in program.events(client, "entity")}
    child = entities[2, 1]
    assert (child["parent"], child["bytes"], child["content_type"]) == (1, 7, "text/plain")
    assert child["sha256"] == sha256(b"a child").hexdigest()
    assert (program.serve.sink / child["path"]).read_bytes() == b"a child"
    root = entities[0, 1]
    assert (root["parent"], root["path"], root["bytes"]) == (None, None, 0)


def test_an_entity_that_failed_has_no_entity_event(program: Program, connect: Connect) -> None:
    client = connect()
    client.deliver(1, b"x", checksum=EMPTY_SHA256)
    client.fails(1, Code.INTEGRITY_ERROR)
    closed(program, client, 0)
    assert not program.events(client, "entity")


def test_the_error_that_closes_a_connection_is_an_event(program: Program, connect: Connect) -> None:
    client = connect()
    client.announce(7)
    client.closes(Code.ENTITY_INVALID)
    program.closed(client, Code.ENTITY_INVALID)
    program.reactor.run(lambda: bool(program.events(client, "closed")), 15)
    (error,) = program.events(client, "error")
    assert (error["code"], error["scope"], error["entity"]) == (Code.ENTITY_INVALID, 0, 7)
    (end,) = program.events(client, "closed")
    assert end["code"] == Code.ENTITY_INVALID


def test_a_close_by_the_client_says_its_code_and_reason(program: Program, connect: Connect) -> None:
    client = connect()
    closed(program, client, 0x42)
    (end,) = program.events(client, "closed")
    assert (end["code"], end["reason"]) == (0x42, "of the test")


def test_checkpoints_that_timed_out_say_so(program: Program, connect: Connect) -> None:
    client = connect()
    client.announce(1)
    client.send(Checkpoint("late", timeout_ms=50))
    client.expect(Checkpoint)
    closed(program, client, 0)
    (event,) = program.events(client, "checkpoint")
    assert (event["checkpoint_id"], event["satisfied"]) == ("late", False)


def test_heartbeats_are_no_events(program: Program, connect: Connect) -> None:
    client = connect()
    client.status(Stat.UNSPECIFIED, 0xFFFF_FFFF)
    client.settled()
    closed(program, client, 0)
    assert not program.events(client, "status")
