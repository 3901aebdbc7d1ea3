"""A server of the test's: takes one connection at a time and receives as the decisions say, unless told otherwise."""

import datetime
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from socket import AF_INET, SOCK_DGRAM
from socket import socket as Socket  # noqa: N812 - it is a class
from typing import Any

from aioquic._buffer import Buffer
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.packet import pull_quic_header
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from .entity import Header, merkle_root
from .peer import ALPN, TIMEOUT, Incoming, Peer, Quic
from .reactor import Reactor
from .wire import Barrier, Capabilities, Checkpoint, Digest, Frame, Stat, Status

__all__ = ["Certificate", "Receiver", "Scope"]

# What an owner says when it gives up, and a receiver echoes; the last two at layer 2.
GIVEN_UP = (Stat.FAILED, Stat.SKIPPED, Stat.ABANDONED)


class Certificate:
    """A self-signed certificate for localhost."""

    def __init__(self, folder: Path) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a test's server")])
        now = datetime.datetime.now(datetime.UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
            .sign(key, hashes.SHA256())
        )
        self.chain, self.key = folder / "cert.pem", folder / "key.pem"
        self.chain.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        self.key.write_bytes(private)
        self.fingerprint = sha256(certificate.public_bytes(serialization.Encoding.DER)).hexdigest()


@dataclass
class Scope:
    """What has been announced in a scope, and what became of it."""

    announced: list[int] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)
    barrier: bool = False
    released: bool = False
    parent: tuple[int, int] | None = None
    depth: int = 0

    @property
    def cursor(self) -> int:
        """The lowest unresolved ID, or the next one."""
        unresolved = [entity for entity in self.announced if entity not in self.statuses]
        return min(unresolved, default=len(self.announced) + 1)

    def digest(self, number: int) -> Digest:
        codes = list(self.statuses.values())
        succeeded, deferred = codes.count(Stat.COMPLETE), codes.count(Stat.DEFERRED)
        failed = codes.count(Stat.FAILED) + codes.count(Stat.ABANDONED)
        return Digest(number, len(codes), succeeded, failed, deferred, merkle_root(self.statuses.items()))


