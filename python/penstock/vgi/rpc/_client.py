"""The client: typed proxies and stream sessions."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self, TypeVar, cast

import pyarrow as pa

from penstock import _core
from penstock.errors import VgiError
from penstock.vgi._external import core_external
from penstock.vgi.log import Level, Message
from penstock.vgi.rpc._batches import AnnotatedBatch
from penstock.vgi.rpc._calls import annotated, as_bytes
from penstock.vgi.rpc._common import MethodType, RpcError
from penstock.vgi.rpc._methods import Values, core_protocol, method_values
from penstock.vgi.rpc._transport import RpcTransport, beside, endpoints
from penstock.vgi.rpc._types import rpc_methods
from penstock.vgi.utils import ArrowSerializableDataclass, IpcValidation, validate_batch

if TYPE_CHECKING:
    from penstock.vgi._external import ExternalConfig

__all__ = ["Caller", "OnLog", "RpcConnection", "Session", "StreamSession", "on_log_adapter"]

P = TypeVar("P")
H = TypeVar("H", bound=ArrowSerializableDataclass)

OnLog = Callable[[Message], None]


def on_log_adapter(on_log: OnLog | None) -> Callable[..., None] | None:
    """Return the function that the core calls for each log message of a server."""
    if on_log is None:
        return None

    def take(level: str, message: str, extra: str | None, server_id: str | None, request_id: str | None) -> None:
        import json

        said: dict[str, Any] = {}
        if extra:
            with contextlib.suppress(ValueError):
                parsed = json.loads(extra)
                said = parsed if isinstance(parsed, dict) else {"extra": parsed}
        if server_id is not None:
            said.setdefault("server_id", server_id)
        if request_id is not None:
            said.setdefault("request_id", request_id)
        made = Message(Level(level) if level in Level.__members__ else Level.INFO, message)
        made.extra = said or None
        on_log(made)

    return take


@contextlib.contextmanager
def transport_errors(what: str, caller: "Caller | None" = None) -> Iterator[None]:
    """Raise errors of the transport as an RpcError of type TransportError, and mark the connection as broken."""
    try:
        yield
    except VgiError as error:
        if caller is not None:
            caller.broken = True
        raise RpcError("TransportError", f"{what}: {error}", "") from error
    except RpcError:
        raise
    except BaseException:
        # For example a signal in the middle of a call, which leaves the connection in an unknown state.
        if caller is not None:
            caller.broken = True
        raise


class Session:
    """The client's end of a stream, over any transport."""

    def __init__(
        self,
        stream: Any,
        header_type: type[ArrowSerializableDataclass] | None = None,
        ipc_validation: IpcValidation = IpcValidation.FULL,
        caller: "Caller | None" = None,
    ) -> None:
        """Wrap the core's stream; proxies call this for streaming methods."""
        self._stream = stream
        self._caller = caller
        self._header_type = header_type
        self._header: object | None = None
        # It arrived when the stream was opened, and can be read after its end.
        opened = header_type is not None and not isinstance(stream, _Failed)
        self._header_batch: pa.RecordBatch | None = stream.header() if opened else None
        self._validation = ipc_validation
        self._closed = False

    def __enter__(self) -> Self:
        """Return this session."""
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        """Close the session."""
        self.close()

    def __iter__(self) -> Iterator[AnnotatedBatch]:
        """Yield the batches of a producer."""
        while True:
            try:
                yield self._next()
            except StopIteration:
                return

    @property
    def header(self) -> object | None:
        """The header, which precedes all batches; None for a stream that declares none.

        It can also be read after the end of the stream.
        """
        if self._header is None and self._header_type is not None:
            batch = self._header_batch
            if batch is None:
                # The stream could not be opened: this raises why.
                self._check_open()
                with self._use("the header"):
                    batch = self._stream.header()
            self._header = None if batch is None else self._header_type.deserialize_from_batch(batch)
            self._header_batch = None
        return self._header

    def typed_header(self, header_type: type[H]) -> H:
        """Return the header; raise TypeError if it is missing or not an instance of ``header_type``."""
        header = self.header
        if not isinstance(header, header_type):
            given = "no header" if header is None else f"a header of type {type(header).__name__}"
            raise TypeError(f"the stream has {given} (expected {header_type.__name__})")
        return header

    def _next(self) -> AnnotatedBatch:
        self._check_open()
        with self._use("tick"):
            item = self._stream.tick()
        if item is None:
            self._closed = True
            self._leave()
            raise StopIteration
        return self._given(item)

    def exchange(self, input: AnnotatedBatch) -> AnnotatedBatch:  # noqa: A002
        """Send a batch and return the answer.

        Raises:
            RpcError: If the method raised, the stream has ended, or the connection failed.
        """
        self._check_open()
        with self._use("exchange"):
            item = self._stream.exchange(input.batch, as_bytes(input.custom_metadata))
            if item is None:
                raise RpcError("ProtocolError", "Stream has finished: it accepts no more input", "")
            return self._given(item)

    def cancel(self) -> None:
        """Cancel the stream; the server calls ``on_cancel`` of the stream's state."""
        if not self._closed:
            self._closed = True
            with transport_errors("cancel", self._caller):
                self._leave().cancel()

    def close(self) -> None:
        """End the stream, which frees the connection for the next call."""
        if not self._closed:
            self._closed = True
            with transport_errors("close", self._caller):
                self._leave().close()

    def _leave(self) -> Any:
        """Release and return the core's stream, which holds the connection open."""
        stream, self._stream = self._stream, None
        return stream

    @contextlib.contextmanager
    def _use(self, what: str) -> Iterator[None]:
        try:
            with transport_errors(what, self._caller):
                yield
        except RpcError:
            # The stream has ended; the core has made the connection ready for the next call.
            self._closed = True
            self._leave()
            raise

    def _given(self, item: tuple[pa.RecordBatch, dict[bytes, bytes] | None]) -> AnnotatedBatch:
        validate_batch(item[0], self._validation)
        return annotated(*item)

    def _check_open(self) -> None:
        if self._closed:
            raise RpcError("ProtocolError", "Stream has been closed or cancelled", "")


