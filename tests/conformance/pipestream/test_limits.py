"""Sections 10.4 and 10.5: an operator's limits on the command line, and the code for exceeding each (decision 14)."""

import os
import subprocess

import pytest

from .codes import Code
from .fixtures import Connect, Program
from .programs import SERVE
from .wire import Checkpoint, Stat

STRICT = [
    "--max-scope-depth=2",
    "--max-entities-per-scope=500",
    "--max-open-entities=64",
    "--max-open-parents=2",
    "--max-children=5",
    "--max-children-per-mib=3",
    "--max-open-checkpoints=2",
    "--max-checkpoint-time=0.2",
    "--max-header=4096",
    "--max-metadata=400",
    "--max-held-headers=65536",
]
strict = pytest.mark.parametrize("program", [STRICT], indirect=True, ids=["strict"])


@strict
def test_the_connection_is_closed_for_a_header_beyond_the_limit(connect: Connect) -> None:
    client = connect()
    client.announce(1)
    client.stream(b"\0\0\x10\1", end=False)
    client.closes(Code.ENTITY_TOO_LARGE)


@strict
def test_only_the_entity_fails_for_metadata_beyond_the_limit(connect: Connect) -> None:
    client = connect()
    client.deliver(1, b"x", metadata={"m": "m" * 400})
    client.fails(1, Code.ENTITY_TOO_LARGE)
    client.deliver(2, b"x", metadata={"m": "m" * 399})
    client.completes(2)


@strict
def test_open_entities_beyond_the_limit_exceed_the_window(connect: Connect) -> None:
    client = connect()
    client.announce(*range(1, 66))
    client.closes(Code.WINDOW_EXCEEDED)


@strict
def test_entities_of_a_scope_beyond_the_limit_exceed_the_window(connect: Connect) -> None:
    client = connect()
    for number in range(1, 501):
        client.deliver(number)
        if number % 50 == 0:
            client.completes(*range(number - 49, number + 1))
    client.announce(501)
    client.closes(Code.WINDOW_EXCEEDED)


@strict
def test_only_the_parent_fails_for_children_beyond_the_limit(connect: Connect) -> None:
    client = connect()
    client.dehydrate(1, 2)
    client.announce(1, 2, 3, 4, scope=2, depth=1)
    for child in (1, 2, 3, 4):
        client.entity(child, b"x", scope=2, parent=1)
    client.barrier(2, 1)
    client.released(2, 1)
    client.fails(1, Code.ENTITY_INVALID)
    client.deliver(2, b"x")
    client.completes(2)


@strict
def test_the_limit_for_a_parent_counts_where_that_for_a_mib_allows_more(connect: Connect) -> None:
    client = connect()
    client.dehydrate(1, 2, metadata={"pipestream.original-length": str(100 << 20)})
    client.announce(*range(1, 7), scope=2, depth=1)
    for child in range(1, 7):
        client.entity(child, b"x", scope=2, parent=1)
    client.barrier(2, 1)
    client.released(2, 1)
    client.fails(1, Code.ENTITY_INVALID)


@strict
def test_one_more_open_parent_fails_with_window_exceeded(connect: Connect) -> None:
    client = connect()
    for parent in (1, 2, 3):
        client.dehydrate(parent, 2 * parent)
    for parent in (1, 2, 3):
        client.barrier(2 * parent, parent)
        client.released(2 * parent, parent)
    client.completes(1, 2)
    client.fails(3, Code.WINDOW_EXCEEDED)


@strict
def test_dehydrating_beyond_the_limit_exceeds_the_depth(connect: Connect) -> None:
    client = connect()
    client.dehydrate(1, 2)
    client.dehydrate(1, 4, scope=2, depth=1, parent=1)
    client.announce(1, scope=4, depth=2)
    client.status(Stat.DEHYDRATING, 1, scope=4, depth=2)
    client.closes(Code.DEPTH_EXCEEDED)


@strict
def test_headers_that_wait_beyond_the_limit_exceed_the_window(connect: Connect) -> None:
    client = connect()
    for number in range(1, 200):
        client.entity(number, b"", metadata={"m": "m" * 390})
    client.closes(Code.WINDOW_EXCEEDED)


@strict
def test_checkpoints_beyond_the_limit_exceed_the_window(connect: Connect) -> None:
    client = connect()
    client.announce(1)
    client.send(*(Checkpoint(f"c{number}", sequence=number, timeout_ms=60_000) for number in (1, 2, 3)))
    client.closes(Code.WINDOW_EXCEEDED)


@strict
def test_a_checkpoint_has_timed_out_when_an_operator_allows_no_more_time(connect: Connect) -> None:
    client = connect()
    client.announce(1)
    client.send(Checkpoint("c", sequence=1, timeout_ms=3_600_000))
    answer = client.expect(Checkpoint)
    assert answer.flags == 2


@pytest.mark.parametrize("program", [["--max-parent-time=0.2"]], indirect=True, ids=["parent time"])
def test_a_parent_that_is_open_for_too_long_fails_with_idle_timeout(connect: Connect) -> None:
    client = connect()
    client.dehydrate(1, 2)
    client.wait(lambda: any(getattr(frame, "code", None) == Code.IDLE_TIMEOUT for frame in client.frames), "the error")
    client.barrier(2, 1)
    client.released(2, 1)
    client.fails(1, Code.IDLE_TIMEOUT)


@pytest.mark.parametrize("program", [["--max-connections=2"]], indirect=True, ids=["connections"])
def test_connections_beyond_the_limit_are_refused(program: Program, connect: Connect) -> None:
    client = connect()
    with pytest.raises(AssertionError):
        # The bystander and this client are two.
        program.connect()
    program.clients.pop().vanish()
    client.deliver(1, b"x")
    client.completes(1)


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        ("--max-header", "1023", "from 1024 to 1048576"),
        ("--max-header", "1048577", "from 1024 to 1048576"),
        ("--max-scope-depth", "8", "from 1 to 7"),
        ("--max-claim-life", "86401", "from 1.0 to 86400.0"),
        ("--max-connections", "0", "from 1 to 1000000"),
    ],
)
def test_a_limit_out_of_range_is_a_usage_error(option: str, value: str, allowed: str) -> None:
    command = [*SERVE, "--listen", "127.0.0.1:0", "--sink", "nowhere", option, value]
    # Wide enough for the message to stay on one line.
    wide = {**os.environ, "COLUMNS": "200"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=wide, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert option in done.stderr
    assert allowed in done.stderr
