"""What the tests of sessions share: one server for each set of options, with a connection beside that nobody may
disturb, and the checks that follow every test."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from .client import Client
from .invariants import Tail, check_event, check_session, check_sink, closed_code, log_of
from .layer2 import Action, Policy
from .programs import Own, Receive, Send, Serve
from .reactor import Reactor
from .receiver import Certificate, Receiver
from .waiting import WaitingClient, digest_of
from .waiting_receiver import WaitingReceiver
from .wire import Stat

__all__ = [
    "Connect",
    "Join",
    "Owner",
    "Program",
    "Sender",
    "Waits",
    "beside",
    "certificate",
    "connect",
    "friend",
    "join",
    "owner",
    "owners",
    "program",
    "programs",
    "reactor",
    "receives",
    "sender",
    "waits",
]

MIB = 1 << 20
# How far a server's memory may rise in one test, over what it held before: windows of QUIC for a connection or two.
MEMORY = 96 * MIB
LINUX = sys.platform == "linux"
SETTLE = 20.0


@pytest.fixture(scope="session")
def reactor() -> Iterator[Reactor]:
    reactor = Reactor()
    yield reactor
    reactor.close()


@dataclass
class Program:
    """A server under test, and a good connection that stays open from the first test to the last."""

    serve: Serve
    reactor: Reactor
    bystander: Client = field(init=False)
    tail: Tail = field(init=False)
    clients: list[Client] = field(default_factory=list)
    over: set[str] = field(default_factory=set)
    sent: int = 0
    events_seen: int = 0
    memory_before: int = 0
    memory_allowed: int = MEMORY

    def __post_init__(self) -> None:
        self.tail = Tail(self.serve.events)
        self.bystander = Client(self.reactor, self.serve.address).open()
        self.undisturbed()

    def connect(self, *arguments: Any, kind: type[Client] = Client, **options: Any) -> Client:
        """A client that has agreed with the server; `capabilities=None`: that has only shaken hands."""
        client = kind(self.reactor, self.serve.address, *arguments, **options)
        self.clients.append(client)
        return client.open()

    def undisturbed(self) -> None:
        """The bystander's connection does what it always did."""
        self.sent += 1
        payload = f"entity {self.sent} of the bystander".encode()
        self.bystander.deliver(self.sent, payload)
        status = self.bystander.terminal(self.sent)
        assert (status.stat, status.cursor) == (Stat.COMPLETE, self.sent + 1)
        path = self.serve.sink / self.bystander.session_id / "0" / str(self.sent)
        assert path.read_bytes() == payload

    def closed(self, client: Client, code: int | None = None) -> None:
        """The sink has written the session's last line, with `code` if one is given."""
        sink, session = self.serve.sink, client.session_id
        self.reactor.run(lambda: closed_code(sink, session) is not None, SETTLE)
        found = closed_code(sink, session)
        assert found is not None, f"the list of session {session} is not closed; {self.serve.complaint()}"
        assert code is None or found == code, f"closed with {found}, not with {code}"

    def file(self, client: Client, entity: int, scope: int = 0) -> Path:
        return self.serve.sink / client.session_id / str(scope) / str(entity)

    def entities(self, client: Client) -> list[dict[str, Any]]:
        """The lines of the session's list but the last."""
        return [line for line in log_of(self.serve.sink, client.session_id) if "closed" not in line]

    def events(self, client: Client, kind: str | None = None) -> list[dict[str, Any]]:
        """The events of a session, so far."""
        mine = [line for line in self.tail.lines() if line["session"] == client.session_id]
        return [line for line in mine if kind in (None, line["event"])]

    def before(self) -> None:
        self.memory_allowed = MEMORY
        if LINUX:
            self.serve.forget_peak()
            self.memory_before = self.serve.memory()

    def after(self) -> None:
        """What must hold whatever a test has done."""
        assert self.serve.alive, self.serve.complaint()
        assert "panicked" not in self.serve.errors.read_text("utf-8", "replace"), self.serve.complaint()
        self.undisturbed()
        if LINUX:
            risen = self.serve.memory(peak=True) - self.memory_before
            assert risen < self.memory_allowed, f"the server took {risen >> 20} MiB more"
        for client in self.clients:
            self._finish(client)
        self.clients.clear()
        check_sink(self.serve.sink, self.over)
        events = self.tail.lines()
        for line in events[self.events_seen :]:
            check_event(line)
        self.events_seen = len(events)

    def _finish(self, client: Client) -> None:
        ended = client.closed_by_peer
        if not client.handshake_done or not client.has_list or client.session_id in self.over:
            client.vanish()
            return
        if ended is None and client.own_close is None and not client.vanished:
            client.close(0, "the test is over")
        code = ended.error_code if ended is not None else client.own_close
        # A transport's error, or a client that vanished, has no code of ours; closes may cross.
        has_code = not client.vanished and (ended is None or ended.frame_type is None)
        self.closed(client, code if has_code and not client.may_cross else None)
        assert has_code or closed_code(self.serve.sink, client.session_id) != 0
        check_session(self.serve.sink, client.session_id)
        self.over.add(client.session_id)
        client.vanish()

    def forget(self) -> None:
        """Drops the clients of a test that failed, without checks."""
        for client in self.clients:
            if not client.has_ended() and not client.vanished:
                client.close(0, "the test has failed")
            client.vanish()
        self.clients.clear()


