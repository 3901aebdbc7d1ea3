"""A server of layer 2 of the test's: it receives as the decisions say, unless told otherwise."""

from typing import Any

from aioquic._buffer import Buffer
from aioquic.quic.packet import QuicPacketType, pull_quic_header

from .entity import Header
from .layer2 import (
    Claim,
    ClaimQuery,
    ClaimRedeem,
    ClaimResponse,
    Mode,
    Policy,
    Resume,
    Session,
    decode_policy,
    deferred,
    yielded,
)
from .peer import Incoming
from .receiver import Receiver, Scope
from .waiting import LATER, LAYER_2, counts
from .wire import Code, Error, Frame, Stat, Status

__all__ = ["WaitingReceiver"]


class WaitingReceiver(Receiver):
    """Answers SESSION, applies the policies of parents, and knows the claim checks in `claims`.

    `survives`: its end of the session can go on over another connection.
    """

    layer_2 = True

    def __init__(self, *arguments: Any, survives: bool = False, **options: Any) -> None:
        self.name = ""
        self.survives = survives
        self.claims: dict[int, tuple[Claim, str, Stat]] = {}
        self.asked: list[ClaimQuery | ClaimRedeem] = []
        self.resumes: list[Resume] = []
        self.said: list[bytes] = []
        self.taken = 0
        self.early: list[tuple[int, Incoming]] = []
        self.connections = 0
        super().__init__(*arguments, **{"capabilities": LAYER_2} | options)

    @property
    def session_id(self) -> str:
        return self.name

    def received(self, data: bytes, address: Any) -> None:
        kind = pull_quic_header(Buffer(data=data), host_cid_length=8).packet_type
        if self.quic.ended is not None and self.connected and kind == QuicPacketType.INITIAL:
            self._next_connection()
        if self.connected or kind == QuicPacketType.INITIAL:
            self.connections += not self.connected
            super().received(data, address)

    def _next_connection(self) -> None:
        """What belongs to the connection is forgotten, what belongs to the session is kept."""
        self.connected = self.handshake_done = self.control_ended = False
        self.own_close = None
        self._control = b""
        self.streams.clear()
        self.stopped.clear()

    def send(self, *frames: Frame | bytes, end: bool = False) -> None:
        self.said += [frame if isinstance(frame, bytes) else frame.encode() for frame in frames if counts(frame)]
        super().send(*frames, end=end)

    def on_frame(self, frame: Frame) -> None:
        self.taken += counts(frame)
        super().on_frame(frame)

    def on_stream(self, stream_id: int, stream: Incoming) -> None:
        """Streams that overtake their PENDING are held, so that a hook may say what it likes of an entity."""
        header = stream.header if stream.ended else None
        if header is None:
            return
        if header.entity in self.scopes.get(header.scope, Scope()).announced:
            super().on_stream(stream_id, stream)
        else:
            self.early.append((stream_id, stream))

    def take(self, frame: Frame) -> None:
        self._take(frame)
        early, self.early = self.early, []
        for stream_id, stream in early:
            self.on_stream(stream_id, stream)

    def _take(self, frame: Frame) -> None:
        match frame:
            case Session():
                self._take_session(frame)
            case ClaimQuery():
                self.asked.append(frame)
                claim, _, status = self.claims.get(frame.claim, (None, "", None))
                self.send(ClaimResponse(frame.claim, claim is not None, claim, status))
            case ClaimRedeem():
                self.asked.append(frame)
                self._redeem(frame)
            case Resume():
                self.resumes.append(frame)
                self.send(Status(Stat.PROCESSING, frame.entity, frame.scope, self.scopes[frame.scope].depth))
            case _:
                super().take(frame)

    def _take_session(self, frame: Session) -> None:
        self.name = frame.session
        if frame.sent is not None:
            assert frame.received is not None
            self.send(Session(frame.session, self.taken, len(self.said)))
            super().send(*self.said[frame.received :])
        elif not any(isinstance(earlier, Session) for earlier in self.frames[:-1]):
            self.send(Session(frame.session, 0 if self.survives else None))

    def _redeem(self, frame: ClaimRedeem) -> None:
        claim, session, status = self.claims.get(frame.claim, (None, "", None))
        if session != frame.session or status != Stat.DEFERRED or claim is None:
            self.send(Error(Code.CLAIM_NOT_FOUND, 0, 0, "not here"))
            return
        self.claims[frame.claim] = (claim, session, Stat.PROCESSING)
        self.send(ClaimResponse(frame.claim, True, claim, Stat.PROCESSING))

    def later(self) -> None:
        """Ends the connection, not the session."""
        self.close(LATER, "later")

    # ---- verdicts

    def policy(self, scope: Scope) -> Policy:
        """That of the parent of a scope."""
        header = self.entities[scope.parent][0] if scope.parent else None
        return decode_policy(header.policy) if header is not None and header.policy is not None else Policy()

    def outcome(self, scope: Scope) -> Stat:
        policy, codes = self.policy(scope), list(scope.statuses.values())
        complete = codes.count(Stat.COMPLETE)
        good = {
            Mode.LENIENT: complete > 0,
            Mode.BEST_EFFORT: True,
            Mode.QUORUM: complete >= (policy.ratio or 0.0) * len(codes),
        }
        return Stat.COMPLETE if not codes or good.get(Mode(policy.mode or 0), complete == len(codes)) else Stat.FAILED

    def fail_for_now(self, header: Header, code: Code = Code.INTERNAL_ERROR) -> bool:
        """FAILED with retries left: it moves no cursor, and the entity comes again."""
        del self.entities[header.scope, header.entity]
        depth = self.scopes[header.scope].depth
        self.send(Error(code, header.scope, header.entity, "not yet"))
        self.send(Status(Stat.FAILED, header.entity, header.scope, depth))
        return True

    def end(self, header: Header, stat: Stat, code: Code = Code.INTERNAL_ERROR) -> bool:
        """A terminal status with its reason."""
        self.send(Error(code, header.scope, header.entity, "the test does not like it"))
        self.resolve(header.scope, header.entity, stat)
        self.settle()
        return True

    def defer(self, header: Header, claim: int, expiry: int) -> bool:
        """DEFERRED under a claim check, which anybody may ask about later."""
        check = Claim(claim, header.entity, header.scope, expiry)
        self.claims[claim] = (check, self.name, Stat.DEFERRED)
        self.resolve(header.scope, header.entity, Stat.DEFERRED, deferred(claim, expiry))
        self.settle()
        return True

    def pause(self, header: Header, reason: int, token: bytes) -> bool:
        """YIELDED."""
        depth = self.scopes[header.scope].depth
        self.send(Status(Stat.YIELDED, header.entity, header.scope, depth, extension=yielded(reason, token)))
        return True
