"""Well-behaved clients with random trees in a random order: every status, digest and file is what the rules say.

The order is that of a legal sender whose streams are not ordered against stream 0: announcements of a scope in order,
streams whenever they like, children before their parents' headers, barriers as soon as the last child is announced.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256

import pytest

from ...long_form import seeds
from .client import Client
from .entity import Chunk, merkle_root
from .fixtures import Connect, Program
from .wire import Digest, Stat, Status

SEEDS = seeds(12, 300)
Step = Callable[[], object]


@dataclass
class Node:
    """An entity, and the scope of its children if it was dehydrated."""

    entity: int
    scope: int
    depth: int
    parent: "Node | None" = None
    payload: bytes = b""
    fate: str = "sent"
    child_scope: int | None = None
    children: list["Node"] = field(default_factory=list)

    @property
    def outcome(self) -> Stat:
        """STRICT (decision 11)."""
        good = self.fate in ("sent", "chunks") and all(child.outcome == Stat.COMPLETE for child in self.children)
        return Stat.COMPLETE if good else Stat.FAILED

    def digest(self) -> Digest:
        outcomes = [(child.entity, child.outcome) for child in self.children]
        failed = sum(outcome == Stat.FAILED for _, outcome in outcomes)
        assert self.child_scope is not None
        return Digest(self.child_scope, len(outcomes), len(outcomes) - failed, failed, 0, merkle_root(outcomes))


class Tree:
    """A random forest in scope 0, and the steps that send it."""

    def __init__(self, seed: int, client: Client) -> None:
        self.chance = random.Random(seed)
        self.client = client
        self.nodes: list[Node] = []
        self.next_scope = 2
        self.roots = [self.grow(entity, 0, 0, None) for entity in range(1, self.chance.randrange(2, 8))]

    def grow(self, entity: int, scope: int, depth: int, parent: Node | None) -> Node:
        node = Node(entity, scope, depth, parent)
        self.nodes.append(node)
        node.payload = self.chance.randbytes(self.chance.choice([0, 1, 100, 5000]))
        fates = ["sent"] * 8 + ["chunks", "wrong", "given up"]
        node.fate = self.chance.choice(fates)
        if depth < 7 and self.chance.random() < 0.35:
            node.child_scope, node.payload = self.next_scope, b""
            node.fate = self.chance.choice(["sent"] * 8 + ["wrong"])
            self.next_scope += 2
            for child in range(1, self.chance.randrange(1, 6)):
                node.children.append(self.grow(child, node.child_scope, depth + 1, node))
        return node

    # ---- the steps

    def control(self, node: Node) -> list[Step]:
        """What stream 0 says of a node, in its order."""
        frames = [Status(Stat.PENDING, node.entity, node.scope, node.depth)]
        if node.child_scope is None:
            failed = Status(Stat.FAILED, node.entity, node.scope, node.depth)
            steps = [frames, *([[failed]] if node.fate == "given up" else [])]
        else:
            steps = [[*frames, Status(Stat.DEHYDRATING, node.entity, node.scope, node.depth)]]
        return [lambda step=step: self.client.send(*step) for step in steps]  # type: ignore[misc]

    def streams(self, node: Node) -> list[Step]:
        """The streams of a node, in any order."""
        if node.fate == "given up":
            return []
        metadata = {}
        if node.child_scope is not None:
            metadata = {"pipestream.dehydrated": "1", "pipestream.child-scope": str(node.child_scope)}
        if node.parent is not None and node.parent.scope != 0:
            metadata["pipestream.parent-scope"] = str(node.parent.scope)
        checksum = sha256(node.payload + b"not this" if node.fate == "wrong" else node.payload).digest()
        parent = node.parent.entity if node.parent else 0

        def stream(payload: bytes, chunk: Chunk | None) -> None:
            self.client.entity(
                node.entity,
                payload,
                scope=node.scope,
                parent=parent,
                metadata=metadata,
                payload_length=len(node.payload),
                checksum=checksum,
                chunk=chunk,
            )

        if node.fate != "chunks" or len(node.payload) < 2:
            return [lambda: stream(node.payload, None)]
        middle = self.chance.randrange(1, len(node.payload))
        pieces = [(node.payload[:middle], Chunk(2, 0, 0)), (node.payload[middle:], Chunk(2, 1, middle))]
        return [lambda piece=piece: stream(*piece) for piece in pieces]  # type: ignore[misc]

    def scope_steps(self, nodes: list[Node]) -> list[list[Step]]:
        """Sequences that keep their own order, to be interleaved: one for stream 0, one for each stream."""
        queues: list[list[Step]] = []
        control: list[Step] = []
        for node in nodes:
            control += self.control(node)
            if node.child_scope is not None:
                inner = self.scope_steps(node.children)
                # A child is announced after its parent; its streams may come whenever they like.
                control += inner[0]
                scope, entity = node.child_scope, node.entity
                control.append(lambda scope=scope, entity=entity: self.client.barrier(scope, entity))  # type: ignore[misc]
                queues += inner[1:]
            queues += [[step] for step in self.streams(node)]
        return [control, *queues]

    def send(self) -> None:
        queues = [queue for queue in self.scope_steps(self.roots) if queue]
        while queues and not self.client.has_ended():
            queue = self.chance.choice(queues)
            queue.pop(0)()
            if not queue:
                queues.remove(queue)
            if self.chance.random() < 0.1:
                self.client.reactor.run(lambda: False, 0.001)


def expected_file(node: Node) -> bool:
    """Own bytes that arrived whole are kept, of a leaf only if it is COMPLETE; a container without any has none."""
    return node.child_scope is None and node.outcome == Stat.COMPLETE


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_tree_is_gathered_as_the_rules_say(program: Program, connect: Connect, seed: int) -> None:
    client = connect()
    tree = Tree(seed, client)
    tree.send()
    for node in tree.nodes:
        status = client.terminal(node.entity, node.scope)
        assert (Stat(status.stat), status.depth) == (node.outcome, node.depth), (node, client.story())
        if node.child_scope is not None:
            assert client.released(node.child_scope, node.entity) == node.digest()
    cursors = [frame.cursor for frame in client.frames if isinstance(frame, Status) and frame.scope == 0]
    assert max(cursor or 0 for cursor in cursors) == len(tree.roots) + 1
    terminal = [(f.scope, f.entity) for f in client.frames if isinstance(f, Status) and f.terminal]
    assert len(terminal) == len(set(terminal)) == len(tree.nodes)
    client.close(0)
    program.closed(client, 0)
    lines = {(line["scope"], line["entity"]): line for line in program.entities(client)}
    assert lines.keys() == {(node.scope, node.entity) for node in tree.nodes}
    for node in tree.nodes:
        assert lines[node.scope, node.entity]["status"] == node.outcome.name
        path = program.file(client, node.entity, node.scope)
        assert path.exists() == expected_file(node)
        assert not path.exists() or path.read_bytes() == node.payload