Programs = Callable[..., Program]


@pytest.fixture(scope="session")
def programs(reactor: Reactor, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    """The server with these options; it is started once and serves all tests that ask for it."""
    running: dict[tuple[str, ...], Program] = {}

    def start(*options: str) -> Program:
        program = running.get(options)
        if program is None or not program.serve.alive or program.bystander.quic.ended is not None:
            if program is not None:
                program.serve.stop()
            serve = Serve(tmp_path_factory.mktemp("serve"), *options)
            program = running[options] = Program(serve, reactor)
        return program

    yield start
    for program in running.values():
        program.bystander.close()
        program.serve.stop()


@pytest.fixture
def program(programs: Programs, request: pytest.FixtureRequest) -> Iterator[Program]:
    """The server of a test: `@pytest.mark.parametrize("program", [["--window", "4"]], indirect=True)` gives options."""
    program = programs(*getattr(request, "param", ()))
    program.before()
    try:
        yield program
        program.after()
    finally:
        program.forget()


Connect = Callable[..., Client]


@pytest.fixture
def connect(program: Program) -> Connect:
    return program.connect


Join = Callable[..., WaitingClient]


@pytest.fixture
def join(program: Program) -> Join:
    """Gives a client of layer 2 that has named its session, or with `of` one that is back (`kind=Back`)."""

    def joined(*arguments: Any, kind: type[WaitingClient] = WaitingClient, **options: Any) -> WaitingClient:
        client = program.connect(*arguments, kind=kind, **options)
        assert isinstance(client, WaitingClient)
        return client

    return joined


@pytest.fixture
def friend(join: Join) -> Iterator[WaitingClient]:
    """Another client of layer 2, with something set aside, that nothing may disturb."""
    friend = join()
    friend.parent(Policy(on_failure=Action.DEFER))
    friend.announce(1, 2, scope=2, depth=1)
    friend.child(1, checksum=bytes(32))
    claim, _ = friend.set_aside(1, 2)
    yield friend
    assert friend.quic.ended is None
    assert friend.query(claim).status == Stat.DEFERRED
    friend.child(2)
    friend.barrier(2, 1)
    assert friend.released(2, 1) == digest_of(2, Stat.DEFERRED, Stat.COMPLETE)
    assert friend.terminal(1).stat == Stat.FAILED


@pytest.fixture(scope="session")
def receives(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receive]:
    """A receiver that does with each entity what its metadata says."""
    receive = Receive(tmp_path_factory.mktemp("receive"))
    yield receive
    receive.stop()


@pytest.fixture(scope="session")
def beside(receives: Receive, reactor: Reactor) -> Iterator[Callable[[], None]]:
    """Another connection to `receives`, from the first test to the last: what it says, it says still."""
    client = Client(reactor, receives.address).open()
    entities = count(1)

    def undisturbed() -> None:
        entity = next(entities)
        client.deliver(entity, b"beside")
        client.completes(entity)

    yield undisturbed
    client.close()
    client.vanish()


Waits = Callable[..., WaitingClient]


@pytest.fixture
def waits(receives: Receive, reactor: Reactor, beside: Callable[[], None]) -> Iterator[Waits]:
    """Gives clients of layer 2 to `receives`; after the test it lives, and another connection was not disturbed."""
    clients: list[WaitingClient] = []

    def join(kind: type[WaitingClient] = WaitingClient, **options: Any) -> WaitingClient:
        client = kind(reactor, receives.address, **options)
        clients.append(client)
        return client.open()

    yield join
    for client in clients:
        if not client.vanished and not client.has_ended():
            client.close()
        client.vanish()
    assert receives.alive, receives.complaint()
    beside()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return Certificate(tmp_path_factory.mktemp("certificate"))


class Sender:
    """Starts clients under test against servers of the test's."""

    def __init__(self, reactor: Reactor, certificate: Certificate, folder: Path) -> None:
        self.reactor, self.certificate, self.folder = reactor, certificate, folder
        self.receivers: list[Receiver] = []
        self.processes: list[Send] = []

    def receiver(self, **options: Any) -> Receiver:
        receiver = Receiver(self.reactor, self.certificate, **options)
        self.receivers.append(receiver)
        return receiver

    def waiting(self, **options: Any) -> WaitingReceiver:
        """A server of layer 2."""
        receiver = WaitingReceiver(self.reactor, self.certificate, **options)
        self.receivers.append(receiver)
        return receiver

    def file(self, name: str = "a.bin", payload: bytes = b"some bytes") -> Path:
        path = self.folder / name
        path.write_bytes(payload)
        return path

    def send(self, receiver: Receiver, *arguments: str | Path, fingerprint: str | None = None, **options: Any) -> Send:
        pinned = ("--fingerprint", fingerprint or self.certificate.fingerprint)
        return self.run(receiver.address, *arguments, *pinned, **options)

    def run(self, address: tuple[str, int], *arguments: str | Path) -> Send:
        process = Send(self.reactor, self.folder, address, *arguments)
        self.processes.append(process)
        return process

    def end(self) -> None:
        for process in self.processes:
            process.end()
        for receiver in self.receivers:
            receiver.vanish()


@pytest.fixture
def sender(reactor: Reactor, certificate: Certificate, tmp_path: Path) -> Iterator[Sender]:
    sender = Sender(reactor, certificate, tmp_path)
    yield sender
    sender.end()


@pytest.fixture(scope="session")
def owners(reactor: Reactor, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Own]]:
    """The client that is told what to do: one process for all tests, unless one has left it without an answer."""
    running: list[Own] = []

    def own() -> Own:
        if not running or not running[-1].idle or running[-1].process.poll() is not None:
            running.append(Own(reactor, tmp_path_factory.mktemp("own")))
        return running[-1]

    yield own
    for process in running:
        process.end()


class Owner:
    """A client under test that is told what to do, against servers of the test's."""

    def __init__(self, own: Own, sender: Sender) -> None:
        self.own, self.sender = own, sender

    def begin(self, receiver: Receiver, **order: Any) -> None:
        self.own.begin(receiver.address, self.sender.certificate.fingerprint, **order)
        receiver.accepts()

    def answers(self, receiver: Receiver, **order: Any) -> dict[str, Any]:
        self.begin(receiver, **order)
        return self.own.answer()


@pytest.fixture
def owner(owners: Callable[[], Own], sender: Sender) -> Owner:
    return Owner(owners(), sender)
