"""Random families with random policies, over connections that are lost at random: digests are as computed before."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from ...long_form import seeds
from .fixtures import Join, Program
from .layer2 import Action, Mode, Policy
from .waiting import Back, WaitingClient, digest_of
from .wire import Stat, Status

SEEDS = seeds(12, 200)
CUTS = 3
GIVEN_UP = (Stat.FAILED, Stat.SKIPPED, Stat.ABANDONED)
ENDS = {Action.SKIP: Stat.SKIPPED, Action.DEFER: Stat.DEFERRED}


@dataclass
class Child:
    """So many attempts with a wrong checksum; then a good one, or its owner gives it up."""

    entity: int
    bad: int
    last: Stat
    attempt: int = 0
    said: bool = False

    def end(self, policy: Policy) -> Stat:
        """What must become of it (decision 19)."""
        action, retries = policy.on_failure, policy.max_retries
        if self.bad == 0 or (action == Action.RETRY and self.bad <= (3 if retries is None else retries)):
            return self.last
        return ENDS.get(Action(action or 0), Stat.FAILED)


@dataclass
class Parent:
    """An entity of the root scope, whose children are in a scope of their own."""

    entity: int
    policy: Policy
    children: list[Child] = field(default_factory=list)

    @property
    def scope(self) -> int:
        return 2 * self.entity

    def ends(self) -> list[Stat]:
        return [child.end(self.policy) for child in self.children]

    def end(self) -> Stat:
        ends = self.ends()
        good = ends.count(Stat.COMPLETE)
        content = {
            Mode.LENIENT: good > 0,
            Mode.BEST_EFFORT: True,
            Mode.QUORUM: good >= len(ends) * (self.policy.ratio or 0),
        }
        mode = Mode(self.policy.mode or 0)
        return Stat.COMPLETE if not ends or content.get(mode, good == len(ends)) else Stat.FAILED


def families(random: Random) -> list[Parent]:
    parents = []
    for entity in range(1, random.randint(2, 5)):
        mode = random.choice(list(Mode))
        # Halves and quarters, which floats hold exactly.
        ratio = random.choice([0.0, 0.25, 0.5, 0.75, 1.0]) if mode is Mode.QUORUM else None
        retries = random.choice([None, 0, 1, 2])
        policy = Policy(mode, retries, 0, 0, ratio, on_failure=random.choice([None, *Action]))
        children = [
            Child(number, random.choice([0, 0, 0, 1, 1, 2, 4]), random.choice([Stat.COMPLETE] * 5 + [*GIVEN_UP]))
            for number in range(1, random.randint(1, 6))
        ]
        parents.append(Parent(entity, policy, children))
    return parents


class Play:
    """Plays the families; the connection may be another one after every step."""

    def __init__(self, random: Random, program: Program, join: Join) -> None:
        self.random, self.program, self.join = random, program, join
        self.client: WaitingClient = join(survives=True)
        self.parents = families(random)

    def parent(self, parent: Parent, **fields: Any) -> None:
        metadata = {"pipestream.dehydrated": "1", "pipestream.child-scope": str(parent.scope)}
        self.client.entity(parent.entity, metadata=metadata, policy=parent.policy.message(), **fields)

    def stream(self, parent: Parent, child: Child) -> None:
        fields: dict[str, Any] = {"checksum": bytes(32)} if child.attempt < child.bad else {}
        fields["metadata"] = {"pipestream.attempt": str(child.attempt + 1)}
        self.client.child(child.entity, b"bytes", scope=parent.scope, parent=parent.entity, **fields)

    def heard(self, parent: Parent, child: Child) -> list[int]:
        return [status.stat for status in self.client.statuses(child.entity, parent.scope)]

    def over(self, parent: Parent, child: Child) -> bool:
        """Whether its end was heard."""
        heard = self.heard(parent, child)
        if parent.policy.on_failure != Action.RETRY:
            return bool(heard)
        retries = 3 if parent.policy.max_retries is None else parent.policy.max_retries
        failures = min(child.bad, retries + 1)
        return len(heard) > failures or (child.bad > retries and len(heard) == failures)

    def begin(self) -> None:
        for parent in self.parents:
            number = len(parent.children)
            with self.client.corked():
                self.client.announce(parent.entity)
                self.client.status(Stat.DEHYDRATING, parent.entity)
                self.parent(parent)
                self.client.announce(*range(1, number + 1), scope=parent.scope, depth=1)

    def step(self, parent: Parent, child: Child) -> None:
        """The next thing that its owner has to say of a child, if there is one."""
        if self.over(parent, child):
            return
        if child.said:
            if len(self.heard(parent, child)) == child.attempt + 1:
                child.attempt += 1
                child.said = False
            return
        child.said = True
        if child.attempt == child.bad and child.last in GIVEN_UP:
            self.client.status(child.last, child.entity, parent.scope, depth=1)
            return
        if child.attempt:
            self.client.status(Stat.RETRYING, child.entity, parent.scope, depth=1)
        self.stream(parent, child)

    def cut(self) -> None:
        """The streams of what has no terminal status are opened again, but for what waits for its RETRYING."""
        self.client.vanish()
        self.program.clients.remove(self.client)
        self.client = self.join(kind=Back, of=self.client)
        for parent in self.parents:
            if not self.client.statuses(parent.entity):
                self.parent(parent)
            for child in parent.children:
                given_up = child.attempt == child.bad and child.last in GIVEN_UP
                unheard = len(self.heard(parent, child)) <= child.attempt
                if child.said and unheard and not given_up:
                    self.stream(parent, child)

    def play(self) -> None:
        self.begin()
        open_ones = [(parent, child) for parent in self.parents for child in parent.children]
        cuts, steps = CUTS, 0
        while any(not self.over(*one) for one in open_ones):
            steps += 1
            assert steps < 100_000, self.client.story()
            if cuts and self.random.random() < 0.1:
                cuts -= 1
                self.cut()
            self.step(*self.random.choice(open_ones))
            if self.random.random() < 0.3:
                self.client.reactor.run(self.client.has_ended, 0.002)
                assert not self.client.has_ended(), self.client.story()
        for parent in self.random.sample(self.parents, len(self.parents)):
            self.client.barrier(parent.scope, parent.entity)
        if cuts:
            self.cut()


@pytest.mark.parametrize("seed", SEEDS)
def test_every_digest_is_as_computed_before(program: Program, join: Join, seed: int) -> None:
    play = Play(Random(seed), program, join)
    play.play()
    client = play.client
    for parent in play.parents:
        client.wait(lambda parent=parent: bool(client.statuses(parent.entity)), "the parent's end")
        client.hears(parent.end(), entity=parent.entity)
        assert digest_of(parent.scope, *parent.ends()) in client.heard
        for child, end in zip(parent.children, parent.ends(), strict=True):
            *before, last = play.heard(parent, child)
            assert last == end
            assert set(before) <= {Stat.FAILED}
    # Nothing was said twice.
    statuses = [frame for frame in client.heard if isinstance(frame, Status) and frame.cursor is not None]
    assert len(statuses) == len(set(statuses))
    client.close()
    program.closed(client, 0)
    wanted = [(0, parent.entity) for parent in play.parents]
    wanted += [(parent.scope, child.entity) for parent in play.parents for child in parent.children]
    assert sorted((line["scope"], line["entity"]) for line in program.entities(client)) == sorted(wanted)
