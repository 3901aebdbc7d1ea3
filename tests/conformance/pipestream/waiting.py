"""A client of layer 2 that does what a test tells it."""

from secrets import token_hex
from typing import Any

from .client import Client
from .entity import merkle_root
from .layer2 import ClaimQuery, ClaimRedeem, ClaimResponse, Policy, Resume, Session, decode_deferred, decode_yielded
from .peer import TIMEOUT
from .reactor import Reactor
from .wire import CONNECTION_LEVEL, Capabilities, Code, Digest, Error, Frame, Stat, Status

__all__ = ["LATER", "LAYER_2", "Back", "WaitingClient", "digest_of"]

LAYER_2 = Capabilities(layer2=True)
# Who goes on later closes with this code of those for private use.
LATER = 0x42


def digest_of(scope: int, *stats: int) -> Digest:
    """That of a scope whose entities 1, 2, ... ended so (decision 11)."""
    failed = stats.count(Stat.FAILED) + stats.count(Stat.ABANDONED)
    counters = (len(stats), stats.count(Stat.COMPLETE), failed, stats.count(Stat.DEFERRED))
    return Digest(scope, *counters, merkle_root(enumerate(stats, 1)))


def counts(frame: Frame | bytes) -> bool:
    """Whether a frame belongs to the session, and not to its connection."""
    heartbeat = isinstance(frame, Status) and (frame.stat, frame.entity) == (Stat.UNSPECIFIED, CONNECTION_LEVEL)
    return not heartbeat and not isinstance(frame, Capabilities | Session)


