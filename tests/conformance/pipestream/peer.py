"""A PipeStream endpoint on aioquic that does what a test tells it, good or evil.

It is independent of penstock: the codecs are those of `wire` and `entity`, the QUIC is aioquic's. Certificates are not
checked here, and only here: what a peer's certificate must be is the business of the program under test.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from socket import socket as Socket  # noqa: N812 - it is a class
from time import monotonic
from typing import Any, TypeVar

from aioquic.quic import events
from aioquic.quic.connection import QuicConnection
from aioquic.tls import Direction, Epoch, hkdf_expand_label

from . import wire
from .entity import Header, decode_header
from .reactor import Reactor
from .wire import Code, Error, Frame, Stat, Status

__all__ = ["ALPN", "TIMEOUT", "Incoming", "Peer", "Quic"]

ALPN = "pipestream/1"
# For whatever should take milliseconds; long enough for a busy machine.
TIMEOUT = 15.0
CONTROL = 0
EXPORTER_LABEL = b"EXPORTER-pipestream-session"

F = TypeVar("F", bound=Frame)


class Quic(QuicConnection):
    """aioquic's connection, which also derives the session ID from the handshake (RFC 8446 section 7.5)."""

    session_id: str = ""

    def _initialize(self, peer_cid: bytes) -> None:
        super()._initialize(peer_cid)
        setup = self.tls._setup_traffic_protection

        def and_export(direction: Direction, epoch: Epoch, label: bytes) -> None:
            setup(direction, epoch, label)
            # The transcript ends with the server's Finished now, which is what the exporter's secret covers.
            if label == b"s ap traffic":
                self._export(self.tls.key_schedule)

        self.tls._setup_traffic_protection = and_export  # type: ignore[method-assign]

    def _export(self, schedule: Any) -> None:
        size, empty = schedule.algorithm.digest_size, schedule.hash_empty_value

        def expand(secret: bytes, label: bytes, hashed: bytes, length: int) -> bytes:
            return hkdf_expand_label(schedule.algorithm, secret, label, hashed, length)

        secret = expand(schedule.derive_secret(b"exp master"), EXPORTER_LABEL, empty, size)
        self.session_id = expand(secret, b"exporter", empty, 16).hex()

    @property
    def ended(self) -> events.ConnectionTerminated | None:
        """How the connection ended, as soon as that is known."""
        return self._close_event


@dataclass
class Incoming:
    """What came on a unidirectional stream of the other end."""

    data: bytearray = field(default_factory=bytearray)
    ended: bool = False
    reset: int | None = None

    @property
    def header(self) -> Header | None:
        decoded = decode_header(bytes(self.data))
        return decoded[0] if decoded else None

    @property
    def payload(self) -> bytes:
        decoded = decode_header(bytes(self.data))
        return bytes(self.data[decoded[1] :]) if decoded else b""