class Receiver(Peer):
    """Listens from the start. `on` replaces what it does at a frame or at a whole entity: the hook gives True when
    nothing more is to be done. `greets` False: no CAPABILITIES by itself."""

    def __init__(
        self,
        reactor: Reactor,
        certificate: Certificate,
        *,
        capabilities: Capabilities | None = Capabilities(),  # noqa: B008 - frozen
        on_frame: Callable[["Receiver", Frame], bool] | None = None,
        on_entity: Callable[["Receiver", Header, bytes], bool] | None = None,
        edit: Callable[[Frame], Frame] = lambda frame: frame,
        alpn: str = ALPN,
    ) -> None:
        self.configuration = QuicConfiguration(
            is_client=False, alpn_protocols=[alpn], idle_timeout=60.0, initial_rtt=0.02, max_data=64 << 20
        )
        self.configuration.load_cert_chain(str(certificate.chain), str(certificate.key))
        socket = Socket(AF_INET, SOCK_DGRAM)
        socket.bind(("127.0.0.1", 0))
        socket.setblocking(False)
        # Until the client's first datagram says its connection ID.
        super().__init__(reactor, Quic(configuration=QuicConfiguration(alpn_protocols=[alpn])), socket)
        self.address: tuple[str, int] = socket.getsockname()
        self.capabilities = capabilities
        self.hooks = (on_frame, on_entity)
        self.edit = edit
        self.connected = False
        self.scopes: dict[int, Scope] = {0: Scope()}
        self.entities: dict[tuple[int, int], tuple[Header, bytes]] = {}
        self.dehydrating: set[tuple[int, int]] = set()
        self.checkpoints: list[Checkpoint] = []
        reactor.add(self)

    def received(self, data: bytes, address: Any) -> None:
        if not self.connected:
            header = pull_quic_header(Buffer(data=data), host_cid_length=8)
            self.quic = Quic(
                configuration=self.configuration, original_destination_connection_id=header.destination_cid
            )
            self.connected = True
        super().received(data, address)

    def timer(self) -> float | None:
        return super().timer() if self.connected else None

    def flush(self) -> None:
        if self.connected:
            super().flush()

    # ---- receiving as the decisions say

    def on_frame(self, frame: Frame) -> None:
        if self.hooks[0] is not None and self.hooks[0](self, frame):
            return
        self.take(frame)
        self.settle()

    def take(self, frame: Frame) -> None:
        """What a frame changes."""
        match frame:
            case Capabilities() if self.capabilities is not None:
                self.send(self.capabilities)
            case Status():
                self._take_status(frame)
            case Barrier(released=False):
                self.scopes.setdefault(frame.barrier, Scope()).barrier = True
            case Checkpoint(flags=0):
                self.checkpoints.append(frame)

    def _take_status(self, frame: Status) -> None:
        scope = self.scopes.setdefault(frame.scope, Scope())
        scope.depth = frame.depth
        if frame.stat == Stat.PENDING:
            scope.announced.append(frame.entity)
        elif frame.stat == Stat.DEHYDRATING:
            self.dehydrating.add((frame.scope, frame.entity))
        elif frame.stat in GIVEN_UP and frame.entity not in scope.statuses:
            self.resolve(frame.scope, frame.entity, frame.stat)

    def on_stream(self, stream_id: int, stream: Incoming) -> None:  # noqa: ARG002
        header = stream.header if stream.ended else None
        if header is None:
            return
        key = (header.scope, header.entity)
        self.entities[key] = (header, stream.payload)
        child = header.metadata.get("pipestream.child-scope")
        if child is not None:
            self.scopes.setdefault(int(child), Scope()).parent = key
        if self.hooks[1] is not None and self.hooks[1](self, header, stream.payload):
            return
        self.settle()

    def resolve(self, scope: int, entity: int, stat: int, extension: bytes | None = None) -> None:
        """Sends the terminal STATUS, with the cursor when that moves."""
        state = self.scopes[scope]
        before = state.cursor
        state.statuses[entity] = stat
        moved = state.cursor if state.cursor != before else None
        self.send(self.edit(Status(stat, entity, scope, state.depth, moved, extension)))

    def settle(self) -> None:
        """Resolves whatever can be: leaves, scopes from the deepest up, then checkpoints."""
        if self.quic.ended is not None:
            return
        for (scope, entity), _ in list(self.entities.items()):
            state = self.scopes.get(scope)
            if state is None or entity not in state.announced or entity in state.statuses:
                continue
            if (scope, entity) not in self.dehydrating:
                self.resolve(scope, entity, Stat.COMPLETE)
        while any(self._release(number, state) for number, state in list(self.scopes.items())):
            pass
        self.checkpoints = [checkpoint for checkpoint in self.checkpoints if not self._answer(checkpoint)]

    def _answer(self, checkpoint: Checkpoint) -> bool:
        """Answers a checkpoint once everything in its scope is terminal; at layer 0 it completes parents first."""
        scope = self.scopes[checkpoint.scope]
        parents = [entity for number, entity in self.dehydrating if number == checkpoint.scope]
        at_layer_0 = self.capabilities is not None and not self.capabilities.layer1
        if at_layer_0 and set(scope.announced) - set(parents) <= set(scope.statuses):
            for parent in parents:
                if parent not in scope.statuses:
                    children = [header.entity for header, _ in self.entities.values() if header.parent == parent]
                    good = all(scope.statuses[child] == Stat.COMPLETE for child in children)
                    self.resolve(checkpoint.scope, parent, Stat.COMPLETE if good else Stat.FAILED)
        if not set(scope.announced) <= set(scope.statuses):
            return False
        self.send(self.edit(replace(checkpoint, flags=1)))
        return True

    def _release(self, number: int, scope: Scope) -> bool:
        ready = scope.barrier and not scope.released and set(scope.announced) <= set(scope.statuses)
        if not ready or (number != 0 and scope.parent not in self.entities):
            return False
        scope.released = True
        entity = scope.parent[1] if scope.parent else 0
        self.send(self.edit(scope.digest(number)), self.edit(Barrier(True, number, entity)))
        if scope.parent:
            self.resolve(*scope.parent, self.outcome(scope))
        return True

    def outcome(self, scope: Scope) -> Stat:
        """What becomes of the parent of a scope whose children have all ended: STRICT."""
        good = all(stat == Stat.COMPLETE for stat in scope.statuses.values())
        return Stat.COMPLETE if good else Stat.FAILED

    # ---- waiting

    def accepts(self, timeout: float = 60.0) -> None:
        """A client has come and has said its capabilities."""
        assert self.reactor.run(lambda: self.handshake_done, timeout), "no client came"
        self.expect(Capabilities, timeout=TIMEOUT)
