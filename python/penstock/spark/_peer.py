"""The PipeStream server to which tasks send, or the object store to which each writes through its own server."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from penstock._header_key import header_key
from penstock._places import is_uri
from penstock.errors import PipeStreamError, SparkError
from penstock.pipestream import CompletionPolicy, FailureAction, Limits, Session, SinkReader
from penstock.spark._object_sink import ObjectSink

__all__ = ["Peer", "checked_policy", "parsed"]


@dataclass(frozen=True)
class Peer:
    """A PipeStream server, and how to trust it; or a prefix in an object store, for which each task runs a server.

    >>> Peer("sink:4433", fingerprint="ab" * 32).mtu is None
    True
    """

    address: str
    fingerprint: str | None = None
    ca: str | None = None
    system_ca: bool = False
    cert: str | None = None
    key: str | None = None
    mtu: int | None = None
    storage: Mapping[str, str] = field(default_factory=dict)
    policy: str | None = None
    """The default policy for parts that fail, in the form that `CompletionPolicy.parse` reads."""
    layers: int | None = None
    """The highest layer; by default the one that the policy needs."""
    header_key_file: str | None = None
    """The file with the key that seals headers, read when a session is opened."""
    status_interval: float | None = None
    """Seconds between two writes to stream 0, as for `Session.connect`."""
    limits: Limits | None = None
    """Bounds on what the ends of a session may make each other do; a remote server has its own."""

    @contextmanager
    def session(self, *, listed: bool) -> Iterator[Session]:
        """Open a session and close it after the block.

        With ``listed``, the session must be readable in an object store afterwards, which is checked.

        Raises:
            SparkError: As for `connect`, or the store does not answer.
        """
        sink = self.object_sink()
        if sink is None:
            with self.connect() as session:
                yield session
            return
        try:
            with sink.connect() as session:
                yield session
            sink.finish(session.id if listed else None)
        finally:
            sink.stop()

    def object_sink(self) -> ObjectSink | None:
        """Start the task's own server if the address is a URI; otherwise return ``None``.

        Raises:
            SparkError: The store does not answer.
        """
        if not is_uri(self.address):
            return None
        return ObjectSink(self.address, self.storage, parsed(self.policy), self.limits)

    def connect(self) -> Session:
        """Open a session with the server.

        Raises:
            SparkError: The server does not answer, or one end does not trust the other; the message says what to check.
        """
        try:
            return Session.connect(
                self.address,
                fingerprint=self.fingerprint,
                ca=self.ca,
                system_ca=self.system_ca,
                cert=self.cert,
                key=self.key,
                mtu=self.mtu,
                policy=parsed(self.policy),
                layers=self.layers,
                header_key=self._header_key(),
                status_interval=self.status_interval,
                limits=self.limits,
            )
        except (PipeStreamError, OSError) as error:
            raise SparkError(
                f"no session with the sink {self.address}: {error}. Does a server run there (`penstock pipestream "
                "serve`), can every executor reach it over UDP, and do both ends trust each other's certificates?",
                "io",
            ) from error

    def _header_key(self) -> str | None:
        try:
            return header_key(self.header_key_file)
        except ValueError as error:
            raise SparkError(f"header_key_file: {error}") from None

    def reader(self, read_key: str) -> SinkReader:
        """Return a reader of what the server has stored. No connection is opened yet."""
        return SinkReader.connect(
            self.address,
            read_key=read_key,
            fingerprint=self.fingerprint,
            ca=self.ca,
            system_ca=self.system_ca,
            cert=self.cert,
            key=self.key,
        )


def checked_policy(policy: CompletionPolicy | str | None, sink: str) -> str | None:
    """Return a policy as a str, which is sent to the tasks; raise ``ValueError`` if it is invalid."""
    if policy is None:
        return None
    found = CompletionPolicy.parse(policy) if isinstance(policy, str) else policy
    if is_uri(sink) and FailureAction.DEFER in (found.on_failure, found.on_timeout):
        raise ValueError("defers parts, which requires a server: a sink that is a URI cannot store claim checks")
    return str(found)


def parsed(policy: str | None) -> CompletionPolicy | None:
    """Parse a policy that `checked_policy` returned."""
    return None if policy is None else CompletionPolicy.parse(policy)