class Peer:
    """One end of a connection. `frames` holds everything that came on stream 0."""

    # Whether frames of layer 2 are read; others skip them.
    layer_2 = False
    # Whether a server's sink has a list of this session: at layer 2 only once it has its name.
    has_list = True

    def __init__(self, reactor: Reactor, quic: Quic, socket: Socket) -> None:
        self.reactor = reactor
        self.quic = quic
        self.socket = socket
        self.frames: list[Frame] = []
        self.streams: dict[int, Incoming] = {}
        self.stopped: dict[int, int] = {}
        self.alpn: str | None = None
        self.handshake_done = False
        self.control_ended = False
        self.vanished = False
        self.own_close: int | None = None
        # The other end may have closed before it heard of our close.
        self.may_cross = False
        self.datagrams = 0
        self._control = b""
        self._corked = False
        self._pings = 0

    # ---- the reactor's side

    def readable(self) -> None:
        while not self.vanished:
            try:
                data, address = self.socket.recvfrom(65_536)
            except (BlockingIOError, ConnectionRefusedError):
                break
            self.received(data, address)
        self.flush()

    def received(self, data: bytes, address: Any) -> None:
        self.quic.receive_datagram(data, address, monotonic())
        self._take_events()

    def timer(self) -> float | None:
        return self.quic.get_timer()

    def tick(self, now: float) -> None:
        self.quic.handle_timer(now)
        self._take_events()
        self.flush()

    def keep_alive(self) -> None:
        if self.handshake_done and self.quic.ended is None:
            self._pings += 1
            self.quic.send_ping(self._pings)
            self.flush()

    def flush(self) -> None:
        if self._corked or self.vanished:
            return
        for data, address in self.quic.datagrams_to_send(monotonic()):
            try:
                self.socket.sendto(data, address)
                self.datagrams += 1
            except (BlockingIOError, ConnectionRefusedError):
                # Lost, as datagrams are.
                continue

    def _take_events(self) -> None:
        while (event := self.quic.next_event()) is not None:
            match event:
                case events.StreamDataReceived():
                    self._take_data(event)
                case events.StreamReset():
                    if event.stream_id == CONTROL:
                        self.control_ended = True
                    else:
                        self.streams.setdefault(event.stream_id, Incoming()).reset = event.error_code
                case events.StopSendingReceived():
                    self.stopped[event.stream_id] = event.error_code
                case events.HandshakeCompleted():
                    self.alpn = event.alpn_protocol
                    self.handshake_done = True

    def _take_data(self, event: events.StreamDataReceived) -> None:
        if event.stream_id != CONTROL:
            stream = self.streams.setdefault(event.stream_id, Incoming())
            stream.data += event.data
            stream.ended = stream.ended or event.end_stream
            self.on_stream(event.stream_id, stream)
            return
        self._control += event.data
        self.control_ended = self.control_ended or event.end_stream
        while (decoded := wire.decode_frame(self._control, with_layer_2=self.layer_2)) is not None:
            frame, used = decoded
            self._control = self._control[used:]
            self.frames.append(frame)
            self.on_frame(frame)

    def on_frame(self, frame: Frame) -> None:
        """For peers that answer by themselves."""

    def on_stream(self, stream_id: int, stream: Incoming) -> None:
        """For peers that answer by themselves."""

    # ---- sending

    @contextmanager
    def corked(self) -> Iterator[None]:
        """What is sent inside goes out together."""
        self._corked = True
        try:
            yield
        finally:
            self._corked = False
            self.flush()

    def send(self, *frames: Frame | bytes, end: bool = False) -> None:
        """Frames, or bytes that need not be frames, on stream 0."""
        data = b"".join(frame if isinstance(frame, bytes) else frame.encode() for frame in frames)
        self.quic.send_stream_data(CONTROL, data, end)
        self.flush()

    def status(self, stat: int, entity: int, scope: int = 0, **fields: Any) -> None:
        self.send(Status(stat, entity, scope, **fields))

    def announce(self, *entities: int, scope: int = 0, depth: int = 0) -> None:
        self.send(*(Status(Stat.PENDING, entity, scope, depth) for entity in entities))

    def stream(self, data: bytes, end: bool = True) -> int:
        """Opens a unidirectional stream with these bytes."""
        stream_id = self.quic.get_next_available_stream_id(is_unidirectional=True)
        self.quic.send_stream_data(stream_id, data, end)
        self.flush()
        return stream_id

    def more(self, stream_id: int, data: bytes, end: bool = False) -> None:
        self.quic.send_stream_data(stream_id, data, end)
        self.flush()

    def drip(self, stream_id: int, data: bytes) -> None:
        """Each byte in a datagram of its own."""
        for byte in data:
            next_one = self.datagrams + 1
            self.more(stream_id, bytes([byte]))
            self.wait(partial(self._has_sent, next_one), "a datagram for each byte")

    def _has_sent(self, datagrams: int) -> bool:
        return self.datagrams >= datagrams

    def reset(self, stream_id: int, code: int) -> None:
        self.quic.reset_stream(stream_id, code)
        self.flush()

    def stop(self, stream_id: int, code: int) -> None:
        self.quic.stop_stream(stream_id, code)
        self.flush()

    def entity(self, number: int, payload: bytes = b"", *, end: bool = True, **fields: Any) -> int:
        """The stream of an entity; `fields` are those of its header, right ones unless said."""
        fields.setdefault("payload_length", len(payload))
        fields.setdefault("checksum", sha256(payload).digest())
        return self.stream(Header(number, **fields).encode() + payload, end)

    def deliver(self, number: int, payload: bytes = b"", *, depth: int = 0, **fields: Any) -> int:
        """PENDING and the stream."""
        with self.corked():
            self.announce(number, scope=fields.get("scope", 0), depth=depth)
            return self.entity(number, payload, **fields)

    def close(self, code: int = 0, reason: str = "") -> None:
        self.own_close = code
        self.quic.close(code, reason_phrase=reason)
        self.flush()

    def vanish(self) -> None:
        """Gone without a word, as a machine that lost its power."""
        self.vanished = True
        self.reactor.remove(self)

    # ---- waiting

    @property
    def session_id(self) -> str:
        return self.quic.session_id

    def has_ended(self) -> bool:
        return self.quic.ended is not None

    @property
    def closed_by_peer(self) -> events.ConnectionTerminated | None:
        return self.quic.ended if self.own_close is None else None

    def wait(self, until: Callable[[], bool], what: str, timeout: float = TIMEOUT) -> None:
        """Until it is so; an end of the connection, or of the time, is a failure."""
        over = self.closed_by_peer
        self.reactor.run(lambda: until() or self.quic.ended is not over, timeout)
        assert until(), f"{what} did not come within {timeout} s; {self.story()}"

    def story(self) -> str:
        """What happened here, for a failed test."""
        return f"closed: {self.quic.ended}, stopped: {self.stopped}, last frames: {self.frames[-12:]}"

    def expect(self, kind: type[F], matches: Callable[[F], bool] = lambda _: True, timeout: float = TIMEOUT) -> F:
        """The first such frame among all that came or will come."""

        def found() -> list[F]:
            return [frame for frame in self.frames if isinstance(frame, kind) and matches(frame)]

        self.wait(lambda: bool(found()), f"a {kind.__name__} frame", timeout)
        return found()[0]

    def terminal(self, entity: int, scope: int = 0, timeout: float = TIMEOUT) -> Status:
        """The terminal status of an entity."""
        matches = lambda frame: frame.terminal and (frame.entity, frame.scope) == (entity, scope)  # noqa: E731
        return self.expect(Status, matches, timeout)

    def completes(self, *entities: int, scope: int = 0) -> None:
        for entity in entities:
            assert self.terminal(entity, scope).stat == Stat.COMPLETE, self.story()

    def fails(self, entity: int, code: Code, scope: int = 0) -> None:
        """Only this entity fails: STATUS FAILED, and 0xC0 with the code (decision 14)."""
        assert self.terminal(entity, scope).stat == Stat.FAILED, self.story()
        error = self.expect(Error, lambda frame: (frame.entity, frame.scope) == (entity, scope))
        assert Code(error.code) is code, error

    def closes(self, code: Code, timeout: float = TIMEOUT) -> None:
        """The other end closes the connection, with this code of ours (decisions 14 and 21)."""
        assert self.reactor.run(self.has_ended, timeout), f"still open; {self.story()}"
        ended = self.closed_by_peer
        assert ended is not None
        assert ended.frame_type is None, f"a transport error: {ended}"
        assert (ended.error_code, Code(ended.error_code).name) == (code, code.name), ended

    def nothing_happens(self, seconds: float = 0.3) -> None:
        """Neither a frame nor a close comes for a while."""
        before = len(self.frames)
        self.reactor.run(lambda: len(self.frames) > before or self.quic.ended is not None, seconds)
        assert (self.frames[before:], self.quic.ended) == ([], None)

    def settled(self) -> None:
        """The other end has taken all that was sent on stream 0: it answers a CHECKPOINT that comes after it."""
        name = f"settled {len(self.frames)}"
        self.send(wire.Checkpoint(name, sequence=1 << 32 | len(self.frames), timeout_ms=1))
        self.expect(wire.Checkpoint, lambda frame: frame.checkpoint_id == name)
