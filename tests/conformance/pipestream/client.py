"""A client that does what a test tells it."""

import ssl
from collections.abc import Mapping
from pathlib import Path
from socket import AF_INET, SO_RCVBUF, SOCK_DGRAM, SOL_SOCKET
from socket import socket as Socket  # noqa: N812 - it is a class
from time import monotonic
from typing import Any

from aioquic.quic.configuration import QuicConfiguration
from cryptography.hazmat.primitives.serialization import Encoding

from .peer import ALPN, TIMEOUT, Peer, Quic
from .reactor import Reactor
from .wire import Barrier, Capabilities, Digest, Stat, Status

__all__ = ["Client"]


class Client(Peer):
    """A client; without `capabilities` it says nothing on stream 0."""

    def __init__(
        self,
        reactor: Reactor,
        address: tuple[str, int],
        capabilities: Capabilities | None = Capabilities(),  # noqa: B008 - frozen
        *,
        alpn: str = ALPN,
        idle_timeout: float = 60.0,
        max_stream_data: int = 1 << 20,
        certificate: tuple[Path, Path] | None = None,
    ) -> None:
        configuration = QuicConfiguration(
            alpn_protocols=[alpn],
            idle_timeout=idle_timeout,
            verify_mode=ssl.CERT_NONE,
            server_name="localhost",
            max_stream_data=max_stream_data,
            initial_rtt=0.02,
        )
        if certificate is not None:
            configuration.load_cert_chain(str(certificate[0]), str(certificate[1]))
        socket = Socket(AF_INET, SOCK_DGRAM)
        socket.setsockopt(SOL_SOCKET, SO_RCVBUF, 4 << 20)
        socket.setblocking(False)
        super().__init__(reactor, Quic(configuration=configuration), socket)
        reactor.add(self)
        self.capabilities = capabilities
        self.quic.connect(address, monotonic())
        self.flush()

    def open(self, timeout: float = TIMEOUT) -> "Client":
        """Waits for the handshake and, if we said ours, for the server's CAPABILITIES."""
        self.wait(lambda: self.handshake_done, "the handshake", timeout)
        if self.capabilities is not None:
            self.send(self.capabilities)
            self.expect(Capabilities, timeout=timeout)
        return self

    @property
    def certificate(self) -> bytes:
        """The server's leaf, in DER."""
        certificate = self.quic.tls._peer_certificate
        assert certificate is not None
        return certificate.public_bytes(Encoding.DER)

    # ---- dehydrating

    def dehydrate(
        self,
        entity: int,
        child_scope: int | None,
        payload: bytes = b"",
        *,
        depth: int = 0,
        metadata: Mapping[str, str] | None = None,
        stream: bool = True,
        **fields: Any,
    ) -> int:
        """PENDING and DEHYDRATING, then the parent's stream unless `stream` is False (decision 9)."""
        extra = {"pipestream.dehydrated": "1"}
        if child_scope is not None:
            extra["pipestream.child-scope"] = str(child_scope)
        scope = fields.get("scope", 0)
        with self.corked():
            self.send(Status(Stat.PENDING, entity, scope, depth), Status(Stat.DEHYDRATING, entity, scope, depth))
            return self.entity(entity, payload, metadata=extra | dict(metadata or {}), **fields) if stream else -1

    def barrier(self, scope: int, parent: int) -> None:
        """No more children (decision 11)."""
        self.send(Barrier(False, scope, parent))

    def released(self, scope: int, parent: int) -> Digest:
        """The digest, and the BARRIER S=1 that follows it."""
        barrier = self.expect(Barrier, lambda frame: frame.released and frame.barrier == scope)
        assert barrier.parent == parent
        digest = self.expect(Digest, lambda frame: frame.scope == scope)
        assert self.frames.index(digest) < self.frames.index(barrier), self.story()
        return digest
