"""Random trees sent with mistakes: steps left out, done twice or in a wrong order, bytes changed on their way.

Whatever the server makes of them, it closes with a code of the registry or goes on, and what always holds (the
bystander, memory, the sink, the events) is checked after each.
"""

import random
from typing import Any

import pytest

from ..conformance.pipestream.client import Client
from ..conformance.pipestream.fixtures import Connect, Program
from ..conformance.pipestream.test_random_trees import Tree
from ..conformance.pipestream.wire import Code, Frame
from ..long_form import seeds

SEEDS = seeds(40, 500)


class Clumsy(Client):
    """Makes mistakes at a given rate once it is told to."""

    chance: random.Random
    rate = 0.0

    def damaged(self, data: bytes) -> bytes:
        data = bytearray(data)
        if data and self.chance.random() < self.rate:
            position = self.chance.randrange(len(data))
            match self.chance.randrange(4):
                case 0:
                    data[position] ^= 1 << self.chance.randrange(8)
                case 1:
                    del data[position:]
                case 2:
                    data[position:position] = self.chance.randbytes(self.chance.randrange(1, 9))
                case 3:
                    data[position:] = data[position:] * 2
        return bytes(data)

    def send(self, *frames: Frame | bytes, end: bool = False) -> None:
        if self.rate and self.chance.random() < self.rate:
            frames = frames * self.chance.randrange(3)
        data = b"".join(frame if isinstance(frame, bytes) else frame.encode() for frame in frames)
        super().send(self.damaged(data) if self.rate else data, end=end)

    def stream(self, data: bytes, end: bool = True) -> int:
        if not self.rate:
            return super().stream(data, end)
        stream = super().stream(self.damaged(data), end=False)
        match self.chance.randrange(20):
            case 0:
                self.reset(stream, self.chance.choice([0, 1, 5, 1 << 40]))
            case 1:
                return stream
            case _ if end:
                self.more(stream, b"", end=True)
        return stream

    def entity(self, number: int, payload: bytes = b"", *, end: bool = True, **fields: Any) -> int:
        if self.chance.random() < self.rate:
            name = self.chance.choice(["scope", "parent", "layer", "payload_length"])
            fields[name] = self.chance.choice([0, 1, 2, 3, 65_535, 65_536, 0xFFFF_FFFE])
        if self.chance.random() < self.rate:
            number = self.chance.choice([0, 1, 2, 9, 0xFFFF_FFFF])
        return super().entity(number, payload, end=end, **fields)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_tree_with_mistakes_disturbs_nobody(program: Program, connect: Connect, seed: int) -> None:
    client = connect(kind=Clumsy)
    assert isinstance(client, Clumsy)
    client.chance, client.rate = random.Random(seed), (0.02, 0.1, 0.4)[seed % 3]
    tree = Tree(seed, client)
    tree.send()
    program.reactor.run(client.has_ended, 0.2)
    ended = client.closed_by_peer
    if ended is not None:
        assert ended.frame_type is None, ended
        assert Code(ended.error_code) is not Code.INTERNAL_ERROR, ended
        assert Code(ended.error_code) is not Code.NO_ERROR, ended
    else:
        client.may_cross = True
        client.close(0)