class StreamSession(Session):
    """The client's end of a stream: iterate over a producer, or call ``exchange``.

    Calling a streaming method returns a session, which closes at the end of its ``with`` block. ``ProducerState`` and
    ``ExchangeState`` have examples.
    """

    def tick(self) -> AnnotatedBatch:
        """Return the next batch of a producer; raise StopIteration after the last one."""
        return self._next()


class _Failed:
    """A stream that failed to open: each use of it raises the error."""

    def __init__(self, error: RpcError) -> None:
        self._error = error

    def _raise(self, *_: object) -> NoReturn:
        raise self._error

    header = tick = exchange = _raise

    def _rest(self) -> None:
        """Do nothing, because there is no stream to end."""

    cancel = close = _rest


class Caller:
    """The caller behind a proxy: it calls the methods of one service through one client of the core."""

    def __init__(
        self,
        protocol: type,
        client: Any,
        values: dict[str, Values],
        ipc_validation: IpcValidation,
        session: type[Session] = StreamSession,
    ) -> None:
        self.protocol, self.client = protocol, client
        self._values, self._validation, self._session = values, ipc_validation, session
        self._open: Session | None = None
        self.broken = False
        """Whether the transport failed, which makes the connection unusable."""

    def call(self, name: str, keywords: dict[str, Any]) -> Any:
        """Call a method, and return its result or the session of its stream."""
        if self.client is None:
            raise RpcError("ProtocolError", "the connection is closed", "")
        values = self._values[name]
        arguments = values.encode_arguments(keywords)
        self.settle()
        metadata = trace_context()
        with transport_errors(f"{name}()", self):
            if values.info.method_type is MethodType.UNARY:
                return values.decode_result(self.client.call(name, arguments, metadata))
            try:
                stream = self.client.open(name, arguments, metadata)
            except RpcError as error:
                if self._session is not StreamSession:
                    raise
                # Opening a stream with a header reports its failure immediately. Defer it to the first use of the
                # stream, where streams without a header report theirs.
                stream = _Failed(error)
        self._open = self._session(stream, values.info.header_type, self._validation, self)
        return self._open

    def settle(self) -> None:
        """Close the stream that was left open, because a connection carries one call at a time."""
        left, self._open = self._open, None
        # A broken connection cannot carry the end of the stream.
        if left is not None and not self.broken:
            left.close()

    def names(self) -> frozenset[str]:
        """Return the names of the methods."""
        return frozenset(self._values)


def trace_context() -> dict[bytes, bytes] | None:
    """Return the current OpenTelemetry trace context as metadata; None if there is none."""
    # A program that traces has imported it; any other is spared the import.
    if "opentelemetry.trace" not in sys.modules:
        return None
    from opentelemetry import propagate

    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    found = {key.encode(): carrier[key].encode() for key in ("traceparent", "tracestate") if key in carrier}
    return found or None


class _Proxy:
    """A proxy with the methods of a service, each of which makes a call over the wire."""

    def __init__(self, caller: Caller, transport: RpcTransport | None) -> None:
        self._caller = caller
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        caller = self._caller
        if name not in caller.names():
            raise AttributeError(f"{caller.protocol.__name__} has no RPC method {name!r}")

        def method(**keywords: Any) -> Any:
            return caller.call(name, keywords)

        method.__name__ = name
        # The next lookup skips __getattr__.
        self.__dict__[name] = method
        return method

    def __repr__(self) -> str:
        return f"<proxy of {self._caller.protocol.__name__}>"


class RpcConnection(Generic[P]):
    """A client of a service over a transport: ``with RpcConnection(Service, transport) as service``.

    The transport stays open at the end of the block: closing it is up to its creator. ``RpcServer`` has an example of
    both ends.
    """

    def __init__(
        self,
        protocol: type[P],
        transport: RpcTransport,
        on_log: OnLog | None = None,
        *,
        external_location: "ExternalConfig | None" = None,
        ipc_validation: IpcValidation = IpcValidation.FULL,
    ) -> None:
        """Connect to the service at the other end of a transport.

        Args:
            protocol: The service, a ``typing.Protocol``.
            transport: The transport to the server.
            on_log: Called with each log message of the server; by default they are dropped.
            external_location: How to fetch batches that the server put into an object store; by default their
                pointers are returned as they are.
            ipc_validation: How thoroughly to check the batches of streams.
        """
        self._transport = transport
        values = dict(method_values(rpc_methods(protocol)))
        client = _core.VgiClient(
            core_protocol(protocol.__name__, values),
            *endpoints(transport),
            **beside(transport),
            on_log=on_log_adapter(on_log),
            external=core_external(external_location),
        )
        self._caller = Caller(protocol, client, values, ipc_validation)

    def __enter__(self) -> P:
        """Return a proxy with the service's methods, which accept keyword arguments only."""
        return cast(P, _Proxy(self._caller, self._transport))

    @property
    def usable(self) -> bool:
        """Whether the connection works: no call has failed in its transport so far."""
        return not self._caller.broken

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        """Close a stream that is still open, and release the connection."""
        # The peer may be gone, which no longer matters.
        with contextlib.suppress(RpcError):
            self._caller.settle()
        # The core has descriptors of its own, which hold the connection open.
        self._caller.client = None


def proxy(caller: Caller, transport: RpcTransport | None = None) -> Any:
    """Return a proxy with the caller's methods."""
    return _Proxy(caller, transport)
