"""Sessions on disk: kill -9 of the receiver at chosen points, and a disk that is full."""

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from penstock import PipeStreamError
from penstock.pipestream import ErrorCode, Session, Status

from ..conformance.pipestream.programs import Serve
from ..ports import free_address
from .small_disk import SmallDisk, disk

__all__ = ["disk"]

PATIENCE = 300.0
PARTS = 60
SURVIVE = 120.0


def until(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class Receiver:
    """A server with its sessions on disk, which is started again where it was."""

    def __init__(self, folder: Path, state: Path) -> None:
        self.folder, self.state = folder, state
        self.sink = folder / "sink"
        self.listen = free_address()
        self.start()

    def start(self) -> None:
        options = ("--state", str(self.state), "--listen", self.listen)
        self.serve = Serve(self.folder / "serve", *options, sink=self.sink, home=self.folder)

    def restart(self) -> None:
        self.serve.kill()
        self.start()

    def connect(self, **options: Any) -> Session:
        address, fingerprint = ":".join(map(str, self.serve.address)), self.serve.fingerprint
        return Session.connect(address, fingerprint=fingerprint, survive=SURVIVE, **options)

    def lines(self, session: str) -> list[dict[str, Any]]:
        """Give the whole lines of a session's list."""
        path = self.sink / session / "entities.jsonl"
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]

    def open_sessions(self) -> list[str]:
        return [path.name for path in self.state.iterdir() if path.is_dir()]


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    receiver = Receiver(tmp_path, tmp_path / "state")
    yield receiver
    receiver.serve.kill()


def as_bytes(number: int) -> bytes:
    return bytes([number]) * (400_000 if number % 7 == 3 else 100 + number)


def check(receiver: Receiver, session: str) -> None:
    """Each part is there once, and nothing of the session is left to do."""
    check_list(receiver, session)
    until(lambda: not receiver.open_sessions())


def check_list(receiver: Receiver, session: str) -> None:
    """Each part is there once, and the list has its last line."""
    *lines, last = receiver.lines(session)
    assert last == {"closed": 0}
    assert {line["status"] for line in lines} == {"COMPLETE"}
    found = sorted((receiver.sink / line["file"]).read_bytes() for line in lines)
    assert found == sorted(as_bytes(number) for number in range(PARTS))


@pytest.mark.parametrize("lines", [0, 1, 7, 30, PARTS])
def test_a_receiver_killed_when_its_list_has_so_many_lines_goes_on(receiver: Receiver, lines: int) -> None:
    with receiver.connect() as session:
        name = session.id
        sent = [session.send(as_bytes(number)) for number in range(PARTS)]
        until(lambda: len(receiver.lines(name)) >= lines)
        receiver.restart()
        assert {entity.wait(PATIENCE) for entity in sent} == {Status.COMPLETE}
    check(receiver, name)


def test_a_receiver_killed_again_and_again_while_its_client_is_lost(receiver: Receiver) -> None:
    with receiver.connect() as session:
        name = session.id
        sent = [session.send(as_bytes(number)) for number in range(PARTS)]
        for _ in range(4):
            # It may die before its client is back, and while it reads what the one before has left.
            receiver.restart()
        assert {entity.wait(PATIENCE) for entity in sent} == {Status.COMPLETE}
    check(receiver, name)


def test_a_receiver_killed_when_its_client_may_close_has_its_list_closed(receiver: Receiver) -> None:
    session = receiver.connect()
    sent = [session.send(as_bytes(number)) for number in range(PARTS)]
    assert {entity.wait(PATIENCE) for entity in sent} == {Status.COMPLETE}
    session.end_root()
    until(lambda: receiver.lines(session.id)[-1] == {"closed": 0})
    receiver.serve.kill()
    receiver.start()
    session.close()
    # The client may have heard all that it waits for: then nobody comes back, and the list stays as it is.
    check_list(receiver, session.id)


def ending(session: Session) -> int:
    """Send until the session ends: what is left of a file's last page takes some."""
    with suppress(PipeStreamError):
        for number in range(10_000):
            session.send(b"not there", label=f"not there {number}").wait(PATIENCE)
    return session.wait_closed(PATIENCE).code


def test_a_full_disk_ends_the_session_whose_state_cannot_be_stored(disk: SmallDisk, tmp_path: Path) -> None:
    receiver = Receiver(tmp_path, disk.mount / "state")
    with ExitStack() as stack:
        stack.callback(lambda: receiver.serve.kill())
        session = receiver.connect()
        assert session.send(b"there").wait(PATIENCE) is Status.COMPLETE
        disk.fill()
        assert ending(session) == ErrorCode.INTERNAL_ERROR
        until(lambda: "closed" in receiver.lines(session.id)[-1])
        *lines, last = receiver.lines(session.id)
        assert last == {"closed": ErrorCode.INTERNAL_ERROR}
        # What was said to be complete is, and its file is there.
        assert lines[0]["status"] == "COMPLETE"
        assert (receiver.sink / lines[0]["file"]).read_bytes() == b"there"
        assert receiver.serve.alive
        disk.free()
        check_works(receiver)
        # What the disk has of the session that it did not take is no hindrance.
        receiver.restart()
        check_works(receiver)


def check_works(receiver: Receiver) -> None:
    with receiver.connect() as session:
        assert session.send(b"room again").wait(PATIENCE) is Status.COMPLETE
    assert receiver.lines(session.id)[-1] == {"closed": 0}


def test_a_client_whose_disk_is_full_ends_its_session(receiver: Receiver, disk: SmallDisk) -> None:
    state = disk.mount / "mine"
    session = receiver.connect(state=state)
    assert session.send(b"there", label="there").wait(PATIENCE) is Status.COMPLETE
    disk.fill()
    assert ending(session) == ErrorCode.INTERNAL_ERROR
    disk.free()
    until(lambda: "closed" in receiver.lines(session.id)[-1])
    with receiver.connect(state=state) as again:
        assert not again.resumed
        assert again.send(b"room again", label="again").wait(PATIENCE) is Status.COMPLETE


def test_a_receiver_that_is_told_to_stop_leaves_its_sessions_to_the_next(receiver: Receiver) -> None:
    with receiver.connect() as session:
        name = session.id
        sent = [session.send(as_bytes(number)) for number in range(PARTS // 2)]
        receiver.serve.process.send_signal(signal.SIGTERM)
        receiver.serve.wait()
        assert not any("closed" in line for line in receiver.lines(name))
        receiver.start()
        sent += [session.send(as_bytes(number)) for number in range(PARTS // 2, PARTS)]
        assert {entity.wait(PATIENCE) for entity in sent} == {Status.COMPLETE}
    check(receiver, name)
