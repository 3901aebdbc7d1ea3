"""Section 10.6: stream 0 at fixed intervals, against peers that know nothing of it.

`--status-interval` is an option of penstock's programs; other programs under test are not asked for it.
"""

import os
from typing import Any

import pytest

from .client import Client
from .fixtures import Program, Sender
from .peer import CONTROL
from .wire import CONNECTION_LEVEL, Code, Stat, Status, decode_frame

BLOCK = 1_152
OPTIONS = ["--status-interval", "0.02"]


def is_heartbeat(frame: object) -> bool:
    return isinstance(frame, Status) and frame.stat == Stat.UNSPECIFIED and frame.entity == CONNECTION_LEVEL


class Tap(Client):
    """A client that counts what comes on stream 0 after CAPABILITIES."""

    greeting = 0
    counted = 0

    def _take_data(self, event: Any) -> None:
        if event.stream_id == CONTROL:
            self.counted += len(event.data)
            if not self.greeting and (decoded := decode_frame(self._control + event.data)) is not None:
                self.greeting = decoded[1]
        super()._take_data(event)

    @property
    def rest(self) -> int:
        return (self.counted - self.greeting) % BLOCK

    def blocks(self) -> int:
        return (self.counted - self.greeting) // BLOCK


@pytest.mark.skipif(
    "PIPESTREAM_SERVE" in os.environ,
    reason="NOT TESTED: blocks of a server; only penstock has the option: unset PIPESTREAM_SERVE",
)
@pytest.mark.parametrize("program", [OPTIONS], indirect=True)
def test_a_server_writes_whole_blocks_whether_there_is_something_to_say_or_not(program: Program) -> None:
    client = program.connect(kind=Tap)
    assert isinstance(client, Tap)
    client.wait(lambda: client.blocks() >= 5 and client.rest == 0, "blocks of an idle session")
    assert all(is_heartbeat(frame) for frame in client.frames[1:])
    for entity in range(1, 201):
        client.deliver(entity, b"x")
    for entity in range(1, 201):
        client.completes(entity)
    client.wait(lambda: client.rest == 0, "a whole block")
    before = client.blocks()
    client.wait(lambda: client.blocks() >= before + 5, "more of them, with nothing to say")


@pytest.mark.skipif(
    "PIPESTREAM_SEND" in os.environ,
    reason="NOT TESTED: fixed intervals of a sender; only penstock has the option: unset PIPESTREAM_SEND",
)
def test_a_sender_at_fixed_intervals_is_understood_by_every_server(sender: Sender) -> None:
    receiver = sender.receiver()
    process = sender.send(receiver, "--no-dehydrate", *OPTIONS, sender.file())
    receiver.accepts()
    process.exits(0)
    receiver.closes(Code.NO_ERROR)
    assert sum(map(is_heartbeat, receiver.frames)) >= BLOCK // 12 - 10
