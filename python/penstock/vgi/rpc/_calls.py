"""The execution of calls on the server: methods, streams and log messages."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock import _core
from penstock.errors import VgiError
from penstock.vgi.log import Message
from penstock.vgi.rpc._access import Watch, watching
from penstock.vgi.rpc._batches import AnnotatedBatch, OutputCollector, fit
from penstock.vgi.rpc._common import AuthContext, CallContext, MethodType, RpcError
from penstock.vgi.rpc._methods import Values
from penstock.vgi.rpc._types import Stream, StreamState

if TYPE_CHECKING:
    from penstock.vgi.rpc._server import RpcServer

__all__ = ["Invocation", "PipeCalls", "annotated", "as_bytes", "fail", "step"]

AnyCall = Any
"""A VgiCall or a VgiHttpCall of the core, whose interfaces are the same here."""


def as_bytes(metadata: Any) -> dict[bytes, bytes] | None:
    """Convert metadata for the core."""
    return None if metadata is None else dict(metadata)


def annotated(batch: pa.RecordBatch, metadata: Mapping[bytes, bytes] | None) -> AnnotatedBatch:
    """Convert a batch of the core for methods and callers."""
    return AnnotatedBatch(batch, pa.KeyValueMetadata(metadata) if metadata else None)


def fail(call: AnyCall, kind: str, error: BaseException) -> None:
    """Answer a call with an error."""
    said = Message.from_exception(error)
    call.fail(kind, type(error).__name__, said.message, said.extra_json())


def send_log(call: AnyCall) -> Callable[[Message], None]:
    """Return the function that sends log messages before the answer of a call."""
    return lambda message: call.log(message.level.value, message.message, message.extra_json())


class Invocation:
    """One call of one method, with its arguments, its context and its observer."""

    __slots__ = ("auth", "before_answer", "call", "ctx", "server", "values", "watch")

    def __init__(
        self,
        server: "RpcServer",
        call: AnyCall,
        auth: AuthContext,
        transport: Mapping[str, Any] | None = None,
    ) -> None:
        self.server, self.call, self.auth = server, call, auth
        self.values: Values = server.values[call.method]
        self.ctx: CallContext | None = None
        self.before_answer: Callable[[], object] | None = None
        if self.values.info.method_type is MethodType.STREAM or call.method in server.ctx_methods:
            self.ctx = CallContext(
                auth,
                send_log(call),
                transport,
                server_id=server.server_id,
                method_name=call.method,
                protocol_name=server.protocol_name,
            )
            self.ctx._request_id = call.request_id
        self.watch: Watch | None = watching(server, self.values.info, call, auth, transport)

    def invoke(self, keywords: dict[str, Any]) -> Any:
        """Call the method."""
        if self.call.method in self.server.ctx_methods:
            keywords["ctx"] = self.ctx
        return getattr(self.server.implementation, self.call.method)(**keywords)

    def keywords(self) -> dict[str, Any] | None:
        """Return the arguments of the method; answer with an error and return None if they do not fit."""
        try:
            return self.values.keywords(self.call.values)
        except Exception as error:  # noqa: BLE001 -- any exception of a codec means an invalid value of the caller
            self.failed("params", error)
            return None

    def failed(self, kind: str, error: BaseException) -> None:
        """Answer the call with an error."""
        if self.watch is not None:
            self.watch.failed(error)
        if self.before_answer is not None:
            self.before_answer()
        fail(self.call, kind, error)

    def unary(self) -> None:
        """Run a unary method and answer with its result or its exception."""
        keywords = self.keywords()
        if keywords is None:
            return
        try:
            value = self.values.encode_result(self.invoke(keywords))
        except Exception as error:  # noqa: BLE001 -- every exception of a method goes to its caller
            self.failed("method", error)
            return
        if self.before_answer is not None:
            self.before_answer()
        try:
            self.call.reply(value)
        except VgiError:
            raise
        except (TypeError, ValueError, OverflowError) as error:
            # A plain value of another type than the method declares: nothing of the answer was written yet.
            self.failed("method", error)
            return
        if self.watch is not None:
            self.watch.answered(value)

    def open(self) -> "Stream[StreamState, Any] | None":
        """Run a streaming method and return its stream; answer with an error and return None if it fails."""
        keywords = self.keywords()
        if keywords is None:
            return None
        try:
            stream = self.invoke(keywords)
            if not isinstance(stream, Stream):
                raise TypeError(f"{self.call.method}() returned {type(stream).__name__}, not a Stream")
            self.header(stream)
        except Exception as error:  # noqa: BLE001 -- every exception of a method goes to its caller
            self.failed("method", error)
            return None
        return stream

    def header(self, stream: "Stream[StreamState, Any]") -> pa.RecordBatch | None:
        """Return a stream's header as a batch; raise TypeError if it is not what the protocol declares."""
        declared, given = self.values.info.header_type, stream.header
        if declared is None:
            return None
        if given is None:
            raise TypeError(
                f"{self.call.method}() declares a header {declared.__name__}, but returned a stream without one"
            )
        batch: pa.RecordBatch = given._to_batch()
        return fit(batch, declared.ARROW_SCHEMA)

    def done(self) -> None:
        """Report the end of the call to its observer."""
        if self.watch is not None:
            self.watch.done()


