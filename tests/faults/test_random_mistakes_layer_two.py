"""Random words of layer 2, right and wrong ones, some of them damaged on their way.

Whatever the server makes of them, it closes with a code of the registry or goes on, and what always holds (the
bystander, memory, the sink, the events) is checked after each; so is a session of layer 2 beside it.
"""

import random
from collections.abc import Callable
from typing import Any

import pytest

from ..conformance.pipestream.fixtures import Join, Program
from ..conformance.pipestream.layer2 import (
    Action,
    Claim,
    ClaimQuery,
    ClaimRedeem,
    ClaimResponse,
    Mode,
    Policy,
    Resume,
    Session,
    deferred,
    yielded,
)
from ..conformance.pipestream.waiting import WaitingClient
from ..conformance.pipestream.wire import Barrier, Checkpoint, Code, Stat, Status
from ..long_form import seeds
from .test_random_mistakes import Clumsy

SEEDS = seeds(40, 500)
STEPS = 40
NUMBERS = (0, 1, 2, 3, 4, 5, 7, 1 << 16, 0xFFFF_FFFE, 0xFFFF_FFFF)


class ClumsyWaiting(Clumsy, WaitingClient):
    """Makes mistakes with the frames of layer 2."""


class Words:
    """Says random things about a few families."""

    def __init__(self, seed: int, client: ClumsyWaiting, friend: WaitingClient) -> None:
        self.random = random.Random(seed)
        self.client, self.friend = client, friend
        self.parents = self.children = 0

    def claim(self) -> int:
        mine = [int.from_bytes(status.extension[:8]) for status in self.heard() if status.extension is not None]
        other, _ = self.friend.set_aside(1, 2)
        return self.random.choice([0, 1, (1 << 64) - 1, other ^ 1, *mine])

    def heard(self) -> list[Status]:
        return [frame for frame in self.client.heard if isinstance(frame, Status)]

    def number(self, right: int) -> int:
        return right if self.random.random() < 0.9 else self.random.choice(NUMBERS)

    def family(self) -> None:
        self.parents += 1
        values: list[Any] = [self.random.choice([None, 0, 1, 3, 0xFFFF_FFFF]) for _ in range(3)]
        ratio = self.random.choice([None, 0.0, 0.5, 1.0, 2.0, float("nan"), -0.0])
        mode, late, failed = (self.random.choice([None, *kind]) for kind in (Mode, Action, Action))
        self.client.parent(Policy(mode, *values, ratio, late, failed), entity=self.parents, scope=2 * self.parents)
        self.client.announce(1, 2, 3, scope=2 * self.parents, depth=1)

    def child(self) -> None:
        if not self.parents:
            return
        parent = self.random.randint(1, self.parents)
        fields: dict[str, Any] = self.random.choice([{}, {}, {"checksum": bytes(32)}, {"payload_length": 9}])
        if self.random.random() < 0.3:
            fields = fields | {"metadata": {"pipestream.attempt": str(self.random.randint(0, 3))}}
        self.client.child(self.random.randint(1, 3), b"bytes", scope=2 * parent, parent=parent, **fields)

    def status(self) -> None:
        parent = self.number(self.random.randint(0, self.parents))
        stat = self.random.choice([Stat.RETRYING, Stat.RETRYING, Stat.SKIPPED, Stat.ABANDONED, Stat.FAILED, *Stat])
        extension = {Stat.YIELDED: yielded(1, b"token"), Stat.DEFERRED: deferred(1, 2)}.get(stat)
        scope = 2 * parent & 0xFFFF
        self.client.send(Status(stat, self.number(self.random.randint(1, 3)), scope, min(scope, 1), None, extension))

    def barrier(self) -> None:
        if self.parents:
            parent = self.random.randint(1, self.parents)
            self.client.send(Barrier(False, 2 * parent, self.number(parent)))

    def question(self) -> None:
        names = [self.client.name, self.friend.name[::-1], "0" * 32]
        claim = self.claim()
        frames = [ClaimQuery(claim), ClaimRedeem(claim, self.random.choice(names))]
        self.client.send(self.random.choice(frames))

    def token(self) -> None:
        token = self.random.randbytes(self.random.choice([0, 1, 31, 32, 33, 100, 1000]))
        self.client.send(Resume(self.number(2 * self.parents) & 0xFFFF, self.number(1), token))

    def session(self) -> None:
        heard = len(self.client.heard)
        self.client.send(Session(self.client.name, self.random.choice([heard, heard, 0, 1 << 40])))

    def wrong(self) -> None:
        unasked = ClaimResponse(1, True, Claim(1, 1, 0, 1), self.random.choice([None, Stat.DEFERRED]))
        self.client.send(self.random.choice([unasked, ClaimResponse(2, False), Checkpoint("x", timeout_ms=1)]))

    def say(self) -> None:
        often: list[Callable[[], None]] = [self.family, self.child, self.child, self.child, self.status, self.barrier]
        often += [self.question, self.token] * 2
        for _ in range(STEPS):
            if self.client.has_ended():
                return
            self.random.choice(often * 5 + [self.session, self.wrong])()
            if self.random.random() < 0.2:
                self.client.reactor.run(self.client.has_ended, 0.002)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_words_of_layer_2_disturb_nobody(program: Program, join: Join, friend: WaitingClient, seed: int) -> None:
    client = join(kind=ClumsyWaiting, survives=seed % 2 == 0)
    assert isinstance(client, ClumsyWaiting)
    client.chance, client.rate = random.Random(seed), (0.0, 0.02, 0.1)[seed % 3]
    Words(seed, client, friend).say()
    program.reactor.run(client.has_ended, 0.1)
    ended = client.closed_by_peer
    if ended is not None:
        assert ended.frame_type is None, ended
        assert Code(ended.error_code) is not Code.INTERNAL_ERROR, ended
        assert Code(ended.error_code) is not Code.NO_ERROR, ended
    else:
        client.may_cross = True
        client.close(0)
