"""Sessions on disk, and a disk that is full."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from penstock import PipeStreamError
from penstock.pipestream import ErrorCode, Session, Status

from ..conformance.pipestream.programs import Serve
from .small_disk import SmallDisk, disk

__all__ = ["disk"]

PATIENCE = 60.0
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
        self.serve = self._start()

    def _start(self, *options: str) -> Serve:
        kept = ("--state", str(self.state))
        return Serve(self.folder / "serve", *kept, *options, sink=self.sink, home=self.folder)

    def start(self) -> None:
        self.serve = self._start("--listen", ":".join(map(str, self.serve.address)))

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


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    receiver = Receiver(tmp_path, tmp_path / "state")
    yield receiver
    receiver.serve.kill()


def ending(session: Session) -> int:
    """Send until the session ends: what is left of a file's last page takes some."""
    with suppress(PipeStreamError):
        for number in range(10_000):
            session.send(b"not there", label=f"not there {number}").wait(PATIENCE)
    return session.wait_closed(PATIENCE).code


def test_a_full_disk_ends_the_session_whose_state_cannot_be_stored(disk: SmallDisk, tmp_path: Path) -> None:
    receiver = Receiver(tmp_path, disk.mount / "state")
    with ExitStack() as stack:
        stack.callback(receiver.serve.kill)
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