class WaitingClient(Client):
    """A client that has named its session. `named` False: it has not yet. `survives`: it can go on later."""

    layer_2 = True

    def __init__(
        self,
        reactor: Reactor,
        address: tuple[str, int],
        capabilities: Capabilities | None = LAYER_2,
        *,
        name: str | None = None,
        named: bool = True,
        survives: bool = False,
        **options: Any,
    ) -> None:
        self.name = name or token_hex(16)
        self.named = named
        self.survives = survives
        # What was said in the session and what came, over all of its connections.
        self.said: list[bytes] = []
        self.heard: list[Frame] = []
        super().__init__(reactor, address, capabilities, **options)

    def open(self, timeout: float = TIMEOUT) -> "WaitingClient":
        super().open(timeout)
        if self.named and self.capabilities is not None:
            self.introduce(timeout)
        return self

    def introduce(self, timeout: float = TIMEOUT) -> None:
        """SESSION, and the server's."""
        self.send(Session(self.name, 0 if self.survives else None))
        answer = self.expect(Session, timeout=timeout)
        assert answer.session == self.name, answer

    def acknowledge(self) -> None:
        """SESSION once more, with the number of frames that have come."""
        self.send(Session(self.name, len(self.heard)))

    @property
    def session_id(self) -> str:
        return self.name

    @property
    def has_list(self) -> bool:  # type: ignore[override]
        """A server that has not heard the name, or does not want it, has nowhere to put anything."""
        return any(isinstance(frame, Session) for frame in self.frames)

    def on_frame(self, frame: Frame) -> None:
        if counts(frame):
            self.heard.append(frame)

    def send(self, *frames: Frame | bytes, end: bool = False) -> None:
        for frame in frames:
            if counts(frame):
                self.said.append(frame if isinstance(frame, bytes) else frame.encode())
        super().send(*frames, end=end)

    # ---- layer 2

    def parent(self, policy: Policy | None, *, entity: int = 1, scope: int = 2, **fields: Any) -> None:
        """A dehydrated entity whose children `policy` governs."""
        self.dehydrate(entity, scope, policy=None if policy is None else policy.message(), **fields)

    def child(self, entity: int, payload: bytes = b"a child", *, scope: int = 2, parent: int = 1, **fields: Any) -> int:
        return self.entity(entity, payload, scope=scope, parent=parent, **fields)

    def statuses(self, entity: int, scope: int = 0) -> list[Status]:
        """Every STATUS of an entity, over all connections."""
        statuses = [frame for frame in self.heard if isinstance(frame, Status)]
        return [frame for frame in statuses if (frame.entity, frame.scope) == (entity, scope)]

    def hears(self, *stats: int, entity: int, scope: int = 0) -> Status:
        """Exactly these statuses of an entity, in this order; the last one."""
        self.wait(lambda: len(self.statuses(entity, scope)) >= len(stats), f"{stats} of {entity}")
        found = self.statuses(entity, scope)
        assert [status.stat for status in found] == list(stats), self.story()
        return found[-1]

    def fails_for_now(self, entity: int, code: Code, *, scope: int = 2, times: int = 1) -> None:
        """A failure with retries left: 0xC0 with the code, and STATUS FAILED that moves no cursor (decision 19)."""
        status = self.hears(*[Stat.FAILED] * times, entity=entity, scope=scope)
        assert status.cursor is None, status
        errors = [frame for frame in self.heard if isinstance(frame, Error) and frame.entity == entity]
        assert [Code(error.code) for error in errors] == [code] * times

    def set_aside(self, entity: int, scope: int = 0) -> tuple[int, int]:
        """Claim check and expiry (micros) of an entity that is DEFERRED."""
        status = self.terminal(entity, scope)
        assert status.stat == Stat.DEFERRED, self.story()
        return decode_deferred(status.extension)

    def waits(self, entity: int, scope: int = 0, *, times: int = 1) -> tuple[int, bytes]:
        """Reason and token of an entity that is YIELDED for the `times`th time."""

        def yields() -> list[Status]:
            return [status for status in self.statuses(entity, scope) if status.stat == Stat.YIELDED]

        self.wait(lambda: len(yields()) >= times, "YIELDED")
        assert len(yields()) == times
        assert yields()[-1].cursor is None
        return decode_yielded(yields()[-1].extension)

    def answer(self, *frames: Frame | bytes) -> Frame:
        """The one frame that comes in answer to these."""
        before = len(self.heard)
        self.send(*frames)
        self.wait(lambda: len(self.heard) > before, "an answer")
        return self.heard[before]

    def query(self, claim: int) -> ClaimResponse:
        response = self.answer(ClaimQuery(claim))
        assert isinstance(response, ClaimResponse), response
        assert response.claim == claim
        return response

    def redeem(self, claim: int, session: str) -> ClaimResponse | Code:
        """The claim check, or the code of the refusal."""
        response = self.answer(ClaimRedeem(claim, session))
        if isinstance(response, Error):
            assert (response.scope, response.entity) == (0, 0)
            return Code(response.code)
        assert isinstance(response, ClaimResponse), response
        return response

    def resume(self, entity: int, token: bytes, scope: int = 0) -> Code | None:
        """None: it goes on; or the code of the refusal."""
        response = self.answer(Resume(scope, entity, token))
        if isinstance(response, Error):
            assert (response.scope, response.entity) == (scope, entity)
            return Code(response.code)
        assert response == Status(Stat.PROCESSING, entity, scope), response
        return None


class Back(WaitingClient):
    """A client that is back, over another connection: `of` has the session (proto: Session)."""

    def __init__(
        self,
        reactor: Reactor,
        address: tuple[str, int],
        capabilities: Capabilities | None = LAYER_2,
        *,
        of: WaitingClient,
        **options: Any,
    ) -> None:
        super().__init__(reactor, address, capabilities, name=of.name, survives=True, **options)
        self.said, self.heard = of.said, of.heard

    def introduce(self, timeout: float = TIMEOUT) -> None:
        self.send(Session(self.name, len(self.heard), len(self.said)))
        answer = self.expect(Session, timeout=timeout)
        assert answer.session == self.name
        assert answer.received is not None
        assert answer.sent is not None
        # Each says again what the other has not taken.
        self.again = self.said[answer.received :]
        super(WaitingClient, self).send(*self.again)
        missing = answer.sent
        self.wait(lambda: len(self.heard) >= missing, f"{missing} frames of the server")
