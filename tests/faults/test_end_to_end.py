"""Both programs under test, in two processes over real QUIC: broken runs, done again, and then verified."""

import io
import os
import random
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..conformance.pipestream.invariants import check_session, closed_code, lines
from ..conformance.pipestream.programs import Send, Serve, environment
from ..conformance.pipestream.reactor import Reactor

LONG = bool(os.environ.get("PENSTOCK_LONG_TESTS"))
PENSTOCK = shlex.join([sys.executable, "-m", "penstock", "verify"])
VERIFY = shlex.split(os.environ.get("PIPESTREAM_VERIFY", PENSTOCK))


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    """Archives in archives, some of them damaged, and a few plain files."""
    folder = tmp_path / "documents"
    folder.mkdir()
    chance = random.Random(3)
    for number in range(12):
        inner = io.BytesIO()
        with zipfile.ZipFile(inner, "w") as archive:
            for part in range(20):
                archive.writestr(f"part-{part}.bin", chance.randbytes(20_000))
        with zipfile.ZipFile(folder / f"{number}.zip", "w") as archive:
            archive.writestr("inner.zip", inner.getvalue())
            archive.writestr("text.txt", f"document {number}")
    (folder / "plain.bin").write_bytes(chance.randbytes(100_000))
    (folder / "empty.txt").write_bytes(b"")
    return folder


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    serve = Serve(tmp_path / "serve", sink=tmp_path / "sink", home=tmp_path)
    yield serve
    serve.kill()


def send(reactor: Reactor, serve: Serve, home: Path, documents: Path, *options: str | Path) -> Send:
    return Send(reactor, home, serve.address, documents, "--fingerprint", serve.fingerprint, *options)


def verify(home: Path, sink: Path) -> subprocess.CompletedProcess[str]:
    command = [*VERIFY, str(home / "receipts"), str(sink)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment(home))


def closed_sessions(serve: Serve) -> dict[str, int | None]:
    sessions = (path.name for path in serve.sink.iterdir() if not path.name.startswith("."))
    return {session: closed_code(serve.sink, session) for session in sessions}


@pytest.mark.parametrize("layers", ["0", "1"])
def test_documents_arrive_and_their_receipts_verify(
    serve: Serve, reactor: Reactor, documents: Path, tmp_path: Path, layers: str
) -> None:
    process = send(reactor, serve, tmp_path, documents, "--receipts", tmp_path / "receipts", "--layers", layers)
    process.exits(0)
    assert len(list((tmp_path / "receipts").iterdir())) == 14
    result = verify(tmp_path, serve.sink)
    assert result.returncode == 0, result.stdout + result.stderr
    ((session, _),) = closed_sessions(serve).items()
    reactor.run(lambda: closed_code(serve.sink, session) is not None, 15)
    assert closed_code(serve.sink, session) == 0
    check_session(serve.sink, session)


def test_a_run_that_loses_its_server_fails_and_the_next_run_verifies(
    serve: Serve, reactor: Reactor, documents: Path, tmp_path: Path
) -> None:
    process = send(reactor, serve, tmp_path, documents, "--receipts", tmp_path / "receipts")

    def some_arrived() -> bool:
        return any(line["event"] == "entity" and line["scope"] > 0 for line in lines(serve.events))

    process.wait(some_arrived, "an entity")
    serve.kill()
    if not LONG:
        # By itself it notices after its idle time-out.
        process.interrupt()
    process.exits((1,) if LONG else (1, 130, -2), timeout=60)
    again = Serve(tmp_path / "again", sink=serve.sink, home=tmp_path)
    try:
        second = send(reactor, again, tmp_path, documents, "--receipts", tmp_path / "receipts")
        second.exits(0)
    finally:
        assert again.stop() == 0
    result = verify(tmp_path, serve.sink)
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_run_that_is_interrupted_leaves_whole_entities_and_the_next_run_verifies(
    serve: Serve, reactor: Reactor, documents: Path, tmp_path: Path
) -> None:
    process = send(reactor, serve, tmp_path, documents)

    def some_arrived() -> bool:
        return any(line["event"] == "entity" and line["scope"] > 0 for line in lines(serve.events))

    process.wait(some_arrived, "an entity")
    process.interrupt()
    process.exits((0, 1, 130, -2), timeout=30)
    reactor.run(lambda: all(code is not None for code in closed_sessions(serve).values()), 40)
    for session, code in closed_sessions(serve).items():
        assert code is not None
        check_session(serve.sink, session)
    second = send(reactor, serve, tmp_path, documents, "--receipts", tmp_path / "receipts")
    second.exits(0)
    result = verify(tmp_path, serve.sink)
    assert result.returncode == 0, result.stdout + result.stderr
