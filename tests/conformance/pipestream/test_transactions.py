"""Transactions of a sink under clients that are not their owners, on purpose and by accident."""

import json
from hashlib import sha256

import pytest

from .client import Client
from .fixtures import Connect, Program
from .invariants import closed_code
from .wire import Error, Stat

KEY, OWNER, TOKEN = "penstock.transaction", "penstock.transaction-owner", "penstock.transaction-token"
SECRET = "a token that only the owner knows"  # noqa: S105 - it is for this test
HASH = sha256(SECRET.encode()).hexdigest()
STILL_OPEN, GIVEN_UP, COMMITTED, NOT_YOURS = 0x40, 0x41, 0x43, 0x44
PREPARED = None


def kind(order: str) -> str:
    return f"application/vnd.penstock.{order}+json"


class Party:
    """Who writes into a transaction and gives orders about it."""

    def __init__(self, program: Program, connect: Connect, key: str, secret: str | None) -> None:
        self.program, self.connect, self.key, self.secret = program, connect, key, secret

    def writes(self, payload: bytes = b"a row") -> str:
        """Send a row in a session that ends in order; give its ID."""
        client = self.connect()
        owner = {} if self.secret is None else {OWNER: sha256(self.secret.encode()).hexdigest()}
        client.announce(1)
        client.entity(1, payload, metadata={KEY: self.key, **owner})
        client.completes(1)
        client.barrier(0, 0)
        client.released(0, 0)
        session = client.session_id
        # What the fixture looks for at the end of other sessions is written when the transaction is committed.
        self.program.over.add(session)
        client.close()
        return session

    def orders(self, order: str, sessions: list[str] | None, **more: object) -> int | None:
        """Give an order; the code of its failure, ``None`` when it is COMPLETE."""
        payload = json.dumps({} if sessions is None else {"sessions": sessions, **more}).encode()
        shown = {} if self.secret is None else {TOKEN: self.secret}
        for _ in range(200):
            client = self.connect()
            client.announce(1)
            client.entity(1, payload, content_type=kind(order), metadata={KEY: self.key, **shown})
            if client.terminal(1).stat == Stat.COMPLETE:
                client.close()
                return None
            code = client.expect(Error).code
            client.close()
            if code != STILL_OPEN:
                return code
        raise AssertionError("a session that was closed is still open")

    def ends(self, session: str) -> int | None:
        """Wait a little for the last line of a session; ``None`` where there is none, because it is prepared."""
        self.program.reactor.run(lambda: closed_code(self.program.serve.sink, session) is not None, 0.3)
        return closed_code(self.program.serve.sink, session)


@pytest.fixture
def parties(program: Program, connect: Connect, request: pytest.FixtureRequest) -> tuple[Party, Party, Party]:
    """The owner, a client with another token, and one with none; all know the transaction's name."""
    key = f"guessed {request.node.name}"
    owner, other, anyone = (Party(program, connect, key, secret) for secret in (SECRET, SECRET[::-1], None))
    return owner, other, anyone


def test_an_order_without_sessions_is_refused_and_the_owner_commits(parties: tuple[Party, Party, Party]) -> None:
    owner, other, anyone = parties
    for party in (owner, other, anyone):
        assert party.orders("commit", []) == NOT_YOURS
    session = owner.writes()
    for party in (other, anyone):
        assert party.orders("commit", []) == NOT_YOURS
    assert anyone.orders("abort", None) == NOT_YOURS
    assert other.orders("abort", None) is None, "it has none"
    assert owner.ends(session) is PREPARED
    assert owner.orders("commit", [session]) is None
    assert owner.ends(session) == 0


def test_sessions_of_another_owner_are_neither_committed_nor_aborted(parties: tuple[Party, Party, Party]) -> None:
    owner, other, anyone = parties
    session = owner.writes()
    for party in (other, anyone):
        for order in ("commit", "abort"):
            assert party.orders(order, [session]) == NOT_YOURS
    assert owner.ends(session) is PREPARED
    assert owner.orders("abort", [session]) is None
    assert owner.ends(session) == GIVEN_UP


def test_who_commits_first_under_a_guessed_name_does_not_stand_in_the_way(parties: tuple[Party, Party, Party]) -> None:
    owner, *others = parties
    for party in others:
        theirs = party.writes()
        assert party.orders("commit", [theirs]) is None
        assert party.ends(theirs) == 0
    session = owner.writes()
    assert owner.orders("commit", [session], exclusive=True) == NOT_YOURS
    assert owner.ends(session) is PREPARED
    assert [owner.orders("commit", [session]) for _ in range(2)] == [None, None]
    assert owner.ends(session) == 0


@pytest.mark.parametrize("which", [0, 2], ids=["with a token", "without"])
def test_a_second_run_under_the_same_name_is_told_that_its_rows_are_not_kept(
    parties: tuple[Party, Party, Party], which: int
) -> None:
    party = parties[which]
    first = party.writes()
    assert party.orders("commit", [first]) is None
    second = party.writes()
    assert party.ends(second) == GIVEN_UP
    for sessions in ([second], [first, second]):
        assert party.orders("commit", sessions) == COMMITTED
    assert party.orders("commit", [first]) is None, "the same commit, said again"
    assert (party.ends(first), party.ends(second)) == (0, GIVEN_UP)


def test_the_token_is_nowhere_and_its_hash_in_no_metadata(
    program: Program, parties: tuple[Party, Party, Party]
) -> None:
    owner, *_ = parties
    session = owner.writes()
    assert owner.orders("commit", [session]) is None
    for path in program.serve.sink.rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), path
    for name in (program.serve.events, program.serve.errors):
        assert SECRET not in name.read_text("utf-8", "replace")
    entity, *_ = (
        json.loads(line) for line in (program.serve.sink / session / "entities.jsonl").read_text().split("\n") if line
    )
    assert entity["metadata"] == {KEY: owner.key}


def test_what_is_no_hash_is_no_owner(parties: tuple[Party, Party, Party], connect: Connect) -> None:
    client: Client = connect()
    client.announce(1)
    client.entity(1, b"a row", metadata={KEY: parties[0].key, OWNER: "me"})
    assert client.terminal(1).stat == Stat.FAILED
    assert client.expect(Error).code == 0x05
    short = Party(parties[0].program, connect, parties[0].key, "too short")
    assert short.orders("commit", ["0" * 32]) == 0x05