def step(state: StreamState, item: AnnotatedBatch, out: OutputCollector, ctx: CallContext) -> None:
    """Run one step of a stream, and check that it emitted a batch or finished."""
    ctx.emit_client_log = out.emit_client_log_message
    state.process(item, out, ctx)
    out.validate()


class PipeCalls:
    """The handler of the calls of one connection, one after the other."""

    def __init__(self, server: "RpcServer", connection: "_core.VgiConnection") -> None:
        self._server = server
        self._connection = connection

    def serve_one(self) -> bool:
        """Answer the next call; return False at the end of the connection."""
        call = self._connection.next()
        if call is None:
            return False
        invocation = Invocation(self._server, call, AuthContext.anonymous())
        try:
            if invocation.values.info.method_type is MethodType.UNARY:
                invocation.unary()
            else:
                self._stream(invocation)
        finally:
            invocation.done()
        return True

    def _stream(self, invocation: Invocation) -> None:
        stream = invocation.open()
        if stream is None:
            return
        call, ctx, watch = invocation.call, invocation.ctx, invocation.watch
        assert ctx is not None  # noqa: S101 -- every stream has one
        producer = len(stream.input_schema) == 0 and invocation.values.info.is_exchange is not True
        try:
            call.open(stream.output_schema, stream.input_schema, invocation.header(stream))
        except RpcError as error:
            invocation.failed("method", error)
            return
        while (item := call.read()) is not None:
            given = annotated(*item)
            out = OutputCollector(stream.output_schema, producer_mode=producer)
            try:
                step(stream.state, given, out, ctx)
            except Exception as error:  # noqa: BLE001 -- every exception of a method goes to its caller
                # An input has one answer: a batch of the failed step would hide the error until the next input.
                self._say(call, [entry for entry in out.entries if isinstance(entry, Message)])
                invocation.failed("method", error)
                return
            if watch is not None:
                watch.stepped(given, out)
            try:
                self._say(call, out.entries)
            except RpcError as error:
                # The external storage failed: nothing of the batch was written.
                invocation.failed("method", error)
                return
            if out.finished:
                call.finish()
                return
        # The caller has ended the stream, and waits until the server does.
        call.finish()
        if call.cancelled:
            self._cancel(stream.state, invocation)

    @staticmethod
    def _say(call: "_core.VgiCall", entries: Sequence[Message | AnnotatedBatch]) -> None:
        for entry in entries:
            if isinstance(entry, Message):
                call.log(entry.level.value, entry.message, entry.extra_json())
            else:
                call.emit(entry.batch, as_bytes(entry.custom_metadata))

    @staticmethod
    def _cancel(state: StreamState, invocation: Invocation) -> None:
        assert invocation.ctx is not None  # noqa: S101 -- every stream has one
        # The caller no longer reads log messages.
        invocation.ctx.emit_client_log = lambda _message: None
        try:
            state.on_cancel(invocation.ctx)
        except Exception as error:  # noqa: BLE001 -- the caller has gone, so only the log can report it
            invocation.ctx.logger.warning("on_cancel of %s failed: %s", invocation.call.method, error)
